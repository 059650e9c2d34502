"""Optuna's samplers on a real server: asked in their process, their trials jobs that run."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from windlass.testing.platform import Platform

pytest.importorskip("optuna")

TRAIN = """
import json, os
given = json.loads(os.environ["WINDLASS_PARAMS"])
x, y = given["x"], given["y"]
print(json.dumps({"loss": (x - 0.3) ** 2 + 0.01 * y, "cost": x, "size": x + y}), flush=True)
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with Platform(tmp_path_factory.mktemp("samplers") / "home") as platform:
        yield platform


def run(platform: Platform, name: str, **fields: Any) -> list[dict[str, Any]]:
    """The trials of a study that has ended well."""
    studies = platform.client.studies
    studies.create(
        {
            "name": name, "trials": 8, "parallel": 4, "give": "environment", "minimize": "loss",
            "space": {"x": "float:0..1", "y": "float:0..1"},
            "job": {"run": [sys.executable, "-c", TRAIN]}, **fields,
        }
    )  # fmt: skip
    done = studies.wait(name, timeout_seconds=240)
    assert done.state == "finished" and done.counts == {"succeeded": fields.get("trials", 8)}, done
    return list(studies.trials(name))


def test_a_study_learns_from_an_earlier_one_within_its_bounds(shared: Platform) -> None:
    """`study show` tells what mattered, and draws it."""
    first = run(shared, "first", sampler={"kind": "tpe", "startup": 3}, trials=12)
    assert len({trial["params"]["x"] for trial in first}) == 12, "not one point again and again"
    [best] = shared.client.studies.best("first")
    assert best["values"][0] == min(trial["values"][0] for trial in first)
    shown = shared.cli("study", "show", "first").stdout
    assert "sampler tpe" in shown and "Parallel coordinates" in shown
    assert "What each parameter explains alone" in shown
    shares = {name: int(share) for name, share in re.findall(r"^  (\w) .* (\d+)%$", shown, re.M)}
    assert shares["x"] > shares.get("y", 0), shown
    later = run(
        shared, "later", sampler="tpe", warm_start="first",
        constraints=[{"metric": "cost", "most": 0.5}],
    )  # fmt: skip
    [best] = shared.client.studies.best("later")
    assert best["params"]["x"] <= 0.5
    assert sum(trial["params"]["x"] <= 0.5 for trial in later) >= 4, "it did not begin anew"


@pytest.mark.parametrize("kind", ["cmaes", "gp"])
def test_each_sampler_runs_a_study(shared: Platform, kind: str) -> None:
    trials = run(shared, kind, sampler={"kind": kind, "startup": 3})
    assert len({trial["params"]["x"] for trial in trials}) == 8
    assert f"sampler {kind}" in shared.cli("study", "show", kind).stdout


def test_of_several_objectives_all_that_no_other_beats_are_best(shared: Platform) -> None:
    trials = run(
        shared, "several", minimize=["loss", "cost"], sampler={"kind": "nsga2", "startup": 3}
    )
    values = {trial["number"]: trial["values"] for trial in trials}
    front = {
        number
        for number, mine in values.items()
        if not any(
            all(a <= b for a, b in zip(other, mine, strict=True)) and other != mine
            for other in values.values()
        )
    }
    assert {trial["number"] for trial in shared.client.studies.best("several")} == front
    shown = shared.cli("study", "show", "several").stdout
    assert "not beaten: trials " + ", ".join(map(str, sorted(front))) in shown
