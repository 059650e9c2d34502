"""The server of blocks: schedules them, updates them, keeps all that counts."""

from __future__ import annotations

import math
import queue
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from windlass.core.errors import Fenced, InvalidInput
from windlass.train.comm.meeting import Roster
from windlass.train.comm.transport import Endpoint, Request
from windlass.train.counters import Fault
from windlass.train.policies.curvature import Curvature
from windlass.train.policies.dispatch import Dispatch
from windlass.train.runners.attendance import Attendance
from windlass.train.runners.base import Serving
from windlass.train.runners.blocktable import BlockTable
from windlass.train.task import Task

if TYPE_CHECKING:
    from windlass.train.runners.blocks import Blocks
    from windlass.train.seat import Seat

_TICK_SECONDS = 0.2


@dataclass(frozen=True)
class Line:
    """One round: which blocks were updated, of how many samples, at which rates."""

    round: int
    blocks: tuple[int, ...]
    left_out: tuple[int, ...]
    """Dispatched to a worker that was lost before it gave them."""
    count: float
    rates: tuple[float, ...]


@dataclass
class _Round:
    dispatched: dict[int, list[int]]
    """By worker. Only those that were there when it began."""
    pushed: dict[int, tuple[dict[str, Any], list[Tensor]]] = field(default_factory=dict)


