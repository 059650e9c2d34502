"""Strategies in which workers step alone and meet now and then: the outer loop."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from windlass.core.errors import InvalidInput
from windlass.train.policies.outer_opt import BlockMomentum, Elastic, Mean, OuterNesterov
from windlass.train.runners.periods import PeriodRunner
from windlass.train.seat import Seat
from windlass.train.strategy import Strategy
from windlass.train.task import Task


class Outer(Strategy):
    """What they share: a worker that dies is left out from then on."""

    on_loss: ClassVar[Literal["abort", "shrink", "rejoin"]] = "shrink"


class LocalSgd(Outer):
    """Each worker steps alone; parameters are averaged every N steps.

    A step costs T + C/N instead of T + C. Replicas drift apart in between (`drift` in the report):
    with a large N the average is worse than its parts."""

    name: ClassVar[str] = "local_sgd"
    every: int = Field(10, ge=1, description="steps between two averages")
    average_state: bool = Field(
        False, description="average momentum, Adam's moments and buffers as well"
    )
    post_local: int = Field(
        0, ge=0, description="first steps that are synchronous, as with `allreduce`"
    )

    def check(self, task: Task, workers: int, servers: int) -> list[str]:
        warnings = super().check(task, workers, servers)
        if self.post_local and workers > 1:
            warnings.append(
                f"post_local: from step {self.post_local} on averages over all workers are all "
                "that ties them; accuracy can fall below that of allreduce, so compare"
            )
        if self.every > 1 and not self.average_state and _has_momentum(task):
            warnings.append(
                "average_state: each worker keeps a momentum of its own, which is not that of the "
                "averaged parameters (average_state=True averages it too)"
            )
        return warnings

    def runner(self, task: Task, seat: Seat) -> PeriodRunner:
        return PeriodRunner(
            task, seat, lambda _: Mean(), period=self.every, together=self.post_local,
            average_state=self.average_state,
        )  # fmt: skip


class Bmuf(Outer):
    """Block momentum: averages every N steps, filtered by a momentum of their own.

    G = mean - W; D ← mu D + zeta G; W ← W + D. With mu = 1 - 1/p and zeta = 1 it is what CNTK's
    block momentum does with its defaults (it sums deltas: zeta = p (1 - mu) zeta')."""

    name: ClassVar[str] = "bmuf"
    tau: int = Field(10, ge=1, description="steps of a block")
    mu: float | None = Field(
        None, ge=0, lt=1, description="block momentum; default 1 - 1/workers, also after a loss"
    )
    zeta: float = Field(1.0, gt=0, description="block learning rate")
    nesterov: bool = Field(True, description="begin a block ahead, at W + mu D")
    reset_momentum: bool = Field(
        True, description="forget the optimiser's own momentum at the end of each block"
    )

    def runner(self, task: Task, seat: Seat) -> PeriodRunner:
        def policy(workers: int) -> BlockMomentum:
            mu = 1 - 1 / workers if self.mu is None else self.mu
            return BlockMomentum(mu, self.zeta, self.nesterov)

        return PeriodRunner(
            task, seat, policy, period=self.tau, forget_momentum=self.reset_momentum
        )


class DiLoCo(Outer):
    """Local steps (AdamW, say), then a Nesterov step of an outer optimiser on their mean."""

    name: ClassVar[str] = "diloco"
    every: int = Field(50, ge=1, description="local steps between two outer steps")
    outer_lr: float = Field(0.7, gt=0, description="learning rate of the outer optimiser")
    outer_momentum: float = Field(0.9, ge=0, lt=1, description="its momentum")

    def runner(self, task: Task, seat: Seat) -> PeriodRunner:
        return PeriodRunner(
            task, seat, lambda _: OuterNesterov(self.outer_lr, self.outer_momentum),
            period=self.every,
        )  # fmt: skip


class Easgd(Outer):
    """Elastic averaging: workers explore, and a spring ties each to a centre that all share.

    Every tau steps d = alpha (x - c); x ← x - d; c ← c + the sum of all d, by one all-reduce. The
    centre is what is evaluated and saved. Momentum in the optimiser makes it EAMSGD."""

    name: ClassVar[str] = "easgd"
    tau: int = Field(10, ge=1, description="steps between two exchanges")
    alpha: float | None = Field(
        None, gt=0, description="stiffness of the springs; default 0.9/workers, also after a loss"
    )

    def check(self, task: Task, workers: int, servers: int) -> list[str]:
        warnings = super().check(task, workers, servers)
        bound = 2 / (workers + 1)
        if self.alpha is not None and self.alpha >= bound:
            raise InvalidInput(
                f"alpha: synchronous stability needs alpha < 2/(p+1) = {bound:.4g} for {workers} "
                f"workers (found {self.alpha:g})"
            )
        return warnings

    def runner(self, task: Task, seat: Seat) -> PeriodRunner:
        def policy(workers: int) -> Elastic:
            return Elastic(0.9 / workers if self.alpha is None else self.alpha)

        return PeriodRunner(task, seat, policy, period=self.tau, each_epoch=True)


def _has_momentum(task: Task) -> bool:
    return any(g.get("momentum") or "betas" in g for g in task.optimizer.param_groups)
