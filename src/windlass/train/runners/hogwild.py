"""Hogwild! (Recht et al. 2011): workers of one machine update one vector in shared memory.

Each step of a worker, without a word to the others:

    own ← shared                       a copy of the parameters, as they happen to be
    own' = the optimiser's step from own, with the gradient of this worker's share
    for each element that the step changed, and for no other:
        shared == own:   shared ← own'                    nobody was here: exactly what SGD does
        else:            shared ← shared + (own' - own)   a conflict: both updates count

So one worker is plain SGD to the bit, and updates that touch different elements never disturb
each other. Where two write the same element in the same instant one of them may be lost: that is
the bargain. `lock=True` takes one lock a tensor for the copying and for the writing; then no
update is lost, and the same order of events gives the same bits.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from windlass.core.errors import InvalidInput
from windlass.train.comm.sharedmemory import Busy, SharedTensors
from windlass.train.counters import Fault
from windlass.train.data import Batch
from windlass.train.failures import lost
from windlass.train.runners.base import Outcome, Runner
from windlass.train.seat import Seat
from windlass.train.strategy import Strategy
from windlass.train.task import Task

_DONE = 1 << 62
"""Added to a worker's number of steps when it has no more."""


class Hogwild(Strategy):
    """Workers of one machine update the same memory without waiting for each other.

    Best where a step changes few parameters (embeddings, factorisation, sparse inputs); weight
    decay changes all. Each worker has an optimiser state of its own, and buffers, such as
    BatchNorm's, stay each worker's own. A worker that dies leaves the memory usable: what it had
    written of its last step counts.
    """

    name: ClassVar[str] = "hogwild"
    on_loss: ClassVar[Literal["abort", "shrink", "rejoin"]] = "shrink"
    lock: bool = Field(
        False, description="take a lock for each tensor: slower, no update is ever lost"
    )

    def check(self, task: Task, workers: int, servers: int) -> list[str]:
        warnings = super().check(task, workers, servers)
        _refuse_devices(task)
        if workers > 1 and any(group.get("momentum") for group in task.optimizer.param_groups):
            warnings.append("hogwild: momentum adds to what asynchrony already gives; try less")
        return warnings

    def runner(self, task: Task, seat: Seat) -> Runner:
        return HogwildRunner(task, seat, locked=self.lock)


@dataclass(slots=True)
class Event:
    """A step as it happened, for replay: the version of each tensor that was read, and the one
    that the step's update made (None: it changed nothing there)."""

    worker: int
    steps: int
    read: list[int] = field(default_factory=list)
    written: list[int | None] = field(default_factory=list)


