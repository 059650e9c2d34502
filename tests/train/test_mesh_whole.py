"""What a mesh saves any other shape of it goes on from, and data parallel too: 1.12, 1.13."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from meshes import straight
from pipelines import fit_one
from torch import Tensor
from torch.nn import functional

from windlass.core.errors import InvalidInput
from windlass.train.data import Data
from windlass.train.seat import Seat
from windlass.train.task import Task, sum_loss
from windlass.train.testing.tasks import alone, flat
from windlass.train.testing.town import Town

MESH = {"replicas": 2, "tensor": 2}


def make() -> Task:
    """Adam in two groups, and an evaluation that runs the whole model."""
    dice = torch.Generator().manual_seed(5)
    torch.manual_seed(3)
    model = straight().double()
    x = torch.randn(11, 4, generator=dice, dtype=torch.float64)
    y = torch.randn(11, 5, generator=dice, dtype=torch.float64)
    weights = [each for each in model.parameters() if each.dim() == 2]
    biases = [each for each in model.parameters() if each.dim() == 1]
    optimizer = torch.optim.Adam([{"params": biases, "lr": 0.03}, {"params": weights}], 0.01)
    return Task(
        model, sum_loss(functional.mse_loss, reduction="sum"), optimizer, Data((x, y), 4, seed=1),
        evaluate=lambda net: {"loss": float(functional.mse_loss(net(x), y))},
    )  # fmt: skip


def train(
    seat: Seat, tasks: dict[str, Task], strategy: str, options: dict[str, Any],
    folder: str | None, total: int,
) -> dict[str, Any]:  # fmt: skip
    task = tasks[seat.name]
    if strategy != "allreduce":
        options = {"balance": "blocks", "micro_batches": 3, **options}
    trainer = fit_one(task, seat, "", strategy, checkpoint=folder, save_every=3, **options)
    try:
        began = trainer.cursor.steps
        while trainer.cursor.steps < total:
            for batch in trainer.batches():
                trainer.step(batch)
                if trainer.cursor.steps >= total:
                    break
        evaluated = trainer.evaluate()
        held = sum(p.numel() for p in task.model.parameters() if not p.is_meta)
        trainer.drain()
        return {"evaluated": evaluated, "held": held, "began": began, "report": trainer.report()}
    finally:
        trainer.abandon()


def run(
    workers: int, strategy: str, folder: Path | None, total: int, **options: Any
) -> tuple[Tensor, dict[str, Any]]:
    with Town(workers, 0) as town:
        tasks = {name: make() for name in town.seats}
        place = None if folder is None else str(folder)
        found = town.call(train, tasks, strategy, options, place, total)
        return flat(tasks["worker 0"].model), found


@pytest.fixture(scope="module")
def wanted() -> Tensor:
    return flat(alone(make(), 8).model)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """By two replicas of two stages in two slices, at step 3 of a run of 5."""
    folder = tmp_path_factory.mktemp("of a mesh")
    run(8, "1f1b", folder, 5, **MESH)
    return folder


def same(found: Tensor, wanted: Tensor) -> bool:
    return torch.allclose(found, wanted, rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    ("strategy", "workers", "options"),
    [
        ("gpipe", 2, {"tensor": 2}),
        ("zbv", 3, {}),
        ("zb1p", 4, {"tensor": 2, "cuts": (1,)}),
        ("allreduce", 1, {}),
        ("allreduce", 2, {}),
    ],
)
def test_what_a_mesh_saved_any_other_goes_on_from(
    saved: Path, strategy: str, workers: int, options: dict[str, Any], wanted: Tensor,
    tmp_path: Path,
) -> None:  # fmt: skip
    folder = tmp_path / "copy"
    shutil.copytree(saved, folder)
    model, found = run(workers, strategy, folder, 8, **options)
    assert {each["began"] for each in found.values()} == {3}
    assert same(model, wanted)


def test_what_data_parallel_saved_a_mesh_goes_on_from(tmp_path: Path, wanted: Tensor) -> None:
    run(1, "allreduce", tmp_path, 4)
    model, found = run(8, "interleaved", tmp_path, 8, **MESH)
    assert found["worker 7"]["began"] == 3
    assert same(model, wanted)


def test_worker_0_evaluates_the_whole_and_each_holds_a_slice(wanted: Tensor) -> None:
    model, found = run(4, "1f1b", None, 8, tensor=2)
    reference = alone(make(), 8)
    assert reference.evaluate is not None
    with torch.no_grad():
        value = reference.evaluate(reference.model)["loss"]
    assert found["worker 0"]["evaluated"]["loss"] == pytest.approx(value, abs=1e-13)
    assert same(model, wanted)
    whole = sum(each.numel() for each in make().model.parameters())
    held = [found[f"worker {n}"]["held"] for n in range(4)]
    assert held[0] == held[1] and held[2] == held[3]
    assert held[0] + held[2] < whole, "each has about half of what is cut"
    samples = sum(each["report"].samples for each in found.values())
    assert samples == 4 + 4 + 3 + 4 + 4 + 3 + 4 + 4


def test_another_models_checkpoint_is_refused(saved: Path) -> None:
    with Town(2, 0) as town:
        tasks = {name: make() for name in town.seats}
        for task in tasks.values():
            task.model[0].weight = torch.nn.Parameter(torch.zeros(8, 4).double())
            task.model[5] = torch.nn.Linear(6, 6).double()  # type: ignore[operator]
            task.model[7] = torch.nn.Linear(6, 6, bias=False).double()  # type: ignore[operator]
            task.optimizer = torch.optim.Adam(task.model.parameters())
        with pytest.raises(InvalidInput, match="does not fit this model"):
            town.call(train, tasks, "gpipe", {"tensor": 2}, str(saved), 8)
