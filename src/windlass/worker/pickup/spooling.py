"""What was picked up, as lines of the rank's own spool; the script's own word goes first.

The file is the one that `windlass.log` appends to: the kernel places each appending write whole,
so both can. What was picked up waits for a moment before it is written; a key that the script
itself has logged by then (or a hook for it) is its own, and what else was found of it is let go.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Set, Tuple

HOLD_SECONDS = 1.0
MOST_KEYS = 1000
_READ_BYTES = 1 << 18
_VALUES = re.compile(rb'"values":\s*\{([^{}]*)\}')
_NAME = re.compile(rb'"((?:[^"\\]|\\.)*)"\s*:')


class RankSpool:
    """Of one rank. For one thread."""

    def __init__(self, path: str, uid: Optional[int]) -> None:
        """`uid`: the job's own user, where it has one."""
        self._path = path
        self._uid = uid
        self._read_to = 0
        self._waiting: List[Tuple[float, bool, Dict[str, Any]]] = []
        self._picked: Set[str] = set()
        self._own: Set[str] = set()
        """Keys that the script logs itself."""
        self._filed: Set[str] = set()
        """Keys found in TensorBoard's files."""

    def metric(
        self, values: Dict[str, float], step: int, source: str, at_ms: int, strong: bool = False
    ) -> None:
        """`strong`: TensorBoard's files, which go before what is printed."""
        kept: Dict[str, Any] = {}
        for key, value in values.items():
            if key not in self._picked:
                if len(self._picked) >= MOST_KEYS:
                    continue
                self._picked.add(key)
            kept[key] = value if math.isfinite(value) else _name_of(value)
        if kept:
            line = {"t": at_ms, "kind": "metric", "step": step, "values": kept, "source": source}
            self._waiting.append((time.monotonic(), strong, line))

    def write_at_once(self, line: Dict[str, Any]) -> None:
        self._append([line])

    def flush(self, everything: bool = False) -> None:
        """Write what has waited long enough. Never raises."""
        if not self._waiting:
            return
        until = time.monotonic() - (0.0 if everything else HOLD_SECONDS)
        due = 0
        while due < len(self._waiting) and self._waiting[due][0] <= until:
            due += 1
        if not due:
            return
        self._look_at_own()
        for _, strong, line in self._waiting:
            if strong:
                self._filed.update(line["values"])
        lines = []
        for _, strong, line in self._waiting[:due]:
            taken = self._own if strong else self._own | self._filed
            values = {key: value for key, value in line["values"].items() if key not in taken}
            if values:
                lines.append({**line, "values": values})
        del self._waiting[:due]
        self._append(lines)

    def _look_at_own(self) -> None:
        """The keys of the lines that others appended since; of a long backlog, the newest."""
        opened = self._open(os.O_RDONLY)
        if opened is None:
            return
        try:
            size = os.fstat(opened).st_size
            if size - self._read_to > 4 * _READ_BYTES:
                self._read_to = size - _READ_BYTES
            while self._read_to < size:
                text = os.pread(opened, _READ_BYTES, self._read_to)
                end = text.rfind(b"\n") + 1
                if not end:
                    break
                self._read_to += end
                for line in text[:end].split(b"\n"):
                    if b'"source"' in line and b'"hook"' not in line:
                        continue
                    for values in _VALUES.findall(line):
                        for name in _NAME.findall(values):
                            self._own.add(_text_of(name))
        except OSError:
            return
        finally:
            os.close(opened)

    def _append(self, lines: List[Dict[str, Any]]) -> None:
        if not lines:
            return
        opened = self._open(os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        if opened is None:
            return
        try:
            for line in lines:
                text = json.dumps(line, separators=(",", ":"), ensure_ascii=True) + "\n"
                os.write(opened, text.encode("ascii"))
        except OSError:
            pass  # the disk is full: as with the script's own lines, training goes on
        finally:
            os.close(opened)

    def _open(self, flags: int) -> Optional[int]:
        """The file, if it is an ordinary one and the job's: a link planted there leads nowhere."""
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            opened = os.open(self._path, flags, 0o600)
        except OSError:
            return None
        try:
            found = os.fstat(opened)
            good = stat.S_ISREG(found.st_mode) and found.st_nlink == 1
            if good and self._uid is not None and found.st_uid != self._uid:
                good = found.st_uid == os.geteuid() and found.st_size == 0
                if good:
                    os.fchown(opened, self._uid, self._uid)
        except OSError:
            good = False
        if not good:
            os.close(opened)
            return None
        return opened


def _name_of(value: float) -> str:
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


def _text_of(name: bytes) -> str:
    try:
        return str(json.loads(b'"' + name + b'"'))
    except ValueError:
        return name.decode("utf-8", "replace")
