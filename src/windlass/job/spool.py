"""The file that metrics, progress and notes go to: one JSON object a line, one `write` a line.

The worker reads it from beside; nothing here waits for anyone. The descriptor is opened to
append, and the kernel places each appending write whole, so processes share a file without a
lock, and there is no lock that a fork could leave held.

A disk can hang, for seconds or for ever, and a `write` to it then does. So a thread writes, and a
call waits for its own line for a moment only: long enough that a program which dies right behind
the call has left it, and no longer. While the disk hangs nobody waits; lines queue, up to a bound.

    log() ──► queue (4 MiB) ──► thread ──► file
       └── waits until its line is written, at most 50 ms; not at all while the disk hangs

Nothing here raises into training. What cannot be written (disk full, folder gone, queue full) is
counted, said once on stderr, and noted in the file itself when there is room again.
"""

from __future__ import annotations

import _thread
import atexit
import json
import os
import sys
import threading
import time
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Dict, Set, Tuple

WAIT_SECONDS = 0.05
"""The longest that a call waits for its line, once for each time the disk hangs."""
QUEUE_BYTES = 4 << 20
EXIT_SECONDS = 2.0
"""The longest that the end of the program waits for what is queued."""
_encode = json.JSONEncoder(
    allow_nan=False, separators=(",", ":"), ensure_ascii=False, check_circular=False
).encode
_said: Set[str] = set()


class _Line:
    """One that is queued, and word of what became of it."""

    __slots__ = ("done", "text", "written")

    def __init__(self, text: str) -> None:
        self.text = text
        self.written = False
        self.done = _thread.allocate_lock()
        self.done.acquire()


class Spool:
    """Appends to one file. Safe to use from any thread; a forked child makes one of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.dropped_lines = 0
        self._torn = False
        self._opened: Dict[str, Tuple[int, int, int]] = {}
        self._queue: SimpleQueue[_Line] = SimpleQueue()
        self._queued_bytes = 0
        self._hangs = False
        self._count = threading.Lock()
        """Held for a count, never for a write."""
        self._thread: Dict[str, threading.Thread] = {}
        self._pid = os.getpid()

    def append(self, record: Dict[str, Any]) -> bool:
        """Write one record, stamped with the time unless it has one. False when it was dropped."""
        record.setdefault("t", time.time_ns() // 1_000_000)
        try:
            text = _encode(record) + "\n"
        except (ValueError, TypeError) as error:
            self._lost(error)
            return False
        if not self._begun():
            return self._keep(text)
        if self._queued_bytes + len(text) > QUEUE_BYTES:
            self._lost(OSError("the disk hangs, and %d bytes wait for it" % self._queued_bytes))
            return False
        line = _Line(text)
        with self._count:
            self._queued_bytes += len(text)
        self._queue.put(line)
        if self._hangs:
            return True  # it may still get there; what does not is counted
        if line.done.acquire(timeout=WAIT_SECONDS):
            return line.written
        self._hangs = True
        return True

    def close(self) -> None:
        """Wait a while for what is queued; say how much is left of it."""
        if not self._thread or self._pid != os.getpid():
            return
        last = _Line("")
        self._queue.put(last)
        if last.done.acquire(timeout=EXIT_SECONDS):
            return
        waiting = max(1, self._queue.qsize() - 1)
        say(
            "the disk of %s hangs: %d lines that were logged last are lost"
            % (self.path, waiting + self.dropped_lines)
        )

    def _begun(self) -> bool:
        """Whether a thread writes; False where none can be started any more."""
        if self._thread:
            return True
        thread = threading.Thread(target=self._write_all, name="windlass-spool", daemon=True)
        if self._thread.setdefault("writes", thread) is thread:
            try:
                thread.start()
            except RuntimeError:  # the interpreter is at its end
                self._thread.clear()
                return False
            atexit.register(self.close)
        return True

    def _write_all(self) -> None:
        while True:
            line = self._queue.get()
            try:
                line.written = self._keep(line.text)
            finally:
                with self._count:
                    self._queued_bytes -= len(line.text)
                if self._hangs and self._queue.empty():
                    self._hangs = False
                line.done.release()

    def _keep(self, line: str) -> bool:
        """A first line after lost ones says how many; a line cut short is ended before it."""
        with self._count:
            lost, self.dropped_lines = self.dropped_lines, 0
        text = line
        if lost:
            now = time.time_ns() // 1_000_000
            text = _encode({"t": now, "kind": "dropped", "lines": lost}) + "\n" + line
        try:
            if text:
                self._write((("\n" if self._torn else "") + text).encode("utf-8", "replace"))
                self._torn = False
            return True
        except OSError as error:
            with self._count:
                self.dropped_lines += lost
            if line:
                self._lost(error)
            return False

    def _lost(self, error: Exception) -> None:
        with self._count:
            self.dropped_lines += 1
        say_once(
            "spool",
            "could not write %s (%s): this call's values are lost, training goes on; "
            "later losses are only counted" % (self.path, error),
        )

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
