"""One server: the real loops and the real handlers' transactions, wired as `app.py` wires them,
without HTTP."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from contextlib import aclosing, suppress
from typing import Any

from sqlalchemy import Connection

from windlass.core.access import (
    CallerKind,
    OrgRole,
    Principal,
    ProjectRole,
    rights_in,
    rights_of,
)
from windlass.core.errors import Unavailable
from windlass.core.jobs import JobSpec
from windlass.core.reports import Beat, CheckpointNote, Ended, MemberPorts, Register, Started
from windlass.server import feed as feeds
from windlass.server import leases, loops
from windlass.server.feed import Feed
from windlass.server.jobs import orders, removal, reports, service, tokens
from windlass.server.jobs.admit import Admit
from windlass.server.jobs.fitting import Fitting
from windlass.server.jobs.reconcile import Reconcile
from windlass.server.nodes import service as node_service
from windlass.server.troubles import Troubles
from windlass.server.usage.meter import Meter
from windlass.testing.simulated.cluster import Cluster, FakeEngine, FakeWorker
from windlass.testing.simulated.disk import PROJECT_ID, USER_ID, Disk, ProcessStore
from windlass.testing.simulated.evidence import Accepted, Evidence
from windlass.testing.simulated.loop import VirtualClock
from windlass.testing.simulated.process import Process

ADA = Principal(
    kind=CallerKind.USER, project_id=PROJECT_ID, user_id=USER_ID, user_name="ada",
    project_name="default", rights=rights_in(OrgRole.OWNER, ProjectRole.MAINTAINER),
)  # fmt: skip
TTL_MS = 30 * 86_400_000
CUT_MS = 4_000
"""Entries of the ledger are cut this often, not once an hour: jobs here are short."""


class Server:
    def __init__(
        self,
        process: Process,
        disk: Disk,
        store: ProcessStore,
        cluster: Cluster,
        clock: VirtualClock,
        evidence: Evidence,
        chance: random.Random,
        *,
        alone: bool,
        new_attempt: Callable[[], dict[str, Any]],
    ) -> None:
        self.process, self.store, self.clock = process, store, clock
        self.up = False
        self._disk, self._evidence, self._alone = disk, evidence, alone
        self._engine = FakeEngine(cluster, process)
        self.leadership = loops.Leadership(store, process.name)
        self._troubles = Troubles(clock)
        self._wake_admit, self._wake_reconcile = loops.Bell(), loops.Bell()
        self.feed = Feed(store)
        if not alone:  # as over PostgreSQL: no hint comes of what another server commits
            self.feed._poll_seconds = 1.0
        self.reconcile = Reconcile(
            store, clock, {"local": self._engine}, guard=self.leadership.guard,
            launch_facts=_launch_facts, worker_token=lambda attempt: "token",
            jitter=chance.random, ttl_ms=TTL_MS, poke=self._poke, troubles=self._troubles,
        )  # fmt: skip
        self.admit = Admit(
            store, clock, guard=self.leadership.guard, new_attempt=new_attempt,
            started=self.reconcile.hint, ttl_ms=TTL_MS, troubles=self._troubles,
        )  # fmt: skip
        self.meter = Meter(
            store, clock, guard=self.leadership.guard, wished=self.reconcile.hint,
            cut_ms=CUT_MS, turn_ms=CUT_MS,
        )  # fmt: skip

    def start(self) -> None:
        self.process.spawn(self._main(), name=f"{self.process.name} main")

    async def _main(self) -> None:
        try:
            await self._serve()
        except asyncio.CancelledError:
            pass
        except Unavailable as err:  # as the real one: it ends, and whoever started it tries again
            self.process.crash(f"it could not start: {err}")

    async def _serve(self) -> None:
        if self._alone:  # the claim on the file proves that whoever led is dead
            await self.store.write(leases.end_all)
        await self._engine.start(self._hint)
        self.feed.start()
        self.store.listen(feeds.TOPIC, self._wake_admit.ring)
        await self._offer()
        self.up = True
        # Others write too when there are several: then no hint comes of what they commit.
        every = 5.0 if self._alone else 1.0
        turns = {
            "admit": (self.admit.turn, self._wake_admit, every),
            "reconcile": (self.reconcile.turn, self._wake_reconcile, 5.0),
            "meter": (self.meter.turn, loops.Bell(), CUT_MS / 1000),
        }
        await loops.lead(self.leadership, self._begin, turns, troubles=self._troubles)

    async def _begin(self) -> None:
        await self._offer()
        await self.reconcile.adopt()

    async def _offer(self) -> None:
        offers, now = await self._engine.nodes(), self.clock.now_ms()
        await self.store.write(lambda conn: node_service.record(conn, "local", offers, now))

    def _poke(self, *topics: str) -> None:
        if "reconcile" in topics:
            self._wake_reconcile.ring()

    def _hint(self, attempt_id: str) -> None:
        self.process.spawn(self._tell(attempt_id))

    async def _tell(self, attempt_id: str) -> None:
        with suppress(Exception):
            job_id = await self.store.read(lambda conn: tokens.job_of(conn, attempt_id))
            if job_id:
                self.reconcile.hint(job_id)

    # What users call

    async def submit(self, spec: JobSpec, key: str) -> str:
        nodes = await self.store.read(node_service.ready)
        framework = service.check(spec, Fitting(nodes) if nodes else None)
        digest, now = service.digest_of(spec.model_dump(mode="json")), self.clock.now_ms()
        accepted = await self.store.write(
            lambda conn: service.submit(
                conn, ADA, spec, framework, key=key, digest=digest, now_ms=now
            )
        )
        return accepted.job_id

    async def wish(self, job_id: str, what: str, at_once: bool) -> None:
        now = self.clock.now_ms()
        row = await self.store.write(
            lambda conn: service.wish(
                conn, ADA, job_id, what, reason=f"{what} by ada", now_ms=now, at_once=at_once
            )
        )
        self.reconcile.hint(row["id"])

    async def remove(self, job_id: str) -> None:
        for attempt in await self.store.read(lambda conn: removal.removable(conn, job_id)):
            await self._engine.forget(attempt)
        now = self.clock.now_ms()
        await self.store.write(lambda conn: removal.remove(conn, job_id, now))

    async def follow(self, cursor: int, got: Callable[[Any], None]) -> None:
        """Send events after `cursor` until the connection breaks."""
        async with aclosing(self.feed.follow(cursor)) as rows:
            async for row in rows:
                got(row)

    # What workers call, as worker_routes has it

    async def register(self, who: FakeWorker, seq: int) -> bool:
        body = Register(
            attempt=who.attempt, seq=seq, node=who.node, host=f"{who.node}.test", boot_id="boot",
            pid=1, members=tuple(
                MemberPorts(role=member["role"], index=member["index"], ports=(4000,))
                for member in who.launch["members"]
            ),
        )  # fmt: skip
        now = self.clock.now_ms()

        def write(conn: Connection) -> bool:
            reports.register(conn, _caller(who), body, now)
            return reports.rendezvous(conn, _caller(who), who.node, now) is not None

        whole = bool(await self._keep("register", who, write))
        self.reconcile.hint(who.job_id)
        return whole

    async def rendezvous(self, who: FakeWorker) -> bool:
        found = await self.store.read(
            lambda conn: reports.rendezvous(conn, _caller(who), who.node, self.clock.now_ms())
        )
        return found is not None

    async def started(self, who: FakeWorker, seq: int) -> None:
        body, now = Started(attempt=who.attempt, seq=seq, node=who.node), self.clock.now_ms()
        await self._keep(
            "started", who, lambda conn: reports.started(conn, _caller(who), body, (), now)
        )
        self.reconcile.hint(who.job_id)

    async def beat(self, who: FakeWorker, seq: int) -> None:
        body, now = Beat(attempt=who.attempt, seq=seq, node=who.node), self.clock.now_ms()
        if await self._keep("beat", who, lambda conn: reports.beat(conn, _caller(who), body, now)):
            self.reconcile.hint(who.job_id)

    async def orders(self, who: FakeWorker) -> list[dict[str, Any]]:
        def read(conn: Connection) -> list[dict[str, Any]]:
            found = orders.pending(conn, who.attempt_id, who.node, 0)
            if not found:
                orders.current(conn, who.attempt_id)
            return found

        return await self.store.read(read)

    async def ended(self, who: FakeWorker, seq: int, record: dict[str, Any]) -> None:
        text = json.dumps({"attempt": who.attempt, "seq": seq, "record": record})
        body, now = Ended.model_validate_json(text), self.clock.now_ms()
        await self._keep("ended", who, lambda conn: reports.ended(conn, _caller(who), body, now))
        self.reconcile.hint(who.job_id)

    async def checkpoint(self, who: FakeWorker, step: int) -> None:
        path = f"/simulated/jobs/{who.job_id}/checkpoints/step-{step:012d}-{who.attempt:06d}"
        body = CheckpointNote(attempt=who.attempt, step=step, path=path, digest="0" * 64)
        now = self.clock.now_ms()
        await self._keep(
            "checkpoint",
            who,
            lambda conn: reports.keep_checkpoint(conn, _caller(who), body, now),
        )

    async def _keep(self, kind: str, who: FakeWorker, fn: Callable[[Connection], Any]) -> Any:
        """Write a report, and in the same transaction how things stood when it was taken."""

        def write(conn: Connection) -> Any:
            result = fn(conn)
            found = self._disk.rows(
                "SELECT j.fence, a.state FROM attempts a JOIN jobs j ON j.id = a.job_id "
                "WHERE a.id = ?",
                who.attempt_id,
            )
            fence, state = (found[0]["fence"], found[0]["state"]) if found else (None, None)
            self._evidence.accepted.append(
                Accepted(kind, who.job_id, who.attempt, fence, state, self._evidence.at())
            )
            return result

        return await self.store.write(write)


def _caller(who: FakeWorker) -> Principal:
    return Principal(
        kind=CallerKind.WORKER, project_id=PROJECT_ID, job_id=who.job_id,
        attempt_id=who.attempt_id, rights=rights_of(CallerKind.WORKER),
    )  # fmt: skip


def _launch_facts(job: dict[str, Any], attempt: dict[str, Any]) -> dict[str, Any]:
    return {
        "job_id": job["id"], "job_name": job["name"], "attempt_id": attempt["id"],
        "attempt": attempt["number"],
    }  # fmt: skip
