"""XGBoost, LightGBM and scikit-learn for real."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
Run = Callable[..., Any]

# XGBoost's own requirements would bring the GPU's communication library, 469 MB of it.
REQUIREMENTS = (
    "xgboost==3.2.0", "lightgbm==4.7.0", "scikit-learn==1.9.1", "numpy==2.4.6", "scipy==1.17.1",
    "joblib", "threadpoolctl", "narwhals", "cloudpickle",
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
