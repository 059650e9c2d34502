"""R-F26 on a whole server: a job over one of its limits ends alone, and its reason says which."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from windlass.client import Job
from windlass.engines.local import isolation
from windlass.testing.platform import Platform, wait_for

pytestmark = pytest.mark.slow
ABLE = isolation.look()
HUNGRY = "held = []\nwhile True: held.append(bytearray(8 << 20))"
BOMB = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    try: os.fork()
    except OSError: time.sleep(0.05)
"""
ALIVE = "import time\nwhile True: print('alive', flush=True); time.sleep(0.1)"


def submit(platform: Platform, code: str, **spec: Any) -> Job:
    return platform.submit([sys.executable, "-c", code], retry={"times": 0}, **spec)


@pytest.fixture(params=["0", "1"])
def server_args(request: pytest.FixtureRequest) -> tuple[str, ...]:
    if request.param == "1" and ABLE.level < 1:
        pytest.skip("isolation level 1: " + "; ".join(ABLE.missing))
    return ("--isolation", request.param)


def test_only_the_job_over_its_limit_ends_and_says_which(platform: Platform) -> None:
    limits = isolation.limits_of(Path("/"))
    if "none" in (limits["memory"], limits["pids"]):
        pytest.skip(f"no cgroup limits here: {limits}")
    neighbour = submit(platform, ALIVE)
    wait_for(lambda: "alive" in platform.logs(neighbour), 60)
    hungry = submit(platform, HUNGRY, roles={"worker": {"memory": "96MiB"}})
    bomb = submit(platform, BOMB, limits={"processes": 64, "grace": "1s"})
    over = platform.wait(hungry)
    assert over.state == "failed", over.reason
    assert "ran out of memory: used 96 MiB of 96 MiB" in over.reason
    attempt = platform.call("GET", f"/jobs/{hungry.id}").json()["attempts"][-1]
    assert attempt["outcome"] == "oom"
    over = platform.wait(bomb)
    assert over.state == "failed"
    assert "reached its limit of 64 processes (pids)" in over.reason
    before = len(platform.logs(neighbour))
    wait_for(lambda: len(platform.logs(neighbour)) > before, 20, "the neighbour goes on")
    assert platform.client.jobs.get(neighbour.id).state == "running"
    platform.call("POST", f"/jobs/{neighbour.id}/stop", {"now": True})
    platform.wait(neighbour)
