"""Spark for real: spark-submit as a job. Half a gigabyte to install."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(shutil.which("java") is None, reason="Java is not installed")


def test_spark_submit_is_a_job_of_one_member(
    made: Callable[..., Path], run: Callable[..., Any]
) -> None:
    python = made("spark", "pyspark==4.3.0")
    found = run(python, "spark", "--", "spark-submit", "--master", "local[2]", "pi.py")
    assert found.job.framework == "spark"
    assert "framework spark: the command is spark-submit" in found.err
    assert "pi is about 3.1" in found.out
