"""Synchronous data parallel: each worker's gradient, summed over all, applied by all alike.

    forward ─ count ─ backward ───────────────┐
               │        └ buckets, as they fill ├─ divide by the global count ─ step
               └────────── all-reduce ──────────┘

The gradient is sum(g_i) / sum(n_i) of sums, so shares may be uneven or empty. A worker without
more data takes part with nothing until all are done, and steps as they do: replicas stay the same
to the bit.
"""

from __future__ import annotations

import logging
import math
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, SerializeAsAny
from torch import Tensor, nn

from windlass.core.errors import InvalidInput
from windlass.train.comm.torchdist import Pending, form
from windlass.train.data import Batch
from windlass.train.policies.compression import Compression
from windlass.train.runners.base import Outcome, Runner
from windlass.train.runners.buckets import BUCKET_BYTES, FIRST_BYTES, Bucket, Buckets
from windlass.train.runners.exchanges import reducer_for
from windlass.train.runners.reducers import Plain, Reducer, Ring
from windlass.train.runners.replicas import copy_from_first, same_parameters
from windlass.train.runners.statistics import synchronise
from windlass.train.seat import Seat
from windlass.train.strategy import Strategy
from windlass.train.task import Task

_log = logging.getLogger("windlass.train")
_NAMED_AT_MOST = 8


class AllReduce(Strategy):
    """Synchronous data parallel: gradients are summed over all workers in every step, while
    backward goes on.

    Equal to one process on the whole batch. When a worker dies all end with its name; a run with
    `checkpoint=` goes on from there."""

    name: ClassVar[str] = "allreduce"
    on_loss: ClassVar[Literal["abort", "shrink", "rejoin"]] = "abort"

    compress: SerializeAsAny[Compression] | None = Field(
        None, description="OneBit(), TopK(), PowerSGD(), FP16() or BF16(): fewer bytes"
    )
    ring: bool = Field(
        False, description="a plain ring of sends and receives, for teaching; without overlap"
    )
    accumulate: int = Field(
        1, ge=1, description="batches whose gradients are added up before each exchange and step"
    )
    sync_batchnorm: bool = Field(
        False, description="batch statistics over all workers; else each has its own"
    )
    check_every: int = Field(
        0, ge=0, description="steps between two comparisons of the parameters' hashes; 0: never"
    )
    unused: Literal["first", "always"] = Field(
        "first",
        description="look for parameters that no worker used at the first step (and on from there "
        "if there are any), or always at every step",
    )
    bucket_mib: float = Field(
        BUCKET_BYTES / 2**20, gt=0, description="size of a bucket of gradients, in MiB"
    )

    def check(self, task: Task, workers: int, servers: int) -> list[str]:
        warnings = super().check(task, workers, servers)
        if self.ring and self.compress is not None:
            raise InvalidInput("ring, compress: one of them (the ring sends what it is given)")
        if self.compress is not None:
            warnings += self.compress.check(task, workers)
        if workers > 1:
            warnings += batchnorm_warnings(task, workers, self.sync_batchnorm)
        return warnings

    def runner(self, task: Task, seat: Seat) -> CollectiveRunner:
        return CollectiveRunner(task, seat, self)


def batchnorm_warnings(task: Task, workers: int, synced: bool) -> list[str]:
    """Raises InvalidInput where synchronised statistics would wait for an empty share."""
    found = [
        name for name, each in task.model.named_modules()
        if isinstance(each, nn.modules.batchnorm._BatchNorm)
    ]  # fmt: skip
    if not found:
        return []
    if not synced:
        return [
            f"{_listed(found)}: BatchNorm sees only its own worker's share, so this is not equal "
            "to the big batch (sync_batchnorm=True makes it so)"
        ]
    data = task.data
    rest = data.size % data.global_batch
    smallest = rest if rest and not data.drop_last else data.global_batch
    if smallest < workers:
        raise InvalidInput(
            f"sync_batchnorm: the smallest batch has {smallest} samples for {workers} workers, "
            "and a worker with none has no statistics to give",
            hint="Data(…, drop_last=True)",
        )
    return []


def _listed(names: list[str]) -> str:
    more = len(names) - _NAMED_AT_MOST
    return ", ".join(names[:_NAMED_AT_MOST]) + (f" and {more} more" if more > 0 else "")


