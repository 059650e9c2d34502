"""What was found not to fit is not tried again before something has changed that could help it.

A job that found no seats, for lack of room or because of what is kept for others, raises a bar for
its form: all that ask for the same and run at least as long find none either. Since then it can
only have been helped on nodes where something was given back or is no longer kept. These are in a
log; each bar remembers how far it has read, and how many members had room in all back then, so
that asking again costs a look at the few nodes that are new:

    holds(form)  ──►  for each node since:  bound += room there, under what is kept there
                      bound < members: it still holds
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from windlass.scheduler.events import NEVER
from windlass.scheduler.nodes import Form, Nodes
from windlass.scheduler.reserve import Reservation, Reservations

_LONGEST_LOG = 4096
_FEW_NODES = 256


class Bar:
    __slots__ = ("bound", "complete", "counted", "expected_ms", "mark")

    def __init__(
        self, mark: int, bound: int, expected_ms: int, counted: dict[int, int], *, complete: bool
    ) -> None:
        self.mark = mark
        """How far it has read the log."""
        self.bound = bound
        """At most so many members have room."""
        self.expected_ms = expected_ms
        """It is for jobs that run at least so long."""
        self.counted = counted
        """By node, what of the bound is there."""
        self.complete = complete
        """All of the bound is counted."""


class Bars:
    def __init__(self, nodes: Nodes, reservations: Reservations) -> None:
        self._nodes = nodes
        self._reservations = reservations
        self._log: list[int] = nodes.helped
        self._of: tuple[dict[Form, Bar], dict[Form, Bar]] = ({}, {})
        """For those that leave alone all that is kept; and for those that may pass promises."""
        self._kept: dict[Reservation, Bar] = {}
        self.cleared = 0
        """How often the log was begun anew."""

    def forget_read(self) -> None:
        """The log does not grow for ever."""
        if len(self._log) > _LONGEST_LOG:
            self.clear()

    def clear(self) -> None:
        self.cleared += 1
        self._log.clear()
        self._of[0].clear()
        self._of[1].clear()
        self._kept.clear()

    def holds(self, form: Form, expected_ms: int | None, now_ms: int, *, passing: bool) -> bool:
        """Whether such a job surely finds no seats now. `passing`: it may pass some promise."""
        bars = self._of[passing]
        bar = bars.get(form)
        if bar is None or (expected_ms is not None and expected_ms < bar.expected_ms):
            return False
        if bar.mark < len(self._log) and self._lifted(bar, form, now_ms, passing, None):
            del bars[form]
            return False
        return True

    def least(self, form: Form) -> int:
        """Those that run at least so long surely find no seats, as far as was last found out."""
        bar = self._of[False].get(form)
        return NEVER + 1 if bar is None else bar.expected_ms

    def put_up(self, form: Form, expected_ms: int | None, now_ms: int, *, passing: bool) -> None:
        """Such a job was found to have no seats now."""
        bar = self._bar(form, expected_ms, now_ms, passing, None)
        if bar is not None:
            self._of[passing][form] = bar

    def holds_for(self, kept: Reservation, now_ms: int, *, passing: bool) -> bool:
        """Whether the job with this reservation surely finds no seats now."""
        bar = self._kept.get(kept)
        if bar is None:
            return False
        if bar.mark < len(self._log) and self._lifted(bar, kept.entry.form, now_ms, passing, kept):
            del self._kept[kept]
            return False
        return True

    def put_up_for(self, kept: Reservation, now_ms: int, *, passing: bool) -> None:
        """The job with this reservation was found to have no seats now."""
        entry = kept.entry
        bar = self._bar(entry.form, entry.told.expected_ms, now_ms, passing, kept)
        if bar is not None:
            self._kept[kept] = bar

    def exchanged(self) -> None:
        """What is kept has changed hands."""
        self._kept.clear()

    def removed(self, kept: Reservation) -> None:
        """Nothing is kept there any more."""
        self._kept.pop(kept, None)
        self._log.extend(kept.nodes.tolist())

    def _lifted(
        self, bar: Bar, form: Form, now_ms: int, passing: bool, own: Reservation | None
    ) -> bool:
        if len(form.parts) > 1:
            return True
        fresh = dict.fromkeys(self._log[bar.mark :])
        bar.mark = len(self._log)
        counted = bar.counted
        end_ms = now_ms + bar.expected_ms
        for node, here in self._room_on(fresh, form, end_ms, passing, own):
            if here > counted.get(node, 0):
                bar.bound += here - counted.get(node, 0)
                counted[node] = here
        if bar.bound < form.members:
            return False
        if not bar.complete or form.members == 1:
            return True
        # Some of it may be gone by now.
        bar.counted = dict(self._room_on(counted, form, end_ms, passing, own))
        bar.bound = sum(bar.counted.values())
        return bar.bound >= form.members

    def _room_on(
        self, which: Iterable[int], form: Form, end_ms: int, passing: bool, own: Reservation | None
    ) -> Iterator[tuple[int, int]]:
        """Of these nodes those with room, and how much."""
        room, names = self._nodes.room_now(form), self._nodes.names
        on, most_at = self._reservations.on, self._reservations.most_at
        passed = self._passed(passing, own)
        for node in which:
            here = room(node)
            if here:
                name = names[node]
                if name in on:
                    most = most_at(form, name, end_ms, passed)
                    here = min(here, most if own is None else max(most, own.mine(name)))
                if here:
                    yield node, here

    def _bound(
        self, form: Form, end_ms: int, passing: bool, own: Reservation | None
    ) -> tuple[dict[int, int], bool]:
        """Where there is room now, and whether that is all."""
        if len(form.parts) > 1:
            return {}, False
        some = self._nodes.with_room(form)
        if len(some) < _FEW_NODES:
            return dict(self._room_on(some.tolist(), form, end_ms, passing, own)), True
        return {}, False

    def _bar(
        self, form: Form, expected_ms: int | None, now_ms: int, passing: bool,
        own: Reservation | None,
    ) -> Bar | None:  # fmt: skip
        expected = NEVER if expected_ms is None else expected_ms
        counted, complete = self._bound(form, now_ms + expected, passing, own)
        bound = sum(counted.values())
        if not complete or bound >= form.members:
            if passing:
                return None  # what it may not pass is in its way; another may pass more
            # Enough in all, but not in one place: any room that is new may help.
            return Bar(len(self._log), form.members - 1, expected, {}, complete=False)
        if form.members == 1 and own is None and not passing:
            expected = min(expected, self._longest(form, now_ms) + 1)
        return Bar(len(self._log), bound, expected, counted, complete=True)

    def _longest(self, form: Form, now_ms: int) -> int:
        """A single member that runs at most so long has a seat now; -1: none has."""
        names, until = self._nodes.names, self._reservations.until
        room = self._nodes.with_room(form).tolist()
        return max(max((until(form, names[node]) for node in room), default=-1) - now_ms, -1)

    def _passed(self, passing: bool, own: Reservation | None) -> list[Reservation]:
        passed = [] if own is None else self._reservations.own_and_drains_after(own)
        if passing:
            passed += [r for r in self._reservations.all.values() if not r.claim]
        return passed
