"""Chainer for real: no longer developed, but it still installs and trains."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow


def test_a_chainer_script_trains(made: Callable[..., Path], run: Callable[..., Any]) -> None:
    python = made(
        "chainer", "chainer==7.8.1", "numpy<1.24", "protobuf<3.21", "setuptools<70", "wheel",
        pip_args=("--no-build-isolation",),
    )  # fmt: skip
    found = run(python, "chainer", "train.py")
    assert found.job.framework == "chainer"
    found.trained_together(1)
    assert found.told[0].model == "2.00 10.00"
