"""The only writers of states: each checks the table, the row's revision, and appends the event
in the same transaction.

A caller loads the row in its own transaction (`load` locks it on PostgreSQL; on SQLite the one
writer does), decides, and moves. The row handed back is the row as it now is, so that several
moves may follow each other in one transaction.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update

from windlass.core.errors import Conflict, NotFound
from windlass.core.explain import one_line
from windlass.core.jobs import ATTEMPTS, JOBS, AttemptState, JobState
from windlass.server import feed
from windlass.server.jobs.tables import attempts, jobs, workers
from windlass.server.store.prepared import Prepared
from windlass.server.usage import ledger
from windlass.server.usage.metering import Places

Row = dict[str, Any]

# Made once and given their values when run: a statement built around its values costs more to
# build, and to find among the compiled ones, than to run.
_INSERT_ATTEMPT = insert(attempts)
_INSERT_WORKER = insert(workers)
_LOAD_JOB = select(jobs).where(jobs.c.id == bindparam("job")).with_for_update()
_LOAD_ATTEMPT = select(attempts).where(
    attempts.c.job_id == bindparam("job"), attempts.c.number == bindparam("of")
)
_UPDATE_JOB = update(jobs).where(
    jobs.c.id == bindparam("row"), jobs.c.revision == bindparam("expected")
)
_UPDATE_ATTEMPT = update(attempts).where(
    attempts.c.id == bindparam("row"), attempts.c.state == bindparam("expected")
)


_LACKED = 20
"""As far as it is worth counting: by then a pause is at its longest."""
_CREATE = Prepared(insert(jobs).inline())


def load(conn: Connection, job_id: str) -> Row:
    """The job's row, locked until the transaction ends."""
    row = conn.execute(_LOAD_JOB, {"job": job_id}).mappings().first()
    if row is None:
        raise NotFound(f"no job {job_id}")
    return dict(row)


def load_attempt(conn: Connection, job_id: str, number: int) -> Row | None:
    row = conn.execute(_LOAD_ATTEMPT, {"job": job_id, "of": number}).mappings().first()
    return None if row is None else dict(row)


def created(columns: Row, now_ms: int, reason: str) -> Row:
    """A new job's row as `create` will write it."""
    queued_ms = now_ms if columns["state"] == JobState.QUEUED else None
    return {
        **columns, "revision": 1, "submitted_ms": now_ms, "queued_ms": queued_ms, "reason": reason,
    }  # fmt: skip


def create(conn: Connection, row: Row) -> None:
    """A new job with its first event."""
    _CREATE.run(conn, row)
    _append(conn, row, "submitted", row["submitted_ms"], row["reason"], {"to": row["state"]})


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
    reason = one_line(reason)
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
    reason = one_line(reason)
    job = _update(conn, job, **columns)
    _append(conn, job, kind, now_ms, reason, data)
    return job


def start_attempt(
    conn: Connection, job: Row, attempt: Row, *, reason: str, now_ms: int, places: Places
) -> tuple[Row, Row]:
    """queued → starting with the job's next attempt: raises the fence, so that every report of
    an older attempt is refused from here on. From now on the ledger counts."""
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
    conn.execute(_INSERT_ATTEMPT, attempt)
    conn.execute(_INSERT_WORKER, [{"attempt_id": attempt["id"], "node": node} for node in nodes])
    ledger.open_(conn, job, attempt, places, now_ms)
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


def lacked(conn: Connection, attempt: Row) -> int:
    """How many attempts right before this one were not started because a node had no room."""
    query = (
        select(attempts.c.failure)
        .where(attempts.c.job_id == attempt["job_id"], attempts.c.number < attempt["number"])
        .order_by(attempts.c.number.desc())
        .limit(_LACKED)
    )
    count = 0
    for failure in conn.execute(query).scalars():
        if not (failure or {}).get("need"):
            break
        count += 1
    return count


def move_attempt(
    conn: Connection,
    job: Row,
    attempt: Row,
    to: AttemptState,
    *,
    reason: str,
    now_ms: int,
    data: Row | None = None,
    **columns: Any,
) -> tuple[Row, Row]:
    """Take an attempt to another state; only reconcile does."""
    reason = one_line(reason)
    old = AttemptState(attempt["state"])
    ATTEMPTS.check(old, to, "reconcile")
    stamp = {"alive": "alive_ms", "ending": "ending_ms", "over": "over_ms"}[to.value]
    columns = {stamp: now_ms, **columns, "state": to.value, "reason": reason}
    done = conn.execute(_UPDATE_ATTEMPT, {**columns, "row": attempt["id"], "expected": old.value})
    if done.rowcount != 1:
        raise Conflict(f"attempt {attempt['number']} of job {job['id']} has moved on")
    if to is AttemptState.OVER:
        ledger.close(conn, job, attempt, columns.get("outcome"), now_ms)
    job = _update(conn, job)
    data = {"from": old.value, "to": to.value, **(data or {})}
    if columns.get("outcome"):
        data["outcome"] = columns["outcome"]
    _append(conn, job, "attempt", now_ms, reason, data)
    return job, {**attempt, **columns}


def _update(conn: Connection, job: Row, **columns: Any) -> Row:
    columns["revision"] = job["revision"] + 1
    done = conn.execute(_UPDATE_JOB, {**columns, "row": job["id"], "expected": job["revision"]})
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
