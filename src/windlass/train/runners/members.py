"""Workers that come and go without a server: who is here, since when, and with what to begin.

Each worker says hello to each other one. Where all are just starting, worker 0's parameters are
copied by all; who finds others running has come back, and copies one of them. Whom the gathering
misses is gone for all. A member that was itself given up for lost must not go on: it raises.

    hello     who I am, since which roster; answered with whether one runs already
    copy      parameters, to begin with
    done      no more steps of mine
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from windlass.core.errors import MemberLost
from windlass.train.comm.meeting import Roster
from windlass.train.comm.transport import Endpoint, Peer, Request
from windlass.train.counters import Fault
from windlass.train.failures import lost
from windlass.train.runners.base import Runner
from windlass.train.runners.vectors import Vectors, buffers_of, landed, parameters_of, staged
from windlass.train.seat import Seat
from windlass.train.task import Task

ROLE = "worker "
_KEY = "gossip"
_ROSTER_SECONDS = 2.0


@dataclass
class Member:
    """Another worker, as long as it lives. `since` is the first roster that knew it."""

    rank: int
    address: tuple[str, int]
    incarnation: str
    since: int
    finished: bool = False


class Members(Runner):
    """One worker among its peers. `changed` guards everything, the parameters too."""

    apart: int | None = None

    @property
    def made_without(self) -> int:
        return (self.joined_at or 0) - self.began_at

    def __init__(self, task: Task, seat: Seat, *, trace: bool = False) -> None:
        super().__init__(task, seat)
        self.rank = seat.rank
        self.at = 0
        """Steps done."""
        self.began_at = 0
        """Of these, how many a checkpoint had when this training began from it."""
        self.joined_at: int | None = None
        """The step of the one whose parameters it copied, when it came to a running training."""
        self.trace: list[tuple[Any, ...]] | None = [] if trace else None
        self.changed = threading.Condition(threading.RLock())
        self.members: dict[int, Member] = {}
        self.parameters = parameters_of(task.model)
        self.buffers = buffers_of(task.model)
        self.is_running = False
        """It has the parameters to begin with."""
        self.has_finished = False
        self._meets = True
        self._first: Vectors = []
        self._first_for: set[int] = set()
        self._to_copy: list[Request] = []
        self._closed = False
        self._outcast = ""
        self.endpoint = Endpoint(
            seat.name, seat.meeting.secret, host=seat.host, counters=seat.counters
        )
        for name, handler in (
            ("hello", self._on_hello), ("copy", self._on_copy), ("done", self._on_done),
        ):  # fmt: skip
            self.endpoint.on(name, handler)

    # -- what a kind of gossip says ---------------------------------------------------------

    def current(self) -> Vectors:
        """Parameters to be copied or averaged by others; nobody writes to them any more."""
        raise NotImplementedError

    def adopt(self, vectors: Vectors) -> None:
        """Go on from these."""
        raise NotImplementedError

    def came(self, member: Member) -> None:
        """Under the lock."""

    def went(self, rank: int) -> None:
        """Under the lock: dead, or gone for good."""

    # -- meeting ----------------------------------------------------------------------------

    def meet(self) -> None:
        """Called once, when all handlers are there. Raises MemberLost, and is closed then."""
        try:
            self._meet()
        except BaseException:
            self.close()
            raise

    def _meet(self) -> None:
        seat = self.seat
        limit = seat.deadline_seconds
        seat.meeting.wait_for([seat.name], operation="joining", step=None, deadline_seconds=limit)
        self.endpoint.publish(seat.meeting, _KEY)
        seat.meeting.on_change(self._take_roster)
        others = [rank for rank in range(seat.workers) if rank != self.rank]
        missing: list[MemberLost] = []
        running: list[int] = []
        for rank in others:
            try:
                told = self._say_hello(rank)
            except MemberLost as err:
                missing.append(err)
                continue
            if told["running"]:
                running.insert(0 if told["ready"] else len(running), rank)
        if not running:
            if missing:
                raise missing[0]
            self._await(lambda: self._all_met(others), others, "meeting")
        with self.changed:
            if not running and self.rank == 0:
                self._first = [*self.parameters.read(), *self.buffers.read()]
                self._first_for = set(others)
            self._meets = False
        if running:
            self.joined_at = self._copy(running)
            self.came_back = True
            self.at = self.joined_at
        elif self.rank:
            self._copy([0])
        self.adopt(self.parameters.read())
        with self.changed:
            self.is_running = True
            waiting, self._to_copy = self._to_copy, []
        for request in waiting:
            self._on_copy(request)

    def _all_met(self, others: list[int]) -> bool:
        """Under the lock. Raises MemberLost when one is lost before it has said hello."""
        roster = self.seat.meeting.roster
        names = {f"{ROLE}{rank}" for rank in others if rank not in self.members}
        gone = {name: why for name, why in roster.lost.items() if name in names}
        gone |= dict.fromkeys(names & roster.left, "it left")
        if gone:
            why = "; ".join(sorted(set(gone.values())))
            raise lost(sorted(gone), "meeting", self.at, why=why)
        return not names

    def _say_hello(self, rank: int) -> dict[str, Any]:
        """Whether that one is `running` already, and has parameters of its own (`ready`)."""
        seat, name = self.seat, f"{ROLE}{rank}"
        peer = self._find(name)
        since = seat.meeting.roster.epoch
        answer = peer.call(
            "hello", {"rank": self.rank, "since": since, "address": list(self.endpoint.address)},
            kind="control", step=None, deadline_seconds=seat.deadline_seconds,
        )  # fmt: skip
        told = answer.header
        if told["running"]:
            with self.changed:
                member = Member(rank, peer.address, told["incarnation"], 0, told["finished"])
                self._admit(member)
        return told

    def _find(self, name: str) -> Peer:
        """Raises MemberLost, also when that one has ended its training and begins no other."""
        seat = self.seat
        ends = time.monotonic() + seat.deadline_seconds
        while True:
            peer = self.endpoint.find(
                name, seat.meeting, deadline_seconds=seat.deadline_seconds, key=_KEY
            )
            if peer.address[1]:
                return peer
            if time.monotonic() > ends or name in seat.meeting.roster.left:
                raise lost([name], "joining a training", None, why="it has ended its own")
            time.sleep(0.05)

    def _on_hello(self, request: Request) -> None:
        told = request.header
        host, port = told["address"]
        with self.changed:
            running = not self._meets
            self._admit(Member(told["rank"], (host, port), request.incarnation, told["since"]))
            request.reply(
                {
                    "running": running, "ready": self.is_running,
                    "incarnation": self.endpoint.incarnation, "finished": self.has_finished,
                }
            )  # fmt: skip
        if running:
            self.counters.event("joined")

    def _admit(self, member: Member) -> None:
        known = self.members.get(member.rank)
        if known is not None and known.incarnation == member.incarnation:
            known.since = max(known.since, member.since)
            return
        if known is not None:
            self._lose(member.rank, "it was started again")
        self.members[member.rank] = member
        self.came(member)
        self.changed.notify_all()

    def _copy(self, ranks: list[int]) -> int:
        """The parameters and buffers of the first of them that gives them; its step."""
        mine = [*self.parameters.read(), *self.buffers.read()]
        failure: MemberLost | None = None
        for rank in ranks:
            try:
                answer = self.peer(rank).call(
                    "copy", kind="parameters", step=None,
                    deadline_seconds=self.seat.deadline_seconds,
                )  # fmt: skip
            except MemberLost as err:
                failure = err
                continue
            self.write(landed(answer.tensors, mine))
            self.began_at = int(answer.header.get("began", 0))
            return int(answer.header["step"])
        assert failure is not None
        raise failure

    def _on_copy(self, request: Request) -> None:
        """Those who start with worker 0 get what it starts with, even when it has gone on."""
        rank = int(request.peer_name.removeprefix(ROLE))
        with self.changed:
            if rank in self._first_for:
                self._first_for.discard(rank)
                request.reply({"step": 0}, staged(self._first))
                if not self._first_for:
                    self._first = []
            elif not self.is_running:
                self._to_copy.append(request)
            else:
                mine = [*self.current(), *self.buffers.read()]
                request.reply({"step": self.at, "began": self.began_at}, staged(mine))

    # -- who is here ------------------------------------------------------------------------

    def peer(self, rank: int) -> Peer:
        with self.changed:
            member = self.members.get(rank)
            if member is None:
                raise lost([f"{ROLE}{rank}"], "sending", self.at, why="it is not here")
        return self.endpoint.peer(f"{ROLE}{rank}", member.address)

    def living(self) -> list[int]:
        """All ranks that take part, this one's too."""
        with self.changed:
            return sorted([self.rank, *self.members])

    def training(self) -> list[int]:
        """Those that still have steps to do, and this one."""
        with self.changed:
            at_work = [rank for rank, each in self.members.items() if not each.finished]
            return sorted([self.rank, *at_work])

    def is_lost(self, rank: int) -> bool:
        """Whether one that could not be reached is lost to all. The transport may know a moment
        before the roster has been read here."""
        return self.wait(lambda: rank not in self.members, _ROSTER_SECONDS)

    def check_here(self) -> None:
        """Raises MemberLost when the others have given this member up."""
        if self._outcast:
            raise lost([self.seat.name], "training", self.at, why=self._outcast)

    def wait(self, until: Callable[[], bool], seconds: float) -> bool:
        """Under no lock. Whether it became true in time; raises when this member is given up."""
        ends = time.monotonic() + seconds
        with self.changed:
            while not until():
                self.check_here()
                left = ends - time.monotonic()
                if left <= 0:
                    return False
                self.changed.wait(left)
        return True

    def _await(self, until: Callable[[], bool], ranks: list[int], operation: str) -> None:
        if not self.wait(until, self.seat.deadline_seconds):
            missing = [f"{ROLE}{rank}" for rank in ranks if rank not in self.members]
            raise lost(missing, operation, self.at, waited=self.seat.deadline_seconds)

    def _take_roster(self, roster: Roster) -> None:
        with self.changed:
            if self._closed:
                return
            if roster.epoch and self.seat.name not in roster.present:
                self._outcast = "the others have given this member up for lost"
            else:
                for rank, member in list(self.members.items()):
                    name = f"{ROLE}{rank}"
                    if roster.epoch >= member.since and name not in roster.present:
                        self._lose(rank, roster.lost.get(name, "it left"))
            self.changed.notify_all()

    def _lose(self, rank: int, why: str) -> None:
        member = self.members.pop(rank)
        self._first_for.discard(rank)
        if not (member.finished and why == "it left"):
            self.counters.survived(Fault("lost", f"{ROLE}{rank}", self.at, why))
        self.went(rank)

    # -- the end ----------------------------------------------------------------------------

    def finish(self) -> None:
        """No more steps: the others do not count on this one for theirs."""
        self.has_finished = True
        for rank in self.living():
            if rank != self.rank:
                self.tell(rank, "done", self.farewell(rank))

    def _on_done(self, request: Request) -> None:
        with self.changed:
            rank = int(request.peer_name.removeprefix(ROLE))
            if rank in self.members:
                self.members[rank].finished = True
                self.finished(rank, request.header)
                self.changed.notify_all()
        request.reply()

    def farewell(self, rank: int) -> dict[str, Any]:
        """What that one has to know of the end of this worker's steps."""
        return {}

    def finished(self, rank: int, told: dict[str, Any]) -> None:
        """Under the lock: that one takes no more steps, and said this."""

    def close(self) -> None:
        with self.changed:
            self._closed = True
        self.endpoint.close()
        try:
            ended = json.dumps(["", 0, self.endpoint.incarnation]).encode()
            self.seat.meeting.put(f"{_KEY}/{self.seat.name}", ended)
        except MemberLost:
            pass  # nobody is there to know it

    # -- small --------------------------------------------------------------------------------

    def tell(self, rank: int, operation: str, header: dict[str, Any]) -> None:
        """Without waiting; who is lost does not hear it."""
        try:
            self.peer(rank).send(operation, header, kind="control", step=self.at)
        except MemberLost:
            pass

    def log(self, *entry: Any) -> None:
        if self.trace is not None:
            self.trace.append(entry)

    def write(self, vectors: list[Tensor]) -> None:
        """Parameters, then buffers, into the model."""
        count = len(self.parameters.read())
        self.parameters.write(vectors[:count])
        self.buffers.write(vectors[count:])

    def wake(self) -> None:
        with self.changed:
            self.changed.notify_all()
