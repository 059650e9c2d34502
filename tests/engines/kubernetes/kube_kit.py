"""The contract suite's kit for Kubernetes: a real cluster, and a home of its own each time."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windlass.engines.directory import Directory
from windlass.engines.kubernetes.engine import KubernetesEngine
from windlass.engines.kubernetes.options import checked
from windlass.testing.kubernetes import Cluster

PODS = "/api/v1/namespaces/default/pods"


@dataclass
class KubeKit:
    home: Path
    command: Sequence[str]
    cluster: Cluster
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None

    def __post_init__(self) -> None:
        self.gates = self.home / "gates"
        self.gates.mkdir(parents=True)

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.cluster.names

    def options(self, **more: str) -> dict[str, str]:
        """As an operator says them: this machine's own Python in an image that has none."""
        shown = [f"host:{path}:ro" for path in self.cluster.host_paths]
        return {
            "kubeconfig": str(self.cluster.kubeconfig),
            "image": self.cluster.image,
            "python": sys.executable,
            "volumes": ",".join([*shown, f"host:{self.gates}"]),
            "share": "host",
            "poll": "5",
            **more,
        }

    def engine(self, **more: str) -> KubernetesEngine:
        return KubernetesEngine(self.home, self.command, **checked(self.options(**more)))

    def gate(self) -> Path:
        path = self.gates / secrets.token_hex(4)
        os.mkfifo(path)
        return path

    def worker_pid(self, attempt_id: str, node: str) -> int | None:
        """As this machine counts; the worker itself counts in its pod."""
        place = Directory(self.home / "attempts", attempt_id, node)
        if not place.has_worker_file():
            return None
        mark = f"\0run\0{place.path}".encode()
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                found = mark in (entry / "cmdline").read_bytes()
                state = (entry / "stat").read_bytes().rpartition(b")")[2].split()[0]
            except OSError:
                continue
            if found and state not in (b"Z", b"X"):
                return int(entry.name)
        return None

    def marks(self, attempt_id: str, node: str) -> dict[str, str]:
        run = Directory(self.home / "attempts", attempt_id, node).path / "run"
        return {"WINDLASS_ATTEMPT_ID": attempt_id, "WINDLASS_RUN_DIR": str(run)}

    def launch(self, attempt_id: str, node: str) -> dict[str, Any]:
        return {
            "api": 1, "attempt_id": attempt_id, "attempt": 1, "node": node, "cgroups": False,
            "members": [
                {"role": "worker", "index": 0, "nproc": 1, "gpu_ids": [], "command": ["true"]}
            ],
        }  # fmt: skip

    def clean(self) -> None:
        """What is left of a test's pods goes with it."""
        for pod in self.cluster.api.get(PODS)["items"]:
            if pod["metadata"]["name"].startswith("wl-"):
                self.cluster.api.delete(f"{PODS}/{pod['metadata']['name']}", gracePeriodSeconds=0)
