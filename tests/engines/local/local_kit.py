"""The contract suite's kit for the local engine: a home, a worker, and a clean end."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windlass.engines import directory as directories
from windlass.engines.directory import Directory
from windlass.engines.local.engine import LocalEngine
from windlass.engines.processes import Identity, kill, lives


@dataclass
class LocalKit:
    home: Path
    command: Sequence[str]
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    nodes: tuple[str, ...] = ("fake-0", "fake-1", "fake-2")
    made: list[LocalEngine] = field(default_factory=list)

    def engine(self) -> LocalEngine:
        self.made.append(LocalEngine(self.home, self.command, fake_nodes=3, fake_gpus=2))
        return self.made[-1]

    def gate(self) -> Path:
        path = self.home / f"gate-{secrets.token_hex(4)}"
        os.mkfifo(path)
        return path

    def directory(self, attempt_id: str, node: str) -> Path:
        return Directory(self.home / "attempts", attempt_id, node).path

    def worker_pid(self, attempt_id: str, node: str) -> int | None:
        worker = Directory(self.home / "attempts", attempt_id, node).worker()
        return worker.pid if worker is not None and lives(worker) else None

    def marks(self, attempt_id: str, node: str) -> dict[str, str]:
        run = self.directory(attempt_id, node) / "run"
        return {"WINDLASS_ATTEMPT_ID": attempt_id, "WINDLASS_RUN_DIR": str(run)}

    def launch(self, attempt_id: str, node: str) -> dict[str, Any]:
        member = {
            "role": "worker",
            "index": 0,
            "nproc": 1,
            "gpu_ids": [],
            "command": ["true"],
            "vars": {},
            "cpus_milli": 0,
            "memory_bytes": 0,
            "finish": "all",
        }
        return {
            "api": 1,
            "job_id": "0" * 32,
            "job_name": "contract",
            "project": "default",
            "attempt_id": attempt_id,
            "attempt": 1,
            "node": node,
            # Nobody answers there: a real worker tries again for ever.
            "urls": ["http://127.0.0.1:9"],
            "server_file": str(self.home / "server.json"),
            "bundle": None,
            "blob_dir": None,
            "cache_dir": str(self.home / "cache"),
            "checkpoint_dir": str(self.home / "checkpoints"),
            "resume": True,
            "keep": 3,
            "host": "127.0.0.1",
            "ifname": "lo",
            "python": None,
            "vars": {},
            "members": [member],
            "grace_ms": 1000,
            "idle_ms": 0,
            "on_idle": "report",
            "log_rate": 4_000_000,
            "lease_seconds": None,
            "beat_seconds": 10,
            "cgroups": False,
            "retry_log_patterns": [],
            "respawn": None,
        }

    def clean(self) -> None:
        """End every worker that a test left, by its identity."""
        for place in directories.every(self.home / "attempts"):
            for name in ("worker.json", "spawn.json"):
                path = place.path / name
                if path.exists():
                    identity = Identity.read(json.loads(path.read_text()))
                    if identity is not None and identity.pid != os.getpid():
                        kill(identity, 5)
