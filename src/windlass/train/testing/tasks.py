"""Small tasks in double precision, for oracles: exact, seeded, the same on every member."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from windlass.train.data import Data
from windlass.train.task import Task, sum_loss


def network(seed: int = 0, width: int = 8, dtype: torch.dtype = torch.float64) -> nn.Sequential:
    """Two layers, no dropout, no statistics."""
    dice = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 2)).to(dtype)
    with torch.no_grad():
        for each in model.parameters():
            each.copy_(torch.randn(each.shape, generator=dice, dtype=torch.float64) * 0.5)
    return model


def samples(
    count: int, seed: int = 1, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    dice = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 4, generator=dice, dtype=torch.float64)
    targets = torch.randn(count, 2, generator=dice, dtype=torch.float64)
    return inputs.to(dtype), targets.to(dtype)


def regression(
    count: int = 22,
    global_batch: int = 6,
    *,
    model: nn.Module | None = None,
    optimizer: Callable[[Any], torch.optim.Optimizer] | None = None,
    shuffle: bool = True,
) -> Task:
    """Least squares with the small network; plain SGD unless said otherwise."""
    model = model if model is not None else network()
    make = optimizer or (lambda parameters: torch.optim.SGD(parameters, 0.05))
    data = Data(samples(count), global_batch, shuffle=shuffle)
    return Task(
        model, sum_loss(functional.mse_loss, reduction="sum"), make(model.parameters()), data
    )


def alone(task: Task, steps: int) -> Task:
    """The same task trained by one process on whole batches: what equivalences compare with."""
    for step in range(steps):
        batch = task.data.batch(task.data.at(step))
        task.optimizer.zero_grad()
        total, count = task.loss_of(batch.content)
        total.backward()  # type: ignore[no-untyped-call]
        for each in task.model.parameters():
            if each.grad is not None:
                each.grad.div_(count)
        task.optimizer.step()
    return task


def flat(model: nn.Module) -> Tensor:
    """All parameters as one vector."""
    return torch.cat([each.detach().reshape(-1).cpu() for each in model.parameters()]).clone()
