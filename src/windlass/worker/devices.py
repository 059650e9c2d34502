"""Which devices a job may open, whatever nodes it finds: the usual harmless ones, and those that
it was granted. Held by the kernel: a program on the cgroup (version 2), or the controller of
version 1.
"""

from __future__ import annotations

import os
import stat

from windlass.worker.programs import (
    ALLOWED,
    AND,
    DIFFERS,
    EQUALS,
    LOAD,
    MARK,
    NEXT,
    REFUSED,
    attach,
    code_of,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional, Sequence, Tuple

    from windlass.worker.kernel import Kernel
    from windlass.worker.programs import Line

    Device = Tuple[str, int, Optional[int]]

_DEVICE_PROGRAM, _AT_DEVICES = 15, 6
_KIND, _MAJOR, _MINOR = 0, 4, 8  # where the kernel shows them
_NUMBERS = {"b": 1, "c": 2}

# null zero full random urandom; tty console ptmx; the terminals
_PLAIN: Tuple[Device, ...] = (
    *(("c", 1, minor) for minor in (3, 5, 7, 8, 9)),
    *(("c", 5, minor) for minor in (0, 1, 2)),
    ("c", 136, None),
)


def allowed(granted: Sequence[str]) -> List[Device]:
    """The devices behind these files and folders of files, and the plain ones."""
    found = list(_PLAIN)
    for path in granted:
        inner = [os.path.join(path, name) for name in _names(path)]
        for each in inner or [path]:
            try:
                about = os.stat(each)
            except OSError:
                continue
            block, character = stat.S_ISBLK(about.st_mode), stat.S_ISCHR(about.st_mode)
            if block or character:
                kind = "b" if block else "c"
                found.append((kind, os.major(about.st_rdev), os.minor(about.st_rdev)))
    return found


def rule(device: Device) -> str:
    """As the controller of version 1 wants it."""
    kind, major, minor = device
    return "%s %d:%s rwm" % (kind, major, "*" if minor is None else minor)


def restrict(group: str, granted: Sequence[str], system: Kernel) -> bool:
    """Attach the program to a group of version 2. False when that cannot be done here."""
    lines: List[Line] = []
    for kind, major, minor in allowed(granted):
        lines += [(LOAD, _KIND, 0), (AND, 0, 0xFFFF), (DIFFERS, NEXT, _NUMBERS[kind])]
        lines.append((LOAD, _MAJOR, 0))
        if minor is None:
            lines.append((EQUALS, ALLOWED, major))
        else:
            lines += [(DIFFERS, NEXT, major), (LOAD, _MINOR, 0), (EQUALS, ALLOWED, minor)]
        lines.append(MARK)
    return attach(system, group, _DEVICE_PROGRAM, _AT_DEVICES, code_of(lines, REFUSED))


def _names(path: str) -> List[str]:
    try:
        return os.listdir(path) if os.path.isdir(path) else []
    except OSError:
        return []
