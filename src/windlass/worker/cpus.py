"""How many CPUs this node's processes may use: those that the system lets us run on, or the quota
of a cgroup around us. A container sees every core of its host, whatever its share of them is.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterator, Optional


def look(root: str = "/") -> Dict[str, float]:
    """For `register`: `cpus` that may be used together, `cores` that a process sees."""
    cores = seen()
    quota = _quota(root)
    return {"cpus": float(cores) if quota is None else min(float(cores), quota), "cores": cores}


def seen() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _quota(root: str) -> Optional[float]:
    """The tightest on the way from our cgroup to the root, in CPUs; None: there is none."""
    found = [each for each in map(_quota_of, _folders(root)) if each is not None]
    return min(found) if found else None


def _quota_of(folder: str) -> Optional[float]:
    try:
        if os.path.exists(os.path.join(folder, "cpu.max")):
            quota, period = _read(folder, "cpu.max").split()
            return None if quota == "max" else int(quota) / int(period)
        quota_us = int(_read(folder, "cpu.cfs_quota_us"))
        return quota_us / int(_read(folder, "cpu.cfs_period_us")) if quota_us > 0 else None
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _read(folder: str, name: str) -> str:
    with open(os.path.join(folder, name)) as file:
        return file.read()


def _folders(root: str) -> Iterator[str]:
    """Our cgroup in version 2 and in version 1's `cpu`, with all above it, as mounted here."""
    try:
        lines = _read(os.path.join(root, "proc/self"), "cgroup").splitlines()
    except OSError:
        return
    top = os.path.join(root, "sys/fs/cgroup")
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        for name in ("cpu", "cpu,cpuacct") if controllers else ("", "unified"):
            inner = path.strip("/")
            while True:
                yield os.path.join(top, name, inner)
                if not inner:
                    break
                inner = inner.rpartition("/")[0]
