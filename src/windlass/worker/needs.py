"""What a node can run out of under a worker that means to start something: never the job's fault.

The same list stands in `windlass.engines.needs`, on the server's side: neither may import the
other.
"""

from __future__ import annotations

import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, Optional, Set

OF = {
    errno.ENOSPC: "disk space",
    errno.EDQUOT: "disk space",
    errno.ENOMEM: "memory",
    errno.EAGAIN: "processes",
    errno.EMFILE: "file descriptors",
    errno.ENFILE: "file descriptors",
}
INODES = "inodes"


class Lacking(Exception):
    """The node has run out of something, as a program of its has said."""

    def __init__(self, need: str, why: object) -> None:
        super().__init__(str(why))
        self.need = need


def of(err: BaseException, folder: str = "") -> str:
    """The need behind an error, or behind what it was raised from; "" for any other error.
    `folder`: where it was written to, so that inodes can be told from bytes."""
    for each in _causes(err):
        if isinstance(each, Lacking):
            return each.need
        if isinstance(each, MemoryError):
            return "memory"
        if isinstance(each, RuntimeError) and "start new thread" in str(each):
            return "processes"
        need = OF.get(each.errno or 0, "") if isinstance(each, OSError) else ""
        if need:
            return _finer(need, folder)
    return ""


def in_words(text: str, folder: str = "") -> str:
    """The need that a program's last words speak of, "" for none."""
    low = text.lower()
    for number, need in OF.items():
        if os.strerror(number).lower() in low:
            return _finer(need, folder)
    return "memory" if "memoryerror" in low else ""


def sentence(need: str, why: object) -> str:
    return "the node has run out of %s: %s" % (need, why)


def _finer(need: str, folder: str) -> str:
    if need == "disk space" and folder:
        try:
            found = os.statvfs(folder)
        except OSError:
            return need
        if found.f_files and not found.f_favail and found.f_bavail:
            return INODES
    return need


def _causes(err: Optional[BaseException]) -> Iterator[BaseException]:
    seen: Set[int] = set()
    while err is not None and id(err) not in seen:
        seen.add(id(err))
        yield err
        err = err.__cause__
