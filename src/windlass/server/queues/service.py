"""Queues: made, changed and removed. Every function runs inside the caller's transaction.

A change takes effect with its commit: it appends an event, which the scheduler's owner hears.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from windlass.core.errors import Conflict, InvalidInput, NotFound
from windlass.core.jobs import LIVE, TERMINAL, JobState
from windlass.core.queues import DEFAULT, QueueBody, QueueView
from windlass.server import feed
from windlass.server.clock import iso
from windlass.server.jobs.tables import jobs
from windlass.server.queues.tables import queues

Row = dict[str, Any]
_FIELDS = ("policy", "paused", "description")
_NAMED = 20
"""So many names at most stand in a message."""

# Whoever adds a job to a queue holds its row until it commits, so that the queue is not removed
# meanwhile. The default one is never removed: most submits need not look.
_HOLD = (
    select(queues.c.name)
    .where(queues.c.name == bindparam("queue"))
    .with_for_update(read=True, key_share=True)
)
_IN_ORDER = (
    select(queues.c.name)
    .where(queues.c.name == bindparam("queue"))
    .with_for_update(key_share=True)  # lets submits pass
)
_ALONE = select(queues.c.name).where(queues.c.name == DEFAULT).with_for_update()


def require(conn: Connection, name: str) -> None:
    """The queue is there, and stays until this transaction ends. Raises InvalidInput."""
    if name != DEFAULT and conn.execute(_HOLD, {"queue": name}).first() is None:
        known(conn, name)


def known(conn: Connection, name: str) -> None:
    """The queue is there now: for who only reads. Raises InvalidInput."""
    known = names(conn)
    if name == DEFAULT or name in known:
        return
    listed = ", ".join(known[:_NAMED]) + (" …" if len(known) > _NAMED else "")
    near = get_close_matches(name, known, n=1)
    raise InvalidInput(
        f"queue.name: no queue {name!r}; known: {listed}",
        hint=f"did you mean {near[0]}?" if near else f"`windlass queue set {name}` makes it",
        fields=[{"field": "queue.name", "found": repr(name), "allowed": listed}],
    )


def reorder(conn: Connection, name: str) -> None:
    """Nobody else changes the order of the jobs in the queue before this transaction ends."""
    conn.execute(_IN_ORDER, {"queue": name}).all()


def names(conn: Connection) -> list[str]:
    return list(conn.scalars(select(queues.c.name).order_by(queues.c.name)))


def find(conn: Connection, name: str) -> Row:
    row = conn.execute(select(queues).where(queues.c.name == name)).mappings().first()
    if row is None:
        raise NotFound(f"no queue {name!r}", hint="`windlass queue ls` lists the queues there are")
    return dict(row)


def put(conn: Connection, name: str, body: QueueBody, *, by: str, now_ms: int) -> Row:
    """Make the queue so. Raises Conflict when it is not as the caller saw it."""
    conn.execute(_ALONE).all()  # one change at a time: two may make the same queue
    row = conn.execute(select(queues).where(queues.c.name == name)).mappings().first()
    content = {field: getattr(body, field) for field in _FIELDS}
    if row is not None and all(row[field] == content[field] for field in _FIELDS):
        return dict(row)  # it is so already: a call that is repeated changes nothing
    seen = row["revision"] if row is not None else 0
    if body.revision is not None and body.revision != seen:
        state = f"is at revision {seen}" if row is not None else "does not exist"
        raise Conflict(
            f"queue {name} has changed meanwhile: it {state}, you saw {body.revision}",
            hint="look at it again: " + f"windlass queue show {name}",
            revision=seen,
        )
    values = {**content, "revision": seen + 1, "changed_ms": now_ms}
    if row is None:
        conn.execute(insert(queues).values(name=name, **values))
        _event(conn, name, f"queue {name} made by {by}", now_ms)
    else:
        conn.execute(update(queues).where(queues.c.name == name).values(**values))
        changed = [
            _told(field, content[field]) for field in _FIELDS if row[field] != content[field]
        ]
        _event(conn, name, f"queue {name}: {', '.join(changed)}, by {by}", now_ms)
    return {"name": name, **values}


def remove(conn: Connection, name: str, *, by: str, now_ms: int) -> None:
    """Take an empty queue away. Raises NotFound, Conflict."""
    if name == DEFAULT:
        raise Conflict(
            f"the queue {DEFAULT} is where jobs go that name none: it stays",
            hint=f"`windlass queue pause {DEFAULT}` stops it",
        )
    held = conn.execute(select(queues.c.name).where(queues.c.name == name).with_for_update())
    if held.first() is None:
        find(conn, name)
    unfinished = conn.execute(
        select(func.count())
        .select_from(jobs)
        .where(jobs.c.queue == name, jobs.c.state.not_in(sorted(TERMINAL)))
    ).scalar_one()
    if unfinished:
        raise Conflict(
            f"queue {name} has {unfinished} unfinished job{'s' if unfinished != 1 else ''}",
            hint="let them end or stop them first: " + f"windlass queue show {name}",
            unfinished=int(unfinished),
        )
    conn.execute(delete(queues).where(queues.c.name == name))
    _event(conn, name, f"queue {name} removed by {by}", now_ms)


def every(conn: Connection) -> list[QueueView]:
    rows = conn.execute(select(queues).order_by(queues.c.name)).mappings()
    counts = counted(conn)
    return [view(dict(row), counts.get(row["name"], {})) for row in rows]


def one(conn: Connection, name: str) -> QueueView:
    return view(find(conn, name), counted(conn, name).get(name, {}))


def counted(conn: Connection, name: str | None = None) -> dict[str, dict[str, int]]:
    """How many unfinished jobs of each state are in each queue."""
    query = select(jobs.c.queue, jobs.c.state, func.count()).where(
        jobs.c.state.not_in(sorted(TERMINAL))
    )
    if name is not None:
        query = query.where(jobs.c.queue == name)
    found: dict[str, dict[str, int]] = {}
    for queue, state, count in conn.execute(query.group_by(jobs.c.queue, jobs.c.state)):
        found.setdefault(queue, {})[state] = int(count)
    return found


def view(row: Mapping[str, Any], counts: Mapping[str, int]) -> QueueView:
    return QueueView(
        name=row["name"], policy=row["policy"], paused=bool(row["paused"]),
        description=row["description"], revision=row["revision"],
        waiting=counts.get(JobState.QUEUED, 0) + counts.get(JobState.HELD, 0),
        running=sum(counts.get(state, 0) for state in LIVE),
        changed=iso(row["changed_ms"] or None),
    )  # fmt: skip


def _told(field: str, value: Any) -> str:
    if field == "paused":
        return "paused" if value else "resumed"
    return f"policy {value}" if field == "policy" else "description"


def _event(conn: Connection, name: str, reason: str, now_ms: int) -> None:
    feed.append(
        conn, job_id=None, project_id="", seq=0, attempt=None, kind="rules", at_ms=now_ms,
        state=None, reason=reason, data={"of": "queues", "names": [name]},
    )  # fmt: skip
