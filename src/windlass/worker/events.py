"""Events for the one thread that decides: other threads and signal handlers put them in, and wake
it."""

from __future__ import annotations

import collections
import os
import select
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Deque, Iterator, Tuple


class Events:
    """A queue in the order of what happened."""

    def __init__(self) -> None:
        self._waiting: Deque[Tuple[str, Any]] = collections.deque()
        self._wake_read, self._wake_write = os.pipe()
        for each in (self._wake_read, self._wake_write):
            os.set_blocking(each, False)

    def tell(self, kind: str, found: Any) -> None:
        """From any thread or signal handler."""
        self._waiting.append((kind, found))
        try:
            os.write(self._wake_write, b"!")
        except OSError:
            pass

    def take(self) -> Iterator[Tuple[str, Any]]:
        """What there is, also what comes meanwhile."""
        while self._waiting:
            yield self._waiting.popleft()

    def sleep(self, seconds: float) -> None:
        """Until an event or a signal, or for so long."""
        if self._waiting:
            return
        select.select([self._wake_read], [], [], max(0.0, seconds))
        try:
            while os.read(self._wake_read, 4096):
                pass
        except BlockingIOError:
            pass

    def listen(self, terminated: Callable[[], None]) -> None:
        """From now on a child's end ends a sleep, and SIGTERM does what is said here; other
        endings of a terminal are not ours. For the main thread."""
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGTERM, lambda number, frame: terminated())
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
