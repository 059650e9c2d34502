"""The owner of held and queued jobs: feeds the scheduler's core and commits what it decides.

The core is a cache, rebuilt from the database at start and after every error; it is kept
current by the events that others committed. A turn: hear what happened, carry out the wishes on
waiting jobs, commit the starts. Nothing here touches an engine.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, select

from windlass.core.errors import Conflict, Fenced
from windlass.core.jobs import LIVE, TERMINAL, JobSpec, JobState, Placed
from windlass.core.resources import Node
from windlass.scheduler.core import (
    Ask,
    Core,
    Decision,
    NodeDown,
    NodeUp,
    Reason,
    Release,
    Restore,
    Start,
    Submit,
    Withdraw,
)
from windlass.server import failpoints, feed
from windlass.server.clock import Clock
from windlass.server.jobs import moves
from windlass.server.jobs.tables import attempts, jobs
from windlass.server.nodes.tables import nodes
from windlass.server.store.base import Store

Row = dict[str, Any]
_BATCH = 1000


def asks_of(spec: JobSpec) -> tuple[Ask, ...]:
    return tuple(Ask(name, role.count, role.per_member) for name, role in spec.roles.items())


class Admit:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        guard: Callable[[Connection], None],
        new_attempt: Callable[[], Row],
        started: Callable[[str], None],
        ttl_ms: int,
    ) -> None:
        self._store = store
        self._clock = clock
        self._guard = guard
        self._new_attempt = new_attempt
        self._started = started
        self._ttl_ms = ttl_ms
        self._core: Core | None = None
        self._cursor = 0
        self._decisions: list[Decision] = []
        self._due: list[tuple[int, str]] = []  # (not before, job) of those backing off
        self._engine_of: dict[str, str] = {}
        self._fences: dict[str, int] = {}  # of each job that the core holds: its attempt's number

    async def turn(self) -> int | None:
        """One round. Returns the milliseconds until a timer is due, None when there is none."""
        try:
            if self._core is None:
                await self._rebuild()
            await self._hear()
            await self._wake_due()
            while self._decisions:
                await self._commit()
                await self._hear()
        except BaseException:
            self._core = None  # the cache may be wrong: build it anew next time
            raise
        return max(0, self._due[0][0] - self._clock.now_ms()) if self._due else None

    def why(self, job_id: str) -> Reason | None:
        """Why a queued job waits, as the core sees it now."""
        return self._core.why(job_id) if self._core else None

    def could_start(self, spec: JobSpec) -> bool:
        """Whether such a job would start now."""
        return self._core is not None and self._core.could_start(asks_of(spec))

    def free(self) -> dict[str, Any]:
        return self._core.free() if self._core else {}

    async def _rebuild(self) -> None:
        def snapshot(conn: Connection) -> tuple[int, list[Row], list[Row], dict[str, Row]]:
            cursor = feed.last_position(conn)
            offers = [dict(row) for row in conn.execute(select(nodes)).mappings()]
            unfinished = [
                dict(row)
                for row in conn.execute(
                    select(*_COLUMNS)
                    .where(jobs.c.state.not_in(sorted(TERMINAL)))
                    .order_by(jobs.c.number)
                ).mappings()
            ]
            placements = {
                row["job_id"]: dict(row)
                for row in conn.execute(_PLACEMENTS.where(attempts.c.state != "over")).mappings()
            }
            return cursor, offers, unfinished, placements

        self._cursor, offers, unfinished, placements = await self._store.read(snapshot)
        self._core, self._decisions, self._due, self._fences = Core(), [], [], {}
        self._offers(offers)
        # Who holds resources first: nothing may start on what is taken.
        for row in unfinished:
            if row["state"] in LIVE and row["id"] in placements:
                self._restore(row, placements[row["id"]])
        waiting = [row for row in unfinished if row["state"] not in LIVE]
        for row in waiting:
            await self._settle(row)

    async def _hear(self) -> None:
        """Bring the core up to what was committed since. The events say which jobs to look at;
        their rows say what is so: hearing twice or late changes nothing."""
        while True:

            def news(
                conn: Connection, cursor: int = self._cursor
            ) -> tuple[int, list[Row], list[Row], set[str]]:
                events = feed.after(conn, cursor, limit=_BATCH)
                if not events:
                    return cursor, [], [], set()
                touched = {event.job_id for event in events if event.job_id}
                touched |= {event.data["job"] for event in events if event.kind == "removed"}
                rows = _rows(conn, touched)
                gone = touched - {row["id"] for row in rows}
                about_nodes = any(event.kind == "node" for event in events)
                offers = (
                    [dict(row) for row in conn.execute(select(nodes)).mappings()]
                    if about_nodes
                    else []
                )
                return int(events[-1].position), rows, offers, gone

            cursor, rows, offers, gone = await self._store.read(news)
            if cursor == self._cursor:
                return
            self._cursor = cursor
            self._offers(offers)
            for job_id in sorted(gone):  # removed before its end was heard of
                self._release(job_id)
            for row in rows:
                await self._settle(row)

    def _offers(self, offers: Sequence[Row]) -> None:
        for row in offers:
            self._engine_of[row["name"]] = row["engine"]
            if row["state"] == "ready":
                self._apply(NodeUp(Node.model_validate(row["offer"])))
            else:
                self._apply(NodeDown(row["name"]))

    async def _settle(self, row: Row) -> None:
        """Make the core agree with a job's row, and carry out a wish on a waiting job."""
        state = JobState(row["state"])
        if state in LIVE:
            if self._fences.get(row["id"]) != row["fence"]:
                await self._hold(row)
            if row["wish"]:
                self._started(row["id"])  # not ours: its owner looks
            return
        if row["wish"] and state in (JobState.QUEUED, JobState.HELD):
            self._release(row["id"])
            moved = await self._store.write(lambda conn: self._carry_out(conn, row["id"]))
            if moved is None:
                return
            row, state = moved, JobState(moved["state"])
        if state is JobState.QUEUED and any(d.job_id == row["id"] for d in self._decisions):
            return  # it is about to start: its own event was heard again
        self._release(row["id"])
        if state is not JobState.QUEUED:
            self._apply(Withdraw(row["id"]))
        elif row["not_before_ms"] > self._clock.now_ms():
            self._apply(Withdraw(row["id"]))
            heapq.heappush(self._due, (row["not_before_ms"], row["id"]))
        else:
            spec = _spec(row)
            order = (-spec.queue.priority, row["number"])
            self._apply(Submit(row["id"], order, asks_of(spec)))

    async def _hold(self, row: Row) -> None:
        """Another server, or a write whose outcome we did not learn, has started it."""

        def look(conn: Connection) -> Row | None:
            found = conn.execute(
                _PLACEMENTS.where(
                    attempts.c.state != "over",
                    attempts.c.job_id == row["id"],
                    attempts.c.number == row["fence"],
                )
            )
            first = found.mappings().first()
            return None if first is None else dict(first)

        held = await self._store.read(look)
        if held is not None:  # else it is over, and its event will be heard
            self._release(row["id"])
            self._restore(row, held)

    def _restore(self, row: Row, held: Row) -> None:
        self._fences[row["id"]] = held["number"]
        placed = _placement(held["placement"])
        self._apply(Restore(row["id"], asks_of(_spec(row)), placed))

    def _release(self, job_id: str) -> None:
        """What it holds is free, and what was decided on it and not yet written is void."""
        self._decisions = [d for d in self._decisions if d.job_id != job_id]
        self._fences.pop(job_id, None)
        self._apply(Release(job_id))

    def _carry_out(self, conn: Connection, job_id: str) -> Row | None:
        self._guard(conn)
        job = moves.load(conn, job_id)
        state, wish = JobState(job["state"]), job["wish"]
        if state not in (JobState.QUEUED, JobState.HELD) or not wish:
            return job if state not in LIVE else None
        now, reason = self._clock.now_ms(), job["wish_reason"] or ""
        done: dict[str, Any] = {"wish": None, "wish_reason": None, "wish_now": 0}
        if wish == "cancel":
            return moves.move(
                conn, job, JobState.CANCELLED, owner="admit", reason=reason, now_ms=now,
                outcome="cancelled", expires_ms=expiry(job, now, self._ttl_ms), **done,
            )  # fmt: skip
        if wish == "hold" and state is JobState.QUEUED:
            return moves.move(
                conn, job, JobState.HELD, owner="admit", reason=reason, now_ms=now, **done
            )
        if wish == "release" and state is JobState.HELD:
            return moves.move(
                conn, job, JobState.QUEUED, owner="admit", reason=reason or "released", now_ms=now,
                lost_nodes=[], stale_restarts=0, not_before_ms=0, **done,
            )  # fmt: skip
        if wish == "release":  # a backoff is cut short
            done["not_before_ms"] = 0
        return moves.note(
            conn, job, "note", reason=f"{wish}: nothing to do while {state}", now_ms=now, **done
        )

    async def _wake_due(self) -> None:
        now = self._clock.now_ms()
        due = []
        while self._due and self._due[0][0] <= now:
            due.append(heapq.heappop(self._due)[1])
        if due:
            for row in await self._store.read(lambda conn: _rows(conn, due)):
                await self._settle(row)

    async def _commit(self) -> None:
        """Write the starts that the core decided; one that no longer holds is taken back."""
        decisions, self._decisions = self._decisions, []

        async def one(decision: Start) -> None:
            try:
                fence = await self._store.write(lambda conn: self._start(conn, decision))
            except Fenced:
                raise  # another server leads: nothing here is ours to settle
            except Conflict:
                self._release(decision.job_id)
                for row in await self._store.read(lambda conn: _rows(conn, [decision.job_id])):
                    await self._settle(row)
            else:
                failpoints.passing("after-start-commit")
                self._fences[decision.job_id] = fence
                self._started(decision.job_id)

        if len(decisions) == 1:
            await one(decisions[0])
            return
        # All are waited for, so that none goes on over a core that was built anew meanwhile.
        written = await asyncio.gather(*map(one, decisions), return_exceptions=True)
        for error in written:
            if error is not None:
                raise error

    def _start(self, conn: Connection, decision: Start) -> int:
        self._guard(conn)
        job = moves.load(conn, decision.job_id)
        if job["state"] != JobState.QUEUED or job["wish"]:
            raise Conflict("it is no longer waiting")
        names = sorted({placed.node for placed in decision.placement})
        attempt = {
            **self._new_attempt(),
            "engine": self._engine_of.get(names[0], "local"),
            "placement": [placed.model_dump() for placed in decision.placement],
        }
        where = names[0] if len(names) == 1 else f"{len(names)} nodes"
        job, _ = moves.start_attempt(
            conn, job, attempt, reason=f"placed on {where}", now_ms=self._clock.now_ms()
        )
        return int(job["fence"])

    def _apply(self, event: Any) -> None:
        assert self._core is not None
        self._decisions += self._core.apply(event)


_COLUMNS = (
    jobs.c.id, jobs.c.number, jobs.c.state, jobs.c.wish, jobs.c.spec, jobs.c.not_before_ms,
    jobs.c.fence,
)  # fmt: skip
_PLACEMENTS = select(attempts.c.job_id, attempts.c.number, attempts.c.placement).join_from(
    attempts, jobs, (attempts.c.job_id == jobs.c.id) & (attempts.c.number == jobs.c.fence)
)


def expiry(job: Row, now_ms: int, ttl_ms: int) -> int:
    """When a job that ends now may be removed: its own `ttl`, or the server's."""
    own = JobSpec.model_validate(job["spec"]).ttl
    return now_ms + (ttl_ms if own is None else own)


def _rows(conn: Connection, ids: Iterable[str]) -> list[Row]:
    found = conn.execute(
        select(*_COLUMNS).where(jobs.c.id.in_(sorted(ids))).order_by(jobs.c.number)
    )
    return [dict(row) for row in found.mappings()]


def _placement(raw: Sequence[Any]) -> tuple[Placed, ...]:
    return tuple(Placed.model_validate(placed) for placed in raw)


def _spec(row: Row) -> JobSpec:
    return JobSpec.model_validate(row["spec"])
