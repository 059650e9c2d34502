"""Pipelines without a flush: `pipedream` and `2bw`.

**A step** lets one mini-batch into the pipeline. On each worker `step` of mini-batch b returns
when the worker has done its part of the order for it: the forward of b, if b is its replica's,
and, once the pipeline is full, the backward and the update of an earlier mini-batch. So while
steps follow each other up to `depth` mini-batches are in flight, and the workers are up to as many
steps apart. **Draining** finishes what is in flight: the end of the training does it, and so do a
checkpoint and an evaluation, on all workers at the same step; the pipeline then fills anew. A
checkpoint therefore holds whole updates of all stages at one step, in the same form as any other
strategy's; a resumed run is the run that went on from there. In a loop of one's own every worker
gives `Trainer.step` the same batches: which of them a worker needs goes by their number.

    worker 0   F0 F1 F2 B0 U0 F3 B1 U1 …     stage 0: forward of b at version b-2
    worker 1      F0 F1 B0 U0 F2 B1 U1 …     stage 1:                          b-1
    worker 2         F0 B0 U0 F1 B1 U1 …     stage 2:                          b

A gradient is of the loss's sum; an update divides once by the count of its round, over the
replicas of the stage: the mean over samples, however uneven.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, model_validator

from windlass.core.errors import InvalidInput
from windlass.train.planning.plan import Plan
from windlass.train.policies import clock, schedules, versions
from windlass.train.policies.schedules import Schedule
from windlass.train.policies.versions import Rule
from windlass.train.runners.parting import Balance, Cuts
from windlass.train.runners.stashing import StashingRunner
from windlass.train.seat import Seat
from windlass.train.strategy import Strategy
from windlass.train.task import Task


class Stashing(Strategy):
    """What both can be told."""

    on_loss: ClassVar[Literal["abort", "shrink", "rejoin"]] = "abort"
    places_model: ClassVar[bool] = True

    replicas: tuple[int, ...] | None = Field(
        None, description="workers of each stage, from the input on; default: one each"
    )
    cuts: Cuts = None
    balance: Balance = "time"
    recompute: bool = Field(
        False, description="keep only a stage's inputs and compute its forward again for the "
        "backward: less memory, a third more work",
    )  # fmt: skip
    plan: Plan | None = Field(
        None, description="a plan or its file: stages, replicas, cuts and micro-batches as there",
    )  # fmt: skip
    trace: bool = Field(False, description="keep the order of all events, for a replay")

    @model_validator(mode="before")
    @classmethod
    def _as_planned(cls, given: Any) -> Any:
        """What a plan says, where it was not said otherwise."""
        if not isinstance(given, dict) or given.get("plan") is None:
            return given
        plan = Plan.given(given["plan"], cls.name)
        told = plan.told(cls.model_fields)
        return {**told, "replicas": plan.replicas, **given, "plan": plan}

    def replicas_of(self, workers: int) -> tuple[int, ...]:
        return self.replicas or (1,) * workers

    def share_of(self, seat: Seat) -> tuple[int, int]:
        """Every worker sees every mini-batch; whose it is goes by its number."""
        return 0, 1

    def takes(self, workers: int) -> bool:
        replicas = self.replicas_of(workers)
        cut = self.cuts is None or len(self.cuts) == len(replicas) - 1
        return sum(replicas) == workers and cut

    def tells(self, seat: Seat) -> bool:
        return seat.rank == schedules.first_ranks(self.replicas_of(seat.workers))[-1][0]

    def check(self, task: Task, workers: int, servers: int) -> list[str]:
        found = super().check(task, workers, servers)
        if isinstance(task.optimizer, torch.optim.LBFGS):
            raise InvalidInput(f"task.optimizer: {self.name} cannot call a closure (found LBFGS)")
        replicas = self.replicas_of(workers)
        if any(count < 1 for count in replicas) or sum(replicas) != workers:
            raise InvalidInput(
                f"replicas: 1 or more for each stage, {workers} workers in all (found "
                f"{list(replicas)}, {sum(replicas)} in all)"
            )
        if self.cuts is not None and len(self.cuts) != len(replicas) - 1:
            raise InvalidInput(
                f"cuts: {len(replicas) - 1}, one less than the {len(replicas)} stages (found "
                f"{len(self.cuts)}: {list(self.cuts)})"
            )
        clock.clock(self.schedule(replicas))  # raises where it cannot run
        return found

    def runner(self, task: Task, seat: Seat) -> StashingRunner:
        return StashingRunner(task, seat, self)

    # -- how they differ --------------------------------------------------------------------

    def schedule(self, replicas: Sequence[int]) -> Schedule:
        """Long enough to show the pipeline full."""
        raise NotImplementedError

    def batches_of_step(self, replicas: Sequence[int]) -> int:
        return 1

    def update_every(self, replicas: Sequence[int], stage: int) -> int:
        return replicas[stage]

    def is_late(self, replicas: Sequence[int], stage: int) -> bool:
        return False

    def rule(self, replicas: Sequence[int], stage: int, first: int, version: int) -> Rule:
        raise NotImplementedError

    def most_alive(self, replicas: Sequence[int], stage: int) -> int:
        raise NotImplementedError

    def stamp(self, replicas: Sequence[int], batch: int, first: int) -> int | None:
        """What the input stage tells the others of the weights it uses for a batch."""
        return None

    def rate_of(self, runner: StashingRunner) -> float:
        return 1.0


class PipeDream(Stashing):
    """PipeDream: each worker holds a stage; mini-batches follow each other without a flush, and
    each goes back with the weights it went forward with.

    Nothing waits once the pipeline is full. The price is delay: stage k of n uses weights that
    lack the n-k mini-batches before. Stages may be replicated: mini-batches then go round the
    replicas, which average their gradients. When a worker dies all end with its name; a run with
    `checkpoint=` goes on from there.
    """

    name: ClassVar[str] = "pipedream"
    vertical_sync: bool = Field(
        False, description="all stages use the same version for a mini-batch: the one that the "
        "input stage has when it lets it in",
    )  # fmt: skip
    overlap: bool = Field(
        True, description="replicas of a stage exchange a round's gradients while they compute "
        "the next, so its update comes a turn later; else they wait for each other at each",
    )  # fmt: skip
    scale_lr: bool = Field(
        False, description="learning rate of a stage times its replicas over the input stage's, "
        "as PipeDream's own code does for SGD. Off: the rate means what it means for one worker, "
        "under any optimiser",
    )  # fmt: skip

    def schedule(self, replicas: Sequence[int]) -> Schedule:
        batches = 3 * schedules.depth(replicas)
        return schedules.pipedream(replicas, batches, overlap=self.overlap)

    def is_late(self, replicas: Sequence[int], stage: int) -> bool:
        return schedules.is_late(replicas, stage, self.overlap)

    def rule(self, replicas: Sequence[int], stage: int, first: int, version: int) -> Rule:
        if not self.vertical_sync:
            return versions.newest
        return versions.vertical(
            replicas, stage, first=first, version=version, overlap=self.overlap
        )

    def most_alive(self, replicas: Sequence[int], stage: int) -> int:
        return versions.most_alive(
            replicas, stage, vertical_sync=self.vertical_sync, overlap=self.overlap
        )

    def stamp(self, replicas: Sequence[int], batch: int, first: int) -> int | None:
        if not self.vertical_sync:
            return None
        return versions.stamp(replicas, batch, first=first, overlap=self.overlap)

    def rate_of(self, runner: StashingRunner) -> float:
        return runner.replicas[runner.stage] / runner.replicas[0] if self.scale_lr else 1.0


class TwoBw(Stashing):
    """PipeDream-2BW: a pipeline without a flush in which every update is of a whole batch, taken
    at the weights of one update before; two versions are kept, however long the pipeline.

    x(t+1) = x(t) - lr·grad f(x(t-1)), the same at all stages, and the same however often the
    pipeline is drained. A step's batch is cut into micro-batches, at least as many as are in
    flight.
    """

    name: ClassVar[str] = "2bw"
    micro_batches: int | None = Field(
        None, ge=1, description="into how many each batch is cut; default, and the least: as many "
        "as are in flight, which is the number of stages of a straight pipeline",
    )  # fmt: skip

    def check(self, task: Task, workers: int, servers: int) -> list[str]:
        found = super().check(task, workers, servers)
        cut = self.batches_of_step(self.replicas_of(workers))
        if cut > task.data.global_batch:
            found.append(
                f"micro_batches: a batch of {task.data.global_batch} samples fills fewer than "
                f"{cut}, so workers wait"
            )
        return found

    def schedule(self, replicas: Sequence[int]) -> Schedule:
        return schedules.two_bw(replicas, 3, self.micro_batches)

    def batches_of_step(self, replicas: Sequence[int]) -> int:
        return self.micro_batches or schedules.depth(replicas)

    def update_every(self, replicas: Sequence[int], stage: int) -> int:
        return self.batches_of_step(replicas)

    def rule(self, replicas: Sequence[int], stage: int, first: int, version: int) -> Rule:
        return versions.delayed(self.batches_of_step(replicas), first, version)

    def most_alive(self, replicas: Sequence[int], stage: int) -> int:
        return 2
