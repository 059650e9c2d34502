"""What the worker was told: `launch.json` and `token`, written by the engine before the start."""

from __future__ import annotations

import json
import os

from windlass.worker.address import own_address
from windlass.worker.losses import Respawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional


DELIVER_SECONDS = 3600.0


class Refused(Exception):
    """The launch is wrong: it cannot be carried out here, now or later."""

    advice = ""
    """What may be done about it, where that is known."""


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
        self.git: Optional[Dict[str, Any]] = found.get("git")
        """The code is in a repository: `url`, `ref`, `commit`."""
        self.workdir: str = found.get("workdir") or ""
        """Where in the code the command runs; "": at its top."""
        self.here: Optional[str] = found.get("here")
        """The user's own folder, to run in as it is: no code was sent."""
        self.blob_dir: Optional[str] = found.get("blob_dir")
        self.cache_dir: Optional[str] = found.get("cache_dir")
        self.checkpoint_dir: Optional[str] = found.get("checkpoint_dir")
        self.mirror: bool = bool(found.get("mirror"))
        """The server sees none of our files: they are sent to it (`mirror`)."""
        self.checkpoint_home: Optional[str] = None
        """Where the server keeps what `checkpoint_dir` is here."""
        if self.mirror and self.checkpoint_dir:
            self.checkpoint_home = self.checkpoint_dir
            self.checkpoint_dir = os.path.join(directory, "checkpoints")
        self.resume: bool = bool(found.get("resume"))
        self.keep: int = found.get("keep") or 3
        self.host: str = found.get("host") or "127.0.0.1"
        self.ifname: Optional[str] = found.get("ifname")
        if self.host == "auto":  # the engine does not know: another machine, see `facts`
            self.host, self.ifname = own_address(self.urls)
        self.python: Optional[str] = found.get("python")
        self.vars: Dict[str, str] = found.get("vars") or {}
        self.members = [Member(each) for each in found["members"]]
        if found.get("granted_gpus"):
            _take_granted(self.members, os.environ.get("CUDA_VISIBLE_DEVICES", ""))
        self.grace_seconds: float = (found.get("grace_ms") or 0) / 1000
        idle_ms = found.get("idle_ms")
        self.idle_seconds: Optional[float] = idle_ms / 1000 if idle_ms else None
        self.on_idle: str = found.get("on_idle") or "report"
        self.log_rate: int = found.get("log_rate") or 0
        self.lease_seconds: Optional[float] = found.get("lease_seconds")
        self.deliver_seconds: float = self.lease_seconds or DELIVER_SECONDS
        """With `mirror`: how long the end waits until the server has all files."""
        self.beat_seconds: float = found.get("beat_seconds") or 10
        self.cgroups: bool = found.get("cgroups", True)
        self.retry_log_patterns: List[str] = found.get("retry_log_patterns") or []
        self.pickup: bool = bool(found.get("pickup"))
        """Take what the job does not tell by itself: printed numbers, event files, arguments."""
        self.parse: List[str] = found.get("parse") or []
        self.sampling: bool = bool(found.get("sampling"))
        isolation: Dict[str, Any] = found.get("isolation") or {}
        self.level: int = isolation.get("level") or 0
        self.network: str = isolation.get("network") or "host"
        self.uids: List[int] = isolation.get("uids") or [200_000, 265_535]
        self.hidden: List[str] = isolation.get("hidden") or []
        self.devices: List[str] = isolation.get("devices") or []
        self.max_processes: int = found.get("max_processes") or 16384
        self.max_disk_bytes: int = found.get("max_disk_bytes") or 0
        """0: as much as there is."""
        respawn = found.get("respawn")
        self.respawn: Optional[Respawn] = Respawn(respawn) if respawn else None
        """`on_member_loss: continue`; None: the first rank that fails ends the attempt."""

    def path(self, *names: str) -> str:
        return os.path.join(self.directory, *names)

    @property
    def standing(self) -> str:
        """The folder in which the command runs."""
        return self.here or os.path.normpath(self.path("work", self.workdir))

    def at_home(self, path: str) -> str:
        """A checkpoint's path as the server knows it."""
        here = self.checkpoint_dir
        if self.checkpoint_home and here and path.startswith(here + os.sep):
            return self.checkpoint_home + path[len(here) :]
        return path


def _take_granted(members: List[Member], granted: str) -> None:
    """The cluster chose the devices when it started us, whatever numbers the plan had for them.
    Raises ValueError when it gave fewer than were asked for."""
    given = [each for each in granted.split(",") if each]
    wanted = sum(len(member.gpu_ids) for member in members)
    if wanted > len(given):
        raise ValueError("%d GPUs are needed, the cluster gave %d" % (wanted, len(given)))
    for member in members:
        count = len(member.gpu_ids)
        member.gpu_ids, given = given[:count], given[count:]


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
