"""Where mirrored bytes land: files below a folder of ours, opened step by step without following
a link. A file only grows, and only by bytes that begin where it ends; whatever came before is
skipped. So a call may be repeated, cut off, or come twice at once, and the file is the same.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from windlass.core.errors import InvalidInput, NotFound, StorageFull, TooLarge

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
MAX_ENTRIES = 10_000
"""Of one folder."""
_FULL = (errno.ENOSPC, errno.EDQUOT)


def append(
    root: Path, parts: Sequence[str], offset: int, data: bytes, *, most: int, cut: bool = False
) -> int:
    """Add `data`, which begins at `offset`; how many bytes the file has now. Nothing is added
    when it is shorter than `offset`: the answer tells the sender where to go on. `cut`: the file
    was made anew there, what it has beyond `offset` goes first.

    Raises TooLarge over `most` bytes, NotFound where there is no such folder."""
    if offset + len(data) > most:
        raise TooLarge(f"{'/'.join(parts)} may have {most} bytes", max_bytes=most)
    with _folder(root, parts[:-1]) as folder, _no_room():
        opened = _open(folder, parts[-1])
        try:
            fcntl.flock(opened, fcntl.LOCK_EX)  # a repeat of this call may be at work
            size = os.fstat(opened).st_size
            if cut and size > offset:
                os.ftruncate(opened, offset)
                size = offset
            if offset > size:
                return size
            rest = memoryview(data)[size - offset :]
            at = size
            while rest:
                written = os.pwrite(opened, rest, at)
                at, rest = at + written, rest[written:]
            return at
        finally:
            os.close(opened)


def replace(root: Path, name: str, data: bytes, *, once: bool) -> int:
    """Put a small file there, whole and on the disk. `once`: the first one stands."""
    with _folder(root, ()) as folder, _no_room():
        fresh = f".{name}-{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with open(os.open(fresh, flags, 0o600, dir_fd=folder), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if once:
                with contextlib.suppress(FileExistsError):
                    os.link(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)
            else:
                os.rename(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(fresh, dir_fd=folder)
        os.fsync(folder)
    return len(data)


def settle(root: Path, name: str) -> None:
    """Bring the files of a folder to the disk, where there is one."""
    with contextlib.suppress(NotFound), _folder(root, (name,), make=False) as folder:
        for each in os.listdir(folder):
            with contextlib.suppress(OSError):
                opened = os.open(each, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
                try:
                    os.fsync(opened)
                finally:
                    os.close(opened)
        os.fsync(folder)


def remove(root: Path, parts: Sequence[str]) -> None:
    """Whether it was there or not."""
    with contextlib.suppress(NotFound), _folder(root, parts[:-1], make=False) as folder:
        try:
            os.unlink(parts[-1], dir_fd=folder)
        except FileNotFoundError:
            pass
        except (IsADirectoryError, PermissionError) as err:
            raise InvalidInput(f"path: {parts[-1]!r} is no file") from err
        except OSError as err:
            if err.errno != errno.ENAMETOOLONG:
                raise
            raise InvalidInput(f"path: {parts[-1][:40]!r}… is longer than any name") from err


@contextlib.contextmanager
def _folder(root: Path, parts: Sequence[str], make: bool = True) -> Iterator[int]:
    """A folder below `root`, which must be there: nothing comes back that was removed."""
    try:
        folder = os.open(root, FOLDER)
    except OSError as err:
        raise NotFound("the folder of this worker is not here") from err
    try:
        for part in parts:
            if make:
                with contextlib.suppress(FileExistsError), _no_room():
                    os.mkdir(part, 0o700, dir_fd=folder)
            try:
                inner = os.open(part, FOLDER, dir_fd=folder)
            except FileNotFoundError as err:
                raise NotFound(f"there is no folder {part!r}") from err
            except OSError as err:  # a file of this name, or a name that is too long
                raise InvalidInput(f"path: {part!r} is no folder") from err
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


def _open(folder: int, name: str) -> int:
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        opened = os.open(name, flags, dir_fd=folder)
        if stat.S_ISREG(os.fstat(opened).st_mode):
            return opened
        os.close(opened)
        raise InvalidInput(f"path: {name!r} is no file")
    except FileNotFoundError:
        pass
    except OSError as err:
        raise InvalidInput(f"path: {name!r} is no file") from err
    if len(os.listdir(folder)) >= MAX_ENTRIES:
        raise TooLarge(f"a folder may have {MAX_ENTRIES} files", max_files=MAX_ENTRIES)
    try:
        return os.open(name, flags | os.O_CREAT, 0o600, dir_fd=folder)
    except OSError as err:
        if err.errno in _FULL:
            raise
        raise InvalidInput(f"path: {name!r} cannot be the name of a file: {err}") from err


@contextlib.contextmanager
def _no_room() -> Iterator[None]:
    """Raises StorageFull, after which the sender tries again later."""
    try:
        yield
    except OSError as err:
        if err.errno in _FULL:
            raise StorageFull("the disk under the server's home is full") from err
        raise
