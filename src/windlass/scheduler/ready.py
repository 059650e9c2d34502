"""Is what was planned for a job there when its time has come?

It is not where somebody runs late. What is free on such a node may then be another's: of one that
was planned before, or for whose sake others are told to end.
"""

from __future__ import annotations

from collections.abc import Collection

from windlass.scheduler.columns import DEVICE, Ints
from windlass.scheduler.events import NEVER
from windlass.scheduler.nearby import Local
from windlass.scheduler.nodes import Nodes
from windlass.scheduler.reserve import Reservation, Reservations
from windlass.scheduler.running import Running


class Ready:
    """One question, for a job whose time has come."""

    def __init__(
        self,
        kept: Reservations,
        nodes: Nodes,
        running: Running,
        now_ms: int,
        passed: Collection[Reservation],
    ) -> None:
        """`passed`: what is kept for these is not in its way."""
        self._kept = kept
        self._nodes = nodes
        self._running = running
        self._now_ms = now_ms
        self._passed = passed

    def all_of(self, own: Reservation) -> bool:
        """Whether all that was planned for it is there."""
        return all(self._on(own, name) for name in own.names)

    def with_its_own(self, own: Reservation, limit: Ints) -> Ints:
        """The same limit of members for the job itself: on nodes that are ready, what is kept for
        it is its own. Not so for shares of devices, of which one is not as good as another."""
        if own.entry.shares:
            return limit
        limit = limit.copy()
        for name, row in own.names.items():
            if self._on(own, name):
                at = own.nodes[row]
                limit[at] = max(int(limit[at]), own.mine(name))
        return limit

    def _on(self, own: Reservation, name: str) -> bool:
        """Of what is free, and beside what was planned before, now and when that starts. Those
        that were planned later counted it in."""
        if not _fits(own, name, Local(self._nodes.now, self._nodes.index[name])):
            return False  # what others leave for another is not there yet
        end_ms = own.entry.end_if_started(self._now_ms)
        before = [
            other
            for other in self._kept.on[name]
            if (other.serial < own.serial or self._all_left_for(other))
            and other is not own
            and other not in self._passed
            and other not in own.uses
        ]
        due = [k for k in before if k.start_ms <= self._now_ms or k.start_ms >= NEVER]
        if not _fits(own, name, self._without(due, name, self._now_ms)):
            return False
        return all(
            _fits(own, name, self._without(before, name, other.start_ms))
            for other in before
            if other not in due and other.binds(end_ms)
        )

    def _all_left_for(self, other: Reservation) -> bool:
        """All that were told to end for it have: what is free of theirs is its own."""
        if not other.claim or other.start_ms >= NEVER:
            return False
        name = other.entry.told.job_id
        return all(leaving.beneficiary != name for leaving in self._running.leaving.values())

    def _without(self, others: Collection[Reservation], name: str, when_ms: int) -> Local:
        """What the node has free then, with what is kept for these taken."""
        free = Local(self._nodes.now, self._nodes.index[name])
        for ending in self._running.by_end() if when_ms > self._now_ms else ():
            if ending.ends_ms > when_ms:
                break
            needs = {need.role: need for need in ending.told.needs}
            for seat in ending.seats:
                if seat.node == name:
                    free.move(needs[seat.role], seat, 1)
        for other in others:
            self._take(other, name, free)
        return free

    def _take(self, other: Reservation, name: str, free: Local) -> None:
        """Its time has come too: what is free is its own, and what they hold who leave for it."""
        for leaving in self._running.leaving.values() if other.start_ms <= self._now_ms else ():
            if leaving.beneficiary == other.entry.told.job_id:
                needs = {need.role: need for need in leaving.told.needs}
                for seat in leaving.seats:
                    if seat.node == name:
                        free.move(needs[seat.role], seat, 1)
        for need, seat in other.at(name):
            free.move(need, seat, -1)


def _fits(own: Reservation, name: str, free: Local) -> bool:
    """Whether there is enough of all that it asks for; of the rest there may be too little."""
    whole = free.gpu.count(DEVICE)
    for need, seat in own.at(name):
        whole -= need.gpus
        if need.gpu_milli and free.gpu[seat.gpus[0]] < need.gpu_milli:
            return False
        free.move(need, seat, -1)
        if (
            (need.cpus_milli and free.cpus < 0)
            or (need.memory_bytes and free.memory < 0)
            or (need.slots and free.slots < 0)
            or (need.gpus and whole < 0)
        ):
            return False
    return True