class CollectiveRunner(Runner):
    def __init__(self, task: Task, seat: Seat, strategy: AllReduce) -> None:
        super().__init__(task, seat)
        self.strategy = strategy
        self.unused: list[str] = []
        """Parameters that no worker used, by name."""
        self.group = form(seat)
        try:
            copy_from_first(self.group, task.model)
            self.reducer = _reducer(strategy, self)
            self.buckets = Buckets(
                task.model,
                self._ready,
                first_bytes=min(FIRST_BYTES, int(strategy.bucket_mib * 2**20)),
                bucket_bytes=int(strategy.bucket_mib * 2**20),
            )
            self.reducer.number = len(self.buckets.buckets)
            if strategy.sync_batchnorm and self.group.size > 1:
                synchronise(task.model, self.group)
        except BaseException:
            self.group.close()
            raise
        self.applied = 0
        self._control: tuple[Tensor, Pending] | None = None
        self._count: float | None = None
        self._gathered = 0
        self._gathered_count = 0.0
        self._looks_for_unused = True
        self._scale = 1.0
        self._rounds = 0

    # -- the loop ---------------------------------------------------------------------------

    def step(self, batch: Batch) -> Outcome:
        self.group.step = batch.cursor.steps
        if not self._gathered:
            self.buckets.forget()
        last = self._gathered + 1 >= self.strategy.accumulate
        loss: Tensor | float = 0.0
        count = 0.0
        if batch.content is not None:
            total, count = self.task.loss_of(batch.content)
            loss = total.detach()
        self._gathered += 1
        self._gathered_count += count
        if last:
            self._tell(self._gathered_count, finished=False)
            self.buckets.begin()
        if batch.content is not None:
            total.backward()  # type: ignore[no-untyped-call]
        if last:
            self._apply()
        return Outcome(loss, count)

    def finish(self) -> None:
        """Join: what is left over is applied, then the others are followed until all are here."""
        if self._gathered:
            self._tell(self._gathered_count, finished=False)
            self.buckets.begin()
            self._apply()
        while self.group.size > 1:
            self.buckets.forget()
            self._tell(0.0, finished=True)
            if self._agreed()[1] == self.group.size:
                self._control = None
                return
            self.counters.event("joined steps")
            self.buckets.begin()
            self._apply()
            if self.task.schedule is not None:
                self.task.schedule.step()

    def drain(self) -> None:
        """Buffers (running statistics) are each worker's own until here: worker 0's count."""
        copy_from_first(self.group, self.task.model, parameters=False)
        self.group.part()

    def close(self) -> None:
        self.buckets.close()
        self.group.close()

    # -- state ------------------------------------------------------------------------------

    def local_state(self) -> dict[str, Any]:
        """Not the gradients that wait for others to be added: `applied` says that their batches
        are still to be used, by however many workers go on."""
        found: dict[str, Any] = {}
        reducing = self.reducer.state()
        if reducing:
            found["reducer"] = reducing
        return found

    def load_local_state(self, state: dict[str, Any]) -> None:
        self.reducer.load(state.get("reducer", {}))

    # -- one exchange -----------------------------------------------------------------------

    def _tell(self, count: float, *, finished: bool) -> None:
        """Begin the sum of counts, so that it is there by the end of backward. In double: a
        count is exact whatever the gradients' type."""
        device = self.group.device if self.group.is_nccl else "cpu"
        told = torch.tensor([count, float(finished)], dtype=torch.float64, device=device)
        pending = self.group.all_reduce(told, kind="control", operation="all-reduce of counts")
        self._control = (told, pending)

    def _agreed(self) -> tuple[float, int]:
        assert self._control is not None
        told, pending = self._control
        pending.wait()
        count, finished = told.tolist()
        return count, int(finished)

    def _ready(self, bucket: Bucket) -> None:
        if not self.reducer.is_linear and bucket.index == 0:
            count, _ = self._agreed()
            self._scale = 2.0 ** -math.ceil(math.log2(count or 1.0))
            self.reducer.unit = self._scale * (count or 1.0)
        if self._scale != 1.0:
            bucket.flat.mul_(self._scale)
        self.reducer.begin(bucket)

    def _apply(self) -> None:
        """All that can fail comes before the first change of a parameter."""
        self.buckets.end()
        count, _ = self._agreed()
        for bucket in self.buckets.buckets:
            self.reducer.turn(bucket)
        divisor = (count or 1.0) * self._scale
        for bucket in self.buckets.buckets:
            self.reducer.end(bucket)
            bucket.flat.div_(divisor)
        unused = self._unused() if count and self._looks_for_unused else frozenset[int]()
        self._gathered, self._gathered_count, self._control = 0, 0.0, None
        if not count:
            self.applied = (self.group.step or 0) + 1
            return  # nobody had a sample: there is no gradient
        for bucket in self.buckets.buckets:
            bucket.give(unused)
        self._update()
        self.applied = (self.group.step or 0) + 1
        self.reducer.commit()
        self._rounds += 1
        if self.strategy.check_every and self._rounds % self.strategy.check_every == 0:
            same_parameters(self.group, self.task.model)

    def _update(self) -> None:
        """With the whole gradient in place."""
        self.task.optimizer.step()

    def _unused(self) -> frozenset[int]:
        device = self.group.device if self.group.is_nccl else "cpu"
        seen = torch.tensor(list(self.buckets.seen), dtype=torch.int32, device=device)
        self.group.all_reduce(seen, kind="control", operation="search for unused").wait()
        found = [number for number, times in enumerate(seen.tolist()) if not times]
        if not self._rounds:
            self._looks_for_unused = bool(found) or self.strategy.unused == "always"
            if found:
                self.unused = [self.buckets.names[number] for number in found]
                self.counters.event("unused parameters", len(found))
                if self.seat.rank == 0:
                    _log.warning(
                        "no worker used %s: without gradient they stay as they are",
                        _listed(self.unused),
                    )
        return frozenset(found)


def _reducer(strategy: AllReduce, runner: CollectiveRunner) -> Reducer:
    if strategy.compress is not None and runner.group.size > 1:
        return reducer_for(strategy.compress, runner.group, runner.counters)
    return Ring(runner.group) if strategy.ring else Plain(runner.group)
