"""A store without threads, for the deterministic simulation.

Everything happens in the caller's own turn of the loop, except at the points where a simulator
may switch tasks or let the process crash:

    write:  point("before-commit")   crash here: nothing is written
            fn, COMMIT               indivisible
            point("after-commit")    crash here: written, and nobody was told
    read:   point("read"), then fn

`reopen` is the same database after a crash of the process.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Awaitable, Callable
from typing import TypeVar

from sqlalchemy import Connection

from windlass.server.clock import Clock, SystemClock
from windlass.server.store.hints import Callback, Hints, touched
from windlass.server.store.sqlite import adopt

T = TypeVar("T")
Point = Callable[[str], Awaitable[None]]


async def no_point(kind: str) -> None:
    """Neither switch nor crash."""


class InlineStore:
    dialect = "sqlite"

    def __init__(
        self,
        path: str = ":memory:",
        *,
        point: Point = no_point,
        clock: Clock | None = None,
        raw: sqlite3.Connection | None = None,
    ) -> None:
        self._raw = raw or sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._raw.execute("PRAGMA foreign_keys=ON")
        self._raw.execute("PRAGMA synchronous=OFF")
        self._conn = adopt(self._raw, clock or SystemClock())
        self._point = point
        self._hints = Hints()

    async def write(self, fn: Callable[[Connection], T]) -> T:
        await self._point("before-commit")
        self._raw.execute("BEGIN IMMEDIATE")
        try:
            self._raw.execute("SAVEPOINT one")
            result = fn(self._conn)
            self._raw.execute("RELEASE one")
            self._raw.execute("COMMIT")
        except BaseException:
            touched(self._conn)
            if self._raw.in_transaction:
                self._raw.execute("ROLLBACK")
            raise
        self._hints.fire(touched(self._conn))
        await self._point("after-commit")
        return result

    async def read(self, fn: Callable[[Connection], T]) -> T:
        await self._point("read")
        self._raw.execute("PRAGMA query_only=ON")
        try:
            return fn(self._conn)
        finally:
            self._raw.execute("PRAGMA query_only=OFF")

    def listen(self, topic: str, callback: Callback) -> Callback:
        return self._hints.listen(topic, callback)

    def quiet_seconds(self) -> float:
        return math.inf

    def reopen(self, *, point: Point = no_point, clock: Clock | None = None) -> InlineStore:
        """What the next process finds: the rows that were committed, no listeners."""
        if self._raw.in_transaction:
            self._raw.execute("ROLLBACK")
        return InlineStore(point=point, clock=clock, raw=self._raw)

    async def close(self) -> None:
        self._conn.invalidate()
        self._raw.close()
