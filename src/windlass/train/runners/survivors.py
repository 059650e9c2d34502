"""A group of workers that goes on without those it loses."""

from __future__ import annotations

import logging

from windlass.core.errors import MemberLost
from windlass.train.comm.torchdist import WorkerGroup, form
from windlass.train.counters import Fault
from windlass.train.failures import lost
from windlass.train.seat import Seat

_log = logging.getLogger("windlass.train")


class Survivors:
    """The group of all workers, formed again without each that is lost. Nobody comes back."""

    def __init__(self, seat: Seat) -> None:
        self.seat = seat
        self.group: WorkerGroup = form(seat)

    def missing(self) -> list[str]:
        roster = self.seat.meeting.roster
        return [
            name for name in self.group.names
            if name in roster.lost or (name in roster.left and name != self.seat.name)
        ]  # fmt: skip

    def shrink(self, operation: str, step: int | None) -> None:
        """Form the group again without the missing. Raises MemberLost when it is this worker that
        was given up by the others (it had stopped, say), or when nobody is known to be missing."""
        before = self.group.names
        while True:
            gone, roster = self.missing(), self.seat.meeting.roster
            if not gone or self.seat.name not in roster.present:
                raise lost(gone, operation, step, why="; ".join(set(roster.lost.values())))
            names = [name for name in before if name not in self.missing()]
            self.group.close()
            try:
                ranks = [name.rpartition(" ")[2] for name in names]
                self.group = form(self.seat, names, label="survivors/" + "+".join(ranks))
            except MemberLost:
                if set(self.missing()) == set(gone):
                    raise
                continue  # one more was lost on the way
            break
        self.group.step = step
        for name in (name for name in before if name not in self.group.names):
            text = (
                f"{operation}: over {len(self.group.names)} of {len(before)} workers from now on"
            )
            self.seat.counters.survived(Fault("lost", name, step, text))
            _log.warning("%s lost at step %s; %s", name, step, text)

    def close(self) -> None:
        self.group.close()
