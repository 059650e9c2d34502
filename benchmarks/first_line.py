"""From submit to the first line of output on an engine: ours, and the means to measure a peer.

Both begin where a user would press Enter and end where the line can be read: ours from the call
of a client that is up to the line in the job's stream. Between two measurements the job is waited
for, so that nobody pays for another's end.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from windlass.testing.platform import Platform, wait_for

MARK = "hello-1"
SCRIPT = f"print('{MARK}', flush=True)"
COMMAND = [sys.executable, "-c", SCRIPT]
LIMIT_SECONDS = 120.0


def ours(platform: Platform, **spec: Any) -> float:
    """Of a job of this command, on the engine that `spec` names."""
    client = platform.client
    began = time.perf_counter()
    job = client.jobs.submit({"run": COMMAND, **spec})
    spent = 0.0
    for message in client.jobs.stream(job.id):
        if message.event == "log" and not spent and MARK in message.json()["text"]:
            spent = time.perf_counter() - began
        if message.event == "end":
            assert spent and message.json()["state"] == "succeeded", message.json()
    return spent


def of_file(path: Path, began: float) -> float:
    """Until the line is in a file that something else writes."""
    while True:
        try:
            if MARK in path.read_text():
                return time.perf_counter() - began
        except FileNotFoundError:
            pass
        if time.perf_counter() - began > LIMIT_SECONDS:
            raise TimeoutError(f"no {MARK} in {path}")
        time.sleep(0.001)


def add(platform: Platform, name: str, kind: str, options: dict[str, str], nodes: int) -> None:
    """An engine, and its nodes are offered."""
    platform.client.engines.add(name, kind, options)
    wait_for(
        lambda: (name, nodes)
        in [(each["name"], each["nodes"]) for each in platform.client.engines.list()],
        LIMIT_SECONDS, f"the nodes of {name} are offered",
    )  # fmt: skip


def tell(found: Mapping[str, Sequence[float]]) -> None:
    """Each single measurement, for who asks with -v why a median is what it is."""
    if "-v" in sys.argv:
        for name, spent in found.items():
            print(name, *(f"{each * 1e3:.0f}" for each in spent), "ms")
