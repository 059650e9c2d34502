"""What runs log and use, told while it happens: never stored, and nobody waits for it.

The feed tells what happened to jobs, from rows. Points are far more, and who draws them reads
them where they are; here is only said where it is worth to look again, and what the last values
are, so that a number on a page moves without a question:

    a route keeps points ──hint──► Pulse ──(at most 4 looks a second)──► those who follow
    another server keeps points ──(PostgreSQL: a look each second)──┘

Nothing is done while nobody follows. Who is slow gets the newest of each run, not all.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, func, select

from windlass.core.errors import Unavailable
from windlass.core.jobs import JobState
from windlass.server.clock import stamp
from windlass.server.jobs.tables import attempts, jobs, workers
from windlass.server.runs.tables import latest, runs
from windlass.server.runs.thinning import spelled
from windlass.server.store.base import Store
from windlass.server.troubles import TURN, Troubles

METRICS, SYSTEM = "metrics", "system"
MOST_KEYS = 200
"""In one notice: who has more is told so, and asks."""
MOST_RUNS = 500
"""That another server may write to and that are looked at each second: the newest ones."""
_LAST_MS = 253_402_300_799_999

Notice = tuple[str, dict[str, Any]]


@dataclass(eq=False)
class _Follower:
    project_id: str
    job_id: str | None
    pending: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    ready: asyncio.Event = field(default_factory=asyncio.Event)

    def offer(self, kind: str, run: str, job_id: str | None, data: dict[str, Any]) -> None:
        if self.job_id not in (None, job_id):
            return
        before = self.pending.get((kind, run))
        if before is not None and kind == METRICS:
            more = before["more"] or data["more"]
            data = {**data, "values": {**before["values"], **data["values"]}, "more": more}
        self.pending[kind, run] = data
        self.ready.set()


class Pulse:
    """`start` it on the loop where it is followed."""

    def __init__(
        self,
        store: Store,
        tracking: Store,
        *,
        rest_seconds: float = 0.25,
        troubles: Troubles | None = None,
    ) -> None:
        self._store = store
        self._handling = (troubles or Troubles()).of("pulse")
        self._tracking = tracking
        self._rest_seconds = rest_seconds
        # One process owns an SQLite file, so nothing is logged without a hint.
        self._look_seconds = None if tracking.dialect == "sqlite" else 1.0
        self._followers: set[_Follower] = set()
        self._logged: set[str] = set()
        self._used: set[str] = set()
        self._hinted = asyncio.Event()
        self._counts: dict[str, dict[str, tuple[int, int]]] = {}
        """By run and key: the attempt and how many points were told of."""
        self._sums: dict[str, Any] = {}
        self._beats: dict[str, int] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._tell(), name="pulse")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def logged(self, project_id: str, run_id: str) -> None:
        """Points of this run were kept."""
        if self._followed(project_id):
            self._logged.add(run_id)
            self._hinted.set()

    def used(self, project_id: str, job_id: str) -> None:
        """What this job's ranks use was kept."""
        if self._followed(project_id):
            self._used.add(job_id)
            self._hinted.set()

    async def follow(
        self, project_id: str, job_id: str | None = None
    ) -> AsyncGenerator[Notice, None]:
        """`("metrics", {"run", "job", "job_name", "step", "at", "values", "more"})` and
        `("system", {"job", "job_name"})` of the project, or of one job. Close it when done."""
        follower = _Follower(project_id, job_id)
        self._followers.add(follower)
        self._hinted.set()
        try:
            while True:
                await follower.ready.wait()
                follower.ready.clear()
                while follower.pending:
                    (kind, _), data = follower.pending.popitem()
                    yield kind, data
        finally:
            self._followers.discard(follower)
            if not self._followers:
                self._counts.clear()
                self._sums.clear()
                self._beats.clear()

    def _followed(self, project_id: str) -> bool:
        return any(each.project_id == project_id for each in self._followers)

    async def _tell(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._look_seconds if self._followers else None):
                    await self._hinted.wait()
            except TimeoutError:
                pass
            self._hinted.clear()
            try:
                await self._turn()
            except Unavailable:
                pass  # the next look finds what this one did not
            except Exception as error:
                self._handling.waits(TURN, error)
            else:
                self._handling.well(TURN)
            await asyncio.sleep(self._rest_seconds)

    async def _turn(self) -> None:
        projects = {each.project_id for each in self._followers}
        if not projects:
            return
        if self._look_seconds is not None:
            await self._look_around(projects)
        logged, self._logged = self._logged, set()
        used, self._used = self._used, set()
        if logged:
            rows = await self._tracking.read(lambda conn: _newest(conn, logged, projects))
            for run, values in rows:
                self._offer_metrics(run, values)
        if used:
            named = await self._store.read(lambda conn: _names(conn, used, projects))
            for job_id, name, project_id in named:
                self._offer(project_id, SYSTEM, job_id, job_id, {"job": job_id, "job_name": name})

    def _offer_metrics(self, run: Any, rows: list[Any]) -> None:
        known = self._counts.setdefault(run.id, {})
        fresh = [row for row in rows if known.get(row.key) != (row.attempt, row.count)]
        known.update({row.key: (row.attempt, row.count) for row in fresh})
        if not fresh:
            return
        last = max(fresh, key=lambda row: row.at_ms)
        steps = [row.step for row in fresh if row.step is not None]
        told = {
            "run": run.id, "job": run.job_id, "job_name": run.name,
            "step": max(steps, default=None), "at": stamp(min(max(last.at_ms, 0), _LAST_MS)),
            "values": {row.key: _said(row.value) for row in fresh[:MOST_KEYS]},
            "more": len(fresh) > MOST_KEYS,
        }  # fmt: skip
        self._offer(run.project_id, METRICS, run.id, run.job_id, told)

    def _offer(
        self, project_id: str, kind: str, run: str, job_id: str | None, data: dict[str, Any]
    ) -> None:
        for follower in self._followers:
            if follower.project_id == project_id:
                follower.offer(kind, run, job_id, data)

    async def _look_around(self, projects: set[str]) -> None:
        """Find what other servers kept: runs that are open and have other sums than before."""
        sums = await self._tracking.read(lambda conn: _sums(conn, projects))
        self._logged |= {run for run, found in sums.items() if self._sums.get(run) != found}
        # One that ended since has said its last words in between.
        self._logged |= self._sums.keys() - sums.keys()
        self._sums = sums
        beats = await self._store.read(lambda conn: _beats(conn, projects))
        self._used |= {job for job, at in beats.items() if self._beats.get(job) != at}
        self._beats = beats


