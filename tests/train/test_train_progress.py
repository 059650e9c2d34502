"""Progress is seen on a terminal, in a log file and in a job, and costs next to nothing."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
import time
from pathlib import Path

from windlass.train.progress import InLines, Progress, progress

TELL = """
import sys
from windlass.train.progress import progress
with progress("allreduce") as seen:
    for step in range(1, 101):
        seen.update({"step": step, "steps": 100, "loss": 1 / step, "samples_per_s": 1234.5})
"""


def test_a_line_comes_now_and_then_and_always_the_last() -> None:
    file, now = io.StringIO(), 0.0
    with InLines("allreduce", file, lambda: now) as seen:
        for step in range(1, 13):
            now += 1.0
            seen.update({"step": step, "steps": 12, "loss": 0.5, "samples_per_s": 1200.0})
    lines = file.getvalue().splitlines()
    assert [line.split()[2] for line in lines] == ["1", "6", "11", "12"]
    assert lines[0] == "allreduce: step 1 of 12, loss 0.5, 1,200 samples/s"


def test_what_is_not_known_is_left_out() -> None:
    file = io.StringIO()
    with progress("ps:async", file=file) as seen:
        seen.update({"step": 3, "steps": None, "loss": None})
    assert file.getvalue().startswith("ps:async: step 3")


def test_on_a_terminal_there_is_a_bar() -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    done = subprocess.Popen([sys.executable, "-c", TELL], stderr=theirs, env=environment)
    os.close(theirs)
    seen = b""
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:  # how Linux says that the other side is closed
            break
        if not data:
            break
        seen += data
    os.close(ours)
    assert done.wait(60) == 0
    assert b"100/100" in seen and b"loss 0.01" in seen and "━".encode() in seen


def test_in_a_job_it_is_recorded_for_the_platform(tmp_path: Path) -> None:
    environment = {**os.environ, "WINDLASS_JOB_ID": "j", "WINDLASS_RUN_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", TELL], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and done.stderr == ""
    lines = [
        json.loads(line)
        for path in tmp_path.glob("spool-*.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert lines[-1]["kind"] == "progress"
    assert (lines[-1]["done"], lines[-1]["total"]) == (100, 100)
    assert lines[-2]["values"] == {"loss": 0.01, "samples_per_s": 1234.5}
    assert len(lines) < 10


def test_telling_costs_microseconds() -> None:
    file = io.StringIO()
    told = {"step": 1, "steps": 10, "loss": 0.5, "samples_per_s": 1.0}
    with InLines("x", file) as seen:
        took = []
        for _ in range(5):  # the best: other threads of this process count too
            began = time.process_time()
            for _ in range(2_000):
                seen.update(told)
            took.append((time.process_time() - began) / 2_000)
        assert min(took) < 20e-6


def test_who_wants_none_gets_none() -> None:
    assert type(progress("x", wanted=False)) is Progress
