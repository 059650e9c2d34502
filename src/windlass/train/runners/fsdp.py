"""Fully sharded data parallel (ZeRO-3, torch's FSDP2): each worker keeps a p-th of parameters,
gradients and optimiser's state; a unit's parameters are gathered just before it is used.

    for each unit:  all-gather ─ forward ─ let go … all-gather ─ backward ─ reduce-scatter
    then:           divide one's own pieces by the global count ─ step of one's own pieces
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import nn

from windlass.core.errors import InvalidInput
from windlass.train.comm.torchdist.sharding import own, shard
from windlass.train.data import Batch
from windlass.train.runners.base import Outcome, Runner
from windlass.train.runners.collective import AllReduce, CollectiveRunner, batchnorm_warnings
from windlass.train.runners.sharded import ShardedRunner
from windlass.train.seat import Seat
from windlass.train.strategy import Strategy
from windlass.train.task import Task


class Fsdp(Strategy):
    """Fully sharded data parallel (FSDP2, ZeRO-3): each worker keeps a p-th of parameters,
    gradients and optimiser's state.

    Equal to one process on the whole batch. One and a half times the traffic of `allreduce`. When
    a worker dies all end with its name; a run with `checkpoint=` goes on from there, also with
    another number of workers or under another strategy."""

    name: ClassVar[str] = "fsdp"
    on_loss: ClassVar[Literal["abort", "shrink", "rejoin"]] = "abort"
    places_model: ClassVar[bool] = True

    reshard: bool = Field(
        True,
        description="let go of a unit's parameters between forward and backward; False keeps them "
        "(ZeRO-2): more memory, less traffic",
    )
    precision: Literal["full", "bf16"] = Field(
        "full", description="compute and gather in bf16; sums and steps stay as the model is"
    )

    def check(self, task: Task, workers: int, servers: int) -> list[str]:
        warnings = super().check(task, workers, servers)
        data = task.data
        rest = data.size % data.global_batch
        smallest = rest if rest and not data.drop_last else min(data.global_batch, data.size)
        if smallest < workers:
            raise InvalidInput(
                f"workers: {workers}, but the smallest batch has {smallest} samples, and a worker "
                "with none cannot take part in gathering the parameters",
                hint="Data(…, drop_last=True), a larger global_batch, or fewer workers",
            )
        if workers > 1:
            warnings += batchnorm_warnings(task, workers, False)
        return warnings

    def runner(self, task: Task, seat: Seat) -> Runner:
        if seat.workers == 1:
            task.model.to(seat.device)
            return CollectiveRunner(task, seat, AllReduce.model_validate({}))
        return FsdpRunner(task, seat, self)


def units_of(task: Task) -> list[nn.Module]:
    """What is gathered as one: the task's blocks, or the members of lists and sequences. One whose
    parameters are used elsewhere too stays with the rest."""
    model = task.model
    if task.blocks is not None:
        found = list(task.blocks)
    else:
        found = [
            member
            for each in model.modules()
            if isinstance(each, (nn.ModuleList, nn.Sequential))
            for member in each.children()
        ]
    used: dict[nn.Parameter, int] = {}
    for each in model.modules():
        for parameter in each.parameters(recurse=False):
            used[parameter] = used.get(parameter, 0) + 1
    units: list[nn.Module] = []
    for each in found:
        mine = list(each.parameters())
        inside = any(each is part for unit in units for part in unit.modules())
        if mine and not inside and all(used[one] == 1 for one in mine):
            units.append(each)
    return units


class FsdpRunner(ShardedRunner):
    def __init__(self, task: Task, seat: Seat, strategy: Fsdp) -> None:
        self.strategy = strategy
        super().__init__(task, seat)

    def _shard(self) -> None:
        mesh = self.world.mesh((self.seat.workers,), ("shard",))
        with self.world.guarded("sharding the model"):
            shard(
                self.task.model, units_of(self.task), mesh, reshard=self.strategy.reshard,
                precision=torch.bfloat16 if self.strategy.precision == "bf16" else None,
            )  # fmt: skip

    def step(self, batch: Batch) -> Outcome:
        self.begin(batch)
        if batch.content is None:
            raise InvalidInput(
                "batch: an empty one; a worker without samples cannot take part in a step of fsdp"
            )
        with self.world.guarded("forward of a sharded model"):
            total, count = self.task.loss_of(batch.content)
        device = self.group.device if self.group.is_nccl else "cpu"
        told = torch.tensor([count], dtype=torch.float64, device=device)
        pending = self.group.all_reduce(told, kind="control", operation="all-reduce of counts")
        with self.world.guarded("backward of a sharded model"):
            total.backward()  # type: ignore[no-untyped-call]
        pending.wait()
        everybody = float(told)
        for parameter in self.task.model.parameters():
            if parameter.grad is not None:
                own(parameter.grad).div_(everybody or 1.0)
        self.task.optimizer.step()
        return Outcome(total.detach(), count)
