"""The right to use a database file: one process at a time, by `flock` on `<file>.lock`.

The lock file holds the pid of its holder and is emptied by a clean end. So who takes the lock
and finds a pid in it knows that the last holder was killed. The kernel frees the lock with the
process, whatever kills it, so there is nothing stale to remove by hand.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from pathlib import Path

import psutil

from windlass.core.errors import Conflict, InvalidInput

NETWORK_FILE_SYSTEMS = frozenset(
    "nfs nfs3 nfs4 cifs smb smb2 smb3 smbfs afs afpfs ncpfs ceph glusterfs lustre beegfs gpfs "
    "fuse.sshfs fuse.glusterfs fuse.ceph fuse.s3fs fuse.rclone fuse.gcsfuse fuse.juicefs "
    "fuse.goofys fuse.cephfs webdav davfs".split()
)


class Claim:
    """An exclusive claim on a database file. Raises `Conflict` naming the holder's pid."""

    def __init__(self, path: Path) -> None:
        self.path = path.with_name(path.name + ".lock")
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = self._read() or "unknown"
            os.close(self._fd)
            raise Conflict(
                f"another server (pid {holder}) uses {path}",
                hint="stop it first, or give this one another directory; for several servers "
                "use PostgreSQL",
                pid=holder,
            ) from None
        except BaseException:
            os.close(self._fd)
            raise
        self.unclean = self._read() != ""
        """Whether the last holder was killed."""
        self._write(str(os.getpid()))

    def release(self, *, clean: bool = True) -> None:
        """Once; later calls do nothing."""
        if self._fd < 0:
            return
        if clean:
            self._write("")
        os.close(self._fd)
        self._fd = -1

    def _read(self) -> str:
        return os.pread(self._fd, 64, 0).decode("ascii", "replace").strip()

    def _write(self, text: str) -> None:
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, text.encode(), 0)
        except OSError:
            # A full disk: the lock itself holds without the text, and an old pid left there
            # costs no more than one check of the file too many.
            pass


def refuse_network_file_system(path: Path) -> None:
    """SQLite's locks and shared memory do not hold over a network: two writers, torn files."""
    mounts = ((m.mountpoint, m.fstype) for m in psutil.disk_partitions(all=True))
    kind = file_system_of(path, mounts)
    if kind in NETWORK_FILE_SYSTEMS:
        raise InvalidInput(
            f"{path} is on a network file system ({kind}), where SQLite loses data",
            hint="put it on a local disk, or use PostgreSQL: postgresql://…",
        )


def file_system_of(path: Path, mounts: Iterable[tuple[str, str]]) -> str:
    """The type of the mount that holds a path; the last of several on one point hides the rest."""
    where = path.resolve()
    found = ("", "")
    for mountpoint, kind in mounts:
        inside = where == Path(mountpoint) or Path(mountpoint) in where.parents
        if inside and len(mountpoint) >= len(found[0]):
            found = (mountpoint, kind)
    return found[1]
