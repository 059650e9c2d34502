"""Servers with one safeguard taken out, to show that the simulation would notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Connection, select, update

from windlass.core.errors import Fenced
from windlass.core.jobs import Outcome
from windlass.engines.base import Sight
from windlass.server import leases
from windlass.server.jobs import decide as decisions
from windlass.server.jobs import moves, orders, policy, reconcile, service
from windlass.server.jobs.tables import attempts, jobs
from windlass.testing.simulated.plans import Plan, storm

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
    """Two servers; the leader is stopped again and again, long enough for the other to lead."""
    return replace(
        storm(seed, servers=2), stop_every=4.0, crash_every=None, heals_at=90.0, slow=0.2,
        away=0.0,
    )  # fmt: skip
