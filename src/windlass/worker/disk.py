"""How much an attempt keeps on this node's disk, looked at now and then; over its limit it ends.

What can be written is bounded twice. No single file grows over the limit: the kernel holds the
ranks to that (RLIMIT_FSIZE). And the folders are added up here, as often as that is cheap. So a
job can be over its limit for some seconds; a file system with quotas of its own is stricter.
"""

from __future__ import annotations

import errno
import os
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List, Sequence, Set, Tuple

LOOK_SECONDS = 5.0
_SHARE = 20
"""A look that takes long is taken seldom: at most a twentieth of one core goes into them."""


def used(folders: Sequence[str]) -> int:
    """Bytes that these take on the disk, with all below. What the job wrote is never followed:
    each folder is opened as what it was seen to be, so no link leads elsewhere. Raises OSError or
    RecursionError for folders within folders without end."""
    total = 0
    seen: Set[Tuple[int, int]] = set()
    for folder in filter(os.path.isdir, folders):
        for _, _, names, opened in os.fwalk(folder, onerror=_trouble, follow_symlinks=False):
            total += os.fstat(opened).st_blocks * 512
            for name in names:
                try:
                    found = os.stat(name, dir_fd=opened, follow_symlinks=False)
                except OSError:
                    continue  # it is gone already
                if found.st_nlink > 1:
                    if (found.st_dev, found.st_ino) in seen:
                        continue
                    seen.add((found.st_dev, found.st_ino))
                total += found.st_blocks * 512
    return total


def _trouble(err: OSError) -> None:
    """What goes while we look, or is closed to us, is passed over; nothing else is."""
    if err.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP):
        raise err


class DiskWatch:
    """Calls `over` once, from a thread of its own, with words for people."""

    def __init__(self, folders: List[str], limit: int, over: Callable[[str], None]) -> None:
        self._folders = folders
        self._limit = limit
        self._over = over
        self._stopped = threading.Event()

    def start(self) -> None:
        if self._limit:
            threading.Thread(target=self._watch, name="disk", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def look(self) -> bool:
        """Whether all is well; otherwise it was told."""
        try:
            found = used(self._folders)
        except (OSError, RecursionError):
            self._over("its folders are nested too deeply to add up (limits.disk)")
            return False
        if found > self._limit:
            words = "used %s of disk, more than its limit of %s (limits.disk)"
            self._over(words % (_size(found), _size(self._limit)))
            return False
        return True

    def _watch(self) -> None:
        pause = LOOK_SECONDS
        while not self._stopped.wait(pause):
            began = time.monotonic()
            if not self.look():
                return
            pause = max(LOOK_SECONDS, _SHARE * (time.monotonic() - began))


def _size(count: int) -> str:
    if count >= 1 << 30:
        return "%.1f GiB" % (count / (1 << 30))
    return "%.1f MiB" % (count / (1 << 20))
