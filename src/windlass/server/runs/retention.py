"""Removes runs that no job made (of MLflow clients on laptops, and those brought in from offline
folders) when nothing was written to them for as long as finished jobs are kept.

Their times are what a client says, so they count for nothing here. Each such run is marked when
it is first seen, with how much it has; when the time of the mark is over and it has no more, it
goes, with its files. If it has more, it is marked again. So one that was written to goes between
one and two such times after its last word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from sqlalchemy import Connection, delete, func, insert, select, update

from windlass.server.artifacts.tables import artifacts
from windlass.server.clock import Clock
from windlass.server.runs import service
from windlass.server.runs.tables import latest, logged_models, params, run_marks, runs, tags
from windlass.server.store.base import Store

EVERY_MS = 600_000
_PAGE = 200


class Retention:
    def __init__(
        self,
        store: Store,
        tracking: Store,
        clock: Clock,
        *,
        ttl_ms: int,
        guard: Callable[[Connection], None],
    ) -> None:
        self._store = store
        self._tracking = tracking
        self._clock = clock
        self._ttl_ms = ttl_ms
        self._guard = guard

    async def turn(self) -> int:
        """Mark what is new and remove what is due; the milliseconds until the next look."""
        while await self._tracking.write(self._mark):
            pass
        while due := await self._tracking.write(self._due):
            owners = await self._tracking.read(partial(_owners, run_ids=due))
            # Files first: a run without files can be removed again.
            await self._store.write(partial(self._remove_files, owners=owners))
            await self._tracking.write(partial(service.forget, job_ids=due))
        return min(EVERY_MS, max(1000, self._ttl_ms))

    def _mark(self, conn: Connection) -> int:
        marked = select(run_marks.c.run_id).where(run_marks.c.run_id == runs.c.id)
        query = select(runs.c.id).where(runs.c.job_id.is_(None), ~marked.exists()).limit(_PAGE)
        new = list(conn.execute(query).scalars())
        if new:
            until = self._clock.now_ms() + self._ttl_ms
            has = _amounts(conn, new)
            conn.execute(
                insert(run_marks),
                [{"run_id": each, "amount": has[each], "expires_ms": until} for each in new],
            )
        return len(new)

    def _due(self, conn: Connection) -> list[str]:
        """Some whose time is over; those that have more than when they were marked get another."""
        now = self._clock.now_ms()
        while True:
            query = select(run_marks.c.run_id, run_marks.c.amount).limit(_PAGE)
            rows = conn.execute(query.where(run_marks.c.expires_ms <= now)).all()
            has = _amounts(conn, [row.run_id for row in rows])
            going = [row.run_id for row in rows if has[row.run_id] == row.amount]
            for run_id in has.keys() - set(going):
                conn.execute(
                    update(run_marks)
                    .where(run_marks.c.run_id == run_id)
                    .values(amount=has[run_id], expires_ms=now + self._ttl_ms)
                )
            if going or not rows:
                return going

    def _remove_files(self, conn: Connection, owners: Sequence[str]) -> None:
        self._guard(conn)
        conn.execute(delete(artifacts).where(artifacts.c.owner_id.in_(owners)))


def _owners(conn: Connection, run_ids: Sequence[str]) -> list[str]:
    """The runs, and the models that were logged in them: both have files."""
    models = select(logged_models.c.id).where(logged_models.c.run_id.in_(run_ids))
    return [*run_ids, *conn.execute(models).scalars()]


def _amounts(conn: Connection, run_ids: Sequence[str]) -> dict[str, int]:
    """By run, a number that grows with all that is written to it."""
    found = dict.fromkeys(run_ids, 0)
    counts = [
        select(table.c.run_id, amount).where(table.c.run_id.in_(run_ids)).group_by(table.c.run_id)
        for table, amount in (
            (latest, func.sum(latest.c.count)), (params, func.count()), (tags, func.count()),
        )
    ]  # fmt: skip
    ended = select(runs.c.id, runs.c.ended_ms).where(runs.c.id.in_(run_ids))
    for query in (*counts, ended):
        for run_id, amount in conn.execute(query):
            found[run_id] += int(amount or 0)
    return found
