"""One trial of each family, on a real table with missing cells, categories and few rows."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from windlass.automl import families, trial
from windlass.core.spaces import Dimension, first_of

HERE = families.available(100)[0]


def table_of(folder: Path, classes: bool) -> Path:
    from sklearn.datasets import load_diabetes, load_wine

    loaded = load_wine() if classes else load_diabetes()
    path = folder / "data.csv"
    with open(path, "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["a", "b", "c", "side", "y"])
        for at, (row, value) in enumerate(zip(loaded.data, loaded.target, strict=True)):
            if at % 2 == 0:
                cells = [row[0], "" if at % 5 == 0 else row[2], row[6 if classes else 8]]
                out.writerow([*cells, "left" if at % 3 else "", value])
    return path


@pytest.mark.parametrize("classes", [True, False])
@pytest.mark.parametrize("family", HERE)
def test_each_family_gives_scores_predictions_and_a_model(
    tmp_path: Path, family: str, classes: bool
) -> None:
    written = families.SPACES[family]
    space = {key: Dimension.model_validate(value) for key, value in written.items()}
    params = {"family": family, **first_of(space)}
    params |= {"net_rate": 0.01} if family == "net" else {}
    metric = "accuracy" if classes else "rmse"
    asked = {
        "data": str(table_of(tmp_path, classes)), "target": "y", "metric": metric, "folds": 2,
        "task": "classification" if classes else "regression", "holdout": 0.2, "seed": 0,
    }  # fmt: skip
    found = trial.run(asked, params, tmp_path)
    assert set(found) == {metric, f"holdout_{metric}", "seconds"}
    assert found[metric] > 0.3 if classes else found[metric] < 200
    with open(tmp_path / "predictions.csv", newline="") as file:
        head, *rows = csv.reader(file)
    assert head[2:] == (["p:0", "p:1", "p:2"] if classes else ["predicted"])
    said = np.array([[float(cell) for cell in row[2:]] for row in rows])
    assert np.isfinite(said).all() and (not classes or np.allclose(said.sum(axis=1), 1.0))
    import joblib

    model = joblib.load(tmp_path / "model.joblib")
    about = json.loads((tmp_path / "problem.json").read_text())
    one = np.array([[13.0, float("nan"), 1.0, "never seen"]], dtype=object)
    assert trial.predicted(model, one, about["classes"]).shape == (1, 3 if classes else 1)


def test_a_class_with_one_row_does_not_end_it() -> None:
    truth = np.array([0] * 12 + [1] * 7 + [2])
    learn, held = trial.split(truth, "classification", 0.2, 0)
    assert sorted([*learn, *held]) == list(range(20))
    parts = list(trial.folds(truth, "classification", 5, 0))
    assert sorted(at for _, part in parts for at in part) == list(range(20))
    assert len(list(trial.folds(truth[:19], "classification", 9, 0))) == 7
