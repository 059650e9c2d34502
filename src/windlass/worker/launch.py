"""What the worker was told: `launch.json` and `token`, written by the engine before the start."""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional


class Refused(Exception):
    """The launch is wrong: it cannot be carried out here, now or later."""


class Member:
    """One member of the gang on this node."""

    def __init__(self, found: Dict[str, Any]) -> None:
        self.role: str = found["role"]
        self.index: int = found["index"]
        self.nproc: int = found["nproc"]
        self.command: List[str] = found["command"]
        self.gpu_ids: List[str] = found.get("gpu_ids") or []
        self.vars: Dict[str, str] = found.get("vars") or {}
        self.cpus_milli: int = found.get("cpus_milli") or 0
        self.memory_bytes: int = found.get("memory_bytes") or 0
        self.finish: str = found.get("finish") or "all"

    @property
    def name(self) -> str:
        return "%s-%d" % (self.role, self.index)


class Launch:
    """`launch.json`, with the folders of the attempt's directory by name."""

    def __init__(self, directory: str, found: Dict[str, Any], token: str) -> None:
        self.directory = directory
        self.token = token
        self.job_id: str = found["job_id"]
        self.job_name: str = found.get("job_name") or ""
        self.project: str = found.get("project") or ""
        self.attempt_id: str = found["attempt_id"]
        self.attempt: int = found["attempt"]
        self.node: str = found["node"]
        self.urls: List[str] = found.get("urls") or []
        self.server_file: Optional[str] = found.get("server_file")
        self.bundle: Optional[str] = found.get("bundle")
        self.blob_dir: Optional[str] = found.get("blob_dir")
        self.cache_dir: Optional[str] = found.get("cache_dir")
        self.checkpoint_dir: Optional[str] = found.get("checkpoint_dir")
        self.resume: bool = bool(found.get("resume"))
        self.keep: int = found.get("keep") or 3
        self.host: str = found.get("host") or "127.0.0.1"
        self.ifname: Optional[str] = found.get("ifname")
        self.python: Optional[str] = found.get("python")
        self.vars: Dict[str, str] = found.get("vars") or {}
        self.members = [Member(each) for each in found["members"]]
        self.grace_seconds: float = (found.get("grace_ms") or 0) / 1000
        idle_ms = found.get("idle_ms")
        self.idle_seconds: Optional[float] = idle_ms / 1000 if idle_ms else None
        self.on_idle: str = found.get("on_idle") or "report"
        self.log_rate: int = found.get("log_rate") or 0
        self.lease_seconds: Optional[float] = found.get("lease_seconds")
        self.beat_seconds: float = found.get("beat_seconds") or 10
        self.cgroups: bool = found.get("cgroups", True)
        self.retry_log_patterns: List[str] = found.get("retry_log_patterns") or []
        # The seam for `on_member_loss: continue`: how few members may go on inside one attempt.
        self.min_members: Optional[int] = found.get("min_members")

    def path(self, *names: str) -> str:
        return os.path.join(self.directory, *names)


def read(directory: str) -> Launch:
    """Raises Refused when a file is missing or is not what the protocol says."""
    try:
        with open(os.path.join(directory, "launch.json"), "rb") as file:
            found = json.loads(file.read())
        with open(os.path.join(directory, "token"), "rb") as file:
            token = file.read().decode("ascii").strip()
        return Launch(directory, found, token)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as err:
        raise Refused("launch.json cannot be used: %s: %s" % (type(err).__name__, err)) from err
