"""Remove a tree that user code has written, whatever it planted there.

Not `shutil.rmtree`: it recurses (a thousand nested directories end it) and gives up at a
directory without permissions. Here every subdirectory is first moved up into the tree's own
root, so the depth never matters and two descriptors are enough; names are only ever used
relative to an open directory and never followed, so a link leads nowhere.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat


def remove_tree(name: str, parent: int) -> None:
    """Remove the directory `name` inside the open directory `parent`. Raises OSError when
    something cannot be removed (a mount point, another user's file); calling again goes on."""
    try:
        root = _open_directory(name, parent)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        os.unlink(name, dir_fd=parent)
        return
    try:
        numbers = itertools.count()
        # Each turn empties one directory of its files and lifts its subdirectories to the root.
        pending = _sweep(root, root, numbers)
        while pending:
            child = pending.pop()
            directory = _open_directory(child, root)
            try:
                pending += _sweep(directory, root, numbers)
            finally:
                os.close(directory)
            os.rmdir(child, dir_fd=root)
    finally:
        os.close(root)
    os.rmdir(name, dir_fd=parent)


def _sweep(directory: int, root: int, numbers: itertools.count[int]) -> list[str]:
    """Unlink what is not a directory; return the root's names of what is."""
    lifted: list[str] = []
    for name in os.listdir(directory):
        if not stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=directory)
        elif directory == root:
            lifted.append(name)
        else:
            try:
                lifted.append(_lift(name, directory, root, numbers))
            except PermissionError:  # to move a directory, one must be able to write in it
                _allow(name, directory)
                lifted.append(_lift(name, directory, root, numbers))
    return lifted


def _lift(name: str, directory: int, root: int, numbers: itertools.count[int]) -> str:
    while True:
        target = f".lifted-{next(numbers)}"
        try:
            os.rename(name, target, src_dir_fd=directory, dst_dir_fd=root)
            return target
        except OSError as err:
            if err.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise


def _open_directory(name: str, parent: int) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    try:
        opened = os.open(name, flags, dir_fd=parent)
    except PermissionError:
        _allow(name, parent)
        return os.open(name, flags, dir_fd=parent)
    mode = os.fstat(opened).st_mode
    if mode & 0o700 != 0o700:
        os.fchmod(opened, 0o700)
    return opened


def _allow(name: str, parent: int) -> None:
    """chmod 0700 without following a link: Linux has no such call on a name, but has one on a
    descriptor that was opened for its path only."""
    if not hasattr(os, "O_PATH"):
        return
    path = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=parent)
    try:
        if stat.S_ISDIR(os.fstat(path).st_mode):
            os.chmod(f"/proc/self/fd/{path}", 0o700)
    finally:
        os.close(path)