def _newest(
    conn: Connection, run_ids: Iterable[str], projects: Iterable[str]
) -> list[tuple[Any, list[Any]]]:
    wanted = select(runs.c.id, runs.c.job_id, runs.c.name, runs.c.project_id).where(
        runs.c.id.in_(sorted(run_ids)), runs.c.project_id.in_(sorted(projects))
    )
    found = {row.id: (row, list[Any]()) for row in conn.execute(wanted)}
    columns = latest.c
    values = select(
        columns.run_id, columns.key, columns.attempt, columns.count, columns.step, columns.at_ms,
        columns.value,
    )  # fmt: skip
    for row in conn.execute(values.where(columns.run_id.in_(sorted(found)))):
        found[row.run_id][1].append(row)
    return list(found.values())


def _names(conn: Connection, job_ids: Iterable[str], projects: Iterable[str]) -> list[Any]:
    query = select(jobs.c.id, jobs.c.name, jobs.c.project_id).where(
        jobs.c.id.in_(sorted(job_ids)), jobs.c.project_id.in_(sorted(projects))
    )
    return [tuple(row) for row in conn.execute(query)]


def _sums(conn: Connection, projects: Iterable[str]) -> dict[str, Any]:
    newest = (
        select(runs.c.id)
        .where(runs.c.status == "RUNNING", runs.c.project_id.in_(sorted(projects)))
        .order_by(runs.c.started_ms.desc())
        .limit(MOST_RUNS)
    )
    ids = list(conn.execute(newest).scalars())
    rows = conn.execute(
        select(latest.c.run_id, func.sum(latest.c.count), func.max(latest.c.at_ms))
        .where(latest.c.run_id.in_(ids))
        .group_by(latest.c.run_id)
    )
    return {run: (count, at) for run, count, at in rows}


def _beats(conn: Connection, projects: Iterable[str]) -> dict[str, int]:
    rows = conn.execute(
        select(jobs.c.id, func.max(workers.c.beat_ms))
        .join(attempts, (attempts.c.job_id == jobs.c.id) & (attempts.c.number == jobs.c.fence))
        .join(workers, workers.c.attempt_id == attempts.c.id)
        .where(
            jobs.c.project_id.in_(sorted(projects)), jobs.c.state == JobState.RUNNING.value,
            workers.c.beat_ms.is_not(None),
        )
        .group_by(jobs.c.id)
    )  # fmt: skip
    return {job: at for job, at in rows}


def _said(value: float | None) -> float | str:
    return spelled(math.nan if value is None else value)
