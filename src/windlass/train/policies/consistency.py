"""When a pull may return and what a push does: the one difference between the server's strategies.

            a pull returns                        a push
async       at once                               is applied at once
scaled      at once                               at once, its rate divided by max(1, staleness)
softsync    when this worker's last push is in    waits for s of them; their mean is applied once
ssp         while min clock >= clock - s          at once, its rate divided by the workers; with
                                                  s = 0 a clock's pushes are applied together
delta       as softsync or async                  is added as it is (elastic averaging)

Where pushes are applied at once, a single pull may have a rule of its own (`delay_of`).

Pure: events in, decisions out, no clock and no socket, so that a copy of a server that is told the
same events comes to the same state, and a log can be replayed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from windlass.core.errors import InvalidInput

Consistency = Literal["sequential", "eventual"] | int
"""Of one pull: after all that the others did in the clocks before; whatever is there; or at most
so many clocks behind (a bounded delay)."""
EVER = 1 << 53


def delay_of(consistency: Consistency) -> int:
    """In clocks: what a worker at clock c reads has all updates of clocks up to c - delay - 1.
    Raises InvalidInput."""
    if consistency == "sequential":
        return 0
    if consistency == "eventual":
        return EVER
    if isinstance(consistency, int) and not isinstance(consistency, bool) and consistency >= 0:
        return consistency
    raise InvalidInput(
        "consistency: 'sequential', 'eventual', or a number of steps, 0 or more "
        f"(found {consistency!r})"
    )


@dataclass(frozen=True, slots=True)
class Push:
    """`number` is the worker's own count of pushes, from 1; `version` what it had read."""

    worker: int
    number: int
    version: int


@dataclass(frozen=True, slots=True)
class Apply:
    """One step with the mean of these; the learning rate times `factor`."""

    pushes: tuple[Push, ...]
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class Drop:
    push: Push


Decision = Apply | Drop


@dataclass
class Policy:
    """`async`, and what the others have in common: who takes part, and how far each is."""

    clocks: dict[int, int] = field(default_factory=dict)
    """Of those that take part: how many pushes each has made."""
    finished: set[int] = field(default_factory=set)
    pending: list[Push] = field(default_factory=list)

    # -- events -----------------------------------------------------------------------------

    def push(self, push: Push, version: int) -> list[Decision]:
        """`version` is what the server has now."""
        self.clocks[push.worker] = self.clocks.get(push.worker, 0) + 1
        return self._decide(push, version)

    def joins(self, worker: int) -> int:
        """Its clock: the least of those at work, so that nobody waits for a past it never had."""
        self.finished.discard(worker)
        if worker not in self.clocks:
            # What it pushed before it was lost, and is still kept, is its part of that clock.
            kept = any(each.worker == worker for each in self.pending)
            slowest = min((self.clocks[each] for each in self.at_work), default=0)
            self.clocks[worker] = slowest + int(kept)
        return self.clocks[worker]

    def loses(self, worker: int, version: int) -> list[Decision]:
        """It leaves at once: nobody waits for it any more. What it has pushed counts."""
        self.clocks.pop(worker, None)
        self.finished.discard(worker)
        return self._settle(version)

    def finishes(self, worker: int, version: int) -> list[Decision]:
        """It has no more data."""
        if worker in self.clocks:
            self.finished.add(worker)
        return self._settle(version)

    # -- questions --------------------------------------------------------------------------

    @property
    def applies_at_once(self) -> bool:
        """So that a pull may choose what it waits for; else the rule of all holds for each."""
        return True

    def may_pull(self, worker: int, delay: int | None = None) -> bool:
        """By the strategy's rule, or by that of this one pull."""
        return not self.waited_for(worker, delay)

    def waited_for(self, worker: int, delay: int | None = None) -> list[int]:
        """Whom a pull that may not return waits for."""
        return [] if delay is None else self.behind(worker, delay)

    def behind(self, worker: int, delay: int) -> list[int]:
        """Who has not done all clocks up to this worker's less the delay. Never the slowest's."""
        clock = self.clocks.get(worker, 0)
        return [other for other in self.at_work if self.clocks[other] < clock - delay]

    @property
    def at_work(self) -> list[int]:
        return sorted(w for w in self.clocks if w not in self.finished)

    def state(self) -> dict[str, Any]:
        return {
            "clocks": sorted(self.clocks.items()),
            "finished": sorted(self.finished),
            "pending": [[each.worker, each.number, each.version] for each in self.pending],
        }

    def load(self, state: dict[str, Any]) -> None:
        self.clocks = {int(worker): int(clock) for worker, clock in state["clocks"]}
        self.finished = set(state["finished"])
        self.pending = [Push(*each) for each in state["pending"]]

    # -- what each decides ------------------------------------------------------------------

    def _decide(self, push: Push, version: int) -> list[Decision]:
        return [Apply((push,))]

    def _settle(self, version: int) -> list[Decision]:
        """Somebody is not waited for any more."""
        return []


