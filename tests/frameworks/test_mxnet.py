"""MXNet for real, in its own old environment: the `dist_sync` kvstore."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from windlass.testing.platform import Platform

pytestmark = pytest.mark.slow
Run = Callable[..., Any]
GANG = ("--role", "scheduler=1", "--role", "server=1", "--role", "worker=2")


@pytest.fixture(scope="module")
def python(made: Callable[..., Path]) -> Path:
    # It says numpy<2, and fails to import with what that brings.
    return made("mxnet", "mxnet==1.9.1", "numpy==1.23.5")


def test_two_workers_train_one_model_through_a_server(python: Path, run: Run) -> None:
    found = run(python, "mxnet", *GANG, "train.py")
    assert found.job.framework == "mxnet"
    found.trained_together(2)


def test_workers_without_a_scheduler_are_refused_before_anything_starts(
    laboratory: Platform,
) -> None:
    done = laboratory.cli(
        "submit", "--framework", "mxnet", "--workers", "2", "--no-code", "--", "true"
    )
    assert done.returncode != 0
    assert "mxnet needs the role scheduler" in done.stderr
