"""What of the worker's own directory the server has, and what it must still get.

Logs and events only grow, so of each file the bytes that the server has taken are enough to
remember. What a job leaves in `out/` it may rewrite as it likes: it goes when the job has ended,
but for event files, which a board shows while it runs.
"""

from __future__ import annotations

import os
import stat

from windlass.worker import beneath

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterator, List, Optional, Set, Tuple

PIECE_BYTES = 1 << 20
_EVENTS = ".tfevents."
_MAX_DEPTH = 64


class Piece:
    """Some bytes of one file. `cut`: the file is shorter than it was when it was last sent."""

    def __init__(self, path: str, offset: int, data: bytes, cut: bool) -> None:
        self.path = path
        self.offset = offset
        self.data = data
        self.cut = cut


class Files:
    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._sent: Dict[str, int] = {}
        self._refused: Set[str] = set()

    def pieces(self, ended: bool) -> Iterator[Piece]:
        """What is there and was not taken, a piece at a time; say `taken` or `refused` before
        the next one. `ended`: nothing writes here any more."""
        for path, size in self._known(ended):
            while path not in self._refused:
                have = self._sent.get(path, -1)
                cut = have > size
                offset = size if cut else max(0, have)
                if have == size or (have < 0 and size == 0 and not ended):
                    break
                data = _read(self._directory, path, offset, min(PIECE_BYTES, size - offset))
                if data is None or (not data and offset < size):
                    break  # it is gone, or was cut short just now
                yield Piece(path, offset, data, cut)
                if self._sent.get(path, -1) == have:
                    break  # nothing was taken: another look, later

    def taken(self, piece: Piece, size: int) -> None:
        """The server has so many bytes of the file."""
        self._sent[piece.path] = size

    def refused(self, path: str) -> None:
        """The server will not have it, now or later."""
        self._refused.add(path)

    def gone(self) -> List[str]:
        """Logs that were sent and are not there any more; each is told once."""
        found = [
            path
            for path in self._sent
            if path.startswith("logs/") and not os.path.lexists(self._inside(path))
        ]
        for path in found:
            del self._sent[path]
        return found

    def _known(self, ended: bool) -> Iterator[Tuple[str, int]]:
        """(path, bytes), in the order in which they should be sent. An index is looked at after
        its log and sent before it, as the worker writes them: it never lags."""
        if os.path.exists(self._inside("worker.log")):
            yield "worker.log", os.path.getsize(self._inside("worker.log"))
        for name in _names(self._inside("logs")):
            if name.endswith(".log"):
                stem = "logs/" + name[: -len(".log")]
                size = _size(self._inside(stem + ".log"))
                index = _size(self._inside(stem + ".idx"))
                if index is not None:
                    yield stem + ".idx", index
                if size is not None:
                    yield stem + ".log", size
        for path, size in _outputs(self._inside("out"), "out", 0):
            if ended or _EVENTS in path:
                yield path, size

    def _inside(self, path: str) -> str:
        return os.path.join(self._directory, path)


def _outputs(folder: str, path: str, depth: int) -> Iterator[Tuple[str, int]]:
    """Regular files with one name, below a folder that user code fills; no link is followed."""
    for name in _names(folder) if depth < _MAX_DEPTH else ():
        inner = os.path.join(folder, name)
        try:
            about = os.lstat(inner)
        except OSError:
            continue
        if stat.S_ISDIR(about.st_mode):
            for found in _outputs(inner, path + "/" + name, depth + 1):
                yield found
        elif stat.S_ISREG(about.st_mode) and about.st_nlink == 1:
            yield path + "/" + name, about.st_size


def _read(directory: str, path: str, offset: int, count: int) -> Optional[bytes]:
    opened = beneath.opened(directory, path.split("/"))
    if opened is None:
        return None
    try:
        return os.pread(opened, count, offset)
    except OSError:
        return None
    finally:
        os.close(opened)


def _size(path: str) -> Optional[int]:
    try:
        return os.lstat(path).st_size
    except OSError:
        return None


def _names(folder: str) -> List[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
