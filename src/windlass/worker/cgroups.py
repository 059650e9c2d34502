"""The attempt's cgroups, where the kernel lets us: version 2, version 1, both, or none.

    <our own cgroup>/windlass-<attempt>-<node>/            cgroup.kill ends all below, at once
    <our own cgroup>/windlass-<attempt>-<node>/worker-0/   a member: its limits, its out-of-memory

On a hybrid machine version 2 has no controllers, but kills; the limits are then version 1's. What
is really in force is reported, never assumed.
"""

from __future__ import annotations

import os
import signal
import time

from windlass.worker.launch import Launch, Member

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Set, Tuple

ROOT = "/sys/fs/cgroup"
_MAX_PIDS = 16384


class Cgroups:
    """The groups of one attempt. Any of it may fail for lack of rights; then there are fewer."""

    def __init__(self, launch: Launch) -> None:
        self.version2: Optional[str] = None
        self.version1: Dict[str, str] = {}
        self._ooms: Dict[str, int] = {}
        if launch.cgroups:
            self._make(launch)

    @property
    def paths(self) -> List[str]:
        return ([self.version2] if self.version2 else []) + sorted(set(self.version1.values()))

    def report(self) -> Dict[str, str]:
        """What is in force, for `register`."""
        two = self.version2
        kind = "v2" if two else "v1" if self.version1 else "none"
        report = {"cgroup": kind}
        for controller, file in (("memory", "memory.max"), ("pids", "pids.max")):
            if controller in self.version1:
                report[controller] = "v1"
            else:
                has = two is not None and _any_child_has(two, file)
                report[controller] = "v2" if has else "none"
        return report

    def member_files(self, member: Member) -> List[str]:
        """The `cgroup.procs` files that a process of this member writes itself into."""
        return [os.path.join(path, member.name, "cgroup.procs") for path in self.paths]

    def out_of_memory(self, member: Member) -> bool:
        """Whether the kernel has killed for memory in this member's group since last asked."""
        count = 0
        if "memory" in self.version1:
            count = _counter(
                os.path.join(self.version1["memory"], member.name, "memory.oom_control"),
                "oom_kill",
            )
        elif self.version2:
            count = _counter(os.path.join(self.version2, member.name, "memory.events"), "oom_kill")
        before, self._ooms[member.name] = self._ooms.get(member.name, 0), count
        return count > before

    def _make(self, launch: Launch) -> None:
        name = "windlass-%s-%s" % (launch.attempt_id[:32], _plain(launch.node))
        two, one = own_groups()
        if two is not None:
            self.version2 = _make_group(os.path.join(two, name), launch.members)
            if self.version2 and not os.path.exists(os.path.join(self.version2, "cgroup.kill")):
                remove([self.version2])
                self.version2 = None
        if self.version2:
            # Only where the parent may pass controllers on; a refusal leaves us without limits.
            for parent in (two, self.version2):
                for controller in ("memory", "pids", "cpu"):
                    _write(os.path.join(str(parent), "cgroup.subtree_control"), "+" + controller)
        for controller in ("memory", "pids", "cpu"):
            if controller in one:
                made = _make_group(os.path.join(one[controller], name), launch.members)
                if made:
                    self.version1[controller] = made
        for member in launch.members:
            self._limit(member)

    def _limit(self, member: Member) -> None:
        if self.version2:
            path = os.path.join(self.version2, member.name)
            if member.memory_bytes:
                _write(os.path.join(path, "memory.max"), str(member.memory_bytes))
                _write(os.path.join(path, "memory.swap.max"), "0")
            _write(os.path.join(path, "pids.max"), str(_MAX_PIDS))
            if member.cpus_milli:
                _write(os.path.join(path, "cpu.weight"), str(_weight(member.cpus_milli)))
        if "memory" in self.version1 and member.memory_bytes:
            path = os.path.join(self.version1["memory"], member.name)
            _write(os.path.join(path, "memory.limit_in_bytes"), str(member.memory_bytes))
            _write(os.path.join(path, "memory.memsw.limit_in_bytes"), str(member.memory_bytes))
        if "pids" in self.version1:
            _write(os.path.join(self.version1["pids"], member.name, "pids.max"), str(_MAX_PIDS))
        if "cpu" in self.version1 and member.cpus_milli:
            # A share, not a ceiling: what nobody else wants is free to use.
            _write(
                os.path.join(self.version1["cpu"], member.name, "cpu.shares"),
                str(max(2, member.cpus_milli * 1024 // 1000)),
            )


def own_groups() -> Tuple[Optional[str], Dict[str, str]]:
    """Where our own process stands: in version 2, and in version 1 by controller."""
    two: Optional[str] = None
    one: Dict[str, str] = {}
    try:
        with open("/proc/self/cgroup") as file:
            lines = file.read().splitlines()
    except OSError:
        return None, {}
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            for mount in (ROOT, os.path.join(ROOT, "unified")):
                if os.path.exists(os.path.join(mount, "cgroup.controllers")):
                    two = _inside(mount, path)
        for controller in controllers.split(","):
            mount = os.path.join(ROOT, controller)
            if controller in ("memory", "pids", "cpu") and os.path.isdir(mount):
                one[controller] = _inside(mount, path)
    return two, one


def processes(paths: List[str]) -> List[int]:
    """Every process in these groups and below."""
    found: Set[int] = set()
    for top in paths:
        for folder, _, _ in os.walk(top):
            try:
                with open(os.path.join(folder, "cgroup.procs")) as file:
                    found.update(int(line) for line in file.read().split())
            except OSError:
                continue
    return sorted(found)


def kill(paths: List[str], seconds: float = 5.0) -> List[int]:
    """End every process of these groups, those they fork meanwhile too; the pids that stay."""
    deadline = time.monotonic() + seconds
    while True:
        for top in paths:
            _write(os.path.join(top, "cgroup.kill"), "1")
        left = processes(paths)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.005)


def remove(paths: List[str]) -> None:
    """Remove the groups, deepest first. The kernel needs a moment after the last exit."""
    for top in paths:
        deadline = time.monotonic() + 1.0
        while os.path.isdir(top):
            for folder, _, _ in os.walk(top, topdown=False):
                try:
                    os.rmdir(folder)
                except OSError:
                    pass
            if time.monotonic() > deadline:
                break
            if os.path.isdir(top):
                time.sleep(0.005)


def _make_group(path: str, members: List[Member]) -> Optional[str]:
    try:
        os.makedirs(path, exist_ok=True)
        for member in members:
            os.makedirs(os.path.join(path, member.name), exist_ok=True)
    except OSError:
        remove([path])
        return None
    return path


def _inside(mount: str, path: str) -> str:
    # In a container the path may be that of the host, which cannot be seen here.
    found = os.path.join(mount, path.strip("/")) if path.strip("/") else mount
    return found if os.path.isdir(found) else mount


def _counter(path: str, name: str) -> int:
    try:
        with open(path) as file:
            for line in file:
                word, _, value = line.partition(" ")
                if word == name:
                    return int(value)
    except (OSError, ValueError):
        pass
    return 0


def _any_child_has(path: str, file: str) -> bool:
    try:
        return any(
            os.path.exists(os.path.join(entry.path, file))
            for entry in os.scandir(path)
            if entry.is_dir()
        )
    except OSError:
        return False


def _weight(cpus_milli: int) -> int:
    return max(1, min(10000, cpus_milli // 10))


def _plain(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in name)[:64]


def _write(path: str, text: str) -> bool:
    try:
        opened = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.write(opened, text.encode())
        return True
    except OSError:
        return False
    finally:
        os.close(opened)
