"""A mark on all that comes of an attempt's ranks, by which it is found when its worker is dead.

A process can leave its group, its session and its parent, and can empty its environment: a daemon
does all of that without meaning to hide. It inherits its limits all the same. That of real-time
CPU (RLIMIT_RTTIME) bounds nothing at the numbers used here, tens of thousands of years; each
attempt has a number of its own for it. Only who sets this very limit loses the mark, so it proves
nothing about a process that means to hide; a PID namespace does (isolation level 1).
"""

from __future__ import annotations

import os
import resource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, List

    from windlass.worker.processes import Stat

_LIMIT = getattr(resource, "RLIMIT_RTTIME", None)
_MOST = 1 << 62
_LEAST = 1 << 40
_LINE = b"Max realtime timeout"


def new() -> int:
    """A number for this attempt on this node; 0 where there can be none."""
    if _LIMIT is None or not os.path.exists("/proc/self/limits"):
        return 0
    _, hard = resource.getrlimit(_LIMIT)
    most = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if most < _LEAST:
        return 0
    return most // 2 + int.from_bytes(os.urandom(8), "little") % (most // 2)


def take(mark: int) -> None:
    """In a child, before it becomes a rank."""
    if mark and _LIMIT is not None:
        resource.setrlimit(_LIMIT, (mark, mark))


def bearers(mark: int, among: Iterable[Stat]) -> List[Stat]:
    if not mark:
        return []
    wanted = str(mark).encode()
    return [each for each in among if wanted in _words_of(each.pid)]


def _words_of(pid: int) -> List[bytes]:
    try:
        with open("/proc/%d/limits" % pid, "rb") as file:
            for line in file:
                if line.startswith(_LINE):
                    return line[len(_LINE) :].split()
    except OSError:
        pass
    return []
