"""An event loop whose time jumps to the next timer: an hour of waiting costs nothing.

Nothing in it is random and nothing comes from outside: no sockets, no threads, no wall clock.
The order of what is ready is the order in which it became ready; what varies a run are the
delays that its own seed draws. The same seed gives the same run.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
BASE_MS = 1_700_000_000_000


class Deadlock(RuntimeError):
    """Nobody is ready and no timer is set: the run can never go on."""


class VirtualLoop(asyncio.BaseEventLoop):
    _ready: Any  # of BaseEventLoop, which does not declare them
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        """What BaseEventLoop does in a round, with a jump in place of the wait."""
        timers = self._scheduled
        while timers and timers[0].cancelled():
            self._drop(timers)
        if not self._ready:
            if not timers:
                raise Deadlock("nobody is ready and no timer is set")
            self._now = max(self._now, timers[0].when())
        while timers and (timers[0].cancelled() or timers[0].when() <= self._now):
            handle = self._drop(timers)
            if not handle.cancelled():
                self._ready.append(handle)
        for _ in range(len(self._ready)):
            ready = self._ready.popleft()
            if not ready.cancelled():
                ready._run()

    @staticmethod
    def _drop(timers: list[asyncio.TimerHandle]) -> asyncio.TimerHandle:
        handle = heapq.heappop(timers)
        handle._scheduled = False  # type: ignore[attr-defined]  # as BaseEventLoop does it
        return handle

    def _write_to_self(self) -> None:
        """Nobody sleeps who would have to be woken."""


class VirtualClock:
    """The server's clock over the loop's time. Every process here shares it."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return BASE_MS + int(self._loop.time() * 1000)


def run(main: Coroutine[Any, Any, T], loop: VirtualLoop) -> T:
    """Run to the end of `main`; whatever else is under way is ended with it."""
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(main)
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        asyncio.set_event_loop(None)
        loop.close()
