"""The engines' benchmarks run at a small size; what they measure is read by people."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from windlass.testing import kubernetes, ray, slurm
from windlass.testing.environments import Unavailable

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.slow


def test_slurms_runs_at_a_small_size() -> None:
    if why := slurm.missing():
        pytest.skip(f"no Slurm here: {why}")
    runs("engines_slurm")


def test_rays_runs_at_a_small_size() -> None:
    try:
        ray.python()
    except Unavailable as why:
        pytest.skip(f"no Ray here: {why}")
    runs("engines_ray")


def test_kubernetes_runs_at_a_small_size() -> None:
    if why := kubernetes.missing():
        pytest.skip(why)
    runs("engines_kubernetes")


def runs(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", "--quick"],
        cwd=ROOT, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("| claim")
