"""Removes finished jobs whose time is over, in the gaps between what others write.

A job's rows lie all over a large file, so its removal takes a writer's time and many pages. While
others write it takes one batch in a hundred times as long as that took: a submit hardly ever meets
it, and it makes headway all the same.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from sqlalchemy import ColumnElement, Connection, delete, func, select

from windlass.core.errors import Conflict
from windlass.core.jobs import TERMINAL
from windlass.engines.base import Engine
from windlass.server.clock import Clock
from windlass.server.events.tables import events
from windlass.server.jobs import service
from windlass.server.jobs.tables import attempts, jobs
from windlass.server.runs import service as runs
from windlass.server.settings import DAY_MS
from windlass.server.store.base import Store

log = logging.getLogger("windlass.expire")

_BATCH = 50
"""At most so many jobs in one transaction."""
_WRITE_SECONDS = 0.003
"""How long its deletes should take: a submit that comes meanwhile waits for them."""
_SHARE, _BUSY_SHARE = 0.3, 0.01
"""Of the time: when nobody else writes, and when others do."""
_QUIET_SECONDS = 0.05
"""Without a write of others for so long, nobody is thought to be about to come."""
_AGAIN_MS = 60_000
_EVENT_AGE_MS = 7 * DAY_MS


class Expire:
    def __init__(
        self,
        store: Store,
        tracking: Store,
        clock: Clock,
        engines: Mapping[str, Engine],
        *,
        guard: Callable[[Connection], None],
        job_folder: Callable[[str], Path],
    ) -> None:
        self._store = store
        self._tracking = tracking
        self._clock = clock
        self._engines = engines
        self._guard = guard
        self._job_folder = job_folder
        self._size = 4  # of the next batch: a job's rows lie all over a large file

    async def turn(self) -> int:
        """Remove what is due. Files first: a row without files can be removed again, files
        without a row would stay for ever."""
        while True:
            began = time.monotonic()
            due = await self._store.read(self._due)
            if not due:
                if await self._store.read(self._has_old_events):
                    await self._store.write(self._remove_old_events)
                following = await self._store.read(_next_expiry)
                wait = _AGAIN_MS if following is None else following - self._clock.now_ms()
                return max(0, min(wait, _AGAIN_MS))
            ids = [
                job_id for job_id, ours in due.items() if await self._remove_files(job_id, ours)
            ]
            if not ids:
                return _AGAIN_MS
            await self._tracking.write(partial(runs.forget, job_ids=ids))
            took = await self._store.write(partial(self._remove, ids=ids))
            slow = took > _WRITE_SECONDS
            self._size = max(1, self._size // 2) if slow else min(_BATCH, self._size + 1)
            await self._leave_room(time.monotonic() - began)

    async def _leave_room(self, spent: float) -> None:
        """Let others write, after so much time was taken from them."""
        latest = time.monotonic() + spent * (1 / _BUSY_SHARE - 1)
        await asyncio.sleep(max(spent * (1 / _SHARE - 1), _QUIET_SECONDS))
        while time.monotonic() < latest and self._store.quiet_seconds() < _QUIET_SECONDS:
            await asyncio.sleep(_QUIET_SECONDS)

    async def _remove_files(self, job_id: str, attempt_ids: list[str]) -> bool:
        """False when something of the job is still there: it is left for the next time."""
        try:
            for attempt_id in attempt_ids:
                for engine in self._engines.values():
                    await engine.forget(attempt_id)
        except Conflict as err:
            log.warning("job %s is due for removal, but: %s", job_id, err)
            return False
        folder = self._job_folder(job_id)
        if folder.exists():
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        return True

    def _due(self, conn: Connection) -> dict[str, list[str]]:
        now = self._clock.now_ms()
        ids = conn.execute(
            select(jobs.c.id)
            .where(jobs.c.expires_ms <= now, jobs.c.state.in_(sorted(TERMINAL)))
            .order_by(jobs.c.expires_ms)
            .limit(self._size)
        ).scalars()
        due: dict[str, list[str]] = {job_id: [] for job_id in ids}
        rows = conn.execute(
            select(attempts.c.job_id, attempts.c.id).where(attempts.c.job_id.in_(list(due)))
        )
        for job_id, attempt_id in rows:
            due[job_id].append(attempt_id)
        return due

    def _has_old_events(self, conn: Connection) -> bool:
        return (
            conn.execute(select(events.c.id).where(*self._old_events()).limit(1)).first()
            is not None
        )

    def _remove_old_events(self, conn: Connection) -> None:
        self._guard(conn)
        conn.execute(delete(events).where(*self._old_events()))

    def _old_events(self) -> tuple[ColumnElement[bool], ...]:
        """Events of no job (nodes, removals) go with nobody: they go by age."""
        return events.c.job_id.is_(None), events.c.at_ms < self._clock.now_ms() - _EVENT_AGE_MS

    def _remove(self, conn: Connection, ids: list[str]) -> float:
        """The seconds that it took."""
        began = time.monotonic()
        self._guard(conn)
        service.remove_rows(conn, ids, self._clock.now_ms())
        return time.monotonic() - began


def _next_expiry(conn: Connection) -> int | None:
    return conn.execute(select(func.min(jobs.c.expires_ms))).scalar()
