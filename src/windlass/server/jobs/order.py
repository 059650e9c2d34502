"""Where a waiting job stands: its priority, and its place among those of the same priority.

Jobs of a queue stand by (priority, higher first; `order_ms`; number). A job that is put before
another takes that one's priority and a time that lies between its new neighbours. Where there
is none (two jobs of one millisecond), those ahead of it are moved a millisecond back, as many as
it takes. Each job that moves has its event, so that the scheduler hears of it.

Under the fair order the shares of the projects come first: there this is the order of the jobs
of one project.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Select, select

from windlass.core.access import Principal
from windlass.core.errors import Conflict, InvalidInput
from windlass.core.jobs import TERMINAL, JobState
from windlass.core.queues import MoveBody
from windlass.server.jobs import moves, service
from windlass.server.jobs.tables import jobs
from windlass.server.queues import service as queues

Row = dict[str, Any]
WAITING = (JobState.QUEUED, JobState.HELD)
_PAGE = 100


def prioritise(conn: Connection, who: Principal, ref: str, priority: int, *, now_ms: int) -> Row:
    """Another priority for an unfinished job; what runs keeps what it holds. Raises Conflict."""
    found = service.find_to_change(conn, who, ref)
    job = moves.load(conn, found["id"])
    if JobState(job["state"]) in TERMINAL:
        raise Conflict(
            f"job {job['name']} is {job['state']}",
            hint=f"`windlass rerun {job['name']} --priority {priority}` makes a new one",
        )
    if job["priority"] == priority:
        return found
    reason = f"priority {job['priority']} → {priority}, by {who.user_name}"
    return {**found, **_requeue(conn, job, reason, now_ms, priority=priority)}


def place(conn: Connection, who: Principal, ref: str, to: MoveBody, *, now_ms: int) -> Row:
    """Another place for a waiting job. Raises InvalidInput, Conflict."""
    if (to.before is not None) + to.first + to.last != 1:
        raise InvalidInput("a job moves before another, first, or last: say exactly one of them")
    found = service.find(conn, who, ref)
    queues.reorder(conn, found["queue"])
    job = _waiting(conn, found["id"])
    if to.before is not None:
        mark = _waiting(conn, service.find(conn, who, to.before)["id"])
        if mark["id"] == job["id"]:
            return found
        if mark["queue"] != job["queue"]:
            raise Conflict(
                f"job {mark['name']} waits in queue {mark['queue']}, "
                f"job {job['name']} in {job['queue']}",
            )
        before: Row | None = mark
    else:
        end = _end(conn, job, last=to.last)
        if end is None:
            return found  # it is alone
        before, mark = (None if to.last else end), end
    where = "last" if to.last else "first" if to.first else f"before {mark['name']}"
    reason = f"moved {where} in queue {job['queue']}, by {who.user_name}"
    if before is None:
        if _place(mark) < _place(job):
            return found
        order = mark["order_ms"] + (mark["number"] > job["number"])
    else:
        if _next(conn, job) == before["id"]:
            return found
        order = _room(conn, job, before, reason, now_ms)
    job = _requeue(conn, job, reason, now_ms, priority=mark["priority"], order_ms=order)
    return {**found, **job}


def _room(conn: Connection, job: Row, before: Row, reason: str, now_ms: int) -> int:
    """The `order_ms` that puts `job` directly before another, room having been made."""
    order: int = before["order_ms"] - (job["number"] > before["number"])
    mine = (order, int(job["number"]))
    shifted: list[tuple[Row, int]] = []
    for ahead in _ahead(conn, before, job["id"]):
        if (ahead["order_ms"], ahead["number"]) < mine:
            break
        back = mine[0] - (ahead["number"] > mine[1])
        shifted.append((ahead, back))
        mine = (back, ahead["number"])
    for ahead, back in shifted:
        row = moves.load(conn, ahead["id"])
        if JobState(row["state"]) in WAITING:
            _requeue(conn, row, f"made room: {reason}", now_ms, order_ms=back)
    return order


def _ahead(conn: Connection, of: Row, but: str) -> list[Row]:
    """Those directly ahead, nearest first: all whose time leaves no room, and one more page."""
    found: list[Row] = []
    bound = (of["order_ms"], of["number"])
    while True:
        page = [
            dict(row)
            for row in conn.execute(
                _line(of)
                .where(
                    jobs.c.priority == of["priority"],
                    jobs.c.id != but,
                    (jobs.c.order_ms < bound[0])
                    | ((jobs.c.order_ms == bound[0]) & (jobs.c.number < bound[1])),
                )
                .order_by(jobs.c.order_ms.desc(), jobs.c.number.desc())
                .limit(_PAGE)
            ).mappings()
        ]
        found += page
        # Whoever is shifted is shifted by less than there are jobs between.
        if len(page) < _PAGE or of["order_ms"] - page[-1]["order_ms"] > len(found) + 1:
            return found
        bound = (page[-1]["order_ms"], page[-1]["number"])


def _next(conn: Connection, job: Row) -> str | None:
    """Who stands directly behind a job."""
    behind = (jobs.c.priority < job["priority"]) | (
        (jobs.c.priority == job["priority"])
        & (
            (jobs.c.order_ms > job["order_ms"])
            | ((jobs.c.order_ms == job["order_ms"]) & (jobs.c.number > job["number"]))
        )
    )
    return conn.execute(
        select(jobs.c.id)
        .where(jobs.c.queue == job["queue"], jobs.c.state.in_(WAITING), behind)
        .order_by(jobs.c.priority.desc(), jobs.c.order_ms, jobs.c.number)
        .limit(1)
    ).scalar()


def _end(conn: Connection, job: Row, *, last: bool) -> Row | None:
    """The first, or the last, of a job's queue other than itself."""
    query = _line(job).where(jobs.c.id != job["id"]).limit(1)
    if last:
        query = query.order_by(jobs.c.priority, jobs.c.order_ms.desc(), jobs.c.number.desc())
    else:
        query = query.order_by(jobs.c.priority.desc(), jobs.c.order_ms, jobs.c.number)
    found = conn.execute(query).mappings().first()
    return None if found is None else dict(found)


def _line(job: Row) -> Select[Any]:
    return select(
        jobs.c.id, jobs.c.name, jobs.c.number, jobs.c.queue, jobs.c.priority, jobs.c.order_ms
    ).where(jobs.c.queue == job["queue"], jobs.c.state.in_(WAITING))


def _place(row: Row) -> tuple[int, int, int]:
    return -row["priority"], row["order_ms"], row["number"]


def _waiting(conn: Connection, job_id: str) -> Row:
    job = moves.load(conn, job_id)
    if JobState(job["state"]) not in WAITING:
        raise Conflict(f"job {job['name']} is {job['state']}: only a waiting job has a place")
    return job


def _requeue(conn: Connection, job: Row, reason: str, now_ms: int, **columns: int) -> Row:
    return moves.note(
        conn, job, "requeued", reason=reason, now_ms=now_ms, data=dict(columns), **columns
    )
