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

from windlass.worker import devices
from windlass.worker.launch import Launch, Member

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence, Set, Tuple

ROOT = "/sys/fs/cgroup"
_CONTROLLERS = ("memory", "pids", "cpu", "devices")


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
        files = (("memory", "memory.max"), ("pids", "pids.max"), ("cpu", "cpu.weight"))
        for controller, file in files:
            if controller in self.version1:
                report[controller] = "v1"
            else:
                has = two is not None and _any_child_has(two, file)
                report[controller] = "v2" if has else "none"
        if "devices" in self.version1:
            report["devices"] = "v1"
        return report

    def member_files(self, member: Member) -> List[str]:
        """The `cgroup.procs` files that a process of this member writes itself into."""
        return [os.path.join(path, member.name, "cgroup.procs") for path in self.paths]

    def exceeded(self, member: Member) -> Tuple[bool, str]:
        """(whether the kernel has killed for memory in this member's group since last asked, the
        limit that was reached, in words)."""
        name = "memory.oom_control" if "memory" in self.version1 else "memory.events"
        count = _counter(self._file("memory", member, name), "oom_kill")
        before, self._ooms[member.name] = self._ooms.get(member.name, 0), count
        if count > before:
            return True, self._memory_words(member)
        return False, self.too_many_processes(member)

    def too_many_processes(self, member: Member) -> str:
        """In words, when a fork of this member was ever refused for its number of processes."""
        if not _counter(self._file("pids", member, "pids.events"), "max"):
            return ""
        limit = _number(self._file("pids", member, "pids.max"))
        return "%s reached its limit of %d processes (pids)" % (member.name, limit)

    def _memory_words(self, member: Member) -> str:
        name = "memory.max_usage_in_bytes" if "memory" in self.version1 else "memory.peak"
        used = _number(self._file("memory", member, name))
        if member.memory_bytes:
            return "used %s of %s" % (_size(used), _size(member.memory_bytes))
        return "used %s, and the machine had no more" % _size(used)

    def _file(self, controller: str, member: Member, name: str) -> str:
        top = self.version1.get(controller) or self.version2 or ""
        return os.path.join(top, member.name, name)

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
        for controller in ("memory", "pids", "cpu", *(("devices",) if launch.level else ())):
            if controller in one:
                made = _make_group(os.path.join(one[controller], name), launch.members)
                if made:
                    self.version1[controller] = made
        self._weigh(sum(map(_cpus_milli, launch.members)))
        for member in launch.members:
            self._limit(member, launch.max_processes)
            if "devices" in self.version1:
                self._allow_devices(member, launch.devices)

    def _allow_devices(self, member: Member, granted: Sequence[str]) -> None:
        path = os.path.join(self.version1["devices"], member.name)
        if _write(os.path.join(path, "devices.deny"), "a"):
            for each in devices.allowed(granted):
                _write(os.path.join(path, "devices.allow"), devices.rule(each))

    def _weigh(self, cpus_milli: int) -> None:
        """The whole attempt against all else on the machine: a share, not a ceiling, so what
        nobody else wants is free to use. A group that is told nothing weighs as one process does,
        however many are in it: on a busy machine two ranks then got half of what they would get
        outside of it."""
        if self.version2:
            _write(os.path.join(self.version2, "cpu.weight"), _weight(cpus_milli))
        if "cpu" in self.version1:
            _write(os.path.join(self.version1["cpu"], "cpu.shares"), _shares(cpus_milli))

    def _limit(self, member: Member, max_processes: int) -> None:
        if self.version2:
            path = os.path.join(self.version2, member.name)
            if member.memory_bytes:
                _write(os.path.join(path, "memory.max"), str(member.memory_bytes))
                _write(os.path.join(path, "memory.swap.max"), "0")
            _write(os.path.join(path, "pids.max"), str(max_processes))
            _write(os.path.join(path, "cpu.weight"), _weight(_cpus_milli(member)))
        if "memory" in self.version1 and member.memory_bytes:
            path = os.path.join(self.version1["memory"], member.name)
            _write(os.path.join(path, "memory.limit_in_bytes"), str(member.memory_bytes))
            _write(os.path.join(path, "memory.memsw.limit_in_bytes"), str(member.memory_bytes))
        if "pids" in self.version1:
            _write(
                os.path.join(self.version1["pids"], member.name, "pids.max"), str(max_processes)
            )
        if "cpu" in self.version1:
            path = os.path.join(self.version1["cpu"], member.name, "cpu.shares")
            _write(path, _shares(_cpus_milli(member)))


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
                    two = passing_on(mount, _inside(mount, path))
        for controller in controllers.split(","):
            mount = os.path.join(ROOT, controller)
            if controller in _CONTROLLERS and os.path.isdir(mount):
                one[controller] = _inside(mount, path)
    return two, one


def passing_on(mount: str, own: str) -> str:
    """Where to make a group of version 2 that may have limits: below our own group or, nearest
    first, one above it that passes memory and pids on. Ours alone seldom can: the kernel lets no
    group but the root hold processes and pass controllers on at once."""
    folder = own
    while folder.startswith(mount):
        try:
            with open(os.path.join(folder, "cgroup.subtree_control")) as file:
                passed = file.read().split()
        except OSError:
            passed = []
        if "memory" in passed and "pids" in passed and os.access(folder, os.W_OK):
            return folder
        folder = os.path.dirname(folder)
    return own


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


def _number(path: str) -> int:
    try:
        with open(path) as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


def _size(size: int) -> str:
    if size >= 10 << 30:
        return "%.1f GiB" % (size / 2**30)
    return "%d MiB" % (size >> 20) if size >= 10 << 20 else "%d KiB" % (size >> 10)


def _any_child_has(path: str, file: str) -> bool:
    try:
        return any(
            os.path.exists(os.path.join(entry.path, file))
            for entry in os.scandir(path)
            if entry.is_dir()
        )
    except OSError:
        return False


def _cpus_milli(member: Member) -> int:
    """What a member weighs: the CPUs it asks for, else one for each rank."""
    return member.cpus_milli or 1000 * member.nproc


def _weight(cpus_milli: int) -> str:
    return str(max(1, min(10000, cpus_milli // 10)))


def _shares(cpus_milli: int) -> str:
    return str(max(2, min(262_144, cpus_milli * 1024 // 1000)))


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
