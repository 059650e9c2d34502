"""Engines in the database: added, removed, listed."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, delete, func, insert, select

from windlass.core.engines import LOCAL, EngineBody
from windlass.core.errors import Conflict, NotFound
from windlass.core.jobs import LIVE
from windlass.server.engines.tables import engines
from windlass.server.jobs.tables import attempts, jobs
from windlass.server.nodes import service as node_service
from windlass.server.store.hints import touch

TOPIC = "engines"
Row = dict[str, Any]


def every(conn: Connection) -> list[Row]:
    rows = conn.execute(select(engines).order_by(engines.c.name)).mappings()
    return [dict(row) for row in rows]


def find(conn: Connection, name: str) -> Row:
    row = conn.execute(select(engines).where(engines.c.name == name)).mappings().first()
    if row is None:
        names = [LOCAL, *(each["name"] for each in every(conn))]
        raise NotFound(f"no engine {name!r}", hint=f"there are: {', '.join(names)}")
    return dict(row)


def add(conn: Connection, name: str, body: EngineBody, now_ms: int) -> Row:
    """Raises Conflict when there is another of that name; the same again changes nothing."""
    values = {"kind": body.kind, "options": dict(body.options)}
    row = conn.execute(select(engines).where(engines.c.name == name)).mappings().first()
    if row is not None and (row["kind"], row["options"]) == (body.kind, values["options"]):
        return dict(row)
    if row is not None or name == LOCAL:
        raise Conflict(
            f"there is an engine {name} already",
            hint=f"choose another name, or `windlass engine rm {name}` first",
        )
    conn.execute(insert(engines).values(name=name, created_ms=now_ms, **values))
    touch(conn, TOPIC)
    return {"name": name, "created_ms": now_ms, **values}


def remove(conn: Connection, name: str, now_ms: int) -> None:
    """Raises Conflict while a job is at work there: what runs would be nobody's."""
    if name == LOCAL:
        raise Conflict("the engine local is this machine: it stays")
    find(conn, name)
    busy = conn.execute(
        select(func.count())
        .select_from(attempts.join(jobs, jobs.c.id == attempts.c.job_id))
        .where(attempts.c.engine == name, attempts.c.number == jobs.c.fence,
               jobs.c.state.in_(sorted(LIVE)))
    ).scalar_one()  # fmt: skip
    if busy:
        raise Conflict(
            f"{busy} job{'s are' if busy != 1 else ' is'} at work on engine {name}",
            hint="let them end, or stop them: windlass node ls",
        )
    conn.execute(delete(engines).where(engines.c.name == name))
    node_service.record(conn, name, (), now_ms)
    touch(conn, TOPIC)
