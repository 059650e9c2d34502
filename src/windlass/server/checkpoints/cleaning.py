"""Removes checkpoints that their jobs' rules do not keep.

First the mark, in a transaction that also sees who starts from which; then the files, which lose
their name at once; then the row. Whoever dies in between is followed by a turn that finds the
mark and goes on. A hint comes with each registration; `turn` is a chore of once a minute.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Connection, select

from windlass.core.jobs import JobSpec
from windlass.server import failpoints
from windlass.server.checkpoints import catalogue, files, measured
from windlass.server.checkpoints.rules import PATIENCE_MS, Scores
from windlass.server.clock import Clock
from windlass.server.jobs.tables import jobs
from windlass.server.reading import as_model
from windlass.server.store.base import Store
from windlass.server.troubles import TURN, Troubles


class Cleaning:
    def __init__(
        self,
        store: Store,
        tracking: Store,
        clock: Clock,
        checkpoints_of: Callable[[str], Path],
        troubles: Troubles | None = None,
    ) -> None:
        self._store = store
        self._tracking = tracking
        self._clock = clock
        self._checkpoints_of = checkpoints_of
        self._handling = (troubles or Troubles(clock)).of("checkpoints")
        self._waiting: set[str] = set()
        self._unjudged: set[str] = set()
        """Jobs that keep their best: what was saved last is judged once its metric has come."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Go on with what an earlier server left."""
        self._task = asyncio.get_running_loop().create_task(self._begin(), name="cleaning")

    async def _begin(self) -> None:
        try:
            await self.carry_out(None)
        except Exception as err:  # the chore tries again
            self._handling.waits(TURN, err)
        await self._work()

    def hint(self, job_id: str) -> None:
        """A checkpoint of this job was registered."""
        self._waiting.add(job_id)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work(), name="cleaning")

    def measured(self, job_id: str) -> None:
        """Metrics of this job have come."""
        if job_id in self._unjudged:
            self.hint(job_id)

    async def scores(self, job_id: str, spec: JobSpec) -> Scores:
        """The metric that the job's checkpoints are kept by, at each of them."""
        best = spec.outputs.keep_best
        if best is None:
            return Scores({})
        rows = await self._store.read(lambda conn: catalogue.listing(conn, job_id))
        return await self._tracking.read(
            lambda conn: measured.scores(conn, job_id, rows, best.metric)
        )

    async def turn(self) -> None:
        """Go on with what is marked, whoever marked it; judge what had to wait."""
        await self.carry_out(None)
        self._handling.well(TURN)
        for job_id in list(self._unjudged):
            with self._handling.of(job_id):
                await self.tidy(job_id)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _work(self) -> None:
        while self._waiting:
            job_id = self._waiting.pop()
            try:
                await self.tidy(job_id)
            except Exception as err:  # the next registration, or the chore, tries again
                self._handling.failed(job_id, err)
            else:
                self._handling.well(job_id)

    async def tidy(self, job_id: str) -> None:
        """Mark what the job's rules do not keep, and remove it."""
        spec = await self._store.read(lambda conn: _spec(conn, job_id))
        self._unjudged.discard(job_id)
        if spec is None:
            return
        scores = await self.scores(job_id, spec)
        now = self._clock.now_ms()
        if spec.outputs.keep_best is not None and await self._saved_lately(job_id, now):
            self._unjudged.add(job_id)
        marked = await self._store.write(
            lambda conn: catalogue.mark_superfluous(conn, job_id, scores, now)
        )
        if marked:
            failpoints.passing("after-checkpoint-mark")
            await self.carry_out(job_id)

    async def _saved_lately(self, job_id: str, now_ms: int) -> bool:
        rows = await self._store.read(lambda conn: catalogue.listing(conn, job_id))
        return any(now_ms - row["registered_ms"] < PATIENCE_MS for row in rows)

    async def carry_out(self, job_id: str | None) -> None:
        """Remove the files of what is marked, then the rows."""
        rows = await self._store.read(lambda conn: catalogue.going(conn, job_id))
        done = []
        for row in rows:
            folder = self._checkpoints_of(row["job_id"])
            try:
                await asyncio.to_thread(
                    files.remove, folder, row["path"], row["attempt"], row["step"]
                )
            except OSError as err:
                self._handling.failed(f"{row['job_id']}/{row['path']}", err)
                continue
            self._handling.well(f"{row['job_id']}/{row['path']}")
            done.append(row)
        if done:
            failpoints.passing("after-checkpoint-files")
            now = self._clock.now_ms()
            await self._store.write(lambda conn: catalogue.gone(conn, done, now))


def _spec(conn: Connection, job_id: str) -> JobSpec | None:
    found = conn.execute(select(jobs.c.spec).where(jobs.c.id == job_id)).scalar()
    return None if found is None else as_model(JobSpec, found, "spec")
