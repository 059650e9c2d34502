"""A workload admitted by the server's own code, on a virtual clock: the store, the transaction of
a submit, `Admit` with its core, and the moves that reconcile makes. Only the engine is a fake one,
and nobody speaks HTTP.

    instant   1  one write: ends and evictions of this instant, and all submits of it
              2  turns of `Admit` until it has nothing more to do
              3  one write: what it started runs, what it wished to preempt stops
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, insert

from windlass.core.access import CallerKind, OrgRole, Principal, ProjectRole, rights_in
from windlass.core.jobs import AttemptState, JobSpec, JobState
from windlass.core.resources import Node, Resources
from windlass.scheduler.events import Rules
from windlass.scheduler.simulate.workload import Job, Workload
from windlass.server import loops
from windlass.server.access import tables as access
from windlass.server.jobs import moves, service
from windlass.server.jobs.admit import Admit
from windlass.server.nodes import service as node_service
from windlass.server.quotas.tables import quotas
from windlass.server.store.metadata import metadata
from windlass.server.store.sqlite import SqliteStore

USER = "u" * 32
DAY_MS = 86_400_000
LEASE_MS = 10 * DAY_MS
"""The clock of leases is the real one: this one is not to be renewed while we measure."""


@dataclass(slots=True)
class Admitted:
    """What came of it."""

    wall_s: float
    cpu_s: float
    virtual_s: float
    ended: int
    preemptions: int


class Clock:
    def __init__(self) -> None:
        self.ms = DAY_MS  # nothing starts at the epoch: 0 means never in some columns

    def now_ms(self) -> int:
        return self.ms


def admit(workload: Workload, path: Path) -> Admitted:
    """All jobs of a workload, from their submits to their ends."""
    return asyncio.run(_Run(workload).run(path))


class _Run:
    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._clock = Clock()
        self._numbers = itertools.count(1)
        self._touched: list[str] = []
        self._heap: list[tuple[int, int, str, str, int]] = []
        """(time, order, what, job, its fence)"""
        self._job: dict[str, Job] = {}
        self._left: dict[str, int] = {}
        """What remains to be run of a job that was preempted."""
        self._since: dict[str, int] = {}
        self.preemptions = self.ended = 0

    async def run(self, path: Path) -> Admitted:
        store = await SqliteStore.open(path)
        try:
            who = await store.write(self._prepare)
            leadership = loops.Leadership(store, "benchmark", lease_ms=LEASE_MS)
            await leadership.gain()
            base = Rules(
                min_run_ms=self._workload.rules.min_run_ms, order=self._workload.rules.order
            )
            admit = Admit(
                store, self._clock, guard=leadership.guard, new_attempt=self._new_attempt,
                started=self._touched.append, ttl_ms=30 * DAY_MS, base=base,
            )  # fmt: skip
            await admit.turn()
            began, cpu = time.perf_counter(), time.process_time()
            await self._loop(store, admit, who)
            wall, cpu = time.perf_counter() - began, time.process_time() - cpu
        finally:
            await store.close()
        virtual = (self._clock.ms - DAY_MS - self._workload.jobs[0].submit_ms) / 1000
        return Admitted(wall, cpu, virtual, self.ended, self.preemptions)

    async def _loop(self, store: SqliteStore, admit: Admit, who: dict[str, Principal]) -> None:
        arrivals = self._arrivals()
        batch = next(arrivals, None)
        while batch is not None or self._heap:
            due = [self._heap[0][0]] if self._heap else []
            if batch is not None:
                due.append(batch[0])
            self._clock.ms = now = min(due)
            happened = []
            while self._heap and self._heap[0][0] <= now:
                happened.append(heappop(self._heap)[2:])
            come: list[Job] = []
            if batch is not None and batch[0] <= now:
                come, batch = batch[1], next(arrivals, None)

            def happen(
                conn: Connection, happened: Any = happened, come: Any = come, now: int = now
            ) -> None:
                for what, job_id, fence in happened:
                    self._over(conn, what, job_id, fence, now)
                for job in come:
                    self._submit(conn, who[job.tenant], job, now)

            await store.write(happen)
            await admit.turn()
            while self._touched:
                ids = list(dict.fromkeys(self._touched))
                self._touched.clear()
                await store.write(lambda conn, ids=ids: self._follow(conn, ids))  # type: ignore[misc]
                await admit.turn()

    def _arrivals(self) -> Iterator[tuple[int, list[Job]]]:
        for submit_ms, jobs in itertools.groupby(self._workload.jobs, lambda job: job.submit_ms):
            yield DAY_MS + submit_ms, list(jobs)

    # What a server's other parts would write

    def _submit(self, conn: Connection, who: Principal, job: Job, now: int) -> None:
        need = job.needs[0]
        role = {"count": job.workers, "cpus": need.cpus_milli / 1000}
        spec: dict[str, Any] = {
            "name": f"w{next(self._numbers)}", "run": ["true"], "roles": {"worker": role},
            "queue": {"priority": job.priority}, "project": who.project_name,
        }  # fmt: skip
        if job.level:
            spec["placement"] = {"level": job.level, "required": job.required}
        accepted = service.submit(
            conn, who, JobSpec.model_validate(spec), "script", key=None, digest="", now_ms=now
        )
        self._job[accepted.job_id] = job
        self._left[accepted.job_id] = job.duration_ms

    def _follow(self, conn: Connection, ids: list[str]) -> None:
        """What was started runs at once; what is to be preempted stops."""
        now = self._clock.ms
        for job_id in ids:
            job = moves.load(conn, job_id)
            fence = int(job["fence"])
            if job["state"] == JobState.STARTING:
                attempt = moves.load_attempt(conn, job_id, fence)
                assert attempt is not None
                job, _ = moves.move_attempt(
                    conn, job, attempt, AttemptState.ALIVE, reason="registered", now_ms=now
                )
                job = moves.move(
                    conn, job, JobState.RUNNING, owner="reconcile", reason="running", now_ms=now,
                    **({} if job["started_ms"] else {"started_ms": now}),
                )  # fmt: skip
                self._since[job_id] = now
                self._put(now + self._left[job_id], "end", job_id, fence)
            if job["wish"] == "preempt" and job["state"] == JobState.RUNNING:
                moves.move(
                    conn, job, JobState.STOPPING, owner="reconcile", reason="preempted", now_ms=now
                )
                self._left[job_id] = max(1, self._left[job_id] - (now - self._since[job_id]))
                self.preemptions += 1
                self._put(now + self._workload.grace_ms, "gone", job_id, fence)

    def _over(self, conn: Connection, what: str, job_id: str, fence: int, now: int) -> None:
        job = moves.load(conn, job_id)
        stopping = what == "gone"
        if job["fence"] != fence or job["state"] != (
            JobState.STOPPING if stopping else JobState.RUNNING
        ):
            return  # it was preempted before its end
        attempt = moves.load_attempt(conn, job_id, fence)
        assert attempt is not None
        outcome = "preempted" if stopping else "succeeded"
        job, _ = moves.move_attempt(
            conn, job, attempt, AttemptState.OVER, reason=outcome, now_ms=now, outcome=outcome
        )
        moves.move(
            conn, job, JobState.QUEUED if stopping else JobState.SUCCEEDED, owner="reconcile",
            reason=outcome, now_ms=now, wish=None, wish_reason=None, wish_for=None,
        )  # fmt: skip
        self.ended += not stopping

    def _put(self, when: int, what: str, job_id: str, fence: int) -> None:
        heappush(self._heap, (when, next(self._numbers), what, job_id, fence))

    def _new_attempt(self) -> dict[str, Any]:
        name = f"{next(self._numbers):032x}"
        return {
            "id": name, "worker_hash": "w" + name, "run_hash": "r" + name, "tokens": b"\0" * 96,
            "kek": "k",
        }  # fmt: skip

    def _prepare(self, conn: Connection) -> dict[str, Principal]:
        metadata.create_all(conn)
        conn.execute(insert(access.users), [{"id": USER, "name": "u", "created_ms": 0}])
        tenants = list(dict.fromkeys(job.tenant for job in self._workload.jobs))
        found = {}
        for at, tenant in enumerate(tenants):
            row = {"id": f"{at:032x}", "name": tenant, "created_ms": 0}
            conn.execute(insert(access.projects), [row])
            found[tenant] = Principal(
                kind=CallerKind.USER, project_id=row["id"], user_id=USER, user_name="u",
                project_name=tenant, rights=rights_in(OrgRole.OWNER, ProjectRole.MAINTAINER),
            )  # fmt: skip
        conn.execute(
            insert(quotas),
            [
                {
                    "name": each.name, "cohort": not each.nominal, "parent": each.parent or None,
                    "nominal": dict(each.nominal), "borrow": dict(each.borrow),
                    "lend": dict(each.lend), "weight_milli": each.weight_milli,
                    "reclaim_any": each.reclaim_any, "caps": [], "revision": 1, "changed_ms": 0,
                }
                for each in self._workload.rules.quotas
            ],
        )  # fmt: skip
        nodes = [
            Node(
                name=offer.name, engine="fake", rack=offer.rack, block=offer.block, boot_id="b",
                capacity=Resources(
                    cpus_milli=offer.cpus_milli, memory_bytes=offer.memory_bytes, slots=1 << 30
                ),
            )
            for offer in self._workload.offers
        ]  # fmt: skip
        node_service.record(conn, "fake", nodes, self._clock.ms)
        return found
