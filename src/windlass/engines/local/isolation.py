"""How far this machine can keep jobs apart, and how far each job is.

    level 0   any user: process groups, private folders, cgroups where they are delegated
    level 1   root, bubblewrap, cgroups for memory and processes: a user of its own for each job,
              a file system, processes and, on wish, a network of its own

The worker does it (`windlass.worker.isolation`); here is only decided what it is told to do.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windlass.core.errors import InvalidInput

WISHES = ("auto", "0", "1")
UIDS = (200_000, 265_535)
NETWORK_NONE = "network-none"
_SYSTEM_FOLDERS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TRY_ROOM = (
    "--unshare-pid --unshare-ipc --unshare-uts --unshare-net --cap-drop ALL "
    "--ro-bind / / --dev /dev --proc /proc --perms 0755 --tmpfs /run true"
)
_TRY_NETWORK = "--unshare-net --dev-bind / / true"
_GPU_CONTROL = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "nvidia-caps")


@dataclass(frozen=True)
class Able:
    """What this machine can give: the highest level, and whether a job can go without network."""

    level: int = 0
    network: bool = False
    parts: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    """What the next level would need, each with how to get it."""

    @property
    def labels(self) -> tuple[str, ...]:
        """As a node offers it to the scheduler."""
        levels = tuple(f"isolation-{level}" for level in range(1, self.level + 1))
        return (*levels, *((NETWORK_NONE,) if self.network else ()))


@dataclass(frozen=True)
class Policy:
    """The server's setting. `auto`: jobs are kept apart once several people share the server."""

    wish: str = "auto"
    uids: tuple[int, int] = UIDS

    def __post_init__(self) -> None:
        if self.wish not in WISHES:
            raise InvalidInput(
                f"isolation: {self.wish!r} is no level", hint=f"known: {', '.join(WISHES)}"
            )
        if not 1000 <= self.uids[0] <= self.uids[1] < 2**31:
            raise InvalidInput(f"isolation: {self.uids[0]}-{self.uids[1]} is no range of users")

    def check(self, able: Able) -> None:
        """Raises InvalidInput when the operator has demanded what this machine cannot give."""
        if self.wish == "1" and able.level < 1:
            raise InvalidInput(
                "isolation level 1 cannot be had on this machine: " + "; ".join(able.missing),
                hint="mend that, or start with --isolation auto",
            )

    def told(
        self, asked: Mapping[str, Any], able: Able, home: Path, devices: Sequence[str]
    ) -> dict[str, Any]:
        """The `isolation` of a launch. What a job demands is at least what it gets; whether the
        node can give it, placement has looked at, and the worker looks again."""
        level = int(asked.get("level") or 0)
        if self.wish == "1" or (self.wish == "auto" and asked.get("shared")):
            level = max(level, min(1, able.level))
        return {
            "level": level,
            "network": asked.get("network") or "host",
            "uids": list(self.uids),
            "hidden": [str(home)],
            "devices": list(devices),
        }


def look() -> Able:
    """Ask this machine; a moment's work."""
    if not sys.platform.startswith("linux"):
        return Able(parts={"system": sys.platform}, missing=("level 1 needs Linux",))
    root = os.geteuid() == 0
    program = bubblewrap()
    works = program is not None and _runs(program, _TRY_ROOM if root else _TRY_NETWORK)
    limits = limits_of(Path("/"))
    missing = []
    if not root:
        missing.append("the server does not run as root")
    if program is None:
        missing.append("bubblewrap is not installed (apt install bubblewrap)")
    elif not works:
        missing.append("bubblewrap may not make namespaces here (a container without rights?)")
    for controller in ("memory", "pids"):
        if limits[controller] == "none":
            missing.append(f"no cgroup limits for {controller} (not delegated to us)")
    parts = {
        "user": "root" if root else "not root",
        "bubblewrap": "none" if program is None else "works" if works else "refused",
        **{f"cgroup {name}": version for name, version in limits.items()},
        "seccomp": "deny list" if platform.machine() in ("x86_64", "aarch64") else "none",
    }
    return Able(0 if missing else 1, works, parts, tuple(missing))


def bubblewrap() -> str | None:
    """From the system's own folders alone, as the worker finds it."""
    for folder in _SYSTEM_FOLDERS.split(":"):
        path = os.path.join(folder, "bwrap")
        if os.access(path, os.X_OK):
            return path
    return None


def limits_of(root: Path) -> dict[str, str]:
    """By controller, the version of cgroups in which we could set limits: v1, v2 or none."""
    found = {}
    cgroups = root / "sys/fs/cgroup"
    lines = _lines(root / "proc/self/cgroup")
    for controller in ("memory", "pids", "cpu"):
        found[controller] = "none"
        for line in lines:
            _, controllers, path = line.split(":", 2)
            if controller in controllers.split(","):
                own = cgroups / controller / path.strip("/")
                if os.access(own if own.is_dir() else cgroups / controller, os.W_OK):
                    found[controller] = "v1"
            elif not controllers and found[controller] == "none":
                if _passed_on(cgroups, path, controller):
                    found[controller] = "v2"
    return found


def device_nodes(ids: Iterable[str], minors: Mapping[str, int]) -> list[str]:
    """The device files of these GPUs, and those that all of them are driven through."""
    nodes = [f"/dev/nvidia{minors[each]}" for each in ids if each in minors]
    return nodes + [f"/dev/{name}" for name in _GPU_CONTROL] if nodes else []


def _passed_on(cgroups: Path, path: str, controller: str) -> bool:
    """Whether a group on the way from ours to the root passes the controller on, to us."""
    folder = cgroups / path.strip("/")
    while folder.is_relative_to(cgroups):
        passed = " ".join(_lines(folder / "cgroup.subtree_control")).split()
        if controller in passed and os.access(folder, os.W_OK):
            return True
        folder = folder.parent
    return False


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _runs(program: str, words: str) -> bool:
    try:
        done = subprocess.run(
            [program, *words.split()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0
