"""A member of a pipeline holds a part; checkpoints, evaluations and the end are of the whole."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from pipelines import fit_one, straight, task_of
from torch import nn
from torch.nn import functional

import windlass.job.stop as stop
from windlass.core.errors import InvalidInput
from windlass.train import registry
from windlass.train.data import Data
from windlass.train.planning.plan import Plan, PlanStage
from windlass.train.runners.flushing import PipelineRunner
from windlass.train.seat import Seat
from windlass.train.task import Task, sum_loss
from windlass.train.testing.tasks import alone, flat
from windlass.train.testing.town import Town


class Scaled(nn.Module):
    """A table that no state_dict has, and one that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("plain", torch.linspace(1, 2, 2), persistent=False)
        self.register_buffer("kept", torch.linspace(2, 1, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.plain * self.kept  # type: ignore[operator, no-any-return]


def make() -> Task:
    """Adam in two groups, and an evaluation that runs the whole model."""
    task = task_of("straight")
    torch.manual_seed(3)
    model = nn.Sequential(*straight(), Scaled()).double()
    weights = [each for each in model.parameters() if each.dim() == 2]
    biases = [each for each in model.parameters() if each.dim() == 1]
    optimizer = torch.optim.Adam([{"params": biases, "lr": 0.03}, {"params": weights}], 0.01)
    x, y = task.data.dataset.tensors
    return Task(
        model, task.loss, optimizer, Data((x, y), 4, seed=1),
        evaluate=lambda net: {"loss": float(functional.mse_loss(net(x), y))},
    )  # fmt: skip


def train(
    seat: Seat, tasks: dict[str, Task], scope: str, strategy: str, options: dict[str, Any],
    folder: str | None, total: int,
) -> dict[str, Any]:  # fmt: skip
    task = tasks[seat.name]
    if strategy != "allreduce":
        options = {"balance": "blocks", "micro_batches": 3, **options}
    trainer = fit_one(task, seat, scope, strategy, checkpoint=folder, save_every=3, **options)
    try:
        began = trainer.cursor.steps
        while trainer.cursor.steps < total and not trainer.stopped:
            for batch in trainer.batches():
                trainer.step(batch)
                if trainer.cursor.steps >= total:
                    break
        trainer.drain()
        found = trainer.evaluate()
        held = sum(p.numel() for p in task.model.parameters() if not p.is_meta)
        return {"report": trainer.report(), "evaluated": found, "held": held, "began": began,
                "steps": trainer.cursor.steps, "stopped": trainer.stopped}  # fmt: skip
    finally:
        trainer.abandon()


def run(
    workers: int, strategy: str, folder: Path | None, total: int, **options: Any
) -> tuple[Task, dict[str, Any]]:
    with Town(workers, 0) as town:
        tasks = {name: make() for name in town.seats}
        place = None if folder is None else str(folder)
        return tasks["worker 0"], town.call(train, tasks, "", strategy, options, place, total)


@pytest.fixture(scope="module")
def wanted() -> torch.Tensor:
    return flat(alone(make(), 8).model)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """By four stages, at step 3 of a run of 5: what was after is lost."""
    folder = tmp_path_factory.mktemp("of four")
    run(4, "gpipe", folder, 5)
    return folder


@pytest.mark.parametrize(
    ("strategy", "workers", "options"),
    [
        ("gpipe", 2, {}),
        ("1f1b", 3, {"recompute": True}),
        ("zbv", 2, {}),
        ("gpipe", 4, {"replicas": 2}),
        ("allreduce", 1, {}),
        ("allreduce", 2, {}),
    ],
)
def test_what_four_stages_saved_any_other_number_goes_on_from(
    saved: Path, strategy: str, workers: int, options: dict[str, Any], wanted: torch.Tensor,
    tmp_path: Path,
) -> None:  # fmt: skip
    folder = tmp_path / "copy"
    shutil.copytree(saved, folder)
    task, found = run(workers, strategy, folder, 8, **options)
    assert {each["began"] for each in found.values()} == {3}
    assert torch.allclose(flat(task.model), wanted, rtol=0, atol=1e-13)


def test_what_data_parallel_saved_a_pipeline_goes_on_from(
    tmp_path: Path, wanted: torch.Tensor
) -> None:
    run(1, "allreduce", tmp_path, 4)
    task, found = run(3, "interleaved", tmp_path, 8)
    assert found["worker 2"]["began"] == 3
    assert torch.allclose(flat(task.model), wanted, rtol=0, atol=1e-13)


def test_another_models_checkpoint_is_refused(saved: Path) -> None:
    with Town(2, 0) as town:
        tasks = {name: make() for name in town.seats}
        for task in tasks.values():
            task.model.append(nn.Linear(2, 2).double())  # type: ignore[operator]
        with pytest.raises(InvalidInput, match="does not fit this model"):
            town.call(train, tasks, "", "gpipe", {}, str(saved), 8)


def test_worker_0_evaluates_the_whole_model_and_samples_are_counted_once(
    wanted: torch.Tensor,
) -> None:
    task, found = run(3, "gpipe", None, 8)
    reference = alone(make(), 8)
    assert reference.evaluate is not None
    with torch.no_grad():
        value = reference.evaluate(reference.model)["loss"]
    reports = [each["report"] for each in found.values()]
    assert found["worker 0"]["evaluated"]["loss"] == pytest.approx(value, abs=1e-12)
    assert [point.step for point in reports[0].evaluation] == [3, 6, 8]
    assert sum(each.samples for each in reports) == 11 + 11 + 8
    assert [len(each.losses) for each in reports] == [0, 0, 8], "the last stage knows the loss"
    assert torch.allclose(flat(task.model), wanted, rtol=0, atol=1e-13)
    kinds = reports[1].counters["sent_bytes"]
    assert kinds["activation"] > 0 and kinds["gradient"] > 0


def test_a_member_keeps_its_own_stage_and_no_more() -> None:
    _, found = run(4, "gpipe", None, 2)
    whole = sum(each.numel() for each in make().model.parameters())
    parts = [found[f"worker {rank}"]["held"] for rank in range(1, 4)]
    assert found["worker 0"]["held"] == whole, "which has the whole at the end"
    assert all(0 < part < whole / 1.5 for part in parts) and sum(parts) < whole


def test_asked_to_stop_all_end_at_the_same_step_and_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The word comes to the middle worker alone."""
    asked = threading.Event()

    def should_stop() -> bool:
        return asked.is_set() and threading.current_thread().name == "town worker 1"

    monkeypatch.setattr(stop, "should_stop", should_stop)
    usual = PipelineRunner.step

    def step(self: PipelineRunner, batch: Any) -> Any:
        if batch.cursor.steps == 4:
            asked.set()
        return usual(self, batch)

    monkeypatch.setattr(PipelineRunner, "step", step)
    _, found = run(3, "1f1b", tmp_path, 1000)
    assert {each["stopped"] for each in found.values()} == {True}
    (at,) = {each["steps"] for each in found.values()}
    assert 5 <= at <= 8
    assert any(path.name.startswith(f"step-{at:012d}") for path in tmp_path.iterdir())


def test_a_plan_says_where_and_how_often() -> None:
    plan = Plan(
        strategy="gpipe", workers=4,
        stages=(PlanStage(blocks=(0, 3), replicas=2), PlanStage(blocks=(4, 8), replicas=2)),
        options={"micro_batches": 2},
    )  # fmt: skip
    chosen: Any = registry.choose("gpipe", {"plan": plan})
    assert (chosen.cuts, chosen.replicas, chosen.micro_batches) == ((4,), 2, 2)
    assert chosen.share_of is not None and chosen.mesh(4).places == 2
    with pytest.raises(InvalidInput, match="plan: one for 1f1b"):
        registry.choose("1f1b", {"plan": plan})
    uneven = plan.model_copy(
        update={"workers": 3, "stages": (plan.stages[0], PlanStage(blocks=(4, 8)))}
    )
    with pytest.raises(InvalidInput, match="as many replicas of each stage .*2-1"):
        registry.choose("gpipe", {"plan": uneven})


def test_stages_are_balanced_by_measured_time() -> None:
    """One layer takes many times as long as all others together: it is alone."""
    with Town(2, 0) as town:
        tasks = {name: _heavy() for name in town.seats}

        def parts(seat: Seat) -> Any:
            runner = registry.choose("gpipe", {}).runner(tasks[seat.name], seat)
            assert isinstance(runner, PipelineRunner)
            runner.close()
            return runner.parts

        found = town.call(parts)
    assert found["worker 0"] == found["worker 1"] == ((0, 3), (4, 4))


class Slow(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(0.1)
        return super().forward(x)


def _heavy() -> Task:
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(4)), Slow(8, 8))
    data = Data((torch.randn(8, 8), torch.randn(8, 8)), 8)
    loss = sum_loss(functional.mse_loss, reduction="sum")
    return Task(model, loss, torch.optim.SGD(model.parameters(), 0.01), data)
