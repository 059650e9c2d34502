"""The pump: one thread that carries every rank's output from its pipes to its streams."""

from __future__ import annotations

import fcntl
import os
import re
import selectors
import threading
import time

from windlass.worker.logs import Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

READ_BYTES = 1 << 20
PIPE_BYTES = 1 << 20
TAIL_BYTES = 32768
_F_SETPIPE_SZ = 1031
_OVERLAP = 1024


class Channel:
    """One pipe: where its bytes go, its last bytes, and which pattern was seen in it."""

    def __init__(self, rank: int, pipe: int, stream: Stream, keep_tail: bool) -> None:
        self.rank = rank
        self.pipe = pipe
        self.stream = stream
        self.tail: Optional[bytearray] = bytearray() if keep_tail else None
        self.matched: Optional[str] = None
        self._end = b""

    def take(self, data: memoryview, patterns: List[Tuple[str, re.Pattern[bytes]]]) -> None:
        self.stream.write(data)
        if self.tail is not None:
            self.tail += data[-TAIL_BYTES:]
            if len(self.tail) > 2 * TAIL_BYTES:
                del self.tail[:-TAIL_BYTES]
        if patterns and self.matched is None:
            text = self._end + bytes(data)
            for source, pattern in patterns:
                if pattern.search(text):
                    self.matched = source
                    break
            self._end = text[-_OVERLAP:]


class Pump:
    def __init__(self, patterns: List[str]) -> None:
        self._patterns = [(each, re.compile(each.encode())) for each in patterns]
        self._selector = selectors.DefaultSelector()
        self._channels: Dict[int, List[Channel]] = {}
        self._open = 0
        self._thread = threading.Thread(target=self._run, name="pump", daemon=True)
        self._ending = threading.Event()

    def add(self, channel: Channel) -> None:
        """Before `start`. The pipe is ours from here on."""
        os.set_blocking(channel.pipe, False)
        try:
            fcntl.fcntl(channel.pipe, _F_SETPIPE_SZ, PIPE_BYTES)
        except OSError:
            pass
        self._selector.register(channel.pipe, selectors.EVENT_READ, channel)
        self._channels.setdefault(channel.rank, []).append(channel)
        self._open += 1

    def start(self) -> None:
        self._thread.start()

    def finish(self, seconds: float) -> None:
        """The ranks are gone: carry what is still in the pipes, write what is held, close."""
        self._ending.set()
        if self._thread.ident is not None:
            self._thread.join(seconds)

    def received(self, rank: int) -> int:
        return sum(each.stream.received for each in self._channels.get(rank, ()))

    def dropped(self, rank: int) -> int:
        return sum(each.stream.dropped for each in self._channels.get(rank, ()))

    def matched(self, rank: int) -> Optional[str]:
        return next((each.matched for each in self._channels.get(rank, ()) if each.matched), None)

    def tail(self, rank: int) -> bytes:
        """The last bytes of a rank's stderr."""
        for each in self._channels.get(rank, ()):
            if each.tail is not None:
                return bytes(each.tail)
        return b""

    def _run(self) -> None:
        buffer = bytearray(READ_BYTES)
        view = memoryview(buffer)
        quiet_since = time.monotonic()
        swept = quiet_since
        while self._open:
            # Once the end was called, pipes that an unkillable process holds are not waited for.
            ready = self._selector.select(0.05 if self._ending.is_set() else 0.5)
            now = time.monotonic()
            for key, _ in ready:
                channel: Channel = key.data
                try:
                    size = os.readv(channel.pipe, [buffer])
                except BlockingIOError:
                    continue
                except OSError:
                    size = 0
                if size:
                    channel.take(view[:size], self._patterns)
                else:
                    self._selector.unregister(channel.pipe)
                    os.close(channel.pipe)
                    channel.stream.close()
                    self._open -= 1
            if ready:
                quiet_since = now
            elif self._ending.is_set() and now - quiet_since > 0.5:
                break
            if now - swept > 0.5:
                swept = now
                for each in self._every():
                    each.stream.calm()
        for each in self._every():
            each.stream.close()

    def _every(self) -> List[Channel]:
        return [each for channels in self._channels.values() for each in channels]
