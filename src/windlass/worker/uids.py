"""A user of its own for each job: a number from a range that no live job of this machine has.

    /run/windlass/uids/<uid>    holds the job's id; locked (shared) by each of its workers

The lock is the worker's, so the number outlives any server and is free at the worker's death,
whatever killed it; and the folder is the machine's, so two servers never give the same one. A
number of which a process is still there is passed over.
"""

from __future__ import annotations

import fcntl
import os
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional, Set

LEDGER = "/run/windlass/uids"


class Claim:
    """Held until `release`, or until this process ends."""

    def __init__(self, uid: int, opened: int) -> None:
        self.uid = uid
        self._opened: Optional[int] = opened

    def release(self) -> None:
        if self._opened is not None:
            os.close(self._opened)
            self._opened = None


def claim(job_id: str, first: int, last: int, ledger: str = LEDGER) -> Claim:
    """A number for this job: the one that another worker of the job holds, or one that nobody
    does. Raises OSError when there is none left, or no ledger can be kept."""
    os.makedirs(ledger, 0o700, exist_ok=True)
    turn = _open(os.path.join(ledger, "turn"))
    try:
        fcntl.flock(turn, fcntl.LOCK_EX)
        return _claim(job_id, first, last, ledger)
    finally:
        os.close(turn)


def _claim(job_id: str, first: int, last: int, ledger: str) -> Claim:
    count = last - first + 1
    # Every job begins elsewhere, so that a number is not used again soon after.
    start = zlib.crc32(job_id.encode()) % count
    taken: Optional[Set[int]] = None
    for step in range(count):
        uid = first + (start + step) % count
        opened = _open(os.path.join(ledger, str(uid)))
        if os.pread(opened, 256, 0) == job_id.encode() and _lock(opened, fcntl.LOCK_SH):
            return Claim(uid, opened)
        if _lock(opened, fcntl.LOCK_EX):
            taken = _uids_in_use() if taken is None else taken
            if uid not in taken:
                os.ftruncate(opened, 0)
                os.pwrite(opened, job_id.encode(), 0)
                fcntl.flock(opened, fcntl.LOCK_SH)
                return Claim(uid, opened)
        os.close(opened)
    raise OSError("all %d users for jobs (%d to %d) are in use" % (count, first, last))


def _open(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _lock(opened: int, kind: int) -> bool:
    try:
        fcntl.flock(opened, kind | fcntl.LOCK_NB)
        return True
    except OSError:
        return False


def _uids_in_use() -> Set[int]:
    """Whose processes there are: one that would not die keeps its number."""
    found = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                found.add(os.stat("/proc/" + name).st_uid)
            except OSError:
                continue
    return found
