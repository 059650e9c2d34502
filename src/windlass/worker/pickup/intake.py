"""Which lines of a stream may hold numbers: looked at in the pump's thread, at a bounded cost.

A flood must not slow the pump, so of each second only so many bytes and lines are looked at; the
rest goes by unseen (it is in the log). A bar that draws itself again and again (`\\r`) counts once
a second, and with its last word.
"""

from __future__ import annotations

import collections
import re
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Deque, List, Optional, Tuple

BYTES_A_SECOND = 1 << 18
LINES_A_SECOND = 100
LONGEST_LINE = 8192
FOLD_SECONDS = 1.0
_WAITING_LINES = 500

# A sign between name and number, or the two with a space between them.
_MARK = re.compile(rb"[=:{|]|[a-z)] [-+]?[0-9]+\.[0-9]")
_ANY = re.compile(rb"[^\r\n]")
_END = re.compile(rb"[\r\n]")


class Intake:
    """One stream's lines, `feed` from the pump's thread, `take` from another."""

    def __init__(self, every_line: bool = False) -> None:
        """`every_line`: the job has patterns of its own, which any line may match."""
        self._mark = _ANY if every_line else _MARK
        self._bytes = self._lines = 0
        self._refill_at = 0.0
        self._carry = b""
        self._broken = False
        self._found: Deque[Tuple[int, bytes]] = collections.deque(maxlen=_WAITING_LINES)
        self._bar: Optional[Tuple[int, bytes]] = None
        self._bar_at = 0.0

    def feed(self, data: memoryview) -> None:
        now = time.monotonic()
        if now >= self._refill_at:
            self._refill_at = now + 1.0
            self._bytes, self._lines = BYTES_A_SECOND, LINES_A_SECOND
        if self._lines <= 0 or self._bytes <= 0:
            self._carry, self._broken = b"", True
            return
        text = bytes(data[: self._bytes])
        self._bytes -= len(text)
        if self._broken:
            start = _END.search(text)
            if start is None:
                return
            text = text[start.start() :]
            self._broken = False
        text = self._carry + text
        done = self._look(text, now)
        self._carry = text[done:]
        if len(data) > len(text) or len(self._carry) > LONGEST_LINE:
            self._carry, self._broken = b"", True

    def end(self) -> None:
        """The stream is over: what stands last was a line too."""
        if self._carry:
            self._found.append((_now_ms(), self._carry))
            self._carry = b""

    def take(self) -> List[Tuple[int, bytes]]:
        """What was found since, oldest first: UTC milliseconds, the line."""
        found = []
        while self._found:
            found.append(self._found.popleft())
        bar = self._bar
        if bar is not None and time.monotonic() - self._bar_at >= FOLD_SECONDS:
            self._bar, self._bar_at = None, time.monotonic()
            found.append(bar)
        return found

    def _look(self, text: bytes, now: float) -> int:
        """Keep the lines that end in `text`; where the last, unfinished one begins."""
        at, now_ms = 0, _now_ms()
        while self._lines > 0:
            mark = self._mark.search(text, at)
            if mark is None:
                break
            start = max(text.rfind(b"\n", at, mark.start()), text.rfind(b"\r", at, mark.start()))
            start = at if start < 0 else start + 1
            ended = _END.search(text, mark.end())
            if ended is None:
                return start
            self._lines -= 1
            end = at = ended.start()
            at += 1
            if end - start > LONGEST_LINE:
                continue
            redrawn = text[end : end + 1] == b"\r" and text[end + 1 : end + 2] != b"\n"
            if not redrawn:
                self._bar = None  # the line that ends is the bar's last word
                self._found.append((now_ms, text[start:end]))
            elif now - self._bar_at >= FOLD_SECONDS:
                self._bar, self._bar_at = None, now
                self._found.append((now_ms, text[start:end]))
            else:
                self._bar = (now_ms, text[start:end])
        return max(at, text.rfind(b"\n") + 1, text.rfind(b"\r") + 1)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
