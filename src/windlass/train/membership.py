"""Who trains together now: generations of a gang whose members leave and come.

    base room         worker 0   worker 1   worker 2     processes: who lives, who was lost
    generation 1         0          1          2         ranks in a room of their own
    worker 1 is lost
    generation 2         0                     1
    worker 1 is started again
    generation 3         0          2          1         at a step that all agree on

A generation is a room of the gathering: nobody of another one is seen there, or heard. Who is in
it is decided once: by the first of those who were in the last one, from what everybody offers.
What is put first stays (`once`), so that there are never two groups of one generation. All who are
here always take part, also those for whom there is no place: nobody waits for one that skipped it.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from windlass.core.errors import MemberLost
from windlass.train.comm.meeting import Meeting, Roster
from windlass.train.counters import Fault
from windlass.train.failures import lost
from windlass.train.seat import Seat

_ROLE = "worker "
_SLICE_SECONDS = 1.0


@dataclass(frozen=True)
class Member:
    """A process of that name; of those that had it, the one before which `fell` were lost."""

    name: str
    fell: int


@dataclass(frozen=True)
class Generation:
    number: int
    members: tuple[Member, ...]
    """By their ranks: who has the newest state first, then who has been here longest."""
    has_state: bool
    """Whether the first of them holds a state to go on from."""


class Membership:
    """One worker's side. `seat` is that of the base room."""

    def __init__(
        self, seat: Seat, least: int, most: int, takes: Callable[[int], bool] = lambda _: True
    ) -> None:
        """`takes`: with how many a generation can be formed."""
        self._seat = seat
        self._base = seat.meeting
        self._least, self._most, self._takes = least, most, takes
        self._since: int | None = None
        self.is_over = False
        """Whether the others are done: they tell what came of it."""
        self._patience = max(60.0, 2 * seat.deadline_seconds)
        self.now = Generation(
            0, tuple(Member(f"{_ROLE}{n}", 0) for n in range(seat.workers)), False
        )
        self._base.wait_for([seat.name], operation="joining", step=None, deadline_seconds=30)
        self._me = Member(seat.name, self._base.roster.fell.count(seat.name))
        self._base.put("generation", b"0", once=True)
        if self._me.fell:  # it was lost, and came back
            number = int(self._get("generation", 30))
            if number:
                self.now = _read(number, self._get(f"generation/{number}", 30))

    @property
    def is_new(self) -> bool:
        """Whether this process was in no generation yet, though there are some."""
        return self._since is None and self.now.number > 0

    def waits(self) -> bool:
        """Whether somebody is here for whom there is a place, and who is in no generation."""
        here = {each.name for each in self.now.members}
        others = [n for n in self._base.roster.present if n.startswith(_ROLE) and n not in here]
        return self._size(len(here) + len(others)) > len(here)

    def next(self, steps: int | None) -> tuple[Generation, Seat]:
        """The next generation that this worker is in. `steps`: those of the state that it holds.
        Raises MemberLost when it was itself given up, or too few are left."""
        while True:
            self._check_here()
            self._check_over()
            number = self.now.number + 1
            offer = {"steps": -1 if steps is None else steps, "since": self._since or number}
            key = f"generation/{number}/{self._me.name}/{self._me.fell}"
            self._base.put(key, json.dumps(offer).encode())
            before, self.now = self.now, self._agreed(number)
            if self._me not in self.now.members:
                continue  # no place for it, or it came too late: the next one
            seat = self._enter()
            if seat is not None:
                self._since = self._since or number
                self._tell(before, steps)
                return self.now, seat

    def done(self) -> None:
        """This worker has done its last step, and all before it: nobody begins another
        generation."""
        self._base.put(f"done/{self.now.number}", b"1")

    # -- agreeing ---------------------------------------------------------------------------

    def _agreed(self, number: int) -> Generation:
        ends = time.monotonic() + self._patience
        while True:
            self._check_here()
            leader = self._leader(self._base.roster)
            if leader == self._me.name:
                self._decide(number)
            try:
                return _read(number, self._get(f"generation/{number}", _SLICE_SECONDS, leader))
            except MemberLost:
                self._check_over()
                # A new one, or one without a place, waits as long as the others train.
                if self._me in self.now.members and time.monotonic() > ends:
                    raise

    def _leader(self, roster: Roster) -> str:
        """Who decides: the first who was in the last generation; where none of them is left, the
        first who is here."""
        here = _workers(roster)
        old = [each.name for each in self.now.members if _is_here(each, roster)]
        return next((name for name in here if name in old), here[0])

    def _check_here(self) -> None:
        if self._base.is_out:
            why = "the others have given this member up for lost"
            raise lost([self._me.name], "training", None, why=why)

    def _check_over(self) -> None:
        """Raises MemberLost where the training is over."""
        if self.now.number and not self.is_over:
            self.is_over = self._base.look(
                f"done/{self.now.number}", operation="agreeing on who goes on",
                deadline_seconds=self._patience,
            ) is not None  # fmt: skip
        if self.is_over:
            raise lost([self._me.name], "going on", None, why="the others are done")

    def _decide(self, number: int) -> None:
        ends = time.monotonic() + self._patience
        roster = self._base.roster
        while number == 1 and not self._all_came(roster) and time.monotonic() < ends:
            self._base.wait_for_change(roster, ends - time.monotonic())
            roster = self._base.roster
        while True:
            roster = self._base.roster
            offers = self._offers(number, roster, ends)
            if any(not _is_here(each, self._base.roster) for each in offers):
                continue  # one more was lost meanwhile
            size = self._size(len(offers))
            if size:
                break
            if time.monotonic() > ends:
                missing = [f"{_ROLE}{n}" for n in range(self._seat.workers)]
                missing = [name for name in missing if name not in {o.name for o in offers}]
                least = min(self._sizes(), default=self._least)
                why = f"{len(offers)} are left of at least {least}"
                raise lost(missing, "forming a generation", None, why=why)
            self._base.wait_for_change(roster, ends - time.monotonic())  # one may come back
        ranked = sorted(
            offers,
            key=lambda each: (-offers[each]["steps"], offers[each]["since"], _place(each.name)),
        )[:size]
        told = {
            "members": [[each.name, each.fell] for each in ranked],
            "has_state": offers[ranked[0]]["steps"] >= 0,
        }
        self._base.put(f"generation/{number}", json.dumps(told).encode(), once=True)
        self._base.put("generation", str(number).encode())

    def _size(self, workers: int) -> int:
        """The largest generation of so many; 0: too few."""
        return max((n for n in self._sizes() if n <= workers), default=0)

    def _sizes(self) -> list[int]:
        return [n for n in range(self._least, self._most + 1) if self._takes(n)]

    def _all_came(self, roster: Roster) -> bool:
        """Whether each place was taken by somebody, who may be lost by now."""
        known = {*roster.present, *roster.lost, *roster.left}
        return all(each.name in known for each in self.now.members)

    def _offers(self, number: int, roster: Roster, ends: float) -> dict[Member, dict[str, int]]:
        """Of all who are here; who says nothing for long is left out."""
        found = {}
        for name in _workers(roster):
            each = Member(name, roster.fell.count(name))
            while _is_here(each, self._base.roster):
                try:
                    key = f"generation/{number}/{name}/{each.fell}"
                    found[each] = json.loads(self._get(key, _SLICE_SECONDS, name))
                    break
                except MemberLost:
                    self._check_over()
                    if time.monotonic() > ends:
                        break
        return found

    # -- the room ---------------------------------------------------------------------------

    def _enter(self) -> Seat | None:
        """A seat in the generation's room, when all have come; None when one is lost before."""
        seat, base, members = self._seat, self._base, self.now.members
        rank = members.index(self._me)
        room = f"{base.room}/{base.scope}generation {self.now.number}"
        meeting = Meeting(base.address, f"{_ROLE}{rank}", base.secret, room=room)
        ends = time.monotonic() + self._patience
        try:
            while all(_is_here(each, base.roster) for each in members):
                try:
                    meeting.wait_for(
                        [f"{_ROLE}{n}" for n in range(len(members))], operation="forming",
                        step=None, deadline_seconds=_SLICE_SECONDS,
                    )  # fmt: skip
                except MemberLost:
                    if time.monotonic() > ends:
                        raise
                    continue
                return replace(
                    seat, rank=rank, workers=len(members), meeting=meeting, formed=Counter(),
                    regroups=True,
                )  # fmt: skip
        except BaseException:
            meeting.leave()
            raise
        meeting.leave()
        return None

    def _tell(self, before: Generation, steps: int | None) -> None:
        """Who is not here any more, and who is now, for the report."""
        old, new = set(before.members), set(self.now.members)
        words = f"generation {self.now.number}: {len(new)} workers"
        if before.number:
            for each in sorted(old - new, key=lambda each: each.name):
                self._seat.counters.survived(Fault("lost", each.name, steps, words))
            for each in sorted(new - old, key=lambda each: each.name):
                self._seat.counters.survived(Fault("joined", each.name, steps, words))

    def _get(self, key: str, seconds: float, owner: str = "") -> bytes:
        return self._base.get(
            key, owner=owner, operation="agreeing on who goes on", deadline_seconds=seconds
        )


def _workers(roster: Roster) -> list[str]:
    return sorted((n for n in roster.present if n.startswith(_ROLE)), key=_place)


def _place(name: str) -> int:
    return int(name.removeprefix(_ROLE))


def _is_here(member: Member, roster: Roster) -> bool:
    return member.name in roster.present and roster.fell.count(member.name) == member.fell


def _read(number: int, told: bytes) -> Generation:
    found = json.loads(told)
    members = tuple(Member(name, fell) for name, fell in found["members"])
    return Generation(number, members, found["has_state"])
