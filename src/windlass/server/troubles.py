"""What the loops cannot handle, object by object: told, put off, and tried again.

    handling one object ──an exception──► a trouble: which object, how often, since when, why
                                          1 s, 2 s, 4 s … until the next try; the others go on
                        ──well───────────► the trouble is over

One `Troubles` for a server. `status` and `/health` show it; the log has a line when a trouble
begins, when it changes its words and when it is over, not for each try.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from windlass.core.errors import Fenced, Unavailable, UnlawfulMove, WindlassError
from windlass.core.explain import one_line
from windlass.server.clock import Clock, SystemClock, stamp

log = logging.getLogger("windlass.troubles")

FIRST_MS = 1_000
MOST_MS = 60_000
KEPT = 1_000
"""So many are remembered; of more, the oldest are told of no longer."""
HANGS_MS = 120_000
"""A turn of scheduling is over long before."""
BEGIN = "beginning to lead"
TURN = ""
"""In place of an object: the whole turn of a loop."""


@dataclass(frozen=True)
class Trouble:
    loop: str
    object: str
    times: int
    since_ms: int
    last_ms: int
    again_ms: int
    error: str


class Troubles:
    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._known: dict[tuple[str, str], Trouble] = {}
        self._turning: dict[str, int] = {}

    def of(self, loop: str) -> Handling:
        return Handling(self, loop)

    def all(self) -> list[Trouble]:
        """Those that go on, the oldest first."""
        now = self._clock.now_ms()
        # Not tried again for long after its time: the object is gone, or another server's.
        old = [key for key, each in self._known.items() if now > each.again_ms + 2 * MOST_MS]
        for key in old:
            del self._known[key]
        return sorted(self._known.values(), key=lambda each: each.since_ms)

    def may(self, loop: str, object: str) -> bool:
        known = self._known.get((loop, object))
        return known is None or self._clock.now_ms() >= known.again_ms

    def failed(self, loop: str, object: str, error: BaseException, most_ms: int = MOST_MS) -> int:
        """The milliseconds until it may be tried again."""
        now, words = self._clock.now_ms(), _words(error)
        old = self._known.get((loop, object)) or Trouble(loop, object, 0, now, now, now, "")
        wait = min(most_ms, FIRST_MS << min(old.times, 10))
        new = replace(old, times=old.times + 1, last_ms=now, again_ms=now + wait, error=words)
        self._known[loop, object] = new
        if len(self._known) > KEPT:
            del self._known[next(iter(self._known))]
        if words != old.error:
            expected = isinstance(error, WindlassError) and not isinstance(error, UnlawfulMove)
            log.warning(
                "%s fails on %s, and tries again: %s", loop, object or "its whole turn", words,
                exc_info=None if expected else error,
            )  # fmt: skip
        return wait

    def well(self, loop: str, object: str) -> None:
        if (known := self._known.pop((loop, object), None)) is not None:
            log.info("%s: %s goes on, after %s failures", loop, object or "it", known.times)

    def forget(self) -> None:
        """The loops stopped; who leads now finds its own. What kept them from beginning stays."""
        self._turning.clear()
        for key in [key for key in self._known if key[0] != BEGIN]:
            del self._known[key]

    def begins(self, loop: str) -> None:
        """A turn of this loop; `ends` when it has, well or not."""
        self._turning[loop] = self._clock.now_ms()

    def ends(self, loop: str) -> None:
        self._turning.pop(loop, None)

    def dead(self, loops: Collection[str]) -> list[str]:
        """In words, which of these loops do not turn: whole turns fail, or one does not end."""
        now = self._clock.now_ms()
        words = [
            f"{each.loop} has failed {each.times} times since {stamp(each.since_ms)}"
            for each in self.all()
            if each.object == TURN and each.loop in loops and each.times > 1
        ]
        return words + [
            f"{loop} hangs in a turn since {stamp(began)}"
            for loop, began in sorted(self._turning.items())
            if loop in loops and now - began > HANGS_MS
        ]


class Handling:
    """One loop's way to its troubles."""

    def __init__(self, troubles: Troubles, loop: str) -> None:
        self._troubles = troubles
        self._loop = loop

    def may(self, object: str) -> bool:
        """Whether it may be tried: it has no trouble, or has waited long enough."""
        return self._troubles.may(self._loop, object)

    def failed(self, object: str, error: BaseException) -> int:
        """The milliseconds until it may be tried again."""
        return self._troubles.failed(self._loop, object, error)

    def waits(self, object: str, error: BaseException) -> None:
        """What it needs is away: it is told of, and may be tried again at any time."""
        self._troubles.failed(self._loop, object, error, 0)

    def failing(self) -> list[str]:
        """The objects that have a trouble here."""
        return [each.object for each in self._troubles.all() if each.loop == self._loop]

    def well(self, object: str) -> None:
        self._troubles.well(self._loop, object)

    @contextmanager
    def of(self, object: str) -> Iterator[None]:
        """What is done here fails for this object alone; what concerns all goes through."""
        try:
            yield
        except (Fenced, Unavailable):
            raise
        except Exception as err:
            self.failed(object, err)
        else:
            self.well(object)


def _words(error: BaseException) -> str:
    words = str(error) if isinstance(error, WindlassError) else f"{type(error).__name__}: {error}"
    return one_line(words)[:500]
