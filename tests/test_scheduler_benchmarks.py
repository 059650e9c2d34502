"""The scheduler's benchmarks run at a small size; what they measure is read by people."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(
    "name",
    ["scheduler_core", "scheduler_kueue", "scheduler_simulation", "scheduler_fragmentation"],
)
def test_the_benchmark_runs_at_a_small_size(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", "--quick"],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("| claim")
