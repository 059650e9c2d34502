"""One output stream on disk: raw bytes in segments, a sparse index, a rate limit.

    bytes ──> within the rate, or among the first 1 MiB? ──> segment + index
                 │ no
                 └─> ring (the last 1 MiB; what falls out is counted as dropped)
                        flushed, behind a marker line, once the rate allows, or calm, or the end

So memory is bounded whatever the rank prints, and the end of its output is never lost. A full disk
is treated like the rate limit: bytes go to the ring, the rank goes on.
"""

from __future__ import annotations

import os
import struct
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

SEGMENT_BYTES = 8 * 2**20
HEAD_BYTES = 2**20
TAIL_BYTES = 2**20
INDEX_EVERY_MS = 100
INDEX_EVERY_BYTES = 65536
CALM_SECONDS = 1.0
_RECORD = struct.Struct("<QQQ")


class Ring:
    """The last `size` bytes of what was put in."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._bytes = bytearray(size)
        self._end = 0
        self.length = 0

    def put(self, data: memoryview) -> int:
        """How many bytes fell out."""
        fallen = 0
        if len(data) > self._size:
            fallen = len(data) - self._size
            data = data[fallen:]
        room = self._size - self._end
        first = data[:room]
        self._bytes[self._end : self._end + len(first)] = first
        rest = data[room:]
        self._bytes[: len(rest)] = rest
        self._end = (self._end + len(data)) % self._size
        over = max(0, self.length + len(data) - self._size)
        self.length = min(self._size, self.length + len(data))
        return fallen + over

    def take(self) -> bytes:
        start = (self._end - self.length) % self._size
        if start + self.length <= self._size:
            found = bytes(self._bytes[start : start + self.length])
        else:
            found = bytes(self._bytes[start:]) + bytes(self._bytes[: self._end])
        self.length = self._end = 0
        return found


class Stream:
    """`<folder>/<name>.<number>.log` and `.idx`. For one thread."""

    def __init__(self, folder: str, name: str, rate: int, keep_bytes: int = 2**30) -> None:
        self._stem = os.path.join(folder, name)
        self._rate = rate
        self._keep_bytes = keep_bytes
        self._burst = rate * 1.5
        self._tokens = self._burst
        self._refilled = time.monotonic()
        self._ring: Optional[Ring] = None
        self._held = False
        self._last_held = 0.0
        self._fallen = 0
        self._number = -1
        self._log: Optional[int] = None
        self._index: Optional[int] = None
        self._segment_bytes = 0
        self._indexed_ms = 0
        self._indexed_at = 0
        self._ends_line = True
        self._disk_full = False
        self._sizes: List[int] = []
        self._oldest_middle = 1
        self.offset = 0
        """Bytes of the stream so far, written or dropped."""
        self.received = 0
        self.dropped = 0

    def write(self, data: memoryview) -> None:
        """Take what the rank printed. Never raises for a full disk, never blocks on a rate."""
        self.received += len(data)
        if not self._held and self._may_write(len(data)):
            if self._put(data):
                return
        self._hold(data)
        if self._may_write(self._ring.length if self._ring else 0):
            self._flush_ring()

    def calm(self) -> None:
        """Called now and then: what is held is written once the stream has been quiet."""
        if self._held and time.monotonic() - self._last_held > CALM_SECONDS:
            self._flush_ring()

    def close(self) -> None:
        """Write what is held, whatever the rate."""
        if self._held:
            self._flush_ring()
        if self._held and self._ring is not None:  # the disk is still full: this much is lost
            self.dropped += self._fallen + self._ring.length
            self._held = False
        self._seal()

    def _may_write(self, size: int) -> bool:
        if self._disk_full and time.monotonic() - self._last_held < CALM_SECONDS:
            return False
        if self._rate == 0 or (self.offset + size <= HEAD_BYTES and not self._fallen):
            return True
        now = time.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._refilled) * self._rate)
        self._refilled = now
        if size > self._tokens:
            return False
        self._tokens -= size
        return True

    def _hold(self, data: memoryview) -> None:
        if not self._held and self._rate and self.offset < HEAD_BYTES:
            # The head is kept whatever the rate, also when one read holds its end and more.
            head = data[: HEAD_BYTES - self.offset]
            if self._put(head):
                data = data[len(head) :]
        if self._ring is None:
            self._ring = Ring(TAIL_BYTES)
        self._held = True
        self._last_held = time.monotonic()
        self._fallen += self._ring.put(data)

    def _flush_ring(self) -> None:
        assert self._ring is not None
        fallen, kept = self._fallen, self._ring.take()
        if fallen:
            # Begin with a whole line where one is near.
            line = kept.find(b"\n", 0, 65536) + 1
            fallen, kept = fallen + line, kept[line:]
            self.offset += fallen
            self.dropped += fallen
            if not self._mark(fallen):
                self._keep_holding(fallen, kept)
                return
        view = memoryview(kept)
        while view:
            piece = view[:SEGMENT_BYTES]
            if not self._put(piece):
                self._keep_holding(0, bytes(view))
                return
            view = view[len(piece) :]
        self._fallen = 0
        self._held = False

    def _keep_holding(self, fallen: int, kept: bytes) -> None:
        """The disk is full: as it was, to be tried again."""
        assert self._ring is not None
        self.offset -= fallen
        self.dropped -= fallen
        self._fallen = fallen
        self._last_held = time.monotonic()
        self._ring.put(memoryview(kept))

    def _mark(self, fallen: int) -> bool:
        why = "the disk is full" if self._disk_full else "over %.1f MB/s" % (self._rate / 1e6)
        line = "[windlass: dropped %d bytes of output here: %s]\n" % (fallen, why)
        if not self._ends_line:
            line = "\n" + line
        before = self.offset
        if not self._put(memoryview(line.encode())):
            self.offset = before
            return False
        # The marker is no part of the stream; the next byte gets a record of its own.
        self.offset = before
        self._indexed_ms = 0
        return True

    def _put(self, data: memoryview) -> bool:
        """Into the segment, with its index. False, and nothing written, when the disk is full."""
        if not data:
            return True
        try:
            if self._log is None or self._segment_bytes >= SEGMENT_BYTES:
                self._open_segment()
            assert self._log is not None and self._index is not None
            now_ms = int(time.time() * 1000)
            if (
                now_ms - self._indexed_ms >= INDEX_EVERY_MS
                or self.offset - self._indexed_at >= INDEX_EVERY_BYTES
            ):
                record = _RECORD.pack(now_ms, self.offset, self._segment_bytes)
                os.write(self._index, record)
                self._indexed_ms, self._indexed_at = now_ms, self.offset
            view = data
            while view:
                view = view[os.write(self._log, view) :]
        except OSError:
            self._disk_full = True
            self._last_held = time.monotonic()
            self._cut_back()
            return False
        self._disk_full = False
        self._segment_bytes += len(data)
        self._sizes[-1] = self._segment_bytes
        self.offset += len(data)
        self._ends_line = data[-1] == 10
        return True

    def _cut_back(self) -> None:
        """After a failed write: no torn piece stays behind, in the segment or its index."""
        for opened, size in ((self._log, self._segment_bytes), (self._index, None)):
            if opened is None:
                continue
            try:
                if size is None:
                    size = os.fstat(opened).st_size // _RECORD.size * _RECORD.size
                os.ftruncate(opened, size)
                os.lseek(opened, size, os.SEEK_SET)
            except OSError:
                pass

    def _open_segment(self) -> None:
        self._seal()
        path = "%s.%06d" % (self._stem, self._number + 1)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        self._index = os.open(path + ".idx", flags, 0o600)
        self._log = os.open(path + ".log", flags, 0o600)
        self._number += 1
        self._sizes.append(0)
        self._segment_bytes = 0
        self._indexed_ms = 0
        self._drop_middle()

    def _drop_middle(self) -> None:
        """Over the cap: old segments go, but never the first and the newest."""
        while sum(self._sizes) > self._keep_bytes and self._oldest_middle < self._number:
            path = "%s.%06d" % (self._stem, self._oldest_middle)
            for suffix in (".log", ".idx"):
                try:
                    os.unlink(path + suffix)
                except OSError:
                    pass
            self._sizes[self._oldest_middle] = 0
            self._oldest_middle += 1

    def _seal(self) -> None:
        for opened in (self._log, self._index):
            if opened is not None:
                os.close(opened)
        self._log = self._index = None