@dataclass
class Scaled(Policy):
    def _decide(self, push: Push, version: int) -> list[Decision]:
        return [Apply((push,), 1.0 / max(1, version - push.version))]


@dataclass
class Softsync(Policy):
    """`distinct`: a worker fills one place of a group, and reads again when its group is applied;
    so `s` = all workers is synchronous. `drop_late`: what was computed on an older version than
    the newest is not used, so the slowest are spares (backup workers)."""

    s: int = 1
    distinct: bool = True
    drop_late: bool = False

    @property
    def applies_at_once(self) -> bool:
        return False

    def may_pull(self, worker: int, delay: int | None = None) -> bool:
        return not self.distinct or all(each.worker != worker for each in self.pending)

    def waited_for(self, worker: int, delay: int | None = None) -> list[int]:
        placed = {each.worker for each in self.pending}
        return [each for each in self.at_work if each not in placed]

    def _decide(self, push: Push, version: int) -> list[Decision]:
        if self.drop_late and push.version < version:
            return [Drop(push)]
        self.pending.append(push)
        return self._settle(version)

    def _settle(self, version: int) -> list[Decision]:
        # Those that are gone or done fill no place; what they have pushed already does.
        able = {*self.at_work, *(each.worker for each in self.pending)}
        needed = max(1, min(self.s, len(able) if self.distinct else self.s))
        if not self.at_work and self.pending:
            needed = min(needed, len(self.pending))
        found: list[Decision] = []
        while len(self.pending) >= needed:
            group, self.pending = self.pending[:needed], self.pending[needed:]
            # In the workers' order: the sum is then the same whoever came first.
            found.append(Apply(tuple(sorted(group, key=lambda each: (each.worker, each.number)))))
            if not self.at_work and self.pending:
                needed = min(needed, len(self.pending))
        return found


@dataclass
class Ssp(Policy):
    """A worker at clock c reads all updates of clocks up to c-s-1; later ones may be there. With
    s = 0 they may not: the pushes of a clock are kept and applied together, when all are in."""

    s: int = 0

    @property
    def applies_at_once(self) -> bool:
        return self.s > 0

    def waited_for(self, worker: int, delay: int | None = None) -> list[int]:
        return self.behind(worker, self.s if delay is None or self.s == 0 else delay)

    def _decide(self, push: Push, version: int) -> list[Decision]:
        if self.s > 0:
            return [Apply((push,), 1.0 / max(1, len(self.clocks)))]
        self.pending.append(push)
        return self._settle(version)

    def _settle(self, version: int) -> list[Decision]:
        # In a clock each has one push pending at most: it may not read before the clock is over.
        placed = {each.worker for each in self.pending}
        if self.s > 0 or not self.pending or not placed.issuperset(self.at_work):
            return []
        group, self.pending = self.pending, []
        return [Apply(tuple(sorted(group, key=lambda each: each.worker)))]
