"""Ensembles of trials and AutoML, on a real server: jobs that train, one model that predicts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import windlass
from windlass.automl.predict import load
from windlass.client.crossvalidation import cross_validate
from windlass.testing import invariants
from windlass.testing.platform import Platform

SOURCE = Path(windlass.__file__).parents[1]

MEMBER = f"""
import sys
sys.path.insert(0, {str(SOURCE)!r})
import numpy, windlass
here = windlass.context()
off = here.params["off"]
truth = [1.0, 2.0, 3.0, 4.0]
here.output_dir.mkdir(parents=True, exist_ok=True)
if off < 5:
    (here.output_dir / "model.json").write_text(str(off))
    windlass.predictions(truth, [each + off for each in truth], ids="abcd")
    if off > 0:
        (here.output_dir / "predictions.csv").unlink()
        numpy.savez(here.output_dir / "predictions.npz", ids=list("abcd"), truth=truth,
                    predicted=[each + off for each in truth])
windlass.log(loss=abs(off))
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with Platform(tmp_path_factory.mktemp("automl") / "home") as platform:
        yield platform
        invariants.check(platform)


def test_the_trials_of_a_study_become_one_model(shared: Platform, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(MEMBER)
    client = shared.client
    study = client.studies.create(
        {"name": "mixed", "job": {"run": "python train.py",
                                  "environment": {"python": sys.executable}},
         "minimize": "loss", "sampler": "grid", "give": "environment", "trials": 3, "parallel": 3,
         "space": {"off": [-1.0, 1.5, 9.0]}},
        code=tmp_path,
    )  # fmt: skip
    assert client.studies.wait(study.name, timeout_seconds=120).counts == {"succeeded": 3}
    shown = shared.cli("study", "ensemble", "mixed", "--top", "5", "--as", "offsets")
    assert shown.returncode == 0, shown.stderr
    assert "trial 2 is left out: it stored no predictions" in shown.stderr
    assert "rmse" in shown.stdout and "registered offsets@1" in shown.stdout
    client.models.download("offsets", tmp_path / "model")
    about = json.loads((tmp_path / "model" / "ensemble.json").read_text())
    assert {each["trial"]: each["weight"] for each in about["members"]} == {0: 0.6, 1: 0.4}
    assert about["score"] == pytest.approx(0.0) and about["best_member"]["score"] == 1.0
    assert (tmp_path / "model" / "members" / "1" / "model.json").read_text() == "1.5"
    wrong = shared.cli("study", "ensemble", "mixed", "--metric", "nothing")
    assert wrong.returncode == 2
    missing = shared.cli("study", "ensemble", "nowhere")
    assert missing.returncode != 0 and "nowhere" in missing.stderr


def written(path: Path, loaded: Any, rows: int) -> Path:
    """One of scikit-learn's own sets as a file, with a category and some cells missing."""
    import csv

    with open(path, "w", newline="") as file:
        out = csv.writer(file)
        out.writerow([*(f"x{at}" for at in range(loaded.data.shape[1])), "side", "y"])
        for at in range(0, len(loaded.data), max(1, len(loaded.data) // rows)):
            row = [f"{each:.6g}" for each in loaded.data[at]]
            row[at % len(row)] = "" if at % 7 == 0 else row[at % len(row)]
            side = "left" if loaded.data[at][0] > loaded.data[:, 0].mean() else "right"
            out.writerow([*row, side, loaded.target[at]])
    return path


def test_a_table_becomes_a_registered_model_that_predicts(
    shared: Platform, tmp_path: Path
) -> None:
    from sklearn.datasets import load_wine

    data = written(tmp_path / "Wine.csv", load_wine(), 178)
    made = shared.cli(
        "automl", "--data", str(data), "--target", "y", "--time", "5m", "--trials", "3",
        "--parallel", "2", "--folds", "3", "--family", "linear", "--family", "neighbours",
    )  # fmt: skip
    assert made.returncode == 0, made.stdout + made.stderr
    assert "classification: y has 3 different whole numbers (--task regression" in made.stderr
    assert "leaderboard (accuracy, 3 folds)" in made.stdout
    assert "registered wine@1" in made.stdout and "on rows held out" in made.stdout
    version = shared.client.models.download("wine", tmp_path / "model")
    assert version["warning"], "its members are pickles, and that is said"
    about = json.loads((tmp_path / "model" / "ensemble.json").read_text())
    assert about["score"] >= about["best_member"]["score"] > 0.8 and about["test"]["score"] > 0.8
    asked = subprocess.run(
        [sys.executable, "-I", str(tmp_path / "model" / "predict.py"), str(data)],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert asked.returncode == 0, asked.stderr
    head, *said = asked.stdout.split()
    truth = [line.rpartition(",")[2] for line in data.read_text().split()[1:]]
    right = sum(one == other for one, other in zip(said, truth, strict=True))
    assert head == "y" and right / len(truth) > 0.9
    (tmp_path / "model" / about["members"][0]["folder"] / "problem.json").write_text("{}")
    with pytest.raises(ValueError, match="is not what was registered"):
        load(tmp_path / "model")


def test_what_is_wrong_with_a_table_is_said_before_any_job(
    shared: Platform, tmp_path: Path
) -> None:
    path = tmp_path / "table.csv"
    path.write_text("x,y\n" + "1,a\n2,b\n" * 10)
    for words, said in (
        (["--target", "z"], "no column 'z': there are x, y"),
        (["--target", "y", "--task", "regression"], "no regression"),
        (["--target", "y", "--metric", "rmse"], "of classification it is accuracy or logloss"),
        (["--target", "y", "--time", "soon"], "not a duration"),
    ):
        asked = shared.cli("automl", "--data", str(path), *words)
        assert asked.returncode == 2 and said in asked.stderr, asked.stderr
    asked = shared.cli("automl", "--data", str(tmp_path / "none.csv"), "--target", "y")
    assert asked.returncode == 2 and "no such file" in asked.stderr


@pytest.mark.soak
def test_the_time_holds_and_numbers_are_predicted_too(shared: Platform, tmp_path: Path) -> None:
    from sklearn.datasets import load_diabetes

    data = written(tmp_path / "diabetes.csv", load_diabetes(), 442)
    made = shared.cli(
        "automl", "--data", str(data), "--target", "y", "--time", "25s", "--parallel", "2",
        "--as", "sugar", "--folds", "3", "-o", "json",
    )  # fmt: skip
    assert made.returncode == 0, made.stdout + made.stderr
    found = json.loads(made.stdout)
    assert found["task"] == "regression" and found["name"] == "sugar@1"
    study = shared.client.studies.get(found["study"])
    assert study.state == "finished" and 0 < study.made < study.trials, "its time was over"
    assert found["leaderboard"] and found["ensemble"]["score"] < 75


FOLD = """
import argparse, os
flags = argparse.ArgumentParser()
for name in ("fold", "folds", "seed", "bad"):
    flags.add_argument("--" + name, type=int, default=-1)
given = flags.parse_args()
assert given.folds == 3
if given.fold == given.bad:
    raise SystemExit(4)
print(f'{{"accuracy": {given.fold * 0.25 + 0.25}}}')
"""


def test_each_fold_of_a_cross_validation_is_a_job(shared: Platform, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FOLD)
    flags = ("--folds", "3", "--maximize", "accuracy", "--code", str(tmp_path))
    made = shared.cli("study", "cv", *flags, "--seed", "7", "--name", "folds", "train.py")
    assert made.returncode == 0, made.stdout + made.stderr
    assert "accuracy 0.5 ± 0.25" in made.stdout
    trials = shared.client.studies.trials("folds")
    assert [trial["params"] for trial in trials] == [
        {"fold": at, "folds": 3, "seed": 7} for at in range(3)
    ]
    failed = shared.cli("study", "cv", *flags, "-o", "json", "--", "train.py", "--bad", "1")
    assert failed.returncode == 1 and "1 of 3 folds gave no value: fold 1" in failed.stdout
    assert '"mean": 0.5' in failed.stdout
    wrong = shared.cli("study", "cv", *flags, "--param", "x=1,2", "train.py")
    assert wrong.returncode == 2 and "one set of parameters" in wrong.stderr
    (tmp_path / "study.yaml").write_text(
        "kind: study\njob: {run: python train.py}\nspace: {x: [1, 2]}\nmaximize: accuracy\n"
    )
    wrong = shared.cli("study", "cv", "-f", str(tmp_path / "study.yaml"), "--folds", "3")
    assert wrong.returncode == 2 and "x: cross-validation tries one set" in wrong.stderr
    (tmp_path / "search.py").write_text(
        "from hyperopt import hp\nspace = {'x': hp.uniform('x', 0, 1), 'y': hp.normal('y', 0, 1)}"
    )
    tried = shared.cli(
        "study", "create", "--hyperopt", f"{tmp_path / 'search.py'}:space", "--maximize",
        "accuracy", "--code", str(tmp_path), "--dry-run", "train.py",
    )  # fmt: skip
    assert tried.returncode == 0 and "train.py --x 0.0 --y=-3.0" in tried.stdout, tried
    assert "x: hp.uniform(0, 1) → x: float:0..1" in tried.stderr and "(by hand)" in tried.stderr


def test_an_estimator_is_validated_by_jobs_as_it_would_be_here(shared: Platform) -> None:
    from sklearn.datasets import load_wine
    from sklearn.model_selection import cross_val_score
    from sklearn.neighbors import KNeighborsClassifier

    loaded, model = load_wine(), KNeighborsClassifier(3)
    found = cross_validate(
        shared.client, model, loaded.data, loaded.target, cv=2, timeout_seconds=120
    )
    here = cross_val_score(model, loaded.data, loaded.target, cv=2)
    assert found["test_score"].tolist() == pytest.approx(here.tolist())
    assert set(found) == {"test_score", "fit_time", "score_time"}
