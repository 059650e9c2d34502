"""What is to be done with a server's state: one thing at a time, in the order in which it came.

Whoever brings something small while nobody is at work and nothing waits does it in its own thread:
a message is then answered by the thread that read it. Everything else waits for the server's.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Task = Callable[[], None]


class Inbox:
    def __init__(self, after: Task) -> None:
        """`after` is called after each thing, and belongs to it."""
        self._after = after
        self._waiting: deque[Task] = deque()
        self._busy = False
        self._waits = False
        """The server's thread waits for whoever is at work."""
        self._changed = threading.Condition()

    def put(self, what: Task) -> None:
        """Later, in the server's thread."""
        with self._changed:
            self._waiting.append(what)
            self._changed.notify_all()

    def bring(self, what: Task) -> None:
        """Now, in this thread, if nobody is at work; else later."""
        with self._changed:
            if self._busy or self._waiting:
                self._waiting.append(what)
                self._changed.notify_all()
                return
            self._busy = True
        try:
            self.do(what)
        finally:
            self._leave()

    def next(self, seconds: float) -> None:
        """The server's thread: the first thing that waits; none came in so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting and not self._busy, seconds)
            if self._busy or not self._waiting:
                return
            what = self._waiting.popleft()
            self._busy = True
        try:
            self.do(what)
        finally:
            self._leave()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """The server's thread, while nobody else is at work."""
        with self._changed:
            self._waits = True
            self._changed.wait_for(lambda: not self._busy)
            self._waits, self._busy = False, True
        try:
            yield
        finally:
            self._leave()

    def do(self, what: Task) -> None:
        what()
        self._after()

    def _leave(self) -> None:
        with self._changed:
            self._busy = False
            if self._waits or self._waiting:  # to be woken costs more than a small thing
                self._changed.notify_all()
