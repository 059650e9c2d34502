"""Whose the files are: the job's while it runs, ours again when it has ended.

The trees were written by user code: nothing is followed, and names are only used relative to an
open folder, so that a link planted there leads nowhere.
"""

from __future__ import annotations

import os

from windlass.worker import beneath

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Tuple

_DEEPEST = 200


def give(top: str, uid: int) -> None:
    """Make a folder and all in it this user's. What cannot be changed, or lies deeper than any
    sane tree, is passed over."""
    try:
        opened = os.open(top, beneath.FOLDER)
    except OSError:
        return
    try:
        os.fchown(opened, uid, uid)
        _give_all_in(opened, uid)
    except OSError:
        pass
    finally:
        os.close(opened)


def _give_all_in(root: int, uid: int) -> None:
    """Depth first, one open folder for each level."""
    path: List[Tuple[int, List[str]]] = [(os.dup(root), _give_entries(root, uid))]
    try:
        while path:
            folder, left = path[-1]
            if not left or len(path) > _DEEPEST:
                os.close(path.pop()[0])
                continue
            try:
                inner = os.open(left.pop(), beneath.FOLDER, dir_fd=folder)
            except OSError:
                continue
            path.append((inner, _give_entries(inner, uid)))
    finally:
        for folder, _ in path:
            os.close(folder)


def _give_entries(folder: int, uid: int) -> List[str]:
    """Give what is in one folder; the names of the folders among it."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                os.chown(entry.name, uid, uid, dir_fd=folder, follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    found.append(entry.name)
            except OSError:
                continue
    return found
