"""What the cgroups around this process leave of the machine: a container sees all of the host's
CPUs and memory, and is killed or throttled when it believes that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path


def cpu_limit_milli(root: Path = Path("/")) -> int | None:
    """The tightest CPU quota on the way from our cgroup to the root; None when there is none."""
    limits = [
        *_limits(root, "", "cpu.max", _read_cpu_max),
        *_limits(root, "cpu", "cpu.cfs_quota_us", _read_cfs_quota),
    ]
    return min(limits, default=None)


def memory_limit_bytes(root: Path = Path("/")) -> int | None:
    """The tightest memory limit on the way to the root. Cgroup v1 writes "no limit" as a number
    near 2^63, which the caller's `min` with the machine's memory takes care of."""
    limits = [
        *_limits(root, "", "memory.max", _read_whole),
        *_limits(root, "memory", "memory.limit_in_bytes", _read_whole),
    ]
    return min(limits, default=None)


def _limits(
    root: Path, controller: str, file: str, read: Callable[[Path], int | None]
) -> Iterator[int]:
    for folder in _folders(root, controller):
        try:
            limit = read(folder / file)
        except (OSError, ValueError):
            continue
        if limit is not None:
            yield limit


def _folders(root: Path, controller: str) -> Iterator[Path]:
    """Our cgroup of one controller ("" is version 2) and its parents, as mounted here."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controller not in controllers.split(","):
            continue
        for mount in _mounts(root, controller):
            inner = path.strip("/")
            while True:
                yield mount / inner
                if not inner:
                    break
                inner = inner.rpartition("/")[0]


def _mounts(root: Path, controller: str) -> list[Path]:
    base = root / "sys/fs/cgroup"
    if controller:
        return (
            [base / controller, base / "cpu,cpuacct"]
            if controller == "cpu"
            else [base / controller]
        )
    return [base, base / "unified"]


def _read_cpu_max(path: Path) -> int | None:
    quota, period = path.read_text().split()
    return None if quota == "max" else int(quota) * 1000 // int(period)


def _read_cfs_quota(path: Path) -> int | None:
    quota = int(path.read_text())
    if quota <= 0:
        return None
    return quota * 1000 // int(path.with_name("cpu.cfs_period_us").read_text())


def _read_whole(path: Path) -> int | None:
    text = path.read_text().strip()
    return None if text == "max" else int(text)
