"""The line of a queue as it is shown: rows, with what the scheduler says of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Select, select

from windlass.core.access import Principal, Right
from windlass.core.errors import Unreadable
from windlass.core.jobs import LIVE, JobSpec, JobState
from windlass.core.queues import QueuedJob, Supply, Wants
from windlass.core.resources import Resources
from windlass.scheduler.events import Reason
from windlass.server.access.tables import projects, users
from windlass.server.clock import iso, stamp
from windlass.server.jobs.tables import jobs
from windlass.server.jobs.why import expected
from windlass.server.nodes import service as nodes
from windlass.server.queues.line import Line
from windlass.server.reading import spec_of

Row = Mapping[str, Any]
_WAITING = (JobState.QUEUED, JobState.HELD)
_PAGE = 500


def waiting(
    conn: Connection, queue: str, ids: Sequence[str] | None, limit: int
) -> list[dict[str, Any]]:
    """The rows of those who wait: in the scheduler's order (`ids`), then those it does not look
    at now (held, backing off); without it by priority and time."""
    found: list[dict[str, Any]] = []
    for at in range(0, len(ids or ()), _PAGE):
        page = (ids or ())[at : at + _PAGE]
        rows = {
            row["id"]: dict(row)
            for row in conn.execute(_rows(queue).where(jobs.c.id.in_(page))).mappings()
        }
        found += [rows[job_id] for job_id in page if job_id in rows]
        if len(found) >= limit:
            return found[:limit]
    known = set(ids or ())
    rest = conn.execute(
        _rows(queue)
        .where(jobs.c.state.in_(_WAITING))
        .order_by(
            jobs.c.state.desc(), jobs.c.priority.desc(), jobs.c.order_ms, jobs.c.number
        )  # queued before held
        .limit(limit + len(known))
    ).mappings()
    found += [dict(row) for row in rest if row["id"] not in known]
    return found[:limit]


def running(conn: Connection, queue: str, limit: int) -> list[dict[str, Any]]:
    rows = conn.execute(
        _rows(queue).where(jobs.c.state.in_(sorted(LIVE))).order_by(jobs.c.number).limit(limit)
    )
    return [dict(row) for row in rows.mappings()]


def shown(row: Row, position: int, who: Principal, line: Line, now_ms: int) -> QueuedJob:
    """One place of the line. Who may not change queues sees other projects' jobs without name."""
    mine = row["project_id"] == who.project_id or who.may(Right.QUEUE_WRITE)
    state = JobState(row["state"])
    live = state in LIVE
    try:
        spec = spec_of(row)
        reason = Reason("", row["reason"]) if live else _reason(row, spec, line, now_ms)
        wanted = wants(spec)
    except Unreadable as err:
        reason = Reason("unreadable", err.message)
        wanted = Wants(members=row["members"], gpus=row["gpus"], cpus=0, memory=0)
    promise = None if live else line.promise(row["id"])
    starts = promise.start_ms if promise is not None else reason.expected_start_ms
    since = (row["started_ms"] if live else None) or row["queued_ms"] or row["submitted_ms"]
    return QueuedJob(
        position=position,
        id=row["id"] if mine else None,
        name=row["name"] if mine else None,
        user=row["user"] if mine else None,
        project=row["project"] if mine else None,
        state=state, priority=row["priority"], work=row["kind"], wants=wanted,
        since=stamp(since), reason=reason.code,
        sentence=reason.sentence if mine else "",
        missing=dict(reason.missing), expected_start=iso(expected(starts, now_ms)),
        nodes=promise.nodes if promise is not None and mine else (),
    )  # fmt: skip


def wants(spec: JobSpec) -> Wants:
    """What a whole gang asks for."""
    roles = spec.roles.values()
    milli = sum(role.count * (role.gpus * 1000 + role.gpu_milli) for role in roles)
    return Wants(
        members=sum(role.count for role in roles),
        gpus=milli / 1000,
        cpus=sum(role.count * role.per_member.cpus_milli for role in roles) / 1000,
        memory=sum(role.count * role.memory for role in roles),
        gpu_model=tuple(sorted({model for role in roles for model in role.gpu_model})),
    )


def supply(conn: Connection, free: Mapping[str, Resources]) -> tuple[Supply, ...]:
    """What all ready nodes have, and how much of it is free."""
    there = nodes.ready(conn)
    told = [free[node.name] for node in there if node.name in free]
    found = []
    for resource, kind, unit in (
        ("gpus", "gpus", 1), ("cpus", "cpus_milli", 1000), ("memory", "memory_bytes", 1),
    ):  # fmt: skip
        total = sum(getattr(node.capacity, kind) for node in there)
        left = sum(getattr(each, kind) for each in told) if len(told) == len(there) else None
        found.append(
            Supply(
                resource=resource, total=total / unit, free=None if left is None else left / unit
            )
        )
    return tuple(found)


def _reason(row: Row, spec: JobSpec, line: Line, now_ms: int) -> Reason:
    if row["state"] == JobState.HELD:
        begins = spec.begin if spec.begin is not None and spec.begin > now_ms else None
        told = row["reason"] or "held: waits for a release"
        return Reason("held", told, expected_start_ms=begins)
    if row["not_before_ms"] > now_ms:
        seconds = (row["not_before_ms"] - now_ms) / 1000
        return Reason(
            "backing-off", f"it is tried again in {seconds:.0f} s",
            expected_start_ms=row["not_before_ms"],
        )  # fmt: skip
    return line.why(row["id"]) or Reason("", "it is about to be looked at")


def _rows(queue: str) -> Select[Any]:
    return (
        select(jobs, projects.c.name.label("project"), users.c.name.label("user"))
        .join(projects, projects.c.id == jobs.c.project_id)
        .join(users, users.c.id == jobs.c.user_id)
        .where(jobs.c.queue == queue)
    )
