"""Hints between the parts of one server process: "look again", never "this is so".

A hint may be lost (another process committed it, this one restarted); whoever waits also looks
by itself now and then. What is true stands in the database.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


class Hub:
    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}

    def poke(self, *topics: str) -> None:
        """Wake whoever waits for one of these topics. Only from the event loop's thread."""
        for topic in topics:
            for future in self._waiting.pop(topic, ()):
                if not future.done():
                    future.set_result(None)

    def watch(self, topic: str) -> asyncio.Future[None]:
        """A future that the next poke completes. Take it before looking, or a hint is missed."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(topic, set()).add(future)
        return future

    def unwatch(self, topic: str, future: asyncio.Future[None]) -> None:
        waiting = self._waiting.get(topic)
        if waiting is not None:
            waiting.discard(future)
            if not waiting:
                del self._waiting[topic]
        future.cancel()

    async def until(
        self,
        topic: str,
        look: Callable[[], Awaitable[T | None]],
        *,
        wait_seconds: float,
        recheck_seconds: float = 2.0,
    ) -> T | None:
        """What `look` finds, as soon as it finds something; None when the time is over."""
        loop = asyncio.get_running_loop()
        end = loop.time() + wait_seconds
        while True:
            future = self.watch(topic)
            try:
                found = await look()
                left = end - loop.time()
                if found is not None or left <= 0:
                    return found
                await asyncio.wait((future,), timeout=min(left, recheck_seconds))
            finally:
                self.unwatch(topic, future)
