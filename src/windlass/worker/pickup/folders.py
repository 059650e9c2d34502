"""Event files that appear in a job's folders, followed while they grow.

What the job wrote is never trusted as a path: folders are walked by open descriptors, links are
not followed, and a file is read only when it is an ordinary one of the job's own. A look at large
folders is taken seldom, so that it costs next to nothing.
"""

from __future__ import annotations

import os
import stat
import time

from windlass.worker.pickup.events import Damaged, Events

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

    from windlass.worker.pickup.events import Scalar

    class Tagged(NamedTuple):
        key: str
        scalar: Scalar
        source: str
else:
    from collections import namedtuple

    Tagged = namedtuple("Tagged", "key scalar source")

MARK = "tfevents"
LOOK_SECONDS = 0.9
MOST_FILES = 1000
MOST_ENTRIES = 20_000
MOST_SCALARS = 20_000
_SHARE = 50
_READ_BYTES = 1 << 18
_DEEPEST = 8
_PASSED_OVER = frozenset(".git node_modules __pycache__ .venv site-packages checkpoints".split())
_PARTS = frozenset("train training val valid validation test eval evaluation".split())


class File:
    def __init__(self, root: str, folder: str, name: str) -> None:
        self.root = root
        self.folder = folder
        """Below the root, "" for the root itself."""
        self.name = name
        self.events = Events()
        self.given_up = False


class EventFiles:
    """Of one node's attempt. For one thread."""

    def __init__(self, roots: Sequence[str], uid: Optional[int]) -> None:
        """Files that are there already came with the code: they are none of this job's doing."""
        self._roots = list(roots)
        self._uid = uid
        self._files: Dict[Tuple[str, str, str], File] = {}
        self._next_look = 0.0
        self._first_folder: Optional[str] = None
        self._old: Set[Tuple[str, str, str]] = set(self._walk())

    def read(self, everything: bool = False) -> List[Tagged]:
        """What was written since, or a part of it. Never raises."""
        now = time.monotonic()
        if everything or now >= self._next_look:
            before = time.thread_time()
            self._look()
            took = time.thread_time() - before
            self._next_look = time.monotonic() + max(LOOK_SECONDS, _SHARE * took)
        found: List[Tagged] = []
        for file in list(self._files.values()):
            if len(found) < MOST_SCALARS:
                source = "tensorboard %s" % (file.folder or ".")
                found += [
                    Tagged(self._key(file, each.tag), each, source) for each in self._read(file)
                ]
        return found

    def _look(self) -> None:
        for found in self._walk():
            if found not in self._old and found not in self._files:
                if len(self._files) >= MOST_FILES:
                    return
                self._files[found] = File(*found)

    def _key(self, file: File, tag: str) -> str:
        """The tag, behind its folder's name where another folder has tags too."""
        if self._first_folder is None:
            self._first_folder = file.folder
        above, name = os.path.split(file.folder)
        if name.startswith(tag.replace("/", "_") + "_"):
            return "%s/%s" % (tag, name[len(tag) + 1 :])  # torch's add_scalars
        if os.path.basename(above) == tag:
            return "%s/%s" % (tag, name)  # tensorboardX's
        if name.lower() in _PARTS or (file.folder != self._first_folder and name):
            return "%s/%s" % (name, tag)
        return tag

    def _walk(self) -> Iterator[Tuple[str, str, str]]:
        entries = 0
        for root in self._roots:
            try:
                walked = os.fwalk(root, follow_symlinks=False, onerror=None)
                for folder, below, names, _ in walked:
                    inner = os.path.relpath(folder, root)
                    inner = "" if inner == "." else inner
                    entries += len(names) + len(below)
                    if inner.count(os.sep) >= _DEEPEST or entries > MOST_ENTRIES:
                        below[:] = []
                    below[:] = sorted(each for each in below if each not in _PASSED_OVER)
                    for name in sorted(names):
                        if MARK in name:
                            yield root, inner, name
            except (OSError, RecursionError):
                continue

    def _read(self, file: File) -> List[Scalar]:
        found: List[Scalar] = []
        opened = None if file.given_up else self._open(file)
        if opened is None:
            return found
        events = file.events
        try:
            while len(found) < MOST_SCALARS:
                before = events.offset
                if events.skip:
                    if os.fstat(opened).st_size < before + events.skip:
                        break
                    events.skipped()
                    continue
                events.read(os.pread(opened, _READ_BYTES, before), found)
                if events.offset == before and not events.skip:
                    break
        except (OSError, Damaged):
            file.given_up = True
        finally:
            os.close(opened)
        return found

    def _open(self, file: File) -> Optional[int]:
        """Step by step, each as what it is: no link leads elsewhere."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        opened: List[int] = []
        try:
            opened.append(os.open(file.root, flags | os.O_DIRECTORY))
            for part in file.folder.split(os.sep) if file.folder else ():
                opened.append(os.open(part, flags | os.O_DIRECTORY, dir_fd=opened[-1]))
            found = os.open(file.name, flags, dir_fd=opened[-1])
        except OSError:
            return None
        finally:
            for each in opened:
                os.close(each)
        about = os.fstat(found)
        if not stat.S_ISREG(about.st_mode) or (
            self._uid is not None and about.st_uid != self._uid
        ):
            os.close(found)
            return None
        return found
