"""Who wants to know about a commit: topics touched in a transaction, and their listeners."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from sqlalchemy import Connection

Callback = Callable[[], None]


def touch(conn: Connection, topic: str) -> None:
    """Hint to the listeners of `topic` when this transaction is committed."""
    conn.info.setdefault("touched", set()).add(topic)


def touched(conn: Connection) -> set[str]:
    """What was touched since the last call; for stores."""
    topics: set[str] = conn.info.pop("touched", None) or set()
    return topics


class Hints:
    """The listeners of one store. `fire` may be called from any thread."""

    def __init__(self) -> None:
        self._listeners: dict[str, list[tuple[asyncio.AbstractEventLoop, Callback]]] = {}

    def listen(self, topic: str, callback: Callback) -> Callback:
        entry = (asyncio.get_running_loop(), callback)
        # Replaced, never changed in place: `fire` runs in other threads and takes no lock.
        self._listeners[topic] = [*self._listeners.get(topic, ()), entry]

        def end() -> None:
            self._listeners[topic] = [e for e in self._listeners[topic] if e is not entry]

        return end

    def fire(self, topics: Iterable[str]) -> None:
        for topic in topics:
            for loop, callback in self._listeners.get(topic, ()):
                try:
                    loop.call_soon_threadsafe(callback)
                except RuntimeError:
                    pass  # The listener's loop is closed: nobody is left to be told.
