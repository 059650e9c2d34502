"""One job prints as fast as it can: R-F25."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from windlass.testing.platform import Platform, wait_for

pytestmark = pytest.mark.slow

LIMIT = 1_000_000


def rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def test_r_f25_a_flood_of_output_is_bounded_and_harms_nobody_else(platform: Platform) -> None:
    gate = platform.gate()
    neighbour = platform.witness("clock", gate)
    platform.wait_state(neighbour, "running")
    lags: list[float] = []

    def watch() -> None:
        with platform.new_client() as api:
            for message in api.jobs.stream(neighbour.id):
                if message.event == "log":
                    now = time.time()
                    lags.extend(now - float(line) for line in message.json()["text"].split())

    watcher = threading.Thread(target=watch)
    watcher.start()
    wait_for(lambda: len(lags) > 20, 20, "the neighbour is followed")
    calm = sorted(lags)[len(lags) // 2]
    lags.clear()
    assert platform.process is not None
    before = rss_bytes(platform.process.pid)
    flood = platform.witness("flood", platform.gate("flood"), limits={"log_rate": LIMIT})
    wait_for(lambda: platform.said(flood, "began"), 20, "it floods")
    time.sleep(3)
    wait_for(lambda: len(lags) > 20, 20, "the neighbour is followed all the while")
    flooded = sorted(lags)
    worker = platform.worker_pid(platform.attempts(flood)[0])
    assert worker is not None and rss_bytes(worker) < 100 * 2**20
    assert rss_bytes(platform.process.pid) < before + 100 * 2**20
    platform.gate("flood").touch()
    assert platform.wait(flood).state == "succeeded"
    gate.touch()
    assert platform.wait(neighbour).state == "succeeded"
    watcher.join(120)
    assert not watcher.is_alive()
    middle = flooded[len(flooded) // 2]
    print(f"median lag {calm:.3f} s calm, {middle:.3f} s in the flood; most {flooded[-1]:.3f} s")
    assert middle < 2 * calm + 0.5
    kept = sum(file.stat().st_size for file in platform.attempts(flood)[0].glob("logs/*.log"))
    ran = platform.said(flood)[-1]["at"] - platform.said(flood)[0]["at"]
    assert kept < LIMIT * (ran + 1.5) + 4 * 2**20, "the rate is limited"
    tail = [line["text"] for line in platform.client.jobs.logs(flood.id, tail=3)]
    assert tail[-1] == "last words", "the end is always kept"
    text = platform.logs(flood, grep="windlass: dropped")
    assert "over 1.0 MB/s" in text, "what is missing is told in its place"
