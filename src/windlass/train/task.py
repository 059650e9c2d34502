"""What is trained: a model, its loss, its optimiser, its data. `make()` gives one on each member.

A loss is a *sum and a count*, so that no strategy has to guess a scale: the gradient of the whole
batch is the sum of the members' gradients over the sum of their counts, however uneven.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from windlass.core.errors import InvalidInput
from windlass.train.data import Data

Count = int | float


class Loss(Protocol):
    def __call__(self, model: nn.Module, batch: Any) -> tuple[Tensor, Count]:
        """The sum of the losses of a batch, and of how many it is the sum."""
        ...


@dataclass
class Task:
    """`blocks`: the layers in order, for pipelines. `schedule`: a torch lr_scheduler, stepped
    after each step. `evaluate`: numbers of a model, asked for after each epoch and at the end."""

    model: nn.Module
    loss: Loss
    optimizer: torch.optim.Optimizer
    data: Data
    blocks: Sequence[nn.Module] | None = None
    schedule: torch.optim.lr_scheduler.LRScheduler | None = None
    evaluate: Callable[[nn.Module], Mapping[str, float]] | None = None

    def check(self) -> None:
        """Raises InvalidInput on what would fail in the middle of a training."""
        if not isinstance(self.model, nn.Module):
            raise InvalidInput(f"task.model: a torch module (found {type(self.model).__name__})")
        if not isinstance(self.optimizer, torch.optim.Optimizer):
            raise InvalidInput(
                f"task.optimizer: a torch optimiser (found {type(self.optimizer).__name__})"
            )
        if not isinstance(self.data, Data):
            raise InvalidInput(
                f"task.data: a windlass.train.Data (found {type(self.data).__name__})",
                hint="Data(dataset, global_batch=64) wraps any map-style dataset",
            )
        mine = {id(each) for each in self.model.parameters()}
        for group in self.optimizer.param_groups:
            if any(id(each) not in mine for each in group["params"]):
                raise InvalidInput(
                    "task.optimizer: it holds parameters that are not the model's",
                    hint="make both in the same call of make()",
                )

    def loss_of(self, batch: Any) -> tuple[Tensor, float]:
        """The sum as a scalar that can go backward, and the count."""
        found = self.loss(self.model, batch)
        if not (isinstance(found, tuple) and len(found) == 2):
            raise InvalidInput(
                f"task.loss: it gives a sum and a count (found {type(found).__name__})",
                hint="sum_loss(F.cross_entropy, reduction='sum') makes one of a torch loss",
            )
        total, count = found
        if not isinstance(total, Tensor) or total.numel() != 1:
            raise InvalidInput("task.loss: the sum is a tensor of one element")
        return total.reshape(()), float(count)


def sum_loss(
    function: Callable[..., Tensor],
    *,
    count: str | Callable[[Any], Count] = "samples",
    **options: Any,
) -> Loss:
    """A loss from a function of (outputs, targets) that gives a sum. `count` is `samples`,
    `targets` (those that are not `ignore_index`), `elements`, or a function of the batch."""
    if options.get("reduction", "sum") != "sum":
        raise InvalidInput(
            f"sum_loss: reduction is 'sum' (found {options['reduction']!r})",
            hint="mean_loss(function) takes one that gives a mean",
        )
    how = _counter(count, options.get("ignore_index", -100))

    def loss(model: nn.Module, batch: Any) -> tuple[Tensor, Count]:
        inputs, targets = batch
        return function(model(inputs), targets, **options), how(batch)

    return loss


def mean_loss(
    function: Callable[..., Tensor],
    *,
    count: str | Callable[[Any], Count] = "samples",
    **options: Any,
) -> Loss:
    """The same from a function that gives a mean."""
    how = _counter(count, options.get("ignore_index", -100))

    def loss(model: nn.Module, batch: Any) -> tuple[Tensor, Count]:
        inputs, targets = batch
        number = how(batch)
        return function(model(inputs), targets, **options) * number, number

    return loss


def _counter(count: str | Callable[[Any], Count], ignored: int) -> Callable[[Any], Count]:
    if callable(count):
        return count
    ways: dict[str, Callable[[Any], Count]] = {
        "samples": lambda batch: int(batch[1].shape[0]),
        "targets": lambda batch: int((batch[1] != ignored).sum()),
        "elements": lambda batch: int(batch[1].numel()),
    }
    if count not in ways:
        raise InvalidInput(f"count: one of {', '.join(ways)} or a function (found {count!r})")
    return ways[count]
