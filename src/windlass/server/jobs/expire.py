"""Removes finished jobs whose time is over, in the gaps between what others write.

A job's rows lie all over a large file, so its removal takes a writer's time and many pages. While
others write it takes a hundredth of the writer's time in small batches, so that a submit hardly
ever meets it. If jobs still end faster than they go, its share grows with the time that it is
behind: it keeps up in the end, whatever the load.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path

from sqlalchemy import Connection, delete, func, select

from windlass.core.errors import Fenced, Unavailable
from windlass.core.jobs import TERMINAL
from windlass.engines.base import Engine
from windlass.server.checkpoints import starting
from windlass.server.clock import Clock
from windlass.server.events.tables import events
from windlass.server.jobs import removal
from windlass.server.jobs.tables import attempts, jobs
from windlass.server.runs import service as runs
from windlass.server.settings import DAY_MS
from windlass.server.storage.reading import Shelf
from windlass.server.store.base import Store
from windlass.server.troubles import Troubles

BATCH = 50
"""At most so many jobs in one transaction."""
EVENTS_BATCH = 200
"""At most so many old events in one transaction."""
_WRITE_SECONDS = 0.003
"""How long its deletes should take, where a submit that comes meanwhile waits for them."""
_SHARE, _BUSY_SHARE = 0.3, 0.01
"""Of the time, when nobody else writes; of the writer's time, when others do."""
_PATIENCE_SECONDS = 600.0
"""Behind for so long, it takes twice its share; for twice as long, three times."""
_QUIET_SECONDS = 0.05
"""Without a write of others for so long, nobody is thought to be about to come."""
_STUCK = 100
"""So many jobs that cannot go are passed over before the rest waits too."""
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
        shelf: Shelf,
        troubles: Troubles | None = None,
    ) -> None:
        self._store = store
        self._tracking = tracking
        self._clock = clock
        self._engines = engines
        self._guard = guard
        self._job_folder = job_folder
        self._shelf = shelf
        self._handling = (troubles or Troubles(clock)).of("expire")
        self._size = 4  # of the next batch: a job's rows lie all over a large file

    async def turn(self) -> int:
        """Remove what is due; the milliseconds until there is more."""
        stuck = {job_id for job_id in self._handling.failing() if not self._handling.may(job_id)}
        most = len(stuck) + _STUCK
        behind_since = time.monotonic()
        while len(stuck) < most:
            began = time.monotonic()
            due = await self._store.read(partial(self._due, besides=stuck))
            if due:
                going = [job_id for job_id in due if await self._remove_files(job_id, due[job_id])]
                stuck |= due.keys() - set(going)
                if not going:
                    continue
                try:
                    writing, deleting = await self._remove_rows(going)
                except (Fenced, Unavailable):
                    raise
                except Exception:  # of one of them: each by itself
                    for job_id in going:
                        stuck.add(job_id)
                        with self._handling.of(job_id):
                            await self._remove_rows([job_id])
                    continue
                self._size = self._fitted(deleting)
            elif old := await self._store.read(self._old_events):
                writing = await self._store.write(partial(self._remove_events, ids=old))
            else:
                break
            now = time.monotonic()
            await self._leave_room(now - began, now - writing, now - behind_since)
        following = await self._store.read(_next_expiry)
        if stuck or following is None:
            return _AGAIN_MS
        return max(0, min(following - self._clock.now_ms(), _AGAIN_MS))

    async def _leave_room(self, spent: float, written: float, behind: float) -> None:
        """Let others write, after a batch for which `spent` seconds went by and the writer was
        held for `written` of them."""
        share = min(_SHARE, _BUSY_SHARE * (1 + behind / _PATIENCE_SECONDS))
        latest = time.monotonic() + written * (1 / share - 1)
        await asyncio.sleep(max(spent * (1 / _SHARE - 1), _QUIET_SECONDS))
        while time.monotonic() < latest and self._store.quiet_seconds() < _QUIET_SECONDS:
            await asyncio.sleep(_QUIET_SECONDS)

    def _fitted(self, deleting: float) -> int:
        """The size of the next batch, after deletes that took so many seconds."""
        waited_for = math.isfinite(self._store.quiet_seconds())
        if waited_for and deleting > _WRITE_SECONDS:
            return max(1, self._size // 2)
        return min(BATCH, self._size + 1)

    async def _remove_files(self, job_id: str, attempt_ids: list[str]) -> bool:
        """False when something of the job is still there: it is left for the next time."""
        try:
            for attempt_id in attempt_ids:
                for engine in self._engines.values():
                    await engine.forget(attempt_id)
            folder = self._job_folder(job_id)
            if folder.exists() or self._shelf.used:
                now = self._clock.now_ms()
                await starting.release(self._store, self._job_folder, job_id, now, self._shelf)
                await asyncio.to_thread(removal.remove_folder, folder)
        except Fenced:
            raise
        except Unavailable as err:
            self._handling.waits(job_id, err)
            return False
        except Exception as err:
            self._handling.failed(job_id, err)
            return False
        self._handling.well(job_id)
        return True

    async def _remove_rows(self, ids: list[str]) -> tuple[float, float]:
        """When its deletes began, and the seconds that they took."""
        await self._tracking.write(partial(runs.forget, job_ids=ids))
        return await self._store.write(partial(self._remove, ids=ids))

    def _due(self, conn: Connection, besides: Collection[str]) -> dict[str, list[str]]:
        """Some jobs whose time is over, with their attempts."""
        now = self._clock.now_ms()
        ids = conn.execute(
            select(jobs.c.id)
            .where(jobs.c.expires_ms <= now, jobs.c.state.in_(sorted(TERMINAL)))
            .where(jobs.c.id.not_in(besides))
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

    def _remove(self, conn: Connection, ids: list[str]) -> tuple[float, float]:
        """When it began, and the seconds that it took."""
        began = time.monotonic()
        self._guard(conn)
        removal.remove_rows(conn, ids, self._clock.now_ms())
        return began, time.monotonic() - began

    def _old_events(self, conn: Connection) -> list[int]:
        """Some events of no job (nodes, removals): they go with nobody, so they go by age. The
        first in their index are the oldest; the others are not looked at."""
        oldest = (
            select(events.c.id, events.c.at_ms)
            .where(events.c.job_id.is_(None))
            .order_by(events.c.seq, events.c.id)
            .limit(EVENTS_BATCH)
        )
        before = self._clock.now_ms() - _EVENT_AGE_MS
        return [row.id for row in conn.execute(oldest) if row.at_ms < before]

    def _remove_events(self, conn: Connection, ids: list[int]) -> float:
        """When it began."""
        began = time.monotonic()
        self._guard(conn)
        conn.execute(delete(events).where(events.c.id.in_(ids)))
        return began


def _next_expiry(conn: Connection) -> int | None:
    return conn.execute(select(func.min(jobs.c.expires_ms))).scalar()
