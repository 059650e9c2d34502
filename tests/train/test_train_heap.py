"""A member keeps what a step frees: the next one finds it without a fault of a page."""

from __future__ import annotations

import queue
import resource
import subprocess
import sys
import threading

import pytest
import torch
from torch import Tensor

from windlass.train.group import Group
from windlass.train.heap import keep_freed
from windlass.train.seat import Seat

STEPS = 20
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="glibc's numbers")


def faults(seat: Seat) -> float:
    """Of a step that frees twelve megabytes which another thread has received."""
    wanted: queue.SimpleQueue[bool] = queue.SimpleQueue()
    arrived: queue.SimpleQueue[list[Tensor]] = queue.SimpleQueue()

    def receive() -> None:
        while wanted.get():
            arrived.put([torch.zeros(1 << 20) + 1 for _ in range(3)])

    def step() -> None:
        wanted.put(True)
        arrived.get().clear()

    receiver = threading.Thread(target=receive, daemon=True)
    receiver.start()
    for _ in range(5):
        step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(STEPS):
        step()
    found = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    wanted.put(False)
    receiver.join()
    return found / STEPS


def test_a_step_finds_the_memory_that_the_last_one_freed() -> None:
    """Of 3072 pages; with what glibc does by itself some hundreds are new in each step."""
    with Group(1, threads=1, deadline_seconds=60) as group:
        assert group.call(faults)["worker 0"] < 60


def test_what_somebody_told_it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "65536")
    assert not keep_freed()
    program = "from windlass.train.heap import keep_freed; print(keep_freed())"
    clean = {"PATH": "", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=clean, timeout=120
    )
    assert done.stdout == "True\n", done.stderr
