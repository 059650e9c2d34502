"""The file that metrics, progress and notes go to: one JSON object a line, one `write` a line.

The worker reads it from beside; nothing here waits for anyone. The descriptor is opened to
append, and the kernel places each appending write whole, so threads and forked children share a
file without a lock, and there is no lock that a fork could leave held.

Nothing here raises into training. What cannot be written (disk full, folder gone) is counted, said
once on stderr, and noted in the file itself when there is room again.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Dict, Set, Tuple

_encode = json.JSONEncoder(
    allow_nan=False, separators=(",", ":"), ensure_ascii=False, check_circular=False
).encode
_said: Set[str] = set()


class Spool:
    """Appends to one file. Safe to use from any thread, and on both sides of a fork."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.dropped_lines = 0
        self._torn = False
        self._opened: Dict[str, Tuple[int, int, int]] = {}

    def append(self, record: Dict[str, Any]) -> bool:
        """Write one record, stamped with the time unless it has one. False when it was dropped."""
        record.setdefault("t", time.time_ns() // 1_000_000)
        try:
            line = _encode(record) + "\n"
            if self.dropped_lines or self._torn:
                return self._append_after_trouble(line)
            self._write(line.encode("utf-8", "replace"))
            return True
        except (OSError, ValueError, TypeError) as error:
            self.dropped_lines += 1
            say_once(
                "spool",
                "could not write %s (%s): this call's values are lost, training goes on; "
                "later losses are only counted" % (self.path, error),
            )
            return False

    def _append_after_trouble(self, line: str) -> bool:
        """A first line after lost ones says how many; a line cut short is ended before it."""
        lost = self.dropped_lines
        note = _encode({"t": time.time_ns() // 1_000_000, "kind": "dropped", "lines": lost})
        start = "\n" if self._torn else ""
        self._write((start + note + "\n" + line).encode("utf-8", "replace"))
        self.dropped_lines, self._torn = 0, False
        return True

    def _write(self, data: bytes) -> None:
        written = os.write(self._descriptor(), data)
        if written < len(data):
            self._torn = True
            raise OSError("only %d of %d bytes fit" % (written, len(data)))

    def _descriptor(self) -> int:
        """The open file, opened again if the program closed our descriptor behind our back.

        Programs that turn into daemons close every descriptor; the number may by now belong to
        another file, so a look at the inode comes before each write (half a microsecond).
        """
        known = self._opened.get("file")
        if known is not None:
            descriptor, device, inode = known
            try:
                now = os.fstat(descriptor)
                if now.st_dev == device and now.st_ino == inode:
                    return descriptor
            except OSError:
                pass
            self._opened.pop("file", None)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
        descriptor = os.open(str(self.path), flags, 0o644)
        found = os.fstat(descriptor)
        # Two threads may both have come here: the first one's descriptor stays, without a lock.
        kept = self._opened.setdefault("file", (descriptor, found.st_dev, found.st_ino))
        if kept[0] != descriptor:
            os.close(descriptor)
        return kept[0]


def say_once(about: str, message: str) -> None:
    """One line on stderr, once per subject and process, and never an exception."""
    if about in _said:
        return
    _said.add(about)
    say(message)


def say(message: str) -> None:
    """One line on stderr, never an exception: stderr may be the full disk itself."""
    try:
        sys.stderr.write("windlass: %s\n" % message)
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        pass
