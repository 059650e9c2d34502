"""What becomes of held and queued jobs, in one transaction each or many together.

Only admit calls these, after it has checked that it leads. Each looks at the rows as they now are:
a wish that was carried out already, or a job that is released already, is left as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from windlass.core.errors import NotFound, Unreadable
from windlass.core.jobs import LIVE, JobState
from windlass.server.jobs import dependencies, moves
from windlass.server.reading import spec_of

Row = dict[str, Any]
WAITING = frozenset({JobState.HELD, JobState.QUEUED})


def carry_out(
    conn: Connection, ids: Sequence[str], now_ms: int, ttl_ms: int
) -> dict[str, Row | None]:
    """The wishes on these jobs. Each job's row as it then is; None: it waits no longer, or is
    gone, and what is so will be heard."""
    done: dict[str, Row | None] = {}
    for job_id in ids:
        try:
            done[job_id] = _carry_out(conn, moves.load(conn, job_id), now_ms, ttl_ms)
        except NotFound:
            done[job_id] = None
    return done


def _carry_out(conn: Connection, job: Row, now_ms: int, ttl_ms: int) -> Row | None:
    state, wish = JobState(job["state"]), job["wish"]
    if state not in WAITING or not wish:
        return job if state not in LIVE else None
    reason = job["wish_reason"] or ""
    done: Row = {"wish": None, "wish_reason": None, "wish_now": 0, "wish_for": None}
    if wish == "cancel":
        return _cancel(conn, job, reason, now_ms, ttl_ms, **done)
    if wish == "hold" and state is JobState.QUEUED:
        return moves.move(
            conn, job, JobState.HELD, owner="admit", reason=reason, now_ms=now_ms, **done
        )
    if wish == "release" and state is JobState.HELD:
        dependencies.forget(conn, job["id"])
        return moves.move(
            conn, job, JobState.QUEUED, owner="admit", reason=reason or "released", now_ms=now_ms,
            lost_nodes=[], stale_restarts=0, not_before_ms=0, **done,
        )  # fmt: skip
    if wish == "release":  # a backoff is cut short
        done["not_before_ms"] = 0
    return moves.note(
        conn, job, "note", reason=f"{wish}: nothing to do while {state}", now_ms=now_ms, **done
    )


def release(conn: Connection, job_id: str, reason: str, now_ms: int, ttl_ms: int = 0) -> None:
    """Let a job queue that was held for a time or for others, once both have come."""
    job = moves.load(conn, job_id)
    if (
        job["state"] == JobState.HELD
        and not job["spec"].get("hold")
        and begin(job) <= now_ms
        and not dependencies.open_of(conn, job_id)
    ):
        moves.move(
            conn, job, JobState.QUEUED, owner="admit", reason=reason, now_ms=now_ms,
            not_before_ms=0,
        )  # fmt: skip


def meet(conn: Connection, over: Sequence[dependencies.Over], now_ms: int, ttl_ms: int) -> None:
    """Those that some jobs waited for are over: the jobs queue, or can never start."""
    for each in over:
        try:
            if each.state == JobState.SUCCEEDED:
                dependencies.met(conn, each)
                release(conn, each.job_id, "all that it waited for succeeded", now_ms)
                continue
            job = moves.load(conn, each.job_id)
        except NotFound:
            continue
        if job["state"] == JobState.HELD:
            word = "gone" if each.state is None else each.state
            reason = f"job {each.name}, which it waited for, is {word}"
            _cancel(conn, job, reason, now_ms, ttl_ms)


def _cancel(
    conn: Connection, job: Row, reason: str, now_ms: int, ttl_ms: int, **columns: Any
) -> Row:
    return moves.move(
        conn, job, JobState.CANCELLED, owner="admit", reason=reason, now_ms=now_ms,
        outcome="cancelled", expires_ms=expiry(job, now_ms, ttl_ms), **columns,
    )  # fmt: skip


def set_aside(conn: Connection, job_id: str, reason: str, now_ms: int, ttl_ms: int) -> None:
    """One that cannot be read can never start. What it was told is carried out first: one that
    was stopped is stopped."""
    job = moves.load(conn, job_id)
    if job["state"] not in WAITING:
        return
    if job["wish"] == "cancel":
        _carry_out(conn, job, now_ms, ttl_ms)
        return
    moves.move(
        conn, job, JobState.FAILED, owner="admit", reason=reason, now_ms=now_ms,
        expires_ms=expiry(job, now_ms, ttl_ms), wish_reason=None,
    )  # fmt: skip


def expiry(job: Mapping[str, Any], now_ms: int, ttl_ms: int) -> int:
    """When a job that ends now may be removed: its own `ttl`, or the server's."""
    try:
        own = spec_of(job).ttl if job["spec"].get("ttl") is not None else None
    except (Unreadable, AttributeError):
        own = None
    return now_ms + (ttl_ms if own is None else own)


def begin(row: Mapping[str, Any]) -> int:
    """When it may be started; 0: at any time."""
    if row["spec"].get("begin") is None:
        return 0
    return spec_of(row).begin or 0
