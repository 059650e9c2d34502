"""The smallest strategy: each worker trains alone. What the tests of the loop train with."""

from __future__ import annotations

import os
import signal
from typing import Any, ClassVar, Literal

import torch
from torch import nn
from torch.nn import functional

import windlass.train as wt
from windlass.train.data import Batch
from windlass.train.runners.base import Outcome, Runner
from windlass.train.seat import Seat


class Alone(wt.Strategy):
    """Nobody talks to anybody."""

    name: ClassVar[str] = "alone"
    die_at: int = -1
    die_rank: int = 1
    how: int = 9

    def runner(self, task: wt.Task, seat: Seat) -> Runner:
        return _Alone(task, seat, self)


class AloneAndAgain(Alone):
    """The same; whoever dies comes back."""

    on_loss: ClassVar[Literal["abort", "shrink", "rejoin"]] = "rejoin"


class AloneOnward(Alone):
    """The same; whoever dies is gone."""

    on_loss: ClassVar[Literal["abort", "shrink", "rejoin"]] = "shrink"


class _Alone(Runner):
    def __init__(self, task: wt.Task, seat: Seat, strategy: Alone) -> None:
        super().__init__(task, seat)
        self.strategy = strategy
        self.kept = 0

    def step(self, batch: Batch) -> Outcome:
        strategy, here = self.strategy, self.seat.rank == self.strategy.die_rank
        if here and batch.cursor.steps == strategy.die_at and not _was_here(self.seat):
            os.kill(os.getpid(), signal.Signals(strategy.how))
        self.task.optimizer.zero_grad()
        if batch.content is None:
            return Outcome(0.0, 0)
        total, count = self.task.loss_of(batch.content)
        (total / count).backward()  # type: ignore[no-untyped-call]
        self.task.optimizer.step()
        self.kept += 1
        return Outcome(total.detach(), count)

    def local_state(self) -> dict[str, Any]:
        return {"kept": self.kept}

    def load_local_state(self, state: dict[str, Any]) -> None:
        self.kept = state["kept"]


def _was_here(seat: Seat) -> bool:
    """Whether an earlier process of this seat has died already."""
    marks = os.environ.get("ALONE_MARKS", "")
    path = os.path.join(marks, seat.name) if marks else ""
    if path and os.path.exists(path):
        return True
    if path:
        open(path, "w").close()
    return False


def make() -> wt.Task:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(37, 5, generator=generator, dtype=torch.float64)
    y = (x.sum(1) > 0).long()
    model = nn.Linear(5, 2, dtype=torch.float64)
    return wt.Task(
        model=model,
        loss=wt.sum_loss(functional.cross_entropy, reduction="sum"),
        optimizer=torch.optim.SGD(model.parameters(), 0.5, momentum=0.9),
        data=wt.Data((x, y), 8, seed=2),
        evaluate=lambda net: {"right": float((net(x).argmax(1) == y).double().mean())},
    )
