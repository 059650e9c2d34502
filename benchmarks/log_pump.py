"""Claim: a rank's output goes through the worker at no less than 0.3x of the speed of writing the
same bytes to a file, with the rate limit off; under `yes` the worker's memory stays bounded, and
below 30 MB.

The rank times its own writes: with a pipe of 64 KiB between them it can be ahead of the worker
by no more than that. The peer is the same script with its stdout a file on the same disk.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from benchmarks.measure import (
    Row,
    at_least,
    below,
    folder,
    interleave,
    median,
    megabytes,
    memory_bytes,
    script,
)
from windlass.testing.platform import Platform, wait_for

ROUNDS = 5
BYTES = 128 << 20
FLOOD_SECONDS = 8.0
SCRIPT = """\
import os, sys, time
size, told = int(sys.argv[1]), sys.argv[2]
line = b"step 1234 loss=0.12345 lr=0.001 throughput=1234.5 samples/s epoch=3\\n"
piece = line * (65536 // len(line))
began, left = time.perf_counter(), size
while left > 0:
    left -= os.write(1, piece)
spent = time.perf_counter() - began
open(told, "w").write(str((size - left) / spent))
"""


def measure() -> list[Row]:
    with folder() as place, Platform(place / "home") as platform:
        (place / "writer.py").write_text(SCRIPT)
        command = [sys.executable, str(place / "writer.py"), str(BYTES), str(place / "told")]

        def told() -> float:
            return float((place / "told").read_text())

        def pump() -> float:
            job = platform.submit(command, limits={"log_rate": 0})
            assert platform.wait(job, 120).state == "succeeded"
            found = told()
            kept = sum(
                path.stat().st_size for path in platform.attempts(job)[-1].glob("logs/*.log")
            )
            assert kept >= BYTES, f"only {kept} bytes of {BYTES} were kept"
            platform.call("DELETE", f"/jobs/{job.id}")
            return found

        def plain() -> float:
            with (place / "plain.log").open("wb") as file:
                subprocess.run(command, stdout=file, check=True)
            (place / "plain.log").unlink()
            return told()

        found = interleave({"pump": pump, "file": plain}, ROUNDS)
        calm = _worker_peak(platform, ["sleep", "60"], 2.0)
        flood = _worker_peak(platform, ["yes"], FLOOD_SECONDS)
    claim = "one rank's output through the worker (the same to a file)"
    return [
        at_least(claim, median(found["pump"]), median(found["file"]), 0.3, _rate),
        below("worker, most memory, quiet job", calm, 30e6, megabytes),
        below(f"worker, most memory, {FLOOD_SECONDS:.0f} s of `yes`", flood, 30e6, megabytes),
    ]


def _rate(value: float) -> str:
    return f"{value / 1e6:,.0f} MB/s"


def _worker_peak(platform: Platform, command: list[str], seconds: float) -> float:
    """The most memory the worker of such a job had within some seconds."""
    job = platform.submit(command)
    platform.wait_state(job, "running")
    place: Path = platform.attempts(job)[-1]
    pid = wait_for(lambda: platform.worker_pid(place), 10, "its worker lives")
    time.sleep(seconds)
    peak = memory_bytes(pid, "VmHWM")
    platform.client.jobs.stop(job.id, now=True)
    platform.wait(job)
    return peak


if __name__ == "__main__":
    script(measure)
