"""The examples run as their READMEs say, without a server: plain Python and torchrun."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
FIRST_STEPS = EXAMPLES / "first-steps" / "train.py"
DDP = EXAMPLES / "pytorch-ddp" / "train.py"
TRACKED = EXAMPLES / "pytorch-ddp" / "train_tracked.py"

needs_torch = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "sklearn")),
    reason="torch and scikit-learn are not installed",
)
EPOCH = re.compile(r"^epoch (\d+) loss=([0-9.]+) acc=([0-9.]+)$", re.MULTILINE)


def environment() -> dict[str, str]:
    dropped = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    return {
        **{
            key: value
            for key, value in os.environ.items()
            if key not in dropped and not key.startswith("WINDLASS_")
        },
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


GLOO_AT_EXIT = "terminate called without an active exception"
"""A thread of gloo that lets go of a Python tensor while the interpreter ends aborts its process:
torch's own race (pytorch pull request 179291), after the script's last line, seen on a busy
machine."""


def run(folder: Path, *command: str | Path) -> str:
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, *map(str, command)],
            cwd=folder,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=180,
        )
        if GLOO_AT_EXIT not in done.stderr:
            break
    assert done.returncode == 0, done.stderr
    return done.stdout


def torchrun(num_processes: int) -> list[str]:
    return ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={num_processes}"]


def epochs(output: str) -> list[tuple[int, float, float]]:
    return [(int(n), float(loss), float(acc)) for n, loss, acc in EPOCH.findall(output)]


def test_first_steps_learns_and_is_the_same_each_time(tmp_path: Path) -> None:
    seen = epochs(run(tmp_path, FIRST_STEPS, "--epochs", "5"))
    assert [number for number, _, _ in seen] == [1, 2, 3, 4, 5]
    assert seen[-1][1] < seen[0][1] and seen[-1][2] > 0.9
    assert epochs(run(tmp_path, FIRST_STEPS, "--epochs", "5")) == seen


def test_first_steps_needs_no_windlass(tmp_path: Path) -> None:
    assert len(epochs(run(tmp_path, "-I", "-S", FIRST_STEPS, "--epochs", "2"))) == 2
    assert not (tmp_path / "windlass-runs").exists()


def test_first_steps_killed_and_resumed_ends_as_if_never_killed(tmp_path: Path) -> None:
    whole = epochs(run(tmp_path, FIRST_STEPS, "--epochs", "6"))
    second = tmp_path / "second"
    second.mkdir()
    process = subprocess.Popen(
        [sys.executable, str(FIRST_STEPS), "--epochs", "6", "--pause", "0.2"],
        cwd=second,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("epoch 3"):
            break
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    output = run(second, FIRST_STEPS, "--epochs", "6", "--resume")
    resumed = re.search(r"resumed after epoch (\d)", output)
    assert resumed is not None and int(resumed[1]) in (2, 3)
    assert epochs(output) == whole[int(resumed[1]) :]


def test_the_ddp_script_knows_nothing_of_windlass() -> None:
    tree = ast.parse(DDP.read_text())
    modules = {
        name
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert not any(name.startswith("windlass") for name in modules)


@pytest.mark.training
@needs_torch
@pytest.mark.parametrize("script", [DDP, TRACKED], ids=lambda path: path.stem)
def test_no_thread_of_gloos_outlives_its_group(tmp_path: Path, script: Path) -> None:
    """One that meets an interpreter on its way out aborts the process after its last line."""
    code = """
import runpy, sys
from pathlib import Path
sys.argv[:] = [sys.argv[1], "--epochs", "1"]
sys.path.insert(0, str(Path(sys.argv[0]).parent))
runpy.run_path(sys.argv[0], run_name="__main__")
print("left", [each.read_text() for each in Path("/proc/self/task").glob("*/comm")
               if "gloo" in each.read_text()])
"""
    assert run(tmp_path, "-c", code, script).splitlines()[-1] == "left []"


@pytest.mark.training
@needs_torch
def test_ddp_trains_alike_on_one_two_and_four_processes(tmp_path: Path) -> None:
    outputs = [
        epochs(run(tmp_path, DDP, "--epochs", "3")),
        epochs(run(tmp_path, *torchrun(2), DDP, "--epochs", "3")),
        epochs(run(tmp_path, *torchrun(4), DDP, "--epochs", "3")),
    ]
    for seen in outputs:
        assert [number for number, _, _ in seen] == [1, 2, 3], "rank 0 alone prints"
        assert seen[-1][2] > 0.9
        # Same batches in sum, other shuffles' borders: the first epoch's loss agrees closely.
        assert abs(seen[0][1] - outputs[0][0][1]) < 0.05


@pytest.mark.training
@needs_torch
def test_tracked_ddp_logs_saves_and_resumes(tmp_path: Path) -> None:
    first = run(tmp_path, *torchrun(2), TRACKED, "--epochs", "2")
    (folder,) = (tmp_path / "windlass-runs").iterdir()
    lines = [json.loads(line) for line in (folder / "spool-0.jsonl").read_text().splitlines()]
    metrics = [line for line in lines if line["kind"] == "metric"]
    assert [(line["step"], round(line["values"]["loss"], 4)) for line in metrics] == [
        (number, loss) for number, loss, _ in epochs(first)
    ]
    second = run(tmp_path, *torchrun(2), TRACKED, "--epochs", "3", "--resume")
    assert "resumed after epoch 2" in second
    whole = tmp_path / "whole"
    whole.mkdir()
    assert epochs(second) == epochs(run(whole, *torchrun(2), TRACKED, "--epochs", "3"))[2:]
