"""Where the members of one replica meet: a room of the gathering for each life of the replica.

    workers 2 3         life 0     they train
    worker 3 is lost               worker 2 falls with it: both are started again
    workers 2 3         life 2     another room: nothing that was said in the first is heard there

A life's number is how often members of the replica were lost so far. All read that in the same
rosters, so those who find the same number mean the same processes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from windlass.core.errors import MemberLost
from windlass.train.comm.meeting import Meeting
from windlass.train.failures import lost
from windlass.train.seat import Seat

_SLICE_SECONDS = 1.0
_LEAST_SECONDS = 60.0
"""A process that is started again takes its time."""


@dataclass(frozen=True)
class Room:
    meeting: Meeting
    life: int
    since: int
    """A roster of the gang in which all of the replica are there."""

    def close(self) -> None:
        self.meeting.leave()


def enter(seat: Seat) -> Room:
    """When all of the replica that `seat` is in have come. Raises MemberLost with those that do
    not, or with this one where the training is over."""
    names, base = seat.group_of(seat.rank), seat.meeting
    ends = time.monotonic() + max(_LEAST_SECONDS, 2 * seat.deadline_seconds)
    base.wait_for([seat.name], operation="joining", step=None, deadline_seconds=_LEAST_SECONDS)
    while True:
        life = _life(seat, names)
        room = f"{base.room}/{base.scope}replica of {names[0]}, life {life}"
        meeting = Meeting(base.address, seat.name, base.secret, room=room)
        try:
            while _life(seat, names) == life:
                if _wait(meeting, names, ends) and _wait(base, names, ends):
                    roster = base.roster
                    if _life(seat, names) == life:
                        _fall_together(base, meeting)
                        return Room(meeting, life, roster.epoch)
                _check_not_over(seat, names)
        except BaseException:
            meeting.leave()
            raise
        meeting.leave()


def _life(seat: Seat, names: list[str]) -> int:
    return sum(name in names for name in seat.meeting.roster.fell)


def _wait(meeting: Meeting, names: list[str], ends: float) -> bool:
    """Whether all are there, within a moment. Raises MemberLost past the end."""
    try:
        meeting.wait_for(
            names, operation="meeting of the replica", step=None, deadline_seconds=_SLICE_SECONDS
        )
    except MemberLost:
        if time.monotonic() > ends or meeting.is_out:
            raise
        return False
    return True


def _check_not_over(seat: Seat, names: list[str]) -> None:
    roster = seat.meeting.roster
    others = {f"worker {n}" for n in range(seat.workers)} - set(names)
    if others & roster.left and not others & roster.present:
        raise lost([seat.name], "coming back", None, why="the others are done")


def _fall_together(base: Meeting, room: Meeting) -> None:
    """Whom the gang has lost is lost to its replica too."""
    base.on_change(lambda _: room.fall() if base.is_out else None)
