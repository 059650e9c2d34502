"""What the kernel knows of processes: who they are, whose they are, and how to end them all.

A pid alone is nobody (pids are used again): a process is a pid and its start time. On Linux /proc
tells; elsewhere `ps`, and what cannot be known is left out.
"""

from __future__ import annotations

import os
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterable, List, NamedTuple, Optional, Set, Tuple

LINUX = sys.platform.startswith("linux")

if TYPE_CHECKING:

    class Stat(NamedTuple):
        pid: int
        state: str
        parent: int
        group: int
        session: int
        start_time: int
        cpu_ms: int
        rss_bytes: int
else:
    from collections import namedtuple

    Stat = namedtuple("Stat", "pid state parent group session start_time cpu_ms rss_bytes")


def stat(pid: int) -> Optional[Stat]:
    """One process, or None when there is none (or its state cannot be read here)."""
    if not LINUX:
        return None
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            text = file.read()
    except OSError:
        return None
    # The command's name stands in brackets and may hold anything: count from the last one.
    words = text.rpartition(b")")[2].split()
    tick_ms = 1000 // os.sysconf("SC_CLK_TCK")
    return Stat(
        pid,
        words[0].decode(),
        int(words[1]),
        int(words[2]),
        int(words[3]),
        int(words[19]),
        (int(words[11]) + int(words[12])) * tick_ms,
        int(words[21]) * os.sysconf("SC_PAGE_SIZE"),
    )


def start_time(pid: int) -> int:
    """Clock ticks since boot (Linux); 0 where it is not known."""
    found = stat(pid)
    return found.start_time if found else 0


def inner_pid(pid: int) -> int:
    """What a process calls itself: inside a room pids count anew."""
    try:
        with open("/proc/%d/status" % pid) as file:
            for line in file:
                if line.startswith("NSpid:"):
                    return int(line.split()[-1])
    except (OSError, ValueError):
        pass
    return pid


def boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return _lines_of("sysctl", "-n", "kern.boottime")[0] if sys.platform == "darwin" else ""


def everyone() -> List[Stat]:
    """All processes that can be seen and are not zombies."""
    if not LINUX:
        return [
            Stat(int(pid), "?", int(parent), int(group), 0, 0, 0, 0)
            for pid, parent, group in (
                line.split() for line in _lines_of("ps", "-axo", "pid=,ppid=,pgid=")
            )
        ]
    found = (stat(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return [each for each in found if each is not None and each.state not in "ZX"]


def descendants(root: int, among: Optional[List[Stat]] = None) -> List[Stat]:
    """The children of a process, and theirs. With a subreaper this holds every escapee too."""
    children: Dict[int, List[Stat]] = {}
    for each in everyone() if among is None else among:
        children.setdefault(each.parent, []).append(each)
    found: List[Stat] = []
    waiting = [root]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            found.append(child)
            waiting.append(child.pid)
    return found


def tree_usage(pids: List[int]) -> Dict[int, Tuple[int, int]]:
    """CPU milliseconds and resident bytes of each process with all its descendants."""
    present = everyone() if pids else []
    own = {each.pid: each for each in present}
    usage = {}
    for pid in pids:
        tree = descendants(pid, present)
        if pid in own:
            tree.append(own[pid])
        usage[pid] = (sum(each.cpu_ms for each in tree), sum(each.rss_bytes for each in tree))
    return usage


def marked(mark: bytes, among: Optional[List[Stat]] = None) -> List[Stat]:
    """The processes in whose first environment `mark` (NAME=value) stands."""
    found = []
    for each in everyone() if among is None else among:
        try:
            with open("/proc/%d/environ" % each.pid, "rb") as file:
                if mark in file.read().split(b"\0"):
                    found.append(each)
        except OSError:
            continue
    return found


def kill(pids: Iterable[int], number: int = signal.SIGKILL) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            pass


def kill_groups(groups: Iterable[int], number: int) -> None:
    """Signal whole process groups; one that is gone is no fault."""
    for group in groups:
        try:
            os.killpg(group, number)
        except OSError:
            pass


def gone(pids: Set[int], seconds: float) -> Set[int]:
    """Wait until these processes are dead (a zombie is); those that are not in time."""
    deadline = time.monotonic() + seconds
    while True:
        pids = {pid for pid in pids if _lives(pid)}
        if not pids or time.monotonic() > deadline:
            return pids
        time.sleep(0.005)


def _lives(pid: int) -> bool:
    if LINUX:
        found = stat(pid)
        return found is not None and found.state not in "ZX"
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _lines_of(*command: str) -> List[str]:
    import subprocess

    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    return done.stdout.decode("utf-8", "replace").splitlines() or [""]
