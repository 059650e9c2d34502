"""The database that outlives its servers, and each server's own door to it.

One SQLAlchemy connection serves every run of a test process: its compiled statements are what
would cost most. A new run puts the empty, migrated file in its place.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Connection, insert

from windlass.core.errors import Unavailable
from windlass.server.access.tables import projects, users
from windlass.server.clock import Clock
from windlass.server.store.hints import Hints, touched
from windlass.server.store.inline import InlineStore
from windlass.server.store.migrate import every_table
from windlass.testing.simulated.process import Process

T = TypeVar("T")
PROJECT_ID, USER_ID = "p" * 32, "u" * 32


class Disk:
    """What is committed. `fresh` makes it as empty as on the first day."""

    def __init__(self) -> None:
        self._first = InlineStore()
        self.raw: sqlite3.Connection = self._first._raw
        self.conn: Connection = self._first._conn
        every_table().create_all(self.conn)
        self.conn.execute(insert(projects).values(id=PROJECT_ID, name="default", created_ms=0))
        self.conn.execute(insert(users).values(id=USER_ID, name="ada", created_ms=0))
        self._empty = self.raw.serialize()

    def fresh(self, clock: Clock) -> None:
        if self.raw.in_transaction:
            self.raw.execute("ROLLBACK")
        touched(self.conn)
        self.raw.deserialize(self._empty)
        self.raw.execute("PRAGMA foreign_keys=ON")
        self.raw.execute("PRAGMA synchronous=OFF")
        self.conn.info["clock"] = clock

    def rows(self, query: str, *values: Any) -> list[dict[str, Any]]:
        """Straight from the driver: for checkers, which must not use the code they check."""
        found = self.raw.execute(query, values)
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found]


class ProcessStore(InlineStore):
    """One process's door to the disk. Now and then the database is away, or is lost just when
    it committed: then nobody knows."""

    def __init__(
        self,
        disk: Disk,
        process: Process,
        chance: random.Random,
        *,
        away: Callable[[], float],
        committed: Callable[[Process], None],
    ) -> None:
        self._raw, self._conn = disk.raw, disk.conn
        self._point = process.point
        self._hints = Hints()
        self._process = process
        self._chance = chance
        self._away = away
        self._committed = committed

    async def write(self, fn: Callable[[Connection], T]) -> T:
        luck = self._chance.random()
        away = self._away()
        if luck < away / 2:
            await self._process.point("read")
            raise Unavailable("the database is away")

        def watched(conn: Connection) -> T:
            result = fn(conn)
            self._committed(self._process)
            return result

        result = await super().write(watched)
        if luck < away:
            raise Unavailable("the connection broke in COMMIT", outcome="unknown")
        return result

    async def close(self) -> None:
        """The disk stays."""
