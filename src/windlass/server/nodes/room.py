"""Lets nodes that had run out of something take jobs again, as soon as there is room.

A launch that failed for want of disk, inodes, descriptors, memory or processes has paused its
node (`jobs/reconcile.py`). Here its engine tries what a start needs, again and again, each time a
little later; an engine that cannot tell is believed to have room after each pause.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from sqlalchemy import Connection

from windlass.engines.base import Engine, Roomy
from windlass.server.clock import Clock
from windlass.server.nodes import service
from windlass.server.store.base import Store

log = logging.getLogger("windlass.room")
FIRST_MS = 500
LAST_MS = 30_000
_IDLE_MS = 60_000
Place = tuple[str, str]  # (engine, node)


class Room:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        engines: Mapping[str, Engine],
        *,
        guard: Callable[[Connection], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._engines = engines
        self._guard = guard
        self._pauses: dict[Place, int] = {}
        self._due: dict[Place, int] = {}

    async def turn(self) -> int:
        """Try those whose time has come; the milliseconds until the next."""
        paused = await self._store.read(service.paused)
        places = {(row["engine"], row["name"]): row for row in paused}
        self._due = {place: due for place, due in self._due.items() if place in places}
        for place, row in places.items():
            now = self._clock.now_ms()
            if place not in self._due:
                self._pauses[place] = FIRST_MS
                self._due[place] = now + FIRST_MS
            elif now >= self._due[place]:
                await self._try(place, row)
        if not self._due:
            return _IDLE_MS
        return max(0, min(self._due.values()) - self._clock.now_ms())

    async def _try(self, place: Place, row: Mapping[str, Any]) -> None:
        name, node = place
        engine = self._engines.get(name)
        try:
            lacks = await engine.lacks(node) if isinstance(engine, Roomy) else ""
        except Exception as err:
            lacks = str(err) or type(err).__name__
        if engine is None:
            lacks = lacks or f"engine {name} cannot be used now"
        now = self._clock.now_ms()
        if not lacks:
            log.info("node %s: there is room again", node)
            await self._store.write(partial(self._resume, place=place))
            del self._due[place]
            return
        self._pauses[place] = min(2 * self._pauses[place], LAST_MS)
        self._due[place] = now + self._pauses[place]
        if lacks != row["reason"]:
            await self._store.write(partial(self._pause, place=place, why=lacks))

    def _resume(self, conn: Connection, place: Place) -> None:
        self._guard(conn)
        service.mark_ready(conn, *place, self._clock.now_ms(), "there is room again")

    def _pause(self, conn: Connection, place: Place, why: str) -> None:
        self._guard(conn)
        service.pause(conn, *place, why, self._clock.now_ms())
