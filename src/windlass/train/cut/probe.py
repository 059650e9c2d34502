"""Stand-ins for the model while a task's loss runs: to learn what it calls the model with, and to
give it an output that a pipeline has made.

    first stage   task.loss(probe, batch)     the call ends where the model would begin
    last stage    task.loss(given, batch)     the model's "call" gives the pipeline's output

So any loss works that calls the model once and asks nothing else of it. What it does before that
call is done at both ends: it should not throw dice there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from windlass.core.errors import InvalidInput
from windlass.train.data import Data
from windlass.train.task import Task


def inputs_of(task: Task, batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments that the task's loss calls the model with. Nothing is computed."""
    call = _call(task, batch)
    return call.args_given, call.kwargs_given


def casts_of(task: Task, batch: Any) -> dict[str, torch.dtype]:
    """Kinds of device → the dtype that torch's autocast works in where the loss calls the model:
    stages then do the same."""
    return _call(task, batch).casts


def loss_given(task: Task, batch: Any, output: Any) -> tuple[Tensor, float]:
    """The task's loss of this batch where the model's output is `output`: sum and count."""
    stand_in = _Given(task.model, output)
    found = Task.loss_of(_with_model(task, stand_in), batch)
    if stand_in.calls != 1:
        raise InvalidInput(
            f"task.loss: it calls the model once in a pipeline (found {stand_in.calls} calls)",
            hint="put both calls into one module's forward",
        )
    return found


def example_of(task: Task, samples: int) -> Any:
    """A batch of that many samples (fewer where the data set is smaller), in their order."""
    data = task.data
    size = min(samples, data.size)
    few = Data(data.dataset, size, shuffle=False, collate=data._collate)
    return few.batch(few.at(0)).content


def _call(task: Task, batch: Any) -> _Called:
    try:
        task.loss(_Probe(task.model), batch)
    except _Called as call:
        return call
    raise InvalidInput("task.loss: it does not call the model, so nothing can be cut")


class _Called(BaseException):
    """Ends the loss at its call of the model. No Exception, so that no loss catches it."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().__init__()
        self.args_given = args
        self.kwargs_given = kwargs
        self.casts = {
            kind: torch.get_autocast_dtype(kind)
            for kind in ("cpu", "cuda")
            if torch.is_autocast_enabled(kind)
        }


class _StandIn(nn.Module):
    """Plain attributes are the model's; its tensors and modules are elsewhere."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.__dict__["_model"] = model
        self.training = model.training

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.__dict__["_model"], name)
        if isinstance(found, Tensor | nn.Module):
            _refuse(f"model.{name}")
        return found

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        _refuse("model.parameters()")

    def named_parameters(self, *_: Any, **__: Any) -> Iterator[tuple[str, nn.Parameter]]:
        _refuse("model.named_parameters()")


class _Probe(_StandIn):
    def forward(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise _Called(args, kwargs)


class _Given(_StandIn):
    def __init__(self, model: nn.Module, output: Any) -> None:
        super().__init__(model)
        self.__dict__["_output"] = output
        self.calls = 0

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return self.__dict__["_output"]


def _with_model(task: Task, model: nn.Module) -> Task:
    return Task(model, task.loss, task.optimizer, task.data)


def _refuse(what: str) -> NoReturn:
    raise InvalidInput(
        f"task.loss: it reads {what}; in a pipeline no member has the whole model",
        hint="compute what the loss needs inside the model and give it with its output",
    )
