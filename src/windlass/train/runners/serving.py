"""A server: ranges of the parameters, their optimiser, and the rule of one strategy.

All that changes its state is done one thing at a time, in the order of an inbox: what is small by
the transport's thread that has read it, what takes time by the server's own, `run`.
"""

from __future__ import annotations

import functools
import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from torch import Tensor

from windlass.core.errors import Fenced, InvalidInput, TrainingFailed, Unavailable, WindlassError
from windlass.train.comm.meeting import Roster
from windlass.train.comm.transport import Answer, Endpoint, Peer, Request
from windlass.train.counters import Fault
from windlass.train.failures import lost
from windlass.train.ledger import Position
from windlass.train.policies.keys import owners
from windlass.train.runners.attendance import Attendance
from windlass.train.runners.base import Serving
from windlass.train.runners.copies import Copies, Held
from windlass.train.runners.filtering import Decoder
from windlass.train.runners.inbox import Inbox
from windlass.train.runners.memory import Memory
from windlass.train.runners.pulls import Pulls
from windlass.train.runners.rests import Rests
from windlass.train.runners.shard import Recipe, Row, Shard
from windlass.train.runners.snapshots import Snapshots
from windlass.train.state.flat import Layout, Part
from windlass.train.task import Task

if TYPE_CHECKING:
    from windlass.train.runners.serverstrategies import ServerStrategy
    from windlass.train.seat import Seat

TICK_SECONDS = 0.2
_BRIEF_BYTES = 1 << 19  # of tensors: up to this a step holds up nobody who reads messages
_BRIEF = ("push", "pull", "copy")
_REPAIR_SECONDS = 1.0  # so long after a change a range that nobody has is looked for


