"""Who has a file open to write, or mapped so, on this machine: by its inode, since inside a room
the same file may have another name."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterable, Set, Tuple

    Place = Tuple[int, int]
    """Device and inode."""


def writers_of(places: Iterable[Place]) -> Dict[Place, Set[int]]:
    """By file, the pids that could still write to it. A process that we may not look into is not
    the job's: the worker runs as the same user, or as root."""
    wanted = set(places)
    found: Dict[Place, Set[int]] = {place: set() for place in wanted}
    for name in _names("/proc"):
        if not name.isdigit():
            continue
        for place in _open_by(name, wanted) | _mapped_by(name, wanted):
            found[place].add(int(name))
    return found


def _open_by(pid: str, wanted: Set[Place]) -> Set[Place]:
    found = set()
    for number in _names("/proc/%s/fd" % pid):
        try:
            about = os.stat("/proc/%s/fd/%s" % (pid, number))
            place = (about.st_dev, about.st_ino)
            if place in wanted and _to_write("/proc/%s/fdinfo/%s" % (pid, number)):
                found.add(place)
        except OSError:
            continue
    return found


def _to_write(path: str) -> bool:
    with open(path, "rb") as file:
        for line in file:
            if line.startswith(b"flags:"):
                return int(line.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
    return False


def _mapped_by(pid: str, wanted: Set[Place]) -> Set[Place]:
    """Writable, shared mappings: they outlive the descriptor."""
    found = set()
    try:
        with open("/proc/%s/maps" % pid, "rb") as file:
            for line in file:
                words = line.split(None, 5)
                if len(words) < 5 or words[1][1:2] != b"w" or words[1][3:4] != b"s":
                    continue
                major, _, minor = words[3].partition(b":")
                place = (os.makedev(int(major, 16), int(minor, 16)), int(words[4]))
                if place in wanted:
                    found.add(place)
    except (OSError, ValueError):
        pass
    return found


def _names(folder: str) -> Iterable[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return ()