class HogwildRunner(Runner):
    apart = None
    merges: ClassVar[bool] = True

    def __init__(self, task: Task, seat: Seat, *, locked: bool) -> None:
        super().__init__(task, seat)
        _refuse_devices(task, seat.device)
        self._locked = locked
        self._own = [each.detach() for each in task.model.parameters()]
        self._steps = 0
        self._loads = 0
        self._batches = 0
        self._account: dict[int, int] = {}
        self.trace: list[Event] | None = None
        """Set to [] to have the events logged; with the lock, they can be replayed."""
        self.shared = self._meet()
        self._pull(None)

    # -- a step -----------------------------------------------------------------------------

    def step(self, batch: Batch) -> Outcome:
        outcome = self._step(batch)
        self._batches += 1
        self.shared.slots[self.seat.workers + self.seat.rank] = self._batches
        return outcome

    def _step(self, batch: Batch) -> Outcome:
        if batch.content is None:
            return Outcome(0.0, 0)
        event = Event(self.seat.rank, self._steps) if self.trace is not None else None
        seen = self._others()
        self._pull(event)
        before = [each.clone() for each in self._own]
        self.task.optimizer.zero_grad(set_to_none=True)
        total, count = self.task.loss_of(batch.content)
        if not count:
            return Outcome(total.detach(), 0)
        total.backward()  # type: ignore[no-untyped-call]  # torch's lacks types
        for each in self.task.model.parameters():
            if each.grad is not None:
                each.grad.div_(count)
        self.task.optimizer.step()
        self.counters.stale(max(0, self._others() - seen))
        if self._push(before, event):
            self.counters.event("conflicts")
        self._steps += 1
        self.shared.slots[self.seat.rank] = self._steps
        if event is not None and self.trace is not None:
            self.trace.append(event)
        return Outcome(total.detach(), count)

    def _pull(self, event: Event | None) -> None:
        for index, (own, shared) in enumerate(zip(self._own, self.shared.tensors, strict=True)):
            with self._alone(index):
                own.copy_(shared)
                if event is not None:
                    event.read.append(self.shared.versions[index])

    def _push(self, before: list[Tensor], event: Event | None) -> bool:
        conflict = False
        for index, (was, own) in enumerate(zip(before, self._own, strict=True)):
            shared, version = self.shared.tensors[index], None
            with self._alone(index):
                changed, met = write(shared, was, own)
                if changed and self._locked:
                    version = self.shared.versions[index] = self.shared.versions[index] + 1
            conflict |= met
            if event is not None:
                event.written.append(version)
        return conflict

    @contextmanager
    def _alone(self, index: int) -> Iterator[None]:
        with ExitStack() as stack:
            try:
                stack.enter_context(
                    self.shared.lock(index, self.seat.deadline_seconds)
                    if self._locked
                    else nullcontext()
                )
            except Busy as err:
                raise lost(
                    [f"process {err.pid}"] if err.pid else [], f"the lock of tensor {index}",
                    self._steps, waited=self.seat.deadline_seconds,
                ) from err  # fmt: skip
            yield

    def _others(self) -> int:
        mine = self.seat.rank
        return sum(n % _DONE for rank, n in enumerate(self._made()) if rank != mine)

    def _made(self) -> list[int]:
        """Of each worker: the steps that it has made."""
        return list(self.shared.slots[: self.seat.workers])

    # -- the end ----------------------------------------------------------------------------

    def finish(self) -> None:
        """Until the others are done or lost. One that is alive and makes no step for as long as
        the deadline is taken for lost."""
        seat = self.seat
        self._say_done()
        ends, seen = time.monotonic() + seat.deadline_seconds, self._made()
        while True:
            slots = self._made()
            roster = seat.meeting.roster
            gone = {**dict.fromkeys(roster.left, "it left"), **roster.lost}
            waiting = [
                rank for rank, n in enumerate(slots)
                if n < _DONE and f"worker {rank}" not in gone
            ]  # fmt: skip
            if not waiting:
                break
            now = time.monotonic()
            if slots != seen:
                ends, seen = now + seat.deadline_seconds, slots
            if now >= ends:
                raise lost(
                    [f"worker {rank}" for rank in waiting], "the end of training", self._steps,
                    waited=seat.deadline_seconds,
                )  # fmt: skip
            time.sleep(0.01)  # nobody tells: the others' progress is a number in memory
        for rank, n in enumerate(slots):
            if n < _DONE:
                name = f"worker {rank}"
                self.counters.survived(Fault("death", name, n, gone[name]))

    def drain(self) -> None:
        self._look()

    def _look(self) -> None:
        """What is in the memory, and whose batches made it."""
        self._account = dict(enumerate(self.shared.slots[self.seat.workers :]))
        self._pull(None)

    def account(self) -> dict[int, int]:
        return self._account

    @contextmanager
    def as_it_counts(self) -> Iterator[nn.Module]:
        self._pull(None)  # as every step does
        yield self.task.model

    # -- state ------------------------------------------------------------------------------

    def local_state(self) -> dict[str, Any]:
        """Worker 0's optimiser is the shared state's."""
        if not self.seat.rank or self.seat.regroups:
            return {}
        return {"optimizer": self.task.optimizer.state_dict()}

    def load_local_state(self, state: dict[str, Any]) -> None:
        self.task.optimizer.load_state_dict(state["optimizer"])

    def shared_state(self) -> dict[str, Any] | None:
        self._look()
        return super().shared_state()

    def load_shared_state(self, state: Mapping[str, Any]) -> None:
        super().load_shared_state(state)
        if self.seat.rank == 0:
            for shared, own in zip(self.shared.tensors, self._own, strict=True):
                shared.copy_(own)
        self._loads += 1
        self._gather(f"hogwild/loaded/{self._loads}", "loading the state")

    def close(self) -> None:
        self._say_done()  # whatever ended us, the others need not wait
        self.shared.close()

    def _say_done(self) -> None:
        self.shared.slots[self.seat.rank] = _DONE + self._steps

    # -- the beginning ----------------------------------------------------------------------

    def _meet(self) -> SharedTensors:
        """All open worker 0's memory, or all refuse."""
        seat, key = self.seat, "hogwild/memory"
        if not hasattr(os, "memfd_create"):
            raise InvalidInput("hogwild: shared memory without a name is there on Linux alone")
        if seat.rank == 0:
            shared = SharedTensors(self._own, 2 * seat.workers)
            seat.meeting.put(key, shared.where.encode())
        else:
            where = seat.meeting.get(
                key, owner="worker 0", operation="opening the memory",
                deadline_seconds=seat.deadline_seconds,
            ).decode()  # fmt: skip
            try:
                shared = SharedTensors(self._own, 2 * seat.workers, where)
            except (OSError, ValueError) as err:
                raise InvalidInput(
                    f"hogwild: {seat.name} cannot open worker 0's memory: {err}",
                    hint="all workers run on one machine, with the same model; "
                    "adpsgd or ps:async need no common memory",
                ) from err
        self.shared = shared
        self._gather("hogwild/opened", "opening the memory")
        return shared

    def _gather(self, key: str, operation: str) -> None:
        names = [f"worker {rank}" for rank in range(self.seat.workers)]
        self.seat.meeting.gather(
            key, b"", names, operation=operation, deadline_seconds=self.seat.deadline_seconds
        )


def write(shared: Tensor, was: Tensor, own: Tensor) -> tuple[bool, bool]:
    """Put the update from `was` to `own` into `shared`, touching only what it changes. Gives
    whether it changed anything, and whether somebody else had changed it meanwhile."""
    flat, old, new = shared.view(-1), was.reshape(-1), own.reshape(-1)
    touched = (old != new).nonzero().view(-1)
    if touched.numel() == 0:
        return False, False
    everything = touched.numel() == flat.numel()
    if not everything:
        old, new = old[touched], new[touched]
    there = flat.clone() if everything else flat[touched]
    alone = there == old
    conflict = not bool(alone.all())
    if conflict:
        new = torch.where(alone, new, there + (new - old))
    if everything:
        flat.copy_(new)
    else:
        flat.index_copy_(0, touched, new)
    return True, conflict


def _refuse_devices(task: Task, device: torch.device | None = None) -> None:
    """Memory of a GPU belongs to one process; what another opened of it (CUDA's IPC) has no
    updates of single elements that the two could make without a lock."""
    found = {each.device.type for each in task.model.parameters()}
    if device is not None:
        found.add(device.type)
    others = sorted(found - {"cpu"})
    if others:
        raise InvalidInput(
            f"hogwild: parameters lie in main memory, which processes can share "
            f"(found a model on {', '.join(others)})",
            hint="device='cpu'; on GPUs take allreduce, local_sgd or ps:async",
        )
