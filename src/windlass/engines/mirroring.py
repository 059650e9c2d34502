"""For an engine whose workers share no file system with the server: they mirror what the server
would have read (`worker/mirror`, docs/decisions/remote-workers.md).

The engine lays a worker's directory down at home as any other does, and starts the worker in a
directory of its own; what it sends lands at home. Two things differ: what the launch says, and
that a worker which died has nothing at home that could be cleaned up.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from typing import Any

from windlass.engines.directory import Directory


def facts() -> dict[str, Any]:
    """What is to be added to `Engine.facts`: nothing of the home can be read where it runs."""
    return {"mirror": True, "server_file": None, "blob_dir": None, "cache_dir": None}


def lose(place: Directory, why: str) -> dict[str, Any]:
    """The record of a worker that has proof of its death and left none: `lost`. The first record
    stands, so one that came meanwhile is returned instead."""
    place.put_aside_broken_record()
    launch = json.loads((place.path / "launch.json").read_text())
    record = {
        "api": 1, "attempt_id": place.attempt_id, "attempt": launch["attempt"],
        "node": place.node, "boot_id": "", "ended_ms": time.time_ns() // 1_000_000,
        "outcome": "lost", "reason": why, "ranks": [], "first_failure": None, "survivors": [],
    }  # fmt: skip
    fresh = place.path / f".exit.json-{secrets.token_hex(8)}"
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(record, file)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(fresh, place.path / "exit.json")
    except FileExistsError:
        pass
    finally:
        fresh.unlink()
    return place.record() or record
