"""Closes the runs of jobs that ended. A run's row lives in another database than its job's, so no
transaction ends both: each end is a hint here, and what a crash loses is found by a sweep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from sqlalchemy import Connection, select

from windlass.core.errors import Fenced, Unavailable
from windlass.core.jobs import TERMINAL
from windlass.server.clock import Clock
from windlass.server.jobs.tables import jobs
from windlass.server.runs import jobs as runs_of_jobs
from windlass.server.runs import service
from windlass.server.store.base import Store
from windlass.server.troubles import Troubles

SWEEP_MS = 60_000
_PAGE = 500


class Closing:
    def __init__(
        self,
        store: Store,
        tracking: Store,
        clock: Clock,
        *,
        ring: Callable[[], None],
        troubles: Troubles | None = None,
    ) -> None:
        self._store = store
        self._tracking = tracking
        self._clock = clock
        self._ring = ring
        self._handling = (troubles or Troubles(clock)).of("closing")
        self._hinted: set[str] = set()
        self._swept_ms: int | None = None

    def hint(self, job_id: str) -> None:
        """An attempt of that job is over; perhaps the job too."""
        self._hinted.add(job_id)
        self._ring()

    async def turn(self) -> int:
        hinted, self._hinted = self._hinted, set()
        try:
            for first in range(0, len(hinted), _PAGE):
                await self._close(sorted(hinted)[first : first + _PAGE])
            now = self._clock.now_ms()
            if self._swept_ms is None or now - self._swept_ms >= SWEEP_MS:
                await self._sweep()
                self._swept_ms = now
        except BaseException:
            self._hinted |= hinted
            raise
        return SWEEP_MS

    async def _sweep(self) -> None:
        after = ""
        while True:
            page = await self._tracking.read(
                partial(runs_of_jobs.open_ones, after=after, most=_PAGE)
            )
            if not page:
                return
            await self._close(page)
            after = page[-1]

    async def _close(self, ids: Sequence[str]) -> None:
        try:
            await self._close_all(ids)
        except (Fenced, Unavailable):
            raise
        except Exception:  # of one of them: each by itself; the sweep tries again
            for job_id in ids:
                with self._handling.of(job_id):
                    await self._close_all([job_id])

    async def _close_all(self, ids: Sequence[str]) -> None:
        def look(conn: Connection) -> dict[str, tuple[str, int]]:
            query = select(jobs.c.id, jobs.c.state, jobs.c.ended_ms).where(jobs.c.id.in_(ids))
            return {row.id: (row.state, row.ended_ms) for row in conn.execute(query)}

        found = await self._store.read(look)
        now = self._clock.now_ms()
        over = [
            (job_id, state, ended_ms or now)
            for job_id, (state, ended_ms) in found.items()
            if state in TERMINAL
        ]
        gone = [job_id for job_id in ids if job_id not in found]
        if over or gone:

            def write(conn: Connection) -> None:
                runs_of_jobs.end_all(conn, over)
                if gone:  # removed between its two databases
                    service.forget(conn, gone)

            await self._tracking.write(write)
