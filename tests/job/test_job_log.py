"""`windlass.log` and `windlass.progress`: whole lines, honest numbers, no exception, quick."""

from __future__ import annotations

import json
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from windlass.job.log import number
from windlass.job.spool import Spool


class Scalar:
    """What torch and numpy scalars have in common."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def item(self) -> Any:
        return self.value


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (1, 1),
        (0.5, 0.5),
        (True, 1),
        (Scalar(0.25), 0.25),
        (Scalar(3), 3),
        (Decimal("1.5"), 1.5),
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        (Scalar(float("nan")), "NaN"),
        (2**80, float(2**80)),
    ],
)
def test_a_number_is_written_as_strict_json(value: Any, written: Any) -> None:
    found = number(value)
    assert found == written and type(found) is type(written)


@pytest.mark.parametrize("value", ["text", b"bytes", None, [1], Scalar("x"), 1j, 10**400])
def test_what_is_no_number_is_refused(value: Any) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError)):
        number(value)


def test_metrics_and_progress_are_lines_in_the_ranks_own_spool(job: Any) -> None:
    code = """
import windlass
windlass.log(step=10, loss=0.3, accuracy=float("nan"))
windlass.log(loss=0.2)
windlass.progress(3, 10, "epochs é")
"""
    before = time.time() * 1000
    job.run(code)
    metric, following, progress = job.lines()
    assert before - 1 <= metric.pop("t") <= time.time() * 1000
    assert metric == {"kind": "metric", "step": 10, "values": {"loss": 0.3, "accuracy": "NaN"}}
    assert following["step"] == 11
    assert {key: progress[key] for key in ("done", "total", "step", "note")} == {
        "done": 3,
        "total": 10,
        "step": 11,
        "note": "epochs é",
    }


def test_a_resumed_run_without_steps_goes_on_counting(job: Any) -> None:
    job.extra = {"WINDLASS_RESUME_FROM": str(job.checkpoints / "step-000000000040-000002")}
    job.run("import windlass; windlass.log(loss=1)")
    assert job.lines()[0]["step"] == 41


def test_nothing_that_is_logged_raises(job: Any) -> None:
    code = """
import windlass
windlass.log(step="x", loss=1)
windlass.log(step=1, good=2, bad="text", worse=object())
windlass.log(step=2, bad="again")
windlass.progress("none")
print("trained")
"""
    done = job.run(code)
    assert done.stdout == "trained\n"
    assert [line["values"] for line in job.lines()] == [{"good": 2}, {}]
    assert done.stderr.count("log(bad=…)") == 1


@pytest.mark.parametrize("folder", ["/proc/none", "/dev/null/run"])
def test_a_folder_that_cannot_be_is_told_once(job: Any, folder: str) -> None:
    job.extra = {"WINDLASS_RUN_DIR": folder}
    done = job.run("import windlass\nfor _ in range(5): windlass.log(loss=1)\nprint('trained')")
    assert done.stdout == "trained\n"
    assert len(done.stderr.splitlines()) == 1 and "training goes on" in done.stderr


def test_threads_and_forks_never_mix_their_lines(job: Any) -> None:
    code = """
import os, threading, windlass
windlass.log(step=0, who=-1)
children = []
for child in range(4):
    pid = os.fork()
    if pid == 0:
        def work(thread):
            for step in range(200):
                windlass.log(step=step, who=child * 4 + thread, **{"x" * (1 + step * 20): 1.0})
        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        os._exit(0)
    children.append(pid)
assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 4
"""
    job.run(code)
    seen: dict[int, list[int]] = {}
    for line in job.lines():
        seen.setdefault(line["values"]["who"], []).append(line["step"])
    assert seen.pop(-1) == [0]
    assert seen == {who: list(range(200)) for who in range(16)}


def test_a_closed_descriptor_is_not_written_through(job: Any) -> None:
    """A program that closes all descriptors and opens its own must not find our lines there."""
    code = """
import os, windlass
windlass.log(step=0, loss=1)
os.closerange(3, 64)
mine = [open("mine-%d" % n, "w") for n in range(8)]
windlass.log(step=1, loss=1)
"""
    job.run(code)
    assert [line["step"] for line in job.lines()] == [0, 1]
    assert all(path.read_text() == "" for path in job.home.glob("mine-*"))


def test_below_torchrun_lines_say_whose_they_are(job: Any) -> None:
    job.extra = {"TORCHELASTIC_RUN_ID": "none", "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}
    job.run("import windlass; windlass.log(step=1, loss=1)")
    assert [line["rank"] for line in job.lines(rank=0)] == [3]


@pytest.mark.parametrize(
    ("rank", "size"), [("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE")]
)
def test_below_mpirun_lines_say_whose_they_are(job: Any, rank: str, size: str) -> None:
    job.extra = {rank: "2", size: "4"}
    job.run("import windlass; windlass.log(step=1, loss=1)")
    assert [line["rank"] for line in job.lines(rank=0)] == [2]


def test_a_call_is_one_write_and_costs_microseconds(tmp_path: Path) -> None:
    """Not a benchmark: catches a file opened, a lock taken or an fsync made at each call."""
    spool = Spool(tmp_path / "spool-0.jsonl")
    record = {"kind": "metric", "step": 1, "values": {"loss": 0.5, "accuracy": 0.5}}
    spool.append(dict(record))
    took = []
    for _ in range(5):  # the best: other threads of this process count too
        began = time.process_time()
        for _ in range(1000):
            spool.append(dict(record))
        took.append((time.process_time() - began) / 1000)
    microseconds = min(took) * 1e6
    assert microseconds < 100, microseconds
    lines = (tmp_path / "spool-0.jsonl").read_text().splitlines()
    assert len(lines) == 5001 and json.loads(lines[-1])["values"]["loss"] == 0.5
    print(f"{microseconds:.1f} µs of CPU a call")
