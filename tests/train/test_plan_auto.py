"""Plans of real models: measured here, chosen among what is installed, kept beside what came."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

import windlass.train as wt
from windlass.core.errors import InvalidInput
from windlass.train import registry
from windlass.train.planning import auto, kept
from windlass.train.planning.asking import profile_of, question_of
from windlass.train.planning.links import parse_link
from windlass.train.planning.probes import measure_link, measure_overlap
from windlass.train.planning.profile import BlockCost, Profile
from windlass.train.planning.question import Question
from windlass.train.testing.town import Town

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def a_home_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDLASS_HOME", str(tmp_path / "home"))


def make() -> wt.Task:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.Linear(16, 1))
    return _task(model)


def _task(model: nn.Module) -> wt.Task:
    return wt.Task(
        model,
        wt.sum_loss(mse_loss, reduction="sum"),
        torch.optim.Adam(model.parameters()),
        wt.Data((torch.rand(32, 8), torch.rand(32, 1)), global_batch=8),
    )


class Uncuttable(nn.Module):
    """Its path depends on its values: nothing can be traced."""

    def __init__(self) -> None:
        super().__init__()
        self.near, self.far = nn.Linear(8, 1), nn.Linear(8, 1)

    def forward(self, x_BD: Tensor) -> Tensor:
        found: Tensor = self.near(x_BD) if float(x_BD.sum()) > 0 else self.far(x_BD)
        return found


def test_a_model_is_planned_from_its_blocks() -> None:
    plan = wt.plan(make, workers=2, link="10Gbit", overlap=True, memory="1G")
    assert isinstance(plan, wt.Plan)
    assert len(plan.blocks) == 4 and plan.batch == 8 and plan.link == "10Gbit"
    assert plan.predicted is not None and plan.predicted > 0
    assert plan.strategy in registry.known()


def test_the_package_of_the_planner_is_what_one_calls() -> None:
    """`wt.plan` is a package and a function, whichever was imported first."""
    import windlass.train.planning.profile as inner

    assert inner.Profile is Profile
    assert callable(wt.plan)


def test_a_plan_is_made_of_what_is_asked_for() -> None:
    plan = wt.plan(make, workers=2, link="10Gbit", overlap=False, strategies=["gpipe"])
    assert plan.strategy == "gpipe" and plan.replicas == (1, 1) and plan.overlap is False
    assert plan.settings()["cuts"] == (plan.stages[1].blocks[0],)


def test_a_model_that_cannot_be_cut_is_one_block() -> None:
    said: list[str] = []
    profile = profile_of(_task(Uncuttable()), CPU, said.append)
    assert [block.name for block in profile.blocks] == ["the whole model"]
    assert profile.time_ms > 0 and profile.parameter_bytes == 4 * 18
    assert profile.optimiser_factor == 2
    assert "cannot be cut" in said[0]
    question = question_of(
        lambda: _task(Uncuttable()), 2, link=parse_link("1Gbit"), overlap=True, said=said.append
    )
    assert len(question.profile.blocks) == 1


def test_what_gives_no_task_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"make: it gives a windlass\.train\.Task"):
        wt.plan(lambda: 3, workers=2, link="1Gbit")  # type: ignore[arg-type, return-value]


def test_the_planner_chooses_only_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow link with large parameters a pipeline is best, wherever there is one."""
    blocks = tuple(BlockCost(f"b{at}", 10, 20, 100, 10**8, 100) for at in range(4))
    slow = Profile(8, blocks, ((0, 1), (1, 2), (2, 3)))
    monkeypatch.setattr("windlass.train.planning.asking.profile_of", lambda *_: slow)
    chosen = auto.choose(make, 2, link="1Gbit", overlap=True)
    assert chosen.strategy in registry.known() and chosen.strategy not in ("allreduce", "fsdp")
    made = registry.choose(chosen.strategy, chosen.options)
    assert made.name == chosen.strategy, "it takes the options that the plan gives it"
    monkeypatch.setattr(registry, "known", lambda: ["allreduce", "ps:async"])
    assert auto.choose(make, 2, link="1Gbit", overlap=True).strategy == "allreduce"


def test_one_worker_needs_no_plan() -> None:
    assert auto.choose(make, 1) == ("allreduce", {}, None)


def test_an_option_that_auto_does_not_have_is_refused() -> None:
    with pytest.raises(InvalidInput, match="every: auto has no such option"):
        wt.fit(make, strategy="auto", workers=2, every=3)


def test_auto_trains_and_what_was_predicted_is_kept_beside_what_came() -> None:
    run = wt.fit(
        make, strategy="auto", workers=2, steps=4, link="10Gbit", overlap=True, progress=False
    )
    assert run.result.strategy in registry.known()
    assert run.result.predicted is not None
    assert "samples/s, measured" in run.report()
    (found,) = kept.read()
    assert found.strategy == run.result.strategy and found.workers == 2
    assert found.measured == pytest.approx(run.result.samples_per_s)
    assert found.predicted == pytest.approx(run.result.predicted)


def test_in_a_gang_all_take_what_worker_0_chose() -> None:
    """Each would measure other times, and might choose another strategy."""
    town = Town(2, 0)
    try:
        asked = auto.Auto(link="10Gbit", overlap=True)
        answers = [town.start(name, lambda seat: asked.agreed(make, seat)) for name in town.seats]
        first, second = (each.result(60) for each in answers)
        assert first == second and first.plan is not None
    finally:
        town.close()


def test_a_pinned_plan_is_followed(tmp_path: Path) -> None:
    """The file says the strategy, the cuts and how many; what it predicts is compared."""
    plan = wt.plan(make, workers=2, link="10Gbit", overlap=True, strategies=["gpipe"])
    path = plan.save(tmp_path / "plan.yaml")
    run = wt.fit(make, strategy="gpipe", plan=path, steps=3, progress=False)
    assert run.result.strategy == "gpipe" and run.result.workers == 2
    assert run.result.options["cuts"] == list(plan.settings()["cuts"])
    assert run.result.predicted == pytest.approx(plan.predicted, rel=1e-5)
    with pytest.raises(InvalidInput, match="strategy: the plan is one of gpipe .found 'bmuf'"):
        wt.fit(make, strategy="bmuf", plan=path)
    with pytest.raises(InvalidInput, match="workers: the plan is for 2 .found 3"):
        wt.fit(make, plan=plan, workers=3)


def test_the_record_is_short_and_survives_nonsense(tmp_path: Path) -> None:
    for count in range(kept.MOST + 5):
        if count in (0, 1, 2) or count > kept.MOST:
            kept.keep("allreduce", count, 110.0, 100.0)
    assert kept.median_error(kept.read()) == pytest.approx(0.1)
    (tmp_path / "home" / "predictions.json").write_text("{")
    assert kept.read() == [] and kept.median_error([]) is None
    kept.keep("allreduce", 1, 1.0, 1.0)
    assert len(kept.read()) == 1
    assert kept.compared(90, 100) == ("predicted 90 samples/s, measured 100: 10% less than it was")


def test_links_and_overlap_are_measured() -> None:
    link = measure_link()
    assert link.bytes_per_s > 1e6 and 0 < link.latency_s < 1 and 2 <= link.sync_factor <= 4
    assert link.words.startswith("measured ")
    assert 0 <= measure_overlap(lambda: time.sleep(0.05)) <= 1


def test_a_plan_can_be_asked_for_with_a_question(tmp_path: Path) -> None:
    question: Any = question_of(make, 2, link=parse_link("1Gbit"), overlap=True)
    assert isinstance(question, Question) and question.shared and question.in_order
    assert question.profile.others, "a second batch size was measured"
