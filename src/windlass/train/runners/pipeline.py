"""Pipelines with a flush: every gradient of a step is there before its one update.

    gpipe, 1f1b, zb1p       one stage on each worker
    interleaved, zbv        several stages on each

All give the gradient of the unpipelined model. They differ in what stands idle and in how much is
kept meanwhile: `windlass plan --draw` shows their clocks. Replicas of the pipeline take a share of
each batch, and the layers of a stage may be cut over some workers (`tensor=`): data x pipeline x
tensor, as mesh.py lays it out.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import nn

from windlass.core.errors import InvalidInput
from windlass.train.cut.pairs import Layers, check_layers, chosen
from windlass.train.planning.plan import Plan
from windlass.train.policies import schedules
from windlass.train.policies.schedules import Schedule
from windlass.train.runners.flushing import PipelineRunner
from windlass.train.runners.mesh import Mesh, Spot
from windlass.train.runners.parting import Balance, Cuts
from windlass.train.seat import Seat
from windlass.train.strategy import Strategy
from windlass.train.task import Task


class Pipelined(Strategy):
    """What all pipelines with a flush can be told."""

    on_loss: ClassVar[Literal["abort", "shrink", "rejoin"]] = "abort"
    places_model: ClassVar[bool] = True

    micro_batches: int | None = Field(
        None, ge=1, description="into how many each batch is cut; default: 4 for each worker of "
        "a replica, at most one for each sample",
    )  # fmt: skip
    replicas: int = Field(
        1, ge=1, description="copies of the whole pipeline, each with a share of every batch"
    )
    tensor: int = Field(
        1, ge=1, description="workers over which the linear layers of each stage are cut: workers "
        "= replicas x places in the pipeline x tensor",
    )  # fmt: skip
    layers: Layers | None = Field(
        None, description="with tensor, which layers: module names (with * and ?) to column, row, "
        "or apart (a dropout between two cuts); default: pairs that are found",
    )  # fmt: skip
    cuts: Cuts = None
    balance: Balance = "time"
    plan: Plan | None = Field(
        None, description="a plan or its file: stages, replicas, cuts and micro-batches as there",
    )  # fmt: skip
    recompute: bool = Field(
        False, description="keep only a stage's inputs and compute its forward again for the "
        "backward: less memory, a third more work",
    )  # fmt: skip

    @model_validator(mode="before")
    @classmethod
    def _as_planned(cls, given: Any) -> Any:
        """What a plan says, where it was not said otherwise."""
        if not isinstance(given, dict) or given.get("plan") is None:
            return given
        plan = Plan.given(given["plan"], cls.name)
        if len(set(plan.replicas)) > 1:
            raise InvalidInput(
                f"plan: {cls.name} has as many replicas of each stage (found "
                f"{'-'.join(map(str, plan.replicas))})",
                hint="pipedream and 2bw take such a plan",
            )
        told = plan.told(cls.model_fields)
        return {**told, "replicas": plan.replicas[0], **given, "plan": plan}

    @property
    def stages_each(self) -> int:
        """How many stages a worker holds."""
        return 1

    def schedule(self, stages: int, batches: int) -> Schedule:
        raise NotImplementedError

    def mesh(self, workers: int) -> Mesh:
        return Mesh(self.replicas, workers // (self.replicas * self.tensor), self.tensor)

    def share_of(self, seat: Seat) -> tuple[int, int]:
        return self.mesh(seat.workers).spot(seat.rank).replica, self.replicas

    def tells(self, seat: Seat) -> bool:
        mesh = self.mesh(seat.workers)
        last = self.schedule(mesh.places * self.stages_each, 1).rank_of[-1][0]
        return mesh.spot(seat.rank) == Spot(0, last, 0)

    def cut_layers(self, task: Task) -> Layers:
        """Those that each worker has a slice of."""
        return chosen(task.model, self.layers) if self.tensor > 1 else {}

    def takes(self, workers: int) -> bool:
        if workers % (self.replicas * self.tensor):
            return False
        stages = self.mesh(workers).places * self.stages_each
        return self.cuts is None or len(self.cuts) == stages - 1

    def check(self, task: Task, workers: int, servers: int) -> list[str]:
        found = super().check(task, workers, servers)
        if isinstance(task.optimizer, torch.optim.LBFGS):
            raise InvalidInput(f"task.optimizer: {self.name} cannot call a closure (found LBFGS)")
        if workers % self.replicas:
            raise InvalidInput(
                f"replicas: {workers} workers make no {self.replicas} pipelines of one length",
                hint=f"replicas= one of {', '.join(map(str, _divisors(workers)))}",
            )
        self._check_slices(task, workers // self.replicas)
        stages = self.mesh(workers).places * self.stages_each
        if self.cuts is not None and len(self.cuts) != stages - 1:
            raise InvalidInput(
                f"cuts: {stages - 1}, one less than the {stages} stages of {workers} workers "
                f"(found {len(self.cuts)}: {list(self.cuts)})"
            )
        if workers > 1:
            found += _statistics(task)
        batch = -(-task.data.global_batch // self.replicas)
        if self.micro_batches is not None and self.micro_batches > batch:
            found.append(
                f"micro_batches: a batch of {batch} samples is cut into {batch}, not "
                f"{self.micro_batches}"
            )
        return found

    def _check_slices(self, task: Task, workers: int) -> None:
        """Of a replica."""
        if self.tensor == 1:
            if self.layers is not None:
                raise InvalidInput("layers: nothing is cut", hint="tensor=2 or more")
            return
        if workers % self.tensor:
            raise InvalidInput(
                f"tensor: {self.tensor} does not divide the {workers} workers of a replica",
                hint="workers = replicas x places in the pipeline x tensor",
            )
        kind = type(task.optimizer).__name__
        if kind in _BY_TENSOR:
            raise InvalidInput(f"task.optimizer: {kind} looks at whole tensors, which are cut")
        check_layers(task.model, self.cut_layers(task), self.tensor)

    def runner(self, task: Task, seat: Seat) -> PipelineRunner:
        return PipelineRunner(task, seat, self)


class GPipe(Pipelined):
    """GPipe: each worker holds a stage; all micro-batches go forward, then all go back, then one
    step.

    Equal to one process on the whole batch. Waits for (K-1)/(M+K-1) of the time with K stages and
    M micro-batches. When a worker dies all end with its name; a run with `checkpoint=` goes on
    from there."""

    name: ClassVar[str] = "gpipe"

    def schedule(self, stages: int, batches: int) -> Schedule:
        return schedules.gpipe(stages, batches)


class OneForwardOneBackward(Pipelined):
    """1F1B: a pipeline that goes back as soon as it can, so that a stage keeps at most as many
    micro-batches as there are stages behind it.

    The same gradient and the same wait as `gpipe` with less memory."""

    name: ClassVar[str] = "1f1b"

    def schedule(self, stages: int, batches: int) -> Schedule:
        return schedules.one_f_one_b(stages, batches)


class Interleaved(Pipelined):
    """Interleaved 1F1B: each worker holds several stages that are not neighbours, so that a
    pipeline fills and empties sooner.

    The same gradient as `gpipe`; the wait is divided by `chunks`, at as many times the messages.
    """

    name: ClassVar[str] = "interleaved"
    chunks: int = Field(2, ge=1, description="stages on each worker")

    @property
    def stages_each(self) -> int:
        return self.chunks

    def schedule(self, stages: int, batches: int) -> Schedule:
        return schedules.interleaved(stages, batches, self.chunks)


class ZeroBubble(Pipelined):
    """ZB1P: a backward in two halves, of which the second, the weights' gradient, fills the gaps
    of 1F1B.

    The same gradient as `gpipe`; a third of its wait, at 1F1B's memory."""

    name: ClassVar[str] = "zb1p"

    def schedule(self, stages: int, batches: int) -> Schedule:
        return schedules.zb1p(stages, batches)


class ZeroBubbleV(Pipelined):
    """ZBV: zero bubble with two stages on each worker in a V, so that the worker that begins a
    micro-batch also ends it.

    The same gradient as `gpipe`; nothing waits once the pipeline is full, where the halves of a
    backward take as long as a forward; twice the messages."""

    name: ClassVar[str] = "zbv"

    @property
    def stages_each(self) -> int:
        return 2

    def schedule(self, stages: int, batches: int) -> Schedule:
        return schedules.zbv(stages, batches)


_BY_TENSOR = ("Adafactor", "Muon")
"""Optimisers of torch's that are not by elements: a slice would get another step."""


def _statistics(task: Task) -> list[str]:
    norms = [
        name for name, each in task.model.named_modules()
        if isinstance(each, nn.modules.batchnorm._BatchNorm)
    ]  # fmt: skip
    if not norms:
        return []
    return [
        f"{norms[0]}{' and others' if len(norms) > 1 else ''}: BatchNorm sees one micro-batch "
        "at a time, so this is not equal to the whole batch; its running statistics are the "
        "whole batch's"
    ]


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]
