"""Small models in double precision for the tests of pipelines, and one way to train them on the
seats of a town."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import windlass.train as wt
from windlass.train import registry
from windlass.train.data import Data
from windlass.train.runners.flushing import PipelineRunner
from windlass.train.seat import Seat
from windlass.train.task import Task, sum_loss
from windlass.train.testing.tasks import flat
from windlass.train.testing.town import Town

_SCOPES = itertools.count()
SGD = {"lr": 0.05, "momentum": 0.9}


def straight() -> nn.Module:
    """Nine modules, one of which writes over its input."""
    return nn.Sequential(
        nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Linear(8, 6),
        nn.Tanh(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2),
    )  # fmt: skip


class Skipping(nn.Module):
    """What the first layer makes is used by the next and by the last."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            [nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 2)]
        )

    def forward(self, x: Tensor) -> Tensor:
        first = torch.tanh(self.layers[0](x))
        value = torch.tanh(self.layers[1](first))
        value = torch.tanh(self.layers[2](value))
        return self.layers[3](value + first)  # type: ignore[no-any-return]


class Tied(nn.Module):
    """Words in, words out, through the same table."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 6)
        self.layers = nn.ModuleList([nn.Linear(6, 6) for _ in range(3)])
        self.out = nn.Linear(6, 11, bias=False)
        self.out.weight = self.table.weight

    def forward(self, words: Tensor) -> Tensor:
        value = self.table(words)
        for layer in self.layers:
            value = value + torch.tanh(layer(value))
        return self.out(value)  # type: ignore[no-any-return]


def task_of(kind: str, *, optimizer: Callable[[Any], torch.optim.Optimizer] | None = None) -> Task:
    """Batches of 7 and then 4 samples, so that hardly a number of micro-batches divides them."""
    dice = torch.Generator().manual_seed(5)
    torch.manual_seed(3)
    if kind == "tied":
        words = torch.randint(0, 11, (11, 3), generator=dice)
        said = torch.randint(0, 11, (11, 3), generator=dice)
        said[torch.rand(said.shape, generator=dice) < 0.3] = -100  # uneven counts
        model: nn.Module = Tied().double()
        loss = sum_loss(_of_words, count="targets", reduction="sum")
        data = Data((words, said), 7)
        blocks: list[nn.Module] | None = [model.table, *model.layers, model.out]
    else:
        model = {"straight": straight, "skipping": Skipping}[kind]().double()
        x = torch.randn(11, 4, generator=dice, dtype=torch.float64)
        y = torch.randn(11, 2, generator=dice, dtype=torch.float64)
        loss = sum_loss(functional.mse_loss, reduction="sum")
        data = Data((x, y), 7)
        blocks = None if kind == "straight" else list(model.layers)
    make = optimizer or (lambda parameters: torch.optim.SGD(parameters, **SGD))
    return Task(model, loss, make(model.parameters()), data, blocks)


def _of_words(found: Tensor, said: Tensor, **options: Any) -> Tensor:
    return functional.cross_entropy(found.flatten(0, 1), said.flatten(), **options)


def trained(
    town: Town,
    make: Callable[[], Task],
    strategy: str,
    steps: int = 3,
    *,
    timeout_seconds: float = 60.0,
    **options: Any,
) -> tuple[Tensor, dict[str, Any]]:
    """All parameters after so many steps, of worker 0; what each worker's steps were."""
    options.setdefault("balance", "blocks")
    tasks = {name: make() for name in town.seats}  # here: torch's dice are the process's
    scope = f"training {next(_SCOPES)}/"
    found = town.call(_train, tasks, strategy, options, steps, scope,
                      timeout_seconds=timeout_seconds)  # fmt: skip
    return flat(tasks["worker 0"].model), found


def _train(
    seat: Seat, tasks: dict[str, Task], strategy: str, options: dict[str, Any], steps: int,
    scope: str,
) -> list[tuple[float, float]]:  # fmt: skip
    seat.meeting.scope = scope
    task = tasks[seat.name]
    chosen = registry.choose(strategy, options)
    chosen.check(task, seat.workers, seat.servers)
    runner = chosen.runner(task, seat)
    assert isinstance(runner, PipelineRunner)
    try:
        found = []
        for step in range(steps):
            batch = task.data.batch(task.data.at(step), *chosen.share_of(seat))
            outcome = runner.step(batch)
            found.append((float(outcome.loss_sum), outcome.count))
        runner.drain()
        return found
    finally:
        runner.close()


def fit_one(task: Task, seat: Seat, scope: str, strategy: str, **options: Any) -> wt.Trainer:
    """A Trainer on a seat of a town."""
    seat.meeting.scope = scope
    return wt.Trainer(task, strategy, seat=seat, **options)
