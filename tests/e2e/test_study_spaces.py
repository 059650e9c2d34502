"""Studies over spaces with branches, with weights that are handed on, and who waits for them."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from windlass.core.errors import InvalidInput
from windlass.testing import invariants
from windlass.testing.platform import Platform

EXAMPLE = Path(__file__).parents[2] / "examples" / "architecture-search"
SEARCH = """
def space(trial):
    if trial.suggest_categorical("kind", ["line", "curve"]) == "curve":
        trial.suggest_int("bend", 1, 3)
"""
BRANCHES = """
import windlass
given = windlass.context().params
assert ("bend" in given) == (given["kind"] == "curve"), given
windlass.log(step=1, loss=given.get("bend", 5))
"""
WEIGHTS = """
import json, windlass
here = windlass.context()
theirs = json.loads((here.start_from / "w.json").read_text())["x"] if here.start_from else -1.0
windlass.log(step=1, loss=here.params["x"], theirs=theirs)
if here.params["x"] != 2.0:
    with windlass.checkpoint(1) as folder:
        (folder / "w.json").write_text(json.dumps({"x": here.params["x"]}))
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with Platform(tmp_path_factory.mktemp("spaces") / "home") as platform:
        yield platform
        invariants.check(platform)


def spec(**fields: Any) -> dict[str, Any]:
    return {
        "job": {"run": "python train.py", "environment": {"python": sys.executable}},
        "minimize": "loss", "sampler": "grid", "give": "environment", **fields,
    }  # fmt: skip


def test_who_waits_for_a_study_is_woken_by_the_feed_and_never_polls(
    shared: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("import windlass\nwindlass.log(step=1, loss=1.0)\n")
    http, asked = shared.client.http, []
    really = http.get

    def get(path: str, *words: Any, **named: Any) -> Any:
        asked.append(path)
        return really(path, *words, **named)

    monkeypatch.setattr(http, "get", get)
    trials = {"trials": 4, "parallel": 1, "space": {"x": [1, 2, 3, 4]}}
    study = shared.client.studies.create(spec(name="waited", **trials), code=tmp_path)
    done = shared.client.studies.wait(study.name, timeout_seconds=120)
    assert (done.state, done.results) == ("finished", 4)
    assert len(asked) <= 2, "one look with the feed open, one at the end"
    study = shared.client.studies.create(spec(name="followed", **trials), code=tmp_path)
    seen = [found.results for found in shared.client.studies.follow(study.name)]
    assert seen == sorted(seen) and set(seen) >= {1, 2, 3, 4}, "woken at each result"
    assert seen[-1] == 4
    with pytest.raises(TimeoutError, match="is not over after 0.2 s"):
        held = spec(name="held", job={"run": "true", "hold": True}, space={"x": [1]})
        shared.client.studies.wait(shared.client.studies.create(held).id, timeout_seconds=0.2)
    shared.client.studies.delete("held")


def test_the_branches_of_a_function_are_the_branches_of_the_study(
    shared: Platform, tmp_path: Path
) -> None:
    (tmp_path / "search.py").write_text(SEARCH)
    (tmp_path / "train.py").write_text(BRANCHES)
    made = shared.cli(
        "study", "create", "--name", "branches", "--space", str(tmp_path / "search.py:space"),
        "--sampler", "grid", "--give", "environment", "--minimize", "loss", "--code",
        str(tmp_path), "train.py",
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    done = shared.client.studies.wait("branches", timeout_seconds=120)
    assert done.counts == {"succeeded": 4}, shared.client.studies.trials("branches")
    found = [trial["params"] for trial in shared.client.studies.trials("branches")]
    assert found == [{"kind": "line"}, *({"kind": "curve", "bend": at} for at in (1, 2, 3))]
    file = tmp_path / "study.yaml"
    file.write_text(
        "kind: study\nname: from-file\nspace: search.py:space\nminimize: loss\n"
        "sampler: grid\ngive: environment\njob: {run: python train.py}\n"
    )
    planned = shared.cli("apply", "-f", str(file), "--dry-run")
    assert planned.returncode == 0 and "over kind, bend" in planned.stderr, planned.stderr
    wrong = shared.cli("study", "create", "--space", "search.py", "--minimize", "l", "train.py")
    assert wrong.returncode == 2 and "is not FILE:FUNCTION" in wrong.stderr


def test_weights_are_shared_only_where_that_is_asked_for(shared: Platform, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(WEIGHTS)
    studies = shared.client.studies
    fields = {"parallel": 1, "space": {"x": [3.0, 2.0, 1.0, 4.0]}}
    for name, more in (("apart", {}), ("handed-on", {"share_weights": True})):
        studies.create(spec(name=name, **fields, **more), code=tmp_path)
        assert studies.wait(name, timeout_seconds=120).counts == {"succeeded": 4}
    assert {trial["parent"] for trial in studies.trials("apart")} == {None}
    trials = studies.trials("handed-on")
    # The best after the second left no checkpoint: the third begins with its own.
    assert [trial["parent"] for trial in trials] == [None, 0, None, 2]
    for trial, theirs in zip(trials, [-1.0, 3.0, -1.0, 1.0], strict=True):
        [series] = shared.client.jobs.metrics(trial["job"], key="theirs")
        assert series["points"][0][2] == theirs
    given = shared.client.jobs.detail(trials[3]["job"])["spec"]["start_from"]
    assert given["job"] == trials[2]["job"]
    for fields, words in (
        ({"pruner": {"kind": "pbt", "interval": 1}}, "pbt hands on checkpoints itself"),
        ({"job": {"run": "x", "start_from": {"job": "y"}}}, "`job.start_from` says already"),
    ):
        with pytest.raises(InvalidInput, match=words):
            asked = {**spec(space={"x": [1.0]}, share_weights=True), "sampler": "random"}
            studies.create({**asked, **fields})


@pytest.mark.slow
@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "sklearn")),
    reason="torch and scikit-learn are not installed",
)
def test_the_example_finds_a_good_network_for_real_digits(
    shared: Platform, tmp_path: Path
) -> None:
    for name in ("train.py", "search.py"):
        shutil.copy(EXAMPLE / name, tmp_path / name)
    made = shared.cli(
        "study", "create", "--name", "digits", "--space", str(tmp_path / "search.py:space"),
        "--give", "environment", "--sampler", "random", "--seed", "3", "--trials", "4",
        "--parallel", "2", "--maximize", "accuracy", "--share-weights", "--code", str(tmp_path),
        "train.py", "--", "--epochs", "3",
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    done = shared.client.studies.wait("digits", timeout_seconds=300)
    trials = shared.client.studies.trials("digits")
    assert done.counts == {"succeeded": 4}, json.dumps(trials, indent=1)
    [best] = shared.client.studies.best("digits")
    assert best["values"][0] > 0.85, best
    assert any(trial["parent"] is not None for trial in trials)
    for trial in trials:
        params = trial["params"]
        assert {f"kind_{at}" for at in range(params["blocks"])} == {
            name for name in params if name.startswith("kind_")
        }