class ParameterServing(Serving):
    def __init__(self, task: Task, seat: Seat, strategy: ServerStrategy) -> None:
        self.seat = seat
        self.strategy = strategy
        self.layout = Layout(task.optimizer)
        self.ranges = self.layout.cut(strategy.range_count(seat.servers))
        self._parts = [self.layout.parts(each) for each in self.ranges]
        self._recipe = Recipe(task.optimizer)
        self._inbox = Inbox(self._serve)
        self._incarnations: dict[int, str] = {}
        self._met: dict[str, Peer] = {}
        """The other servers that have said that they serve."""
        self._born_as: dict[str, str] = {}
        self._present: frozenset[str] = frozenset()
        self._seen: tuple[frozenset[str], frozenset[str]] | None = None
        self._early: list[Request] = []
        self._attendance = Attendance(seat)
        self._done, self._gone = self._attendance.done, self._attendance.gone
        self._changed_at = time.monotonic()
        self._asked: set[int] = set()
        self._failure: WindlassError | None = None
        self._snapshots = Snapshots(strategy, seat)
        self.endpoint = Endpoint(
            seat.name, seat.meeting.secret, host=seat.host, counters=seat.counters
        )
        self.copies = Copies(
            seat.name, strategy.copies, self._shard, self._met.__getitem__, self._later,
            seat.deadline_seconds,
        )  # fmt: skip
        self.copies.taken = self._snapshots.take
        self._pulls = Pulls(self.copies, seat.name, min(5.0, seat.deadline_seconds / 4))
        self._rests = Rests(self.copies, seat.name, min(5.0, seat.deadline_seconds / 4))
        operations: dict[str, Callable[[Request], None]] = {
            "begin": self._begin, "join": self._join, "push": self._push, "pull": self._pulls.take,
            "finish": self._finish, "done": self._end, "state": self._state, "load": self._load,
            "copy": self.copies.take_copy, "adopt": self.copies.adopt, "drop": self.copies.drop,
            "who": self._who, "born": self._born, "rest": self._rests.ask,
        }  # fmt: skip
        self._memory = Memory(4 * seat.workers)
        for name, handler in operations.items():
            place = self._memory.take if name in ("push", "copy") else None
            self.endpoint.on(name, self._posting(handler), place=place, at_once=True)

    # -- the thread -------------------------------------------------------------------------

    def run(self) -> None:
        """Until all workers are done or gone. Raises MemberLost when none of them is left, and
        TrainingFailed when parameters are lost."""
        seat = self.seat
        seat.meeting.on_change(lambda roster: self._inbox.put(lambda: self._roster(roster)))
        self._restore()
        self.endpoint.publish(seat.meeting)
        threading.Thread(target=self._tell_born, name="born", daemon=True).start()
        ticked = time.monotonic()
        while True:
            with self._inbox.alone():
                if self._failure is not None:
                    raise self._failure
                if self._attendance.is_over():
                    self._tell_counters()
                    return
                if time.monotonic() - ticked >= TICK_SECONDS:
                    ticked = time.monotonic()
                    self._tick()
                    self._serve()
            self._inbox.next(TICK_SECONDS)

    def close(self) -> None:
        self.endpoint.close()

    def rows(self) -> list[Row]:
        """The log of the ranges that are here, where `trace` keeps one."""
        return [row for held in self._owned() for row in held.shard.rows]

    # -- what workers ask -------------------------------------------------------------------

    def _begin(self, request: Request) -> None:
        header = request.header
        if header["layout"] != self.layout.digest:
            raise InvalidInput(
                f"make: {request.peer_name} and {self.seat.name} have different parameters",
                hint="make() must give the same model and optimiser on every member",
            )
        if not self._present or self._present - {self.seat.name, *self._met}:
            self._early.append(request)  # where the copies go is known when all have met
            return
        self._each(request, header["ranges"], self.copies.begin)

    def _join(self, request: Request) -> None:
        worker = int(request.header["worker"])
        before = self._incarnations.get(worker)
        self._incarnations[worker] = request.incarnation
        self._gone.discard(worker)
        self._done.discard(worker)
        again = before is not None and before != request.incarnation

        def join(index: int, _: list[Tensor], then: Callable[[Exception | None], None]) -> None:
            held = self.copies.owned(index)
            if again:
                self._propose_all(held, {"what": "lose", "worker": worker})
            self.copies.propose(held, {"what": "join", "worker": worker}, [], then)

        self._each(request, request.header["ranges"], join, self._standing)

    def _standing(self, request: Request) -> None:
        """How far a worker is that has joined, over the ranges it asked for."""
        worker = int(request.header["worker"])
        shards = [self.copies.owned(n).shard for n in request.header["ranges"]]
        steps = [each.policy.clocks.get(worker, 0) for each in shards]
        number = max((each.numbers.get(worker, 0) for each in shards), default=0)
        told = {"number": number, "clock": min(steps, default=0)}
        if 0 in request.header["ranges"]:
            told["row"] = self.copies.owned(0).shard.ledger.lines.get(worker, 0)
        request.reply(told)

    def _push(self, request: Request) -> None:
        header = request.header
        worker, number = int(header["worker"]), int(header["number"])
        self.copies.is_begun = True
        self._pulls.progress += 1

        def push(index: int, tensors: list[Tensor], then: Callable[..., None]) -> None:
            held = self.copies.owned(index)
            if worker not in held.shard.policy.clocks:
                raise Fenced(f"worker {worker} was taken for lost: join again")
            event = {
                "what": "push", "worker": worker, "number": number,
                "version": header["versions"][str(index)], "count": header["count"],
                "rates": header["rates"], "steps": header["steps"],
                "reads": header.get("reads", ()), "scale": header.get("scale"),
                "shares": header.get("shares"),
            }  # fmt: skip
            self.copies.propose(held, event, tensors, then)

        self._each(request, header["ranges"], push, self._pulls.answer_push)

    def _finish(self, request: Request) -> None:
        event = {"what": "finish", "worker": int(request.header["worker"])}
        self._pulls.progress += 1
        self._each(
            request, request.header["ranges"],
            lambda n, _, then: self.copies.propose(self.copies.owned(n), event, [], then),
        )  # fmt: skip

    def _end(self, request: Request) -> None:
        self._done.add(int(request.header["worker"]))
        request.reply()

    def _state(self, request: Request) -> None:
        """Parameters and optimiser of ranges, for a checkpoint."""
        found, tensors = [], []
        for index in request.header["ranges"]:
            shard = self.copies.owned(index).shard
            header, own = shard.state()
            count = len(shard.parts) + sum(kept is None for _, _, kept in header["slots"])
            told = {"slots": header["slots"], "version": shard.version, "tensors": count}
            told["clocks"] = sorted(shard.policy.clocks.items())
            found.append({**told, "position": shard.position().to_json()})
            tensors += own[:count]
        request.reply({"ranges": found}, tensors, kind="state")

    def _load(self, request: Request) -> None:
        """The same back: the state begins anew from it, for this range and its copy."""
        rest = iter(request.tensors)
        tasks: list[tuple[Held, list[Tensor], list[list[Any]]]] = []
        for index, told in zip(request.header["ranges"], request.header["slots"], strict=True):
            held = self.copies.owned(index)
            count = len(held.shard.parts) + sum(kept is None for _, _, kept in told)
            tasks.append((held, [next(rest) for _ in range(count)], told))
        for held, tensors, slots in tasks:
            state, _ = held.shard.state()
            held.shard.load({**state, "slots": slots, "waiting": []}, tensors)
            if "position" in request.header:
                held.shard.stand(Position.from_json(request.header["position"]))
            held.shard.begin_history()
            held.copy = None
        assert self._seen is not None
        self.copies.see(*self._seen)
        request.reply()

    def _each(
        self,
        request: Request,
        ranges: list[int],
        what: Callable[[int, list[Tensor], Callable[[Exception | None], None]], None],
        answer: Callable[[Request], None] = Request.reply,
    ) -> None:
        """One thing for each range, with its tensors; answered when all are done."""
        shares = self._split(ranges, request.tensors, request.header.get("tensors"))
        for index in ranges:  # all or none is begun, where that can be known
            if request.operation != "begin":
                self.copies.owned(index)
        left, failed = len(ranges), False

        def done(err: Exception | None) -> None:
            nonlocal left, failed
            left -= 1
            if failed:
                return
            if err is not None:
                failed = True
                request.refuse(err)
            elif left == 0:
                try:
                    answer(request)
                except Unavailable as moved:
                    request.refuse(moved)

        for index, tensors in zip(ranges, shares, strict=True):
            what(index, tensors, done)

    def _split(
        self, ranges: list[int], tensors: list[Tensor], coded: list[int] | None
    ) -> list[list[Tensor]]:
        """`coded` says how many are each range's, where a filter made them of its parts."""
        if not tensors:
            return [[] for _ in ranges]
        rest, found = iter(tensors), []
        if coded is not None:
            return [list(itertools.islice(rest, number)) for number in coded]
        for index in ranges:
            parts = self._parts[index]
            mine = [each for _, each in zip(parts, rest, strict=False)]
            if not _fit(parts, mine):
                raise InvalidInput(f"range {index}: tensors that are not its parts")
            found.append(mine)
        return found

    # -- who is here ------------------------------------------------------------------------

    def _roster(self, roster: Roster) -> None:
        if self.seat.name not in roster.present:
            if not self._present:
                return  # of before we came
            why = roster.lost.get(self.seat.name, "out of sight of the others")
            if not self._attendance.is_over():
                self._failure = lost(["the gathering"], "serving", None, why=why)
            return
        self._present = frozenset(n for n in roster.present if n.startswith("server "))
        for name in set(self._met) - self._present:
            why = roster.lost.get(name, "it left")
            self.seat.counters.survived(Fault("server lost", name, None, why))
            del self._met[name]
        self._look()
        for name in (*roster.lost, *roster.left):
            role, _, rank = name.partition(" ")
            if role == "worker" and int(rank) not in self._gone:
                self._gone.add(int(rank))
                if name in roster.lost and int(rank) not in self._done:
                    fault = Fault("worker lost", name, None, roster.lost[name])
                    self.seat.counters.survived(fault)
                self._incarnations.pop(int(rank), None)
                for held in self._owned():
                    self._propose_all(held, {"what": "lose", "worker": self._player(int(rank))})

    def _player(self, rank: int) -> int:
        """As whom a worker pushes: in the rows, and to the rule."""
        return rank

    def _look(self) -> None:
        seen = (self._present & {self.seat.name, *self._met}, self._present)
        if seen != self._seen:
            self._seen = seen
            self._changed_at = time.monotonic()
            self.copies.see(*seen)

    def _propose_all(self, held: Held, event: dict[str, Any]) -> None:
        self.copies.propose(held, event, [], lambda err: None)

    def _owned(self) -> list[Held]:
        return [held for _, held in sorted(self.copies.held.items()) if held.is_owner]

    def _tick(self) -> None:
        self.copies.tick()
        early, self._early = self._early, []
        for request in early:
            self._posting(self._begin)(request)
        for held in self._owned():  # what a copy was not told before it became the owner
            gone = {self._player(rank) for rank in self._gone}
            for worker in set(held.shard.policy.clocks) & gone:
                self._propose_all(held, {"what": "lose", "worker": worker})
        if self.copies.is_begun and time.monotonic() - self._changed_at > _REPAIR_SECONDS:
            for index in self.copies.missing(len(self.ranges)):
                if index not in self._asked:
                    self._asked.add(index)
                    self._ask_for(index)

    # -- ranges that nobody has -------------------------------------------------------------

    def _ask_for(self, index: int) -> None:
        """A range should be here and is not: somebody is about to give it, or it is lost."""
        others = sorted(self.copies.live - {self.seat.name})
        answers: dict[str, bool] = {}

        def heard(name: str, done: Future[Answer]) -> None:
            answers[name] = done.exception() is None and bool(done.result().header["has"])
            if len(answers) == len(others):
                self._asked.discard(index)
                if not any(answers.values()) and index in self.copies.missing(len(self.ranges)):
                    self._give_up(index)

        def hear(name: str) -> Callable[[Future[Answer]], None]:
            return lambda done: self._inbox.put(lambda: heard(name, done))

        if not others:
            self._give_up(index)
        for name in others:
            self._met[name].send(
                "who", {"range": index}, kind="control",
                deadline_seconds=self.seat.deadline_seconds,
            ).add_done_callback(hear(name))  # fmt: skip

    def _give_up(self, index: int) -> None:
        copies = "its only copy was" if self.strategy.copies == 1 else "both copies were"
        self._failure = TrainingFailed(
            f"range {index} of the parameters is lost: {copies} on servers that were lost before "
            f"it could be copied again; {self._snapshots.words()}",
            hint="the training stops here: begin again from the snapshot or the checkpoint",
            range=index,
        )
        self._pulls.refuse(self._failure)
        self._rests.refuse(self._failure)

    def _who(self, request: Request) -> None:
        request.reply({"has": request.header["range"] in self.copies.held})

    def _born(self, request: Request) -> None:
        """A server that begins to serve; perhaps again, and before anybody missed it."""
        if request.peer_name in self._met and request.incarnation != self._born_as.get(
            request.peer_name, request.incarnation
        ):
            present, self._present = self._present, self._present - {request.peer_name}
            del self._met[request.peer_name]
            self._look()
            self._present = present
        self._born_as[request.peer_name] = request.incarnation
        host, port = request.header["address"]
        self._met[request.peer_name] = self.endpoint.peer(request.peer_name, (host, int(port)))
        self._look()
        request.reply()

    def _tell_born(self) -> None:
        """A thread of its own: the others may not be that far."""
        others = [f"server {n}" for n in range(self.seat.servers) if n != self.seat.rank]
        for name in others:
            try:
                peer = self.endpoint.find(
                    name, self.seat.meeting, deadline_seconds=self.seat.deadline_seconds
                )
                peer.send("born", {"address": list(self.endpoint.address)}, kind="control")
            except WindlassError:
                continue  # lost already
            self._inbox.put(functools.partial(self._meet, name, peer))

    def _meet(self, name: str, peer: Peer) -> None:
        if name not in self._met and not peer.is_cut:
            self._met[name] = peer
            self._look()

    # -- small things -----------------------------------------------------------------------

    def _restore(self) -> None:
        """From a snapshot of this very training: we were started again. Only where there is no
        second copy, since that may be newer."""
        if self.strategy.copies > 1:
            return
        names = frozenset(f"server {n}" for n in range(self.seat.servers))
        for index in range(len(self.ranges)):
            if owners(index, names, 1) == [self.seat.name]:
                shard = self._shard(index)
                if self._snapshots.load(shard):
                    shard.begin_history()
                    self.copies.held[index] = Held(shard, True)
                    self.copies.is_begun = True

    def _posting(self, handler: Callable[[Request], None]) -> Callable[[Request], None]:
        def handle(request: Request) -> None:
            try:
                handler(request)
            except Exception as err:
                if not request.is_answered:
                    request.refuse(self._failure or err)

        def post(request: Request) -> None:
            size = sum(each.nbytes for each in request.tensors)
            is_brief = request.operation in _BRIEF and size <= _BRIEF_BYTES
            bring = self._inbox.bring if is_brief else self._inbox.put
            bring(lambda: handle(request))

        return post

    def _later(self, what: Callable[[], None]) -> None:
        self._inbox.put(what)

    def _serve(self) -> None:
        """Something has changed: who waits for it is answered."""
        self._pulls.serve()
        self._rests.serve(self._pulls.progress)

    def _shard(self, index: int) -> Shard:
        policy = self.strategy.policy(self.seat.workers)
        policy.clocks = dict.fromkeys(range(self._player(self.seat.workers - 1) + 1), 0)
        recipe = None if self.strategy.adds else self._recipe
        parts, filter = self._parts[index], self.strategy.filter
        shard = Shard(
            index, parts, policy, recipe, trace=self.strategy.trace,
            decode=None if filter is None else Decoder(filter, self.layout, parts),
        )  # fmt: skip
        shard.release = self._memory.give
        return shard

    def _tell_counters(self) -> None:
        """Of range 0, wherever it is: each push goes to all ranges and is told of once."""
        counters = self.seat.counters
        held = self.copies.held.get(0)
        if held is not None and held.is_owner:
            for by, count in held.shard.staleness.items():
                for _ in range(count):
                    counters.stale(by)
            for name, count in held.shard.counts.items():
                counters.event(name, count)
            counters.event("pending", len(held.shard.policy.pending))


def _fit(parts: list[Part], tensors: list[Tensor]) -> bool:
    return len(parts) == len(tensors) and all(
        part.dtype == each.dtype and part.shape == tuple(each.shape)
        for part, each in zip(parts, tensors, strict=True)
    )
