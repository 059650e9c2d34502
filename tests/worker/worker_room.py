"""Jobs of level 1 on one worker, for tests of what they can and cannot do."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from worker_lab import Lab, Worker

from windlass.engines.local import isolation

ABLE = isolation.look()
whole = pytest.mark.skipif(
    ABLE.level < 1, reason="isolation level 1: " + "; ".join(ABLE.missing or ("?",))
)
MIB = 1 << 20
TELL = "import json, os, sys\ndef tell(**found): print(json.dumps(found), flush=True)\n"


def said(worker: Worker, name: str = "worker-0-0.out") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(worker.logs(name).splitlines()[0])
    return found


def in_room(lab: Lab, code: str, network: str = "host", **changes: Any) -> Worker:
    return lab.worker(TELL + code, **{**lab.isolated(1, network), **changes})


def member(memory: int = 0, nproc: int = 1, code: str = "") -> list[dict[str, Any]]:
    command = [sys.executable, "-c", TELL + code]
    return [
        {"role": "worker", "index": 0, "nproc": nproc, "command": command, "memory_bytes": memory}
    ]


def processes_of(uid: int) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == uid:
                found.append(int(name))
    return found


def removed(folder: Path) -> bool:
    """Whether a cgroup is gone; it cannot go before its last process has."""
    with contextlib.suppress(OSError):
        folder.rmdir()
    return not folder.exists()
