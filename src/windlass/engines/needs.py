"""What a machine can run out of when something is to be started on it: never the job's fault.

The same list stands in `windlass.worker.needs`, on the node's side: neither may import the other.
"""

from __future__ import annotations

import errno

OF = {
    errno.ENOSPC: "disk space",
    errno.EDQUOT: "disk space",
    errno.ENOMEM: "memory",
    errno.EAGAIN: "processes",
    errno.EMFILE: "file descriptors",
    errno.ENFILE: "file descriptors",
}
INODES = "inodes"


def of(err: BaseException) -> str:
    """The need behind an error; "" for any other."""
    if isinstance(err, MemoryError):
        return "memory"
    if isinstance(err, RuntimeError) and "start new thread" in str(err):
        return "processes"
    return OF.get(err.errno or 0, "") if isinstance(err, OSError) else ""


def sentence(need: str, why: object) -> str:
    return f"the node has run out of {need}: {why}"
