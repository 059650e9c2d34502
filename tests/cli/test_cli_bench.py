"""`windlass bench strategies`: one table of what each strategy does with one's own model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
from windlass.core.errors import InvalidInput
from windlass.train.comparison import compared, make_of
from windlass.train.report import MemberReport, Report

SCRIPT = """
import torch
from torch.nn.functional import cross_entropy
import windlass.train as wt

def make():
    x = torch.randn(200, 8, generator=torch.Generator().manual_seed(0))
    model = torch.nn.Linear(8, 2)
    return wt.Task(
        model, wt.sum_loss(cross_entropy, reduction="sum"),
        torch.optim.SGD(model.parameters(), 0.5), wt.Data((x, (x.sum(1) > 0).long()), 20),
    )

print(wt.fit(make, epochs=1000).report())
raise SystemExit("the rest of the script was run")
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(SCRIPT)
    return path


def bench(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from windlass.cli.main import main; main()", "bench", "strategies",
         *map(str, words)],
        capture_output=True, text=True, timeout=250, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def report(name: str, seconds: float, fall: float) -> Report:
    losses = [(step, seconds * step / 100, 1.0 / (1 + fall * step)) for step in range(1, 101)]
    member = MemberReport(name="worker 0", steps=100, samples=100, seconds=seconds, losses=losses)
    return Report.merge([member], name)


def test_losses_are_compared_at_equal_steps_and_at_the_time_of_the_quickest() -> None:
    found = compared(
        {"slow": report("slow", 10.0, 1.0), "quick": report("quick", 1.0, 0.5), "no": "it cannot"},
        2, 100,
    )  # fmt: skip
    slow, quick, no = found.rows
    assert found.seconds == 1.0
    assert slow.loss_at_steps is not None and quick.loss_at_steps is not None
    assert slow.loss_at_steps < quick.loss_at_steps, "it learns more in a step"
    assert slow.loss_at_seconds is not None and quick.loss_at_seconds is not None
    assert quick.loss_at_seconds < slow.loss_at_seconds, "and less in a second"
    assert quick.loss_at_seconds == quick.loss_at_steps
    assert (no.why, no.samples_per_s, no.loss_at_steps) == ("it cannot", None, None)


def test_a_script_is_run_up_to_its_fit_and_compared(script: Path) -> None:
    done = bench(script, "--only", "hogwild,ensemble", "--workers", "1", "--steps", "40")
    assert done.returncode == 0, done.stderr
    head, *rows = done.stdout.splitlines()
    assert "SAMPLES/S" in head and "LOSS AT 40 STEPS" in head
    assert [row.split()[0] for row in rows] == ["hogwild", "ensemble"]
    assert done.stderr.splitlines() == ["hogwild …", "ensemble …"]


@pytest.mark.slow
def test_members_of_a_strategy_find_make_in_the_script(script: Path) -> None:
    done = bench(script, "--only", "hogwild", "--steps", "30", "-o", "json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert row["samples_per_s"] > 0 and row["loss_at_steps"] < 0.7


def test_a_strategy_that_cannot_run_says_why(script: Path) -> None:
    done = bench(script, "--only", "ensemble", "--device", "abacus", "-o", "json")
    assert done.returncode == 1
    (row,) = json.loads(done.stdout)["rows"]
    assert "abacus" in row["why"] and row["samples_per_s"] is None


def test_an_unknown_strategy_is_answered_with_the_known_ones(script: Path) -> None:
    done = bench(script, "--only", "telepathy")
    assert done.returncode == 2
    assert "telepathy" in done.stderr and "hogwild" in done.stderr


def test_a_script_without_make_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.py"
    with pytest.raises(InvalidInput, match="no such file"):
        make_of(path)
    path.write_text("import nothing_of_the_kind\n")
    done = bench(path)
    assert done.returncode == 2 and "cannot be loaded: ModuleNotFoundError" in done.stderr
    path.write_text("x = 1\n")
    done = bench(path)
    assert done.returncode == 2 and "defines no make()" in done.stderr
