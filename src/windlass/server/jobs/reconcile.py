"""The owner of starting, running and stopping jobs, and the only caller of engines.

Level-triggered: a look at a job compares what is wanted with what is seen and takes the steps
that `decide` names; looking twice changes nothing. A hint makes it look at once, a sweep every
few seconds looks at all. Effects on an engine happen outside any transaction: what is intended
was committed before, what came of it is committed after, and every effect is idempotent by
attempt id. While the database is away nothing is judged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from sqlalchemy import Connection, select, update

from windlass.core.engines import LOCAL
from windlass.core.errors import Conflict, Fenced, Unavailable, UnlawfulMove
from windlass.core.jobs import LIVE, AttemptState, JobSpec, JobState, Outcome
from windlass.engines.base import Engine, LaunchFailed, LaunchPlan, NodeLaunch, Seen, Sight
from windlass.server import failpoints
from windlass.server.clock import Clock
from windlass.server.jobs import gangs, moves, orders, policy, readable, reports
from windlass.server.jobs.decide import (
    Gathered,
    Kill,
    Launch,
    Over,
    Situation,
    Started,
    Step,
    Tell,
    decide,
    next_due_ms,
)
from windlass.server.jobs.sharing import several_users
from windlass.server.jobs.tables import attempts, jobs, workers
from windlass.server.jobs.waiting import expiry
from windlass.server.nodes import service as node_service
from windlass.server.reading import or_else
from windlass.server.store.base import Store
from windlass.server.troubles import Troubles

log = logging.getLogger("windlass.reconcile")
Row = dict[str, Any]
_AT_ONCE = 32
_SWEEP_MS = 5_000
_REPORTS_MS = 500
"""On PostgreSQL workers report to any server, and only the one they report to is told."""


class Reconcile:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        engines: Mapping[str, Engine],
        *,
        guard: Callable[[Connection], None],
        launch_facts: Callable[[Row, Row], dict[str, Any]],
        worker_token: Callable[[Row], str],
        jitter: Callable[[], float],
        ttl_ms: int,
        poke: Callable[..., None],
        leftovers: Callable[[Mapping[str, Any], JobSpec, str], Awaitable[Any]] | None = None,
        troubles: Troubles | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._engines = engines
        self._guard = guard
        self._launch_facts = launch_facts
        self._worker_token = worker_token
        self._jitter = jitter
        self._ttl_ms = ttl_ms
        self._poke = poke
        self._leftovers = leftovers
        self._handling = (troubles or Troubles(clock)).of("reconcile")
        self._hinted: set[str] = set()
        self._due: dict[str, int] = {}
        self._swept_ms: int | None = None
        self._began_ms = clock.now_ms()
        self._asked_ms = 0
        self._aside: set[asyncio.Task[None]] = set()

    def hint(self, job_id: str) -> None:
        """Look at this job soon."""
        self._hinted.add(job_id)
        self._poke("reconcile")

    async def turn(self) -> int:
        """One round over the hinted jobs, or over all live ones. Returns the ms until the next."""
        now, several = self._clock.now_ms(), self._store.dialect == "postgresql"
        ids, self._hinted = self._hinted, set()
        ids |= {job_id for job_id, due in self._due.items() if due <= now}
        if self._swept_ms is None or now - self._swept_ms >= _SWEEP_MS:
            self._swept_ms = now
            live = set(await self._store.read(_live_ids))
            self._due = {job_id: due for job_id, due in self._due.items() if job_id in live}
            ids |= live
        elif several and now - self._asked_ms >= _REPORTS_MS:
            self._asked_ms = now
            ids |= set(await self._store.read(_reported_ids))
        ids = {job_id for job_id in ids if self._handling.may(job_id)}
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one(job_id: str) -> None:
            async with gate:
                await self._look(job_id)

        if len(ids) == 1:
            await self._look(ids.pop())
        elif ids:
            looked = await asyncio.gather(*map(one, sorted(ids)), return_exceptions=True)
            for error in looked:  # only now: none may go on into the next turn
                if error is not None:
                    raise error
        soon = min(self._due.values(), default=now + _SWEEP_MS)
        if several:
            soon = min(soon, self._asked_ms + _REPORTS_MS)
        return max(0, min(soon, self._swept_ms + _SWEEP_MS) - self._clock.now_ms())

    async def _look(self, job_id: str) -> None:
        """Take steps until there is none to take."""
        try:
            await self._take_all(job_id)
        except Fenced:
            raise  # another server leads: nothing here is ours to judge
        except Unavailable as err:
            # the database, or the engine that it runs on: nothing is judged until it is back
            self._handling.waits(job_id, err)
            self._hinted.add(job_id)
        except Exception as err:
            if isinstance(err, Conflict) and not isinstance(err, UnlawfulMove):
                self.hint(job_id)  # someone wrote meanwhile: look again, at once
                return
            # Of this job alone, whatever it is: the others are looked at.
            self._due[job_id] = self._clock.now_ms() + self._handling.failed(job_id, err)
        else:
            self._handling.well(job_id)

    async def _take_all(self, job_id: str) -> None:
        for _ in range(10):
            situation = await self._situation(job_id)
            if situation is None:
                self._due.pop(job_id, None)
                return
            steps = decide(situation, self._clock.now_ms())
            if not steps:
                due = next_due_ms(situation, self._clock.now_ms())
                if due is None:
                    self._due.pop(job_id, None)
                else:
                    self._due[job_id] = due
                return
            for step in steps:
                situation = await self._take(situation, step)

    async def _situation(self, job_id: str) -> Situation | None:
        def rows(conn: Connection) -> tuple[Row, Row, list[Row]] | None:
            job = conn.execute(select(jobs).where(jobs.c.id == job_id)).mappings().first()
            if job is None or job["state"] not in LIVE:
                return None
            attempt = moves.load_attempt(conn, job_id, job["fence"])
            assert attempt is not None, "a live job has an attempt"
            members = conn.execute(select(workers).where(workers.c.attempt_id == attempt["id"]))
            return dict(job), attempt, [dict(row) for row in members.mappings()]

        found = await self._store.read(rows)
        if found is None:
            return None
        job, attempt, members = found
        spec, unreadable = readable.look_over(job, attempt, members)
        engine = self._engine(attempt)
        wanted = [(attempt["id"], worker["node"]) for worker in members if not worker["record"]]
        seen: Sequence[Seen] = ()
        ending = attempt["state"] == AttemptState.ENDING
        if wanted and (attempt["launched_ms"] is not None or ending):
            seen = await engine.observe(wanted)
        by_node = {s.node: s for s in seen}
        if unreadable:
            return Situation(job, attempt, members, by_node, spec, {}, 0, unreadable=unreadable)
        finish, deciding = gangs.finish(job, spec, attempt["placement"])
        lossy = gangs.lossy(job, spec, attempt["placement"], members)
        return Situation(
            job, attempt, members, by_node, spec, finish, deciding, lossy,
            began_ms=self._began_ms,
        )  # fmt: skip

    def _engine(self, attempt: Mapping[str, Any]) -> Engine:
        """Raises Unavailable for one that could not be started yet."""
        found = self._engines.get(attempt["engine"])
        if found is None:
            raise Unavailable(f"engine {attempt['engine']} cannot be used now")
        return found

    async def _take(self, at: Situation, step: Step) -> Situation:
        match step:
            case Launch():
                await self._launch(at)
            case Kill(node):
                await self._kill(at, node)
            case Gathered():
                await self._write(at, self._gathered)
            case Started():
                await self._write(at, self._started)
            case Tell():
                await self._write(
                    at, lambda conn, job, attempt: self._tell(conn, job, attempt, step)
                )
                self._poke("orders:" + at.attempt["id"])
            case Over(verdict):
                await self._take_leftovers(at)
                failpoints.passing("before-over-commit")
                await self._write(
                    at, lambda conn, job, attempt: self._over(conn, job, attempt, at.spec, verdict)
                )
                self._poke("orders:" + at.attempt["id"], "admit", "expire", "over:" + at.job["id"])
        return at

    async def _take_leftovers(self, at: Situation) -> None:
        """What workers could not send. Before the end is written: who sees the job ended finds
        its last numbers too."""
        for worker in at.workers if self._leftovers is not None else ():
            if not worker["record"] or worker["record"].get("left"):
                assert self._leftovers is not None
                await self._leftovers(at.attempt, at.spec, worker["node"])

    async def _write(self, at: Situation, fn: Callable[[Connection, Row, Row], None]) -> None:
        """Run `fn` on the rows as they now are, if the attempt is still the newest one."""

        def apply(conn: Connection) -> None:
            self._guard(conn)
            job = moves.load(conn, at.job["id"])
            if job["fence"] != at.attempt["number"] or job["state"] not in LIVE:
                raise Conflict("another attempt began meanwhile")
            attempt = moves.load_attempt(conn, job["id"], job["fence"])
            assert attempt is not None
            fn(conn, job, attempt)

        await self._store.write(apply)
        self._poke("feed", "job:" + at.job["id"])

    # The steps

    async def _launch(self, at: Situation) -> None:
        attempt, engine = at.attempt, self._engine(at.attempt)
        facts = {**self._launch_facts(dict(at.job), dict(attempt)), **engine.facts()}
        shared = await self._store.read(several_users)
        facts["isolation"] = {**facts.get("isolation", {}), "shared": shared}
        members = gangs.members(at.job, at.spec, attempt["placement"])
        plan = LaunchPlan(
            job_id=at.job["id"],
            attempt_id=attempt["id"],
            attempt=attempt["number"],
            nodes=tuple(
                NodeLaunch(
                    node=node,
                    launch={**facts, "node": node, "members": mine},
                    token=self._worker_token(dict(attempt)),
                )
                for node, mine in members.items()
            ),
        )
        failpoints.passing("before-launch")
        try:
            await engine.launch(plan)
        except LaunchFailed as err:
            log.warning("job %s attempt %s: %s", at.job["id"], attempt["number"], err)
            await self._refuse(at, err)
            return
        failpoints.passing("after-launch")

        def launched(conn: Connection, job: Row, attempt: Row) -> None:
            conn.execute(
                update(attempts)
                .where(attempts.c.id == attempt["id"], attempts.c.launched_ms.is_(None))
                .values(launched_ms=self._clock.now_ms())
            )

        await self._write(at, launched)

    async def _refuse(self, at: Situation, err: LaunchFailed) -> None:
        """The engine could not start it: end what did start, and close the attempt. Without proof
        that nothing of it is left (a launch may be repeated over one that went well before a
        crash) it stays open, and the next look tries again."""
        engine = self._engine(at.attempt)
        unhealthy = []
        for worker in at.workers:
            seen = await engine.end(at.attempt["id"], worker["node"])
            if (seen.record or {}).get("survivors"):
                unhealthy.append(seen.node)
            elif seen.sight not in (Sight.ENDED, Sight.ABSENT):
                log.error("node %s: cannot end attempt %s", seen.node, at.attempt["id"])
                return
        if err.need:
            verdict = policy.lacking(
                {worker["node"]: str(err) for worker in at.workers}, tuple(unhealthy)
            )
        else:
            outcome = Outcome.LOST if err.transient else Outcome.REFUSED
            verdict = policy.Verdict(
                outcome, f"launch failed: {err}", unhealthy_nodes=tuple(unhealthy)
            )
        await self._write(
            at, lambda conn, job, attempt: self._over(conn, job, attempt, at.spec, verdict)
        )
        self._poke("admit")

    async def _kill(self, at: Situation, node: str) -> None:
        engine = self._engine(at.attempt)
        seen = await engine.end(at.attempt["id"], node)
        if seen.record is not None and (seen.sight is Sight.ENDED or seen.record.get("survivors")):
            record = seen.record  # survivors: not waited for, the node gives nothing more
        elif seen.sight is Sight.ABSENT:
            record = {
                "node": node,
                "outcome": "lost",
                "reason": "nothing of it is left",
                "ranks": [],
            }
        else:
            log.error("node %s: could not end attempt %s: %s", node, at.attempt["id"], seen.reason)
            return
        now = self._clock.now_ms()
        await self._write(
            at, lambda conn, job, attempt: reports.keep_record(conn, job, attempt, record, now)
        )

    def _gathered(self, conn: Connection, job: Row, attempt: Row) -> None:
        if attempt["state"] == AttemptState.LAUNCHING:
            moves.move_attempt(
                conn, job, attempt, AttemptState.ALIVE, reason="the gang is whole",
                now_ms=self._clock.now_ms(),
                data={"isolation": orders.isolation(conn, attempt["id"])},
            )  # fmt: skip

    def _started(self, conn: Connection, job: Row, attempt: Row) -> None:
        if job["state"] == JobState.STARTING:
            self._run(conn, job, attempt)

    def _run(self, conn: Connection, job: Row, attempt: Row) -> Row:
        now = self._clock.now_ms()
        again = f", attempt {attempt['number']}" if attempt["number"] > 1 else ""
        columns: dict[str, Any] = {} if job["started_ms"] else {"started_ms": now}
        job = moves.move(
            conn, job, JobState.RUNNING, owner="reconcile",
            reason=f"{job['members']} member{'s' if job['members'] > 1 else ''} running{again}",
            now_ms=now, **columns,
        )  # fmt: skip
        limit = JobSpec.model_validate(job["spec"]).limits.time
        conn.execute(
            update(attempts)
            .where(attempts.c.id == attempt["id"])
            .values(started_ms=now, deadline_ms=None if limit is None else now + limit)
        )
        return job

    def _tell(self, conn: Connection, job: Row, attempt: Row, step: Tell) -> None:
        now = self._clock.now_ms()
        if attempt["state"] != AttemptState.ENDING:
            job, attempt = moves.move_attempt(
                conn, job, attempt, AttemptState.ENDING, reason=step.reason, now_ms=now,
                grace_ms=step.grace_ms, ending_outcome=step.outcome.value,
                ending_wish=job["wish"] if step.stopping else None,
            )  # fmt: skip
        else:
            conn.execute(
                update(attempts)
                .where(attempts.c.id == attempt["id"])
                .values(grace_ms=step.grace_ms, ending_ms=now)
            )
        if step.stopping and job["state"] != JobState.STOPPING:
            moves.move(
                conn, job, JobState.STOPPING, owner="reconcile", reason=step.reason, now_ms=now
            )
        body = {"grace_ms": step.grace_ms, "reason": step.reason, "outcome": step.outcome.value}
        orders.give(conn, attempt, step.nodes, "end", body, now_ms=now)

    def _over(
        self, conn: Connection, job: Row, attempt: Row, spec: JobSpec, verdict: policy.Verdict
    ) -> None:
        now = self._clock.now_ms()
        before, after = job["step"], attempt["step"]
        progressed = None if after is None else (before is None or after > before)
        if after is None and before is not None:
            progressed = False
        then = policy.follow(
            spec, verdict, wish=job["wish"], failures=job["failures"],
            stale_restarts=job["stale_restarts"], lost_nodes=or_else(job["lost_nodes"], []) or [],
            progressed=progressed, jitter=self._jitter(),
            lacked=moves.lacked(conn, attempt) if verdict.needs else 0,
        )  # fmt: skip
        job, attempt = moves.move_attempt(
            conn, job, attempt, AttemptState.OVER, reason=verdict.reason, now_ms=now,
            outcome=verdict.outcome.value, exit_code=verdict.exit_code, failure=verdict.failure,
        )  # fmt: skip
        for node in verdict.unhealthy_nodes:
            node_service.mark_unhealthy(
                conn,
                attempt["engine"],
                node,
                f"processes of job {job['name']} cannot be killed",
                now,
            )
        for node, why in verdict.needs.items():
            node_service.pause(conn, attempt["engine"], node, why, now)
        columns: Row = {
            "failures": then.failures, "stale_restarts": then.stale_restarts,
            "lost_nodes": then.lost_nodes, "outcome": verdict.outcome.value,
            "exit_code": verdict.exit_code, "wish": None, "wish_reason": None, "wish_now": 0,
            "wish_for": None,
        }  # fmt: skip
        if after is not None and (before is None or after > before):
            columns["step"] = after
        if then.state is JobState.QUEUED:
            columns["not_before_ms"] = now + then.delay_ms
            if job["wish"] == "hold":  # from here on admit's: it must not start again meanwhile
                columns |= {"wish": "hold", "wish_reason": job["wish_reason"]}
            elif then.quarantine:
                columns["wish"] = "hold"
                columns["wish_reason"] = (
                    f"quarantined: {len(then.lost_nodes)} attempts in a row lost their node "
                    f"({', '.join(then.lost_nodes)}); "
                    f"`windlass release {job['name']}` lets it go on"
                )
        else:
            columns["expires_ms"] = expiry(job, now, self._ttl_ms)
        if job["state"] == JobState.STARTING and then.state in (
            JobState.SUCCEEDED,
            JobState.CANCELLED,
        ):
            # It ran and ended before anyone looked: the story is told in order.
            if then.state is JobState.SUCCEEDED:
                job = self._run(conn, job, attempt)
            else:
                job = moves.move(
                    conn, job, JobState.STOPPING, owner="reconcile", reason=then.reason, now_ms=now
                )
        elif job["state"] == JobState.RUNNING and then.state is JobState.CANCELLED:
            job = moves.move(
                conn, job, JobState.STOPPING, owner="reconcile", reason=then.reason, now_ms=now
            )
        moves.move(
            conn, job, then.state, owner="reconcile", reason=then.reason, now_ms=now, **columns
        )

    async def adopt(self) -> None:
        """At boot, before anything else is judged: what runs on this machine is looked at, and
        what nobody knows is ended; on other engines beside it, since they may not answer."""
        for engine in self._engines.values():
            if engine.name == LOCAL:
                await self._end_strays(engine)
            else:
                task = asyncio.create_task(self._end_strays(engine))
                self._aside.add(task)
                task.add_done_callback(self._aside.discard)
        self._hinted |= set(await self._store.read(_live_ids))

    async def _end_strays(self, engine: Engine) -> None:
        """End whatever an engine has of attempts that are over. Files stay until the job goes."""
        try:
            present = await engine.present()
            if not present:
                return
            ids = sorted({attempt_id for attempt_id, _ in present})
            live = await self._store.read(partial(_live_attempts, ids=ids))
            await self._end_those(engine, [place for place in present if place[0] not in live])
        except Unavailable as err:
            if engine.name == LOCAL:
                raise
            log.warning("engine %s: %s; its strays stay for now", engine.name, err)

    async def _end_those(self, engine: Engine, strays: Sequence[tuple[str, str]]) -> None:
        for seen in await engine.observe(strays):
            if seen.sight not in (Sight.ENDED, Sight.ABSENT):
                log.warning("ending a stray of attempt %s on %s", seen.attempt_id, seen.node)
                await engine.end(seen.attempt_id, seen.node)


def _live_ids(conn: Connection) -> list[str]:
    return list(conn.execute(select(jobs.c.id).where(jobs.c.state.in_(sorted(LIVE)))).scalars())


def _reported_ids(conn: Connection) -> list[str]:
    """Of live jobs those whose workers have said what their attempt does not show yet."""
    return list(conn.execute(_REPORTED).scalars())


_REPORTED = (
    select(jobs.c.id)
    .join(attempts, (attempts.c.job_id == jobs.c.id) & (attempts.c.number == jobs.c.fence))
    .join(workers, workers.c.attempt_id == attempts.c.id)
    .where(
        jobs.c.state.in_(sorted(LIVE)),
        workers.c.record.is_not(None)
        | ((attempts.c.state == "launching") & workers.c.registered_ms.is_not(None))
        | ((jobs.c.state == "starting") & workers.c.started_ms.is_not(None)),
    )
    .distinct()
)


def _live_attempts(conn: Connection, ids: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for start in range(0, len(ids), 500):
        rows = conn.execute(
            select(attempts.c.id).where(
                attempts.c.id.in_(ids[start : start + 500]), attempts.c.state != "over"
            )
        )
        found |= set(rows.scalars())
    return found
