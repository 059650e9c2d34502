"""The meter's loop: cuts entries at full hours, keeps the sums, watches budgets and cost limits.

Nothing depends on its being quick: an end writes its own entries, whoever asks adds what is held
now. Late, it only warns late.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from sqlalchemy import Connection, select

from windlass.core.errors import Fenced, NotFound, Unavailable
from windlass.core.jobs import LIVE
from windlass.core.usage import format_money
from windlass.server.clock import Clock
from windlass.server.jobs import moves
from windlass.server.jobs.tables import attempts, jobs
from windlass.server.store.base import Store
from windlass.server.troubles import Troubles
from windlass.server.usage import budgets, ledger, report, rollup
from windlass.server.usage.metering import HOUR_MS
from windlass.server.usage.tables import holdings

log = logging.getLogger("windlass.meter")
TURN_MS = 10_000
_TOGETHER = 20
"""Attempts that are cut in one transaction: others write between two of them."""
_GOING_ON = ("launching", "alive")


class Meter:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        guard: Callable[[Connection], None],
        wished: Callable[[str], None],
        cut_ms: int = HOUR_MS,
        turn_ms: int = TURN_MS,
        troubles: Troubles | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._guard = guard
        self._wished = wished
        self._handling = (troubles or Troubles(clock)).of("meter")
        self._cut_ms = cut_ms
        self._turn_ms = turn_ms
        self._cut_at = 0

    async def turn(self) -> int:
        """One round. Returns the milliseconds until the next."""
        now = self._clock.now_ms()
        bound = now - now % self._cut_ms
        if bound > self._cut_at:
            await self._cut(bound)
            self._cut_at = bound
        if await self._store.read(rollup.behind):
            while await self._store.write(self._add):
                pass
        with self._handling.of("budgets"):
            await self._watch_budgets()
        with self._handling.of("cost limits"):
            await self._watch_limits()
        until = self._cut_at + self._cut_ms - self._clock.now_ms()
        return max(0, min(self._turn_ms, until))

    async def _cut(self, bound: int) -> None:
        """Entries for all that goes on, up to a full hour."""
        ids = await self._store.read(lambda conn: _before(conn, bound))
        for at in range(0, len(ids), _TOGETHER):
            some = ids[at : at + _TOGETHER]
            try:
                await self._store.write(partial(self._cut_some, job_ids=some, bound=bound))
            except (Fenced, Unavailable):
                raise
            except Exception:  # of one of them: each by itself
                for job_id in some:
                    with self._handling.of(job_id):
                        one = partial(self._cut_some, job_ids=[job_id], bound=bound)
                        await self._store.write(one)

    def _cut_some(self, conn: Connection, job_ids: Sequence[str], bound: int) -> None:
        self._guard(conn)
        for job_id in job_ids:
            try:
                job = moves.load(conn, job_id)  # locked: it neither ends nor is told to meanwhile
            except NotFound:
                continue
            attempt = moves.load_attempt(conn, job_id, job["fence"])
            if attempt is not None and attempt["state"] in _GOING_ON:
                ledger.cut(conn, attempt["id"], bound)

    def _add(self, conn: Connection) -> bool:
        self._guard(conn)
        return rollup.add(conn)

    async def _watch_budgets(self) -> None:
        now = self._clock.now_ms()
        found = await self._store.read(lambda conn: budgets.standings(conn, now))
        if any(at.changes for at in found):

            def settle(conn: Connection) -> list[budgets.Standing]:
                self._guard(conn)
                return budgets.settle(conn, self._clock.now_ms())

            found = await self._store.write(settle)
        for at in budgets.closed_with_stop(found):
            row = at.row
            subject = jobs.c[f"{row['kind']}_id"] == row["subject_id"]
            ids = await self._store.read(partial(_running, subject=subject))
            reason = (
                f"the budget of {row['kind']} {row['name']} is spent: "
                "it goes on from its checkpoint when there is more"
            )
            for job_id in ids:
                with self._handling.of(job_id):
                    await self._wish(job_id, "restart", reason)

    async def _watch_limits(self) -> None:
        """Jobs that may cost only so much."""
        now = self._clock.now_ms()

        def over(conn: Connection) -> list[tuple[str, int, int]]:
            limits = {job_id: limit for job_id, limit in conn.execute(_LIMITED)}
            if not limits:
                return []
            costs = report.job_costs(conn, sorted(limits), now)
            return [(job, costs[job], limits[job]) for job in limits if costs[job] >= limits[job]]

        for job_id, cost, limit in await self._store.read(over):
            reason = f"cost-limit: it cost {format_money(cost)} of {format_money(limit)}"
            with self._handling.of(job_id):
                await self._wish(job_id, "cancel", reason)

    async def _wish(self, job_id: str, wish: str, reason: str) -> None:
        """Of a job that runs, unless it is ending already."""

        def write(conn: Connection) -> bool:
            self._guard(conn)
            try:
                job = moves.load(conn, job_id)
            except NotFound:
                return False
            if job["state"] not in LIVE or job["wish"]:
                return False
            moves.note(
                conn, job, "wished", reason=reason, now_ms=self._clock.now_ms(),
                data={"wish": wish, "by": "meter"}, wish=wish, wish_reason=reason, wish_now=0,
            )  # fmt: skip
            return True

        if await self._store.write(write):
            self._wished(job_id)


_LIMITED = (
    select(holdings.c.job_id, holdings.c.cost_limit)
    .join(attempts, attempts.c.id == holdings.c.attempt_id)
    .join(jobs, jobs.c.id == holdings.c.job_id)
    .where(attempts.c.state != "over", holdings.c.cost_limit.is_not(None), jobs.c.wish.is_(None))
)


def _before(conn: Connection, bound: int) -> list[str]:
    """The jobs, by id, whose live attempt began before."""
    query = (
        select(attempts.c.job_id)
        .where(attempts.c.state.in_(_GOING_ON), attempts.c.created_ms < bound)
        .order_by(attempts.c.job_id)
    )
    return list(conn.scalars(query))


def _running(conn: Connection, subject: Any) -> list[str]:
    query = select(jobs.c.id).where(subject, jobs.c.state.in_(sorted(LIVE)), jobs.c.wish.is_(None))
    return list(conn.scalars(query.order_by(jobs.c.id)))
