"""Servers with one safeguard taken out, to show that the simulation would notice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection, select, update

from windlass.core.errors import Fenced
from windlass.core.jobs import JobSpec, Outcome
from windlass.core.resources import Resources
from windlass.engines.base import Sight
from windlass.server import leases
from windlass.server.jobs import decide as decisions
from windlass.server.jobs import moves, orders, policy, reconcile, service
from windlass.server.jobs.tables import attempts, jobs
from windlass.testing.simulated.cluster import Fate
from windlass.testing.simulated.plans import JobPlan, Plan

Mutate = Callable[[pytest.MonkeyPatch], None]


def no_fence(patch: pytest.MonkeyPatch) -> None:
    """Reports of any attempt are taken."""

    def current(conn: Connection, attempt_id: str) -> tuple[dict[str, Any], dict[str, Any]]:
        found = conn.execute(select(attempts).where(attempts.c.id == attempt_id)).mappings()
        attempt = found.first()
        if attempt is None:
            raise Fenced("removed")
        job = conn.execute(select(jobs).where(jobs.c.id == attempt["job_id"])).mappings().one()
        return dict(job), dict(attempt)

    patch.setattr(orders, "current", current)


def stale_rows(patch: pytest.MonkeyPatch) -> None:
    """Rows come from before the transaction, as without a lock: not yet a fault, since the
    revision is compared."""
    seen: dict[str, dict[str, Any]] = {}
    true_load = moves.load

    def load(conn: Connection, job_id: str) -> dict[str, Any]:
        now = true_load(conn, job_id)
        before = seen.get(job_id, now)
        seen[job_id] = now
        return before

    patch.setattr(moves, "load", load)


def no_revision(patch: pytest.MonkeyPatch) -> None:
    """Stale rows are written back over newer ones."""
    stale_rows(patch)

    def write(conn: Connection, job: dict[str, Any], **columns: Any) -> dict[str, Any]:
        newest = select(jobs.c.revision).where(jobs.c.id == job["id"])
        columns["revision"] = int(conn.execute(newest).scalar_one()) + 1
        conn.execute(update(jobs).where(jobs.c.id == job["id"]).values(**columns))
        return {**job, **columns}

    patch.setattr(moves, "_update", write)


def no_proof(patch: pytest.MonkeyPatch) -> None:
    """A dead worker is taken for the end of its ranks."""

    def decide(now: decisions.Situation, now_ms: int) -> list[decisions.Step]:
        if any(seen.sight is Sight.DEAD for seen in now.seen.values()):
            return [decisions.Over(policy.Verdict(Outcome.LOST, "its worker is dead"))]
        return decisions.decide(now, now_ms)

    patch.setattr(reconcile, "decide", decide)


def no_lookup(patch: pytest.MonkeyPatch) -> None:
    """A key that was used is not looked up."""
    patch.setattr(service, "replayed", lambda *_: None)


def no_key(patch: pytest.MonkeyPatch) -> None:
    """A key is neither looked up nor kept."""
    submit = service.submit
    patch.setattr(
        service, "submit", lambda *rest, **options: submit(*rest, **{**options, "key": None})
    )


def no_epoch(patch: pytest.MonkeyPatch) -> None:
    """Who led once writes as if it still did."""
    patch.setattr(leases, "check", lambda *_: None)


def two_leaders(seed: int) -> Plan:
    """Two servers, and a leader that is stopped again and again, long enough for the other to
    lead; jobs that come and go all the time on one node that holds one of them. What a leader
    had decided when it was stopped is wrong when it wakes up."""
    spec = {
        "run": ["true"], "roles": {"worker": {"gpus": 1}}, "limits": {"grace": "1s"},
        "retry": {
            "times": 8, "on": ["failed", "lost"], "backoff": "200ms", "backoff_cap": "1s",
            "stale_restarts": 99,
        },
    }  # fmt: skip
    jobs = tuple(
        JobPlan(f"job-{index}", JobSpec.model_validate({"name": f"job-{index}", **spec}), index)
        for index in range(5)
    )
    return Plan(
        name="two_leaders", seed=seed, nodes={"n1": Resources(gpus=1, slots=2)}, jobs=jobs,
        fate=lambda launch: Fate(boot=0.1, run=1.0, exit=int(launch["attempt"] < 6)),
        servers=2, slow=0.4, stop_every=2.0, heals_at=90.0,
    )  # fmt: skip
