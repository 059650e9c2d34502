"""The pump: one thread that carries every rank's output from its pipes to its streams."""

from __future__ import annotations

import fcntl
import os
import selectors
import threading
import time

from windlass.patterns.automaton import Automaton
from windlass.worker.logs import Stream
from windlass.worker.sightings import Sightings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional

    from windlass.worker import masking
    from windlass.worker.pickup.intake import Intake

READ_BYTES = 1 << 20
PIPE_BYTES = 1 << 20
TAIL_BYTES = 32768
_F_SETPIPE_SZ = 1031


class Channel:
    """One pipe: where its bytes go, its last bytes, and which patterns were seen in it. With a
    `mask` nothing of that ever sees a secret."""

    def __init__(
        self,
        rank: int,
        pipe: int,
        stream: Stream,
        keep_tail: bool,
        mask: Optional[masking.Stream] = None,
        intake: Optional[Intake] = None,
    ) -> None:
        self._mask = mask
        self._intake = intake
        self.rank = rank
        self.pipe = pipe
        self.stream = stream
        self.tail: Optional[bytearray] = bytearray() if keep_tail else None
        self.sightings: Optional[Sightings] = None

    def take(self, data: memoryview) -> None:
        if self._mask is not None:
            data = memoryview(self._mask.feed(bytes(data)))
        self._keep(data)

    def close(self) -> None:
        """No more comes: what the mask held back goes out, the stream is closed."""
        if self._mask is not None:
            self._keep(memoryview(self._mask.end()))
            self._mask = None
        if self._intake is not None:
            self._intake.end()
        if self.sightings is not None:
            self.sightings.end()
        self.stream.close()

    def _keep(self, data: memoryview) -> None:
        self.stream.write(data)
        if self._intake is not None:
            self._intake.feed(data)
        if self.tail is not None:
            self.tail += data[-TAIL_BYTES:]
            if len(self.tail) > 2 * TAIL_BYTES:
                del self.tail[:-TAIL_BYTES]
        if self.sightings is not None:
            self.sightings.feed(data)


class Pump:
    def __init__(self, patterns: List[str], lasting: bool = False) -> None:
        """`lasting`: more pipes may come after the last one ended, until `finish`."""
        self._lasting = lasting
        self._lock = threading.Lock()
        self._patterns = [(each, Automaton(each)) for each in patterns]
        self._selector = selectors.DefaultSelector()
        self._channels: Dict[int, List[Channel]] = {}
        self._open = 0
        self._thread = threading.Thread(target=self._run, name="pump", daemon=True)
        self._ending = threading.Event()

    def add(self, channel: Channel) -> None:
        """Before `start`, or for a rank that was started again: then its channel takes the place
        of the one with the same stream. The pipe is ours from here on."""
        os.set_blocking(channel.pipe, False)
        if self._patterns:
            channel.sightings = Sightings(self._patterns)
        try:
            fcntl.fcntl(channel.pipe, _F_SETPIPE_SZ, PIPE_BYTES)
        except OSError:
            pass
        with self._lock:
            known = self._channels.get(channel.rank, [])
            kept = [each for each in known if each.stream is not channel.stream]
            self._channels[channel.rank] = [*kept, channel]
            self._open += 1
        self._selector.register(channel.pipe, selectors.EVENT_READ, channel)

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

    def matched(self, rank: int) -> List[str]:
        """The patterns that were seen in a rank's output."""
        found = [each.sightings for each in self._channels.get(rank, ())]
        return [seen for each in found if each is not None for seen in each.seen]

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
        while self._open or (self._lasting and not self._ending.is_set()):
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
                    channel.take(view[:size])
                else:
                    self._selector.unregister(channel.pipe)
                    os.close(channel.pipe)
                    channel.close()
                    with self._lock:
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
            each.close()

    def _every(self) -> List[Channel]:
        with self._lock:
            return [each for channels in self._channels.values() for each in channels]
