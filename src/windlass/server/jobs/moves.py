"""The only writers of states: each checks the table, the row's revision, and appends the event
in the same transaction.

A caller loads the row in its own transaction (`load` locks it on PostgreSQL; on SQLite the one
writer does), decides, and moves. The row handed back is the row as it now is, so that several
moves may follow each other in one transaction.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, insert, select, update

from windlass.core.errors import Conflict, NotFound
from windlass.core.jobs import ATTEMPTS, JOBS, AttemptState, JobState
from windlass.server import feed
from windlass.server.jobs.tables import attempts, jobs, workers

Row = dict[str, Any]


def load(conn: Connection, job_id: str) -> Row:
    """The job's row, locked until the transaction ends."""
    row = (
        conn.execute(select(jobs).where(jobs.c.id == job_id).with_for_update()).mappings().first()
    )
    if row is None:
        raise NotFound(f"no job {job_id}")
    return dict(row)


def load_attempt(conn: Connection, job_id: str, number: int) -> Row | None:
    row = (
        conn.execute(
            select(attempts).where(attempts.c.job_id == job_id, attempts.c.number == number)
        )
        .mappings()
        .first()
    )
    return None if row is None else dict(row)


def create(conn: Connection, columns: Row, *, now_ms: int, reason: str) -> Row:
    """A new job with its first event."""
    row = {**columns, "revision": 1, "submitted_ms": now_ms, "reason": reason}
    if row["state"] == JobState.QUEUED:
        row["queued_ms"] = now_ms
    result = conn.execute(insert(jobs).values(**row))
    primary = result.inserted_primary_key
    row["number"] = primary[0] if primary else None
    _append(conn, row, "submitted", now_ms, reason, {"to": row["state"]})
    return row


def move(
    conn: Connection,
    job: Row,
    to: JobState,
    *,
    owner: str,
    reason: str,
    now_ms: int,
    data: Row | None = None,
    **columns: Any,
) -> Row:
    """Take a job to another state. Raises UnlawfulMove, or Conflict if the row has moved on."""
    old = JobState(job["state"])
    JOBS.check(old, to, owner)
    if to is JobState.QUEUED:
        columns.setdefault("queued_ms", now_ms)
    if JOBS.terminal(to):
        columns.setdefault("ended_ms", now_ms)
        columns.setdefault("wish", None)
    job = _update(conn, job, state=to.value, reason=reason, **columns)
    _append(
        conn, job, "moved", now_ms, reason, {"from": old.value, "to": to.value, **(data or {})}
    )
    return job


def note(
    conn: Connection,
    job: Row,
    kind: str,
    *,
    reason: str,
    now_ms: int,
    data: Row | None = None,
    **columns: Any,
) -> Row:
    """Something happened to a job that is no change of its state."""
    assert "state" not in columns, "states are changed by move()"
    job = _update(conn, job, **columns)
    _append(conn, job, kind, now_ms, reason, data)
    return job


def start_attempt(
    conn: Connection, job: Row, attempt: Row, *, reason: str, now_ms: int
) -> tuple[Row, Row]:
    """queued → starting with the job's next attempt: raises the fence, so that every report of
    an older attempt is refused from here on."""
    number = job["fence"] + 1
    nodes = sorted({placed["node"] for placed in attempt["placement"]})
    attempt = {
        **attempt,
        "job_id": job["id"],
        "number": number,
        "state": AttemptState.LAUNCHING.value,
        "reason": "",
        "created_ms": now_ms,
    }
    conn.execute(insert(attempts).values(**attempt))
    conn.execute(insert(workers), [{"attempt_id": attempt["id"], "node": node} for node in nodes])
    job = move(
        conn,
        job,
        JobState.STARTING,
        owner="admit",
        reason=reason,
        now_ms=now_ms,
        data={"attempt": number, "nodes": nodes},
        fence=number,
        engine=attempt["engine"],
    )
    return job, attempt


def move_attempt(
    conn: Connection,
    job: Row,
    attempt: Row,
    to: AttemptState,
    *,
    reason: str,
    now_ms: int,
    **columns: Any,
) -> tuple[Row, Row]:
    """Take an attempt to another state; only reconcile does."""
    old = AttemptState(attempt["state"])
    ATTEMPTS.check(old, to, "reconcile")
    stamp = {"alive": "alive_ms", "ending": "ending_ms", "over": "over_ms"}[to.value]
    columns = {stamp: now_ms, **columns, "state": to.value, "reason": reason}
    done = conn.execute(
        update(attempts)
        .where(attempts.c.id == attempt["id"], attempts.c.state == old.value)
        .values(**columns)
    )
    if done.rowcount != 1:
        raise Conflict(f"attempt {attempt['number']} of job {job['id']} has moved on")
    job = _update(conn, job)
    data = {"from": old.value, "to": to.value}
    if columns.get("outcome"):
        data["outcome"] = columns["outcome"]
    _append(conn, job, "attempt", now_ms, reason, data)
    return job, {**attempt, **columns}


def _update(conn: Connection, job: Row, **columns: Any) -> Row:
    columns["revision"] = job["revision"] + 1
    done = conn.execute(
        update(jobs)
        .where(jobs.c.id == job["id"], jobs.c.revision == job["revision"])
        .values(**columns)
    )
    if done.rowcount != 1:
        raise Conflict(f"job {job['id']} has changed meanwhile: look at it again")
    return {**job, **columns}


def _append(
    conn: Connection, job: Row, kind: str, now_ms: int, reason: str, data: Row | None
) -> None:
    feed.append(
        conn,
        job_id=job["id"],
        project_id=job["project_id"],
        seq=job["revision"],
        attempt=job.get("fence") or None,
        kind=kind,
        at_ms=now_ms,
        state=str(job["state"]),
        reason=reason,
        data=data or {},
    )
