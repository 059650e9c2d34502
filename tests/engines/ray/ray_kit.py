"""The contract suite's kit for Ray: a real cluster, and a home of its own each time."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windlass.engines.directory import Directory
from windlass.engines.processes import lives
from windlass.engines.ray.engine import RayEngine
from windlass.engines.ray.options import checked
from windlass.testing.ray import Cluster


@dataclass
class RayKit:
    home: Path
    command: Sequence[str]
    cluster: Cluster
    facts: Callable[[Path, str, str], dict[str, Any]]
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.cluster.names

    def engine(self, **more: Any) -> RayEngine:
        return RayEngine(
            self.home, self.command, poll_seconds=0.2, **{**checked(self.cluster.options), **more}
        )

    def gate(self) -> Path:
        path = self.home / f"gate-{secrets.token_hex(4)}"
        os.mkfifo(path)
        return path

    def worker_pid(self, attempt_id: str, node: str) -> int | None:
        worker = Directory(self.home / "attempts", attempt_id, node).worker()
        return worker.pid if worker is not None and lives(worker) else None

    def marks(self, attempt_id: str, node: str) -> dict[str, str]:
        run = Directory(self.home / "attempts", attempt_id, node).path / "run"
        return {"WINDLASS_ATTEMPT_ID": attempt_id, "WINDLASS_RUN_DIR": str(run)}

    def launch(self, attempt_id: str, node: str) -> dict[str, Any]:
        return self.facts(self.home, attempt_id, node)
