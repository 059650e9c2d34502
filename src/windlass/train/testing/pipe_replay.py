"""A run of `pipedream` or `2bw` again, in one process, from nothing but the order of its events.

The whole model is called in one piece, each stage's parameters at the version that the trace says;
every version ever made is kept. Nothing of the pipeline's own arithmetic is used, and the result
is the same to the bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from windlass.train.task import Task

Event = tuple[str, int, int, int, int]
"""(kind, stage, replica, batch or update, version of the stage's weights)."""


@dataclass
class Run:
    """What was run. `stages`: the names of each stage's parameters. `flushes`: the numbers of the
    batches at which the pipeline had been drained, from the first on, and the end."""

    stages: Sequence[Sequence[str]]
    replicas: Sequence[int]
    flushes: Sequence[int]
    per_step: int = 1
    """Micro-batches of a step, and of an update (2bw); 1: an update for each round (pipedream)."""
    rates: Sequence[float] | None = None

    def every(self, stage: int) -> int:
        return self.per_step if self.per_step > 1 else self.replicas[stage]


def replay(task: Task, run: Run, trace: Iterable[Event]) -> list[int]:
    """Trains the task as the trace says. Raises AssertionError where the trace breaks a promise:
    backward of a batch at the version of its forward, on the same replica. Gives how many updates
    each stage had."""
    forward, backward, updates = _read(trace)
    assert forward == backward, "each batch goes back as it went forward"
    own = dict(task.model.named_parameters())
    history = [[{n: own[n].detach().clone() for n in names}] for names in run.stages]
    rounds = {stage: _rounds(run, stage) for stage in range(len(run.stages))}
    parts: dict[int, tuple[dict[str, Tensor], float]] = {}
    for batch in range(run.flushes[0], run.flushes[-1]):
        versions = []
        for stage, made in enumerate(history):
            replica, version = forward[stage, batch]
            assert replica == batch % run.replicas[stage]
            versions.append(made[version])
        parts[batch] = _gradient(task, run, batch, versions)
        for stage in rounds:
            if rounds[stage] and rounds[stage][0][-1] == batch:
                _update(task, run, stage, [(b, parts[b]) for b in rounds[stage].pop(0)])
                history[stage].append({n: own[n].detach().clone() for n in run.stages[stage]})
    found = [len(made) - 1 for made in history]
    for (stage, replica), count in updates.items():
        assert count == found[stage], f"stage {stage}, replica {replica}"
    return found


def _read(trace: Iterable[Event]) -> tuple[Any, Any, dict[tuple[int, int], int]]:
    at: dict[str, dict[tuple[int, int], tuple[int, int]]] = {"F": {}, "B": {}}
    updates: dict[tuple[int, int], int] = {}
    for kind, stage, replica, number, version in trace:
        if kind == "U":
            updates[stage, replica] = updates.get((stage, replica), 0) + 1
        else:
            assert (stage, number) not in at[kind], f"{kind}{number} twice at stage {stage}"
            at[kind][stage, number] = (replica, version)
    return at["F"], at["B"], updates


def _rounds(run: Run, stage: int) -> list[range]:
    every = run.every(stage)
    return [
        range(first, min(first + every, end))
        for begin, end in zip(run.flushes, run.flushes[1:], strict=False)
        for first in range(begin, end, every)
    ]


class _At(nn.Module):
    """The model with other parameters."""

    def __init__(self, model: nn.Module, parameters: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._model = [model]  # not registered: its parameters are not this module's
        self._given = dict(parameters)

    def forward(self, *args: Any, **named: Any) -> Any:
        return torch.func.functional_call(self._model[0], self._given, args, named)


def _gradient(
    task: Task, run: Run, batch: int, versions: Sequence[Mapping[str, Tensor]]
) -> tuple[dict[str, Tensor], float]:
    step, place = divmod(batch, run.per_step)
    content = task.data.batch(task.data.at(step)).content
    if run.per_step > 1:
        pieces = [torch.tensor_split(each, run.per_step) for each in content]
        content = tuple(each[place] for each in pieces)
    leaves = {n: each.clone().requires_grad_() for made in versions for n, each in made.items()}
    total, count = task.loss(_At(task.model, leaves), content)
    found = torch.autograd.grad(total, list(leaves.values()))
    return dict(zip(leaves, found, strict=True)), float(count)


def _update(
    task: Task, run: Run, stage: int, parts: Sequence[tuple[int, tuple[dict[str, Tensor], float]]]
) -> None:
    """Each replica adds its own in order, then the replicas are added in order."""
    rate = 1.0 if run.rates is None else run.rates[stage]
    own = dict(task.model.named_parameters())
    count = sum(each[1] for _, each in parts)
    for name in run.stages[stage]:
        total: Tensor | None = None
        for replica in range(run.replicas[stage]):
            mine: Tensor | None = None
            for batch, (gradients, _) in parts:
                if batch % run.replicas[stage] == replica:
                    mine = gradients[name] if mine is None else mine + gradients[name]
            if mine is not None:
                total = mine if total is None else total + mine
        assert total is not None
        own[name].grad = total / count
    groups = task.optimizer.param_groups
    before = [group["lr"] for group in groups]
    for group in groups:
        group["lr"] = group["lr"] * rate
    task.optimizer.step()
    for group, lr in zip(groups, before, strict=True):
        group["lr"] = lr
    for name in run.stages[stage]:
        own[name].grad = None
