"""XGBoost, LightGBM and scikit-learn for real."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from windlass.testing import mlflow_server
from windlass.testing.environments import Unavailable
from windlass.testing.platform import Platform

pytestmark = pytest.mark.slow
Run = Callable[..., Any]

# XGBoost's own requirements would bring the GPU's communication library, 469 MB of it.
REQUIREMENTS = (
    "xgboost==3.2.0", "lightgbm==4.7.0", "scikit-learn==1.9.1", "numpy==2.4.6", "scipy==1.17.1",
    "joblib", "threadpoolctl", "narwhals", "cloudpickle", "skops", "prettytable", "wcwidth",
)  # fmt: skip


@pytest.fixture(scope="module")
def python(made: Callable[..., Path]) -> Path:
    return made("boosting", *REQUIREMENTS, pip_args=("--no-deps",))


def test_two_xgboost_workers_grow_one_model(python: Path, run: Run) -> None:
    found = run(python, "xgboost", "--workers", "2", "train.py")
    assert found.job.framework == "xgboost"
    assert "framework xgboost: the script imports xgboost" in found.err
    found.trained_together(2)


def test_the_one_line_helper_does_what_the_long_script_does(python: Path, run: Run) -> None:
    found = run(
        python, "xgboost", "--framework", "xgboost", "--nproc", "2",
        "--env", f"PYTHONPATH={Path(__file__).parents[2] / 'src'}", "train_short.py",
    )  # fmt: skip
    found.trained_together(2)


def test_two_lightgbm_workers_grow_one_model(python: Path, run: Run) -> None:
    found = run(python, "lightgbm", "--workers", "2", "train.py")
    assert found.job.framework == "lightgbm"
    found.trained_together(2)


@pytest.mark.parametrize("example", ["xgboost", "lightgbm"])
def test_one_worker_alone_needs_nobody(python: Path, run: Run, example: str) -> None:
    (told,) = run(python, example, "train.py").told
    assert told.world_size == 1 and told.last_loss < told.first_loss


def test_scikit_learn_grows_better_forests_on_the_cpus_it_was_given(
    python: Path, run: Run
) -> None:
    found = run(python, "sklearn", "--cpus", "0.5", "train.py")
    assert found.job.framework == "sklearn"
    losses = [float(loss) for loss in re.findall(r"loss ([0-9.]+) workers 1", found.out)]
    assert len(losses) == 3 and losses == sorted(losses, reverse=True)


XGBOOST = """
import numpy, xgboost
dice = numpy.random.default_rng(0)
x = dice.normal(size=(200, 3)); y = x @ [1.0, 2.0, 3.0]
data, test = xgboost.DMatrix(x[:150], y[:150]), xgboost.DMatrix(x[150:], y[150:])
xgboost.train({"max_depth": 2}, data, 5, evals=[(data, "train"), (test, "val")])
"""
LIGHTGBM = """
import lightgbm, numpy
dice = numpy.random.default_rng(0)
x = dice.normal(size=(200, 3)); y = x @ [1.0, 2.0, 3.0]
data = lightgbm.Dataset(x[:150], y[:150]); test = data.create_valid(x[150:], y[150:])
lightgbm.train({"objective": "regression", "verbose": 1, "min_data_in_leaf": 5}, data, 5,
               valid_sets=[test], valid_names=["val"], callbacks=[lightgbm.log_evaluation(1)])
"""


@pytest.mark.parametrize(
    ("script", "keys", "steps"),
    [
        (XGBOOST, {"train-rmse", "val-rmse"}, [0, 1, 2, 3, 4]),
        (LIGHTGBM, {"val_l2"}, [1, 2, 3, 4, 5]),
    ],
    ids=["xgboost", "lightgbm"],
)
def test_what_boosting_prints_each_round_becomes_curves(
    python: Path, laboratory: Platform, script: str, keys: set[str], steps: list[int]
) -> None:
    job = laboratory.submit([str(python), "-c", script])
    assert laboratory.wait(job, 300).state == "succeeded", laboratory.logs(job)
    found = laboratory.client.jobs.metrics(job.id)
    assert {each["key"] for each in found} == keys, laboratory.logs(job)
    for each in found:
        assert [point[0] for point in each["points"]] == steps
        assert each["points"][-1][2] < each["points"][0][2]
        assert each["source"].endswith("key=value")


AUTOLOG = """
import mlflow
mlflow.{name}.autolog(log_models=False, log_datasets=False{more})
"""


@pytest.mark.parametrize(
    ("name", "more", "script", "key"),
    [
        ("xgboost", ", importance_types=[]", XGBOOST, "val-rmse"),
        ("lightgbm", "", LIGHTGBM, "val-l2"),
    ],
)
def test_mlflows_autolog_of_boosting_tracks_into_the_jobs_run(
    python: Path, laboratory: Platform, name: str, more: str, script: str, key: str
) -> None:
    try:
        newest = mlflow_server.newest()
    except Unavailable as why:
        pytest.skip(str(why))
    [packages] = python.parents[1].glob("lib/python*/site-packages")
    job = laboratory.submit(
        [str(newest), "-c", AUTOLOG.format(name=name, more=more) + script],
        environment={"vars": {"PYTHONPATH": str(packages)}}, metrics={"pickup": False},
    )  # fmt: skip
    assert laboratory.wait(job, 300).state == "succeeded", laboratory.logs(job)
    [run] = laboratory.client.http.get("/runs", {"filter": f"id = '{job.id}'"})["items"]
    [series] = laboratory.client.jobs.metrics(job.id, key=key)
    assert len(series["points"]) == 5 and series["source"] == "mlflow", series
    assert run["params"], "its parameters too"


AS_IN_ITS_BOOK = """
import mlflow
from mlflow import MlflowClient
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

mlflow.autolog()
data = train_test_split(*load_digits(return_X_y=True), random_state=0)
with mlflow.start_run():
    model = LogisticRegression(max_iter=300).fit(data[0], data[2])
    mlflow.log_metric("right", model.score(data[1], data[3]))
    mlflow.sklearn.log_model(model, name="classifier", registered_model_name="digits")
MlflowClient().set_registered_model_alias("digits", "champion", "1")
loaded = mlflow.pyfunc.load_model("models:/digits@champion")
print("loaded", (loaded.predict(data[1]) == data[3]).mean())
"""


def test_a_script_as_in_mlflows_book_runs_unchanged(
    python: Path, laboratory: Platform, tmp_path: Path
) -> None:
    """Autolog, a model logged, registered, and loaded by its alias."""
    try:
        newest = mlflow_server.newest()
    except Unavailable as why:
        pytest.skip(str(why))
    [packages] = python.parents[1].glob("lib/python*/site-packages")
    (tmp_path / "train.py").write_text(AS_IN_ITS_BOOK)
    job = laboratory.submit(
        [str(newest), str(tmp_path / "train.py")],
        environment={"vars": {"PYTHONPATH": str(packages)}},
    )
    assert laboratory.wait(job, 300).state == "succeeded", laboratory.logs(job)
    [run] = laboratory.client.http.get("/runs", {"filter": f"id = '{job.id}'"})["items"]
    assert run["params"]["max_iter"]["value"] == "300", "by itself"
    right = run["metrics"]["right"]["last"]
    assert "training_score" in run["metrics"] and right > 0.9, run["metrics"]
    [said] = re.findall(r"loaded ([0-9.]+)", laboratory.logs(job))
    assert float(said) == pytest.approx(right)
    assert laboratory.client.models.version("digits@champion")["run"] == job.id