class BlockServing(Serving):
    def __init__(self, task: Task, seat: Seat, strategy: Blocks) -> None:
        self.task = task
        self.seat = seat
        self.strategy = strategy
        self.table = BlockTable(task.optimizer, strategy.size, strategy.l1)
        self._at_once = strategy.together_at(seat.workers)
        self.dispatch = self._scheduler()
        self.lines: list[Line] = []
        self.round = 0
        self._before = 0
        """Rounds of the training before this one, of which a checkpoint was loaded."""
        self._ahead = 0
        """By how much the rows of samples are ahead of the rounds."""
        self.version = 0
        self._changed = [0] * len(self.table.blocks)
        """The version that last changed each block."""
        self._curvature = Curvature(
            self.table.parameters, self.table.blocks, self._loss, seat.seed
        )
        self._rates = [float(group["lr"]) for group in task.optimizer.param_groups]
        self._updated = 0
        self._now: _Round | None = None
        self._here: set[int] = set()
        self._attendance = Attendance(seat)
        self._done, self._gone = self._attendance.done, self._attendance.gone
        self._fell: dict[int, int] = {}
        """Of each worker that has joined: how often it had been lost by then."""
        self._is_begun = False
        """Whether the first worker's parameters are here."""
        self._parked: list[tuple[Request, float]] = []
        self._progress = 0
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.endpoint = Endpoint(
            seat.name, seat.meeting.secret, host=seat.host, counters=seat.counters
        )
        for name, handler in {
            "join": self._join, "next": self._park, "push": self._push, "state": self._state,
            "load": self._load, "done": self._end,
        }.items():  # fmt: skip
            self.endpoint.on(name, self._posting(handler))

    def run(self) -> None:
        """Until all workers are done or gone. Raises MemberLost when none of them is left."""
        meeting = self.seat.meeting
        meeting.on_change(lambda roster: self._inbox.put(lambda: self._see(roster)))
        self.endpoint.publish(meeting)
        while not self._attendance.is_over():
            try:
                self._inbox.get(timeout=_TICK_SECONDS)()
            except queue.Empty:
                pass
            self._serve()
        self.seat.counters.event("rounds", self.round)
        self.seat.counters.event("blocks updated", self._updated)

    def close(self) -> None:
        self.endpoint.close()

    # -- rounds -----------------------------------------------------------------------------

    def _serve(self) -> None:
        """Those that may be answered are; a round that is whole is closed, and the next begun."""
        if self._now is not None and set(self._now.dispatched) - self._gone <= set(
            self._now.pushed
        ):
            self._close_round(self._now)
        still = []
        for request, since in self._parked:
            if not self._answer(request, since):
                still.append((request, since))
        self._parked = still

    def _begin_round(self) -> None:
        every = self.strategy.measure_every
        if every and (self._before + self.round) % every == 0:
            self._curvature.forget()
        self._curvature.moved()
        chosen = self.dispatch.next(self._dependence)
        workers = sorted(self._here)
        dispatched: dict[int, list[int]] = {rank: [] for rank in workers}
        for place, block in enumerate(chosen):
            dispatched[workers[place % len(workers)]].append(block)
        self._now = _Round(dispatched)

    def _close_round(self, now: _Round) -> None:
        found: list[tuple[int, Tensor]] = []
        count = 0.0
        for rank in sorted(now.pushed):
            header, tensors = now.pushed[rank]
            if header["blocks"]:
                count, self._rates = float(header["count"]), list(header["rates"])
            found += zip(header["blocks"], tensors, strict=False)
        missing = [b for rank, own in now.dispatched.items() if rank not in now.pushed
                   for b in own]  # fmt: skip
        self.dispatch.left_out(missing)
        if count and found:
            self._update(sorted(found, key=lambda each: each[0]), count)
        if self.strategy.trace:
            self.lines.append(
                Line(self.round, tuple(b for b, _ in sorted(found, key=lambda each: each[0])),
                     tuple(missing), count, tuple(self._rates))
            )  # fmt: skip
        self.round += 1
        self._progress += 1
        self._now = None

    def _update(self, found: Sequence[tuple[int, Tensor]], count: float) -> None:
        self.version += 1
        for number, by in self.table.update(found, count, self._rates).items():
            self.dispatch.changed(number, by)
            self._changed[number] = self.version
        self._updated += len(found)

    def _scheduler(self) -> Dispatch:
        return Dispatch(
            len(self.table.blocks), at_once=self._at_once, order=self.strategy.order,
            bound=self.strategy.dependence if self._at_once > 1 else None, seed=self.seat.seed,
        )  # fmt: skip

    def _dependence(self, first: int, second: int) -> float:
        one, other = (self._rates[self.table.group_of(n)] for n in (first, second))
        return math.sqrt(one * other) * self._curvature.norm(first, second)

    def _loss(self) -> Tensor:
        """Of the round's samples, a mean."""
        data = self.task.data
        batch = data.batch(data.at(self._before + self.round), 0, 1, self.seat.device)
        total, count = self.task.loss_of(batch.content)
        return total / count

    # -- what workers ask -------------------------------------------------------------------

    def _join(self, request: Request) -> None:
        """The first worker's parameters are what all begin with. Who comes back takes part from
        the next round that begins."""
        rank, shapes = int(request.header["worker"]), request.header["shapes"]
        if shapes != [list(each.shape) for each in self.table.parameters]:
            raise InvalidInput(
                f"make: {request.peer_name} and {self.seat.name} have different parameters",
                hint="make() must give the same model and optimiser on every member",
            )
        if rank == 0 and not self._is_begun:
            self._is_begun = True
            with torch.no_grad():
                for mine, theirs in zip(self.table.parameters, request.tensors, strict=True):
                    mine.copy_(theirs)
            self.version += 1
            self._changed = [self.version] * len(self._changed)
        comes_back = rank in self._fell
        self._fell[rank] = int(request.header["fell"])
        self._gone.discard(rank)
        self._done.discard(rank)
        self._here.add(rank)
        self._progress += 1
        begins = self.round + (self._now is not None)
        request.reply({"round": begins, "row": self._ahead + begins, "again": comes_back})

    def _park(self, request: Request) -> None:
        self._parked.append((request, time.monotonic()))

    def _answer(self, request: Request, since: float) -> bool:
        header = request.header
        rank = int(header["worker"])
        everybody = self._here | self._gone >= set(range(self.seat.workers))
        if everybody and int(header["round"]) == self.round:
            blocks: list[int] = []
            first = False
            if header["what"] == "blocks":
                if self._now is None:
                    self._begin_round()
                assert self._now is not None
                blocks = self._now.dispatched.get(rank, [])
                first = rank == min(self._now.dispatched)
            self._tell(request, blocks, first)
            return True
        if time.monotonic() - since > min(5.0, self.seat.deadline_seconds / 4):
            waits = sorted(self._missing(rank))
            request.reply({"wait": waits, "progress": self._progress})
            return True
        return False

    def _missing(self, rank: int) -> set[int]:
        every = set(range(self.seat.workers)) - self._gone
        have = self._here if self._now is None else set(self._now.pushed)
        return every - have - {rank}

    def _tell(self, request: Request, blocks: list[int], first: bool) -> None:
        have = int(request.header["version"])
        new = [n for n, version in enumerate(self._changed) if version > have]
        request.reply(
            {"blocks": blocks, "first": first, "new": new, "version": self.version},
            [self.table.value(n) for n in new], kind="parameters",
        )  # fmt: skip

    def _push(self, request: Request) -> None:
        header = request.header
        rank = int(header["worker"])
        if rank in self._gone or self._now is None or int(header["round"]) != self.round:
            raise Fenced(f"worker {rank} was taken for lost: the others went on")
        self._now.pushed[rank] = (header, list(request.tensors))
        self._ahead = int(header["row"]) - self.round
        self._progress += 1
        request.reply()

    def _end(self, request: Request) -> None:
        self._done.add(int(request.header["worker"]))
        request.reply()

    # -- state ------------------------------------------------------------------------------

    def _state(self, request: Request) -> None:
        slots, tensors, steps = self.table.state()
        kept = {
            "schedule": self.dispatch.state(), "steps": steps, "round": self._before + self.round,
            "curvature": self._curvature.state(),
        }  # fmt: skip
        request.reply({"slots": slots, "blocks": kept}, tensors, kind="state")

    def _load(self, request: Request) -> None:
        rest = iter(request.tensors)
        values = [next(rest) for _ in self.table.parameters]
        states: dict[int, dict[str, Any]] = {}
        for number, name, value in request.header["slots"]:
            states.setdefault(number, {})[name] = next(rest) if value is None else value
        told = request.header["blocks"]
        self.dispatch = self._scheduler()
        steps: list[float | None] = [None] * len(self.table.blocks)
        if told is not None:
            self.dispatch.load(told["schedule"])
            steps = [
                0.0 if by is None else made or None
                for made, by in zip(told["steps"], self.dispatch.changes, strict=True)
            ]
        self.table.load(values, states, steps)
        self._before = 0 if told is None else int(told["round"]) - self.round
        self._curvature.load([] if told is None else told["curvature"])
        self.version += 1
        self._changed = [self.version] * len(self._changed)
        request.reply()

    # -- who is here ------------------------------------------------------------------------

    def _see(self, roster: Roster) -> None:
        if self.seat.name not in roster.present:
            return
        for name in (*roster.lost, *roster.left):
            role, _, rank = name.partition(" ")
            if role != "worker" or int(rank) in self._gone:
                continue
            fell = roster.fell.count(name)
            if name in roster.left or fell > self._fell.get(int(rank), -1):  # not of before
                self._gone.add(int(rank))
                self._here.discard(int(rank))
                if name in roster.lost and int(rank) not in self._done:
                    self.seat.counters.survived(
                        Fault("worker lost", name, self.round, roster.lost[name])
                    )
        self._progress += 1

    def _posting(self, handler: Callable[[Request], None]) -> Callable[[Request], None]:
        def handle(request: Request) -> None:
            try:
                handler(request)
            except Exception as err:
                if not request.is_answered:
                    request.refuse(err)

        return lambda request: self._inbox.put(lambda: handle(request))
