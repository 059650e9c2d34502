"""One trial: its model judged by cross-validation, measured on rows held out, and kept.

The rows, the folds and the held-out part are the same in all trials of a study: so their stored
predictions can be compared, and mixed into an ensemble.
"""

from __future__ import annotations

import csv
import json
import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windlass.automl import table
from windlass.automl.families import pipeline
from windlass.automl.look import ASKED

Array = NDArray[Any]
MODEL, ABOUT = "model.joblib", "problem.json"


def main() -> None:
    asked = json.loads(Path(ASKED).read_text(encoding="utf-8"))
    params = json.loads(os.environ["WINDLASS_PARAMS"])
    folder = Path(os.environ["WINDLASS_OUTPUT_DIR"])
    folder.mkdir(parents=True, exist_ok=True)
    print(json.dumps(run(asked, params, folder)), flush=True)  # as metrics of the job


def run(asked: Mapping[str, Any], params: Mapping[str, Any], folder: Path) -> dict[str, float]:
    """Its scores, by name; files in `folder`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a model that did not converge has a score all the same
        return _run(asked, params, folder)


def _run(asked: Mapping[str, Any], params: Mapping[str, Any], folder: Path) -> dict[str, float]:
    began = time.monotonic()
    rows, problem = table.judge(table.read(Path(asked["data"])), asked["target"], asked["task"])
    about = {
        "target": problem.target, "task": problem.task, "numbers": problem.numbers,
        "categories": problem.categories, "classes": problem.classes, "family": params["family"],
    }  # fmt: skip
    given = np.array(table.features(about, table.by_name(rows)), dtype=object)
    truth = _truth(problem, rows.column(problem.target))
    size = (len(problem.numbers), len(problem.categories))
    seed = int(asked["seed"])

    def fitted(part: Array) -> Any:
        return pipeline(params, problem.task, *size, seed).fit(given[part], truth[part])

    learn, held = split(truth, problem.task, float(asked["holdout"]), seed)
    said = np.zeros((len(truth), max(1, len(problem.classes))))
    for inner, outer in folds(truth[learn], problem.task, int(asked["folds"]), seed):
        said[learn[outer]] = predicted(fitted(learn[inner]), given[learn[outer]], problem.classes)
    model = fitted(learn)
    said[held] = predicted(model, given[held], problem.classes)
    metric = str(asked["metric"])
    keep(folder / "predictions.csv", learn, truth, said, problem.classes)
    keep(folder / "predictions-test.csv", held, truth, said, problem.classes)
    import joblib  # type: ignore[import-untyped]

    joblib.dump(model, folder / MODEL, compress=3)
    (folder / ABOUT).write_text(json.dumps(about), encoding="utf-8")
    return {
        metric: score(metric, truth[learn], said[learn]),
        f"holdout_{metric}": score(metric, truth[held], said[held]),
        "seconds": round(time.monotonic() - began, 3),
    }


def _truth(problem: table.Problem, cells: Sequence[str]) -> Array:
    if problem.task == table.REGRESSION:
        return np.array([table.number(cell) for cell in cells])
    place = {label: at for at, label in enumerate(problem.classes)}
    return np.array([place[cell] for cell in cells])


def split(truth: Array, task: str, part: float, seed: int) -> tuple[Array, Array]:
    """Row numbers to learn from, and to hold out: of each class the same part, where it can be."""
    from sklearn.model_selection import train_test_split  # type: ignore[import-untyped]

    every = np.arange(len(truth))
    alike = truth if task == table.CLASSIFICATION and _least(truth) >= 2 else None
    try:
        found = train_test_split(every, test_size=part, random_state=seed, stratify=alike)
    except ValueError:  # fewer rows held out than there are classes
        found = train_test_split(every, test_size=part, random_state=seed)
    return np.sort(found[0]), np.sort(found[1])


def folds(truth: Array, task: str, count: int, seed: int) -> Iterator[tuple[Array, Array]]:
    from sklearn import model_selection  # type: ignore[import-untyped]

    kind = model_selection.KFold
    if task == table.CLASSIFICATION and _least(truth) >= 2:
        kind = model_selection.StratifiedKFold
        count = min(count, _least(truth))
    yield from kind(min(count, len(truth)), shuffle=True, random_state=seed).split(truth, truth)


def _least(truth: Array) -> int:
    return int(np.unique(truth, return_counts=True)[1].min())


def predicted(model: Any, rows: Array, classes: Sequence[str]) -> Array:
    """A column for each class, also for one that the model never saw; of numbers one column."""
    if not classes:
        return np.asarray(model.predict(rows), dtype=float).reshape(-1, 1)
    found = np.zeros((len(rows), len(classes)))
    found[:, np.asarray(model.classes_, dtype=int)] = model.predict_proba(rows)
    return found


def score(metric: str, truth: Array, said: Array) -> float:
    if metric == "accuracy":
        return float(np.mean(said.argmax(axis=1) == truth))
    if metric == "logloss":
        sure = np.clip(said[np.arange(len(truth)), truth], 1e-15, 1.0)
        return float(-np.mean(np.log(sure)))
    return float(np.sqrt(np.mean((said[:, 0] - truth) ** 2)))


def keep(path: Path, part: Array, truth: Array, said: Array, classes: Sequence[str]) -> None:
    """As `windlass.predictions` would."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "truth", *([f"p:{each}" for each in classes] or ["predicted"])])
        for at in part:
            fact = classes[int(truth[at])] if classes else float(truth[at])
            writer.writerow([int(at), fact, *(float(each) for each in said[at])])


if __name__ == "__main__":
    main()
