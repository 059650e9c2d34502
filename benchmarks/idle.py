"""Claim: a server with nothing to do takes under 1% of a core and under 150 MB.

Measured once it has run a job, so that everything is loaded that will be.
"""

from __future__ import annotations

import time

from benchmarks.measure import (
    Row,
    below,
    cpu_seconds,
    folder,
    megabytes,
    memory_bytes,
    script,
)
from windlass.testing.platform import Platform

SECONDS = 20.0


def measure() -> list[Row]:
    with folder() as place, Platform(place / "home") as platform:
        platform.wait(platform.submit(["true"]))
        time.sleep(3)
        assert platform.process is not None
        pid = platform.process.pid
        before = cpu_seconds(pid)
        began = time.perf_counter()
        time.sleep(SECONDS)
        share = (cpu_seconds(pid) - before) / (time.perf_counter() - began)
        memory = memory_bytes(pid)
    return [
        below("idle server, share of a core", share, 0.01, lambda value: f"{value:.2%}"),
        below("idle server, memory (RSS)", memory, 150e6, megabytes),
    ]


if __name__ == "__main__":
    script(measure)
