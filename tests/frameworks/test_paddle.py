"""PaddlePaddle for real: as plain ranks, and below its own launcher."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
Run = Callable[..., Any]


@pytest.fixture(scope="module")
def python(made: Callable[..., Path]) -> Path:
    return made("paddle", "paddlepaddle==3.3.1")


def test_two_workers_train_one_model(python: Path, run: Run) -> None:
    found = run(python, "paddle", "--workers", "2", "train.py")
    assert found.job.framework == "paddle"
    found.trained_together(2)


def test_two_launchers_are_two_nodes_of_one_job(python: Path, run: Run) -> None:
    found = run(
        python, "paddle", "--workers", "2", "--",
        "python", "-m", "paddle.distributed.launch", "train.py",
    )  # fmt: skip
    assert found.job.framework == "paddle"
    found.trained_together(2)
