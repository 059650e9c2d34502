"""A script's own checkpoints, by their names: `ckpt-400.pt`, `epoch=3-step=400.ckpt`,
`checkpoint-500/`, TensorFlow's `ckpt-400.index` with `ckpt-400.data-…`.

A set is a folder, or all files of one folder whose names tell the same step. No link is followed.
Names only: whether a set is finished, `noticing` says.
"""

from __future__ import annotations

import os
import re
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

    Entry = Tuple[str, int, int, int, int]
    """(path below the directory of checkpoints, size, mtime in ns, device, inode)."""

MOST_FILES = 20_000
_DEEPEST = 3
_DEEPEST_INSIDE = 16
_WORDS = re.compile(
    r"checkpoint|ckpt|chkpt|snapshot|model|weights|state|epoch|step|iter", re.IGNORECASE
)
_STEP = re.compile(r"(?:step|iter(?:ation)?)s?[=_.-]?(\d{1,15})(?![.\d])", re.IGNORECASE)
_EPOCH = re.compile(r"epochs?[=_.-]?(\d{1,15})(?![.\d])", re.IGNORECASE)
_NUMBER = re.compile(r"\d+\.\d+|\d+")
_OURS = re.compile(r"step-\d{12,}-\d{6,}")
_UNFINISHED = re.compile(r"(^[.~])|(^tmp)|((\.tmp|\.temp|\.part|\.partial|\.lock|~)$)")


class FileSet:
    """`folder`: its path below the directory, where it is one."""

    def __init__(self, step: int, entries: List[Entry], folder: str = "") -> None:
        self.step = step
        self.entries = sorted(entries)
        self.folder = folder

    @property
    def path(self) -> str:
        """What a script would load: the folder; TensorFlow's name for all its files; else the
        file, of several the largest."""
        if self.folder:
            return self.folder
        for path, *_ in self.entries:
            if path.endswith(".index"):
                return path[: -len(".index")]
        return max(self.entries, key=lambda entry: (entry[1], entry[0]))[0]


def found(directory: str) -> Dict[str, FileSet]:
    """The sets that lie there now, each under a name that stays its own."""
    sets: Dict[str, FileSet] = {}
    _look(directory, "", 0, sets)
    return sets


def step_in(base: str) -> Optional[int]:
    """The step that a name without its endings tells; None where it is no checkpoint's."""
    if not _WORDS.search(base):
        return None
    for pattern in (_STEP, _EPOCH):
        named = pattern.search(base)
        if named:
            return int(named[1])
    whole = [word for word in _NUMBER.findall(base) if "." not in word and len(word) <= 15]
    return int(whole[-1]) if whole else None


def base_of(name: str) -> str:
    """A file's name without its endings: up to the first dot that a letter follows, after the
    step's number."""
    return re.split(r"\.(?=[A-Za-z])", name, maxsplit=1)[0]


def _look(directory: str, inner: str, depth: int, sets: Dict[str, FileSet]) -> None:
    try:
        entries = list(os.scandir(os.path.join(directory, inner)))
    except OSError:
        return
    for entry in entries:
        if _UNFINISHED.search(entry.name) or _OURS.fullmatch(entry.name):
            continue
        path = inner + entry.name
        try:
            if entry.is_dir(follow_symlinks=False):
                step = step_in(entry.name)
                if step is not None:
                    files: List[Entry] = []
                    if _all_in(directory, path + "/", 0, files) and files:
                        sets[path + "/"] = FileSet(step, files, path)
                elif depth < _DEEPEST:
                    _look(directory, path + "/", depth + 1, sets)
            elif entry.is_file(follow_symlinks=False):
                _add_file(directory, inner, entry.name, sets)
        except OSError:  # it went while we looked
            continue


def _add_file(directory: str, inner: str, name: str, sets: Dict[str, FileSet]) -> None:
    step = step_in(base_of(name))
    if step is None:
        return
    about = _about(directory, inner + name)
    known = sets.get("%s%d" % (inner, step))
    if known is None:
        sets["%s%d" % (inner, step)] = FileSet(step, [about])
    else:
        known.entries = sorted([*known.entries, about])


def _all_in(directory: str, inner: str, depth: int, files: List[Entry]) -> bool:
    """Whether that could be all: too many, too deep, or something that is no file is no set."""
    if depth > _DEEPEST_INSIDE:
        return False
    for entry in os.scandir(os.path.join(directory, inner)):
        if entry.is_dir(follow_symlinks=False):
            if not _all_in(directory, inner + entry.name + "/", depth + 1, files):
                return False
        elif not entry.is_file(follow_symlinks=False) or len(files) >= MOST_FILES:
            return False
        else:
            files.append(_about(directory, inner + entry.name))
    return True


def _about(directory: str, path: str) -> Entry:
    found = os.lstat(os.path.join(directory, path))
    if not stat.S_ISREG(found.st_mode):
        raise OSError("%s is no file any more" % path)
    return path, found.st_size, found.st_mtime_ns, found.st_dev, found.st_ino
