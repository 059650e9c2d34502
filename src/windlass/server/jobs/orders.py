"""What workers are told and what they report: rows of one attempt, guarded by its fence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, insert, select, update

from windlass.core.errors import Fenced, NotFound, Unreadable
from windlass.core.jobs import AttemptState
from windlass.server.jobs.tables import attempts, jobs, orders, workers
from windlass.server.reading import or_else, record_of
from windlass.server.usage import used

Row = dict[str, Any]


def current(conn: Connection, attempt_id: str) -> tuple[Row, Row]:
    """(job, attempt) if the attempt is alive and the newest of its job; Fenced otherwise."""
    attempt = conn.execute(select(attempts).where(attempts.c.id == attempt_id)).mappings().first()
    if attempt is None:
        raise Fenced("this attempt is not known here any more")
    job = conn.execute(select(jobs).where(jobs.c.id == attempt["job_id"])).mappings().one()
    if attempt["state"] == AttemptState.OVER or attempt["number"] != job["fence"]:
        raise Fenced(
            f"attempt {attempt['number']} of job {job['name']} is over: "
            f"the newest is {job['fence']}"
        )
    return dict(job), dict(attempt)


def report(
    conn: Connection, attempt_id: str, node: str, seq: int, columns: Mapping[str, Any]
) -> bool:
    """Keep what a worker reports, unless it is a repeat or older than what is known."""
    done = conn.execute(
        update(workers)
        .where(workers.c.attempt_id == attempt_id, workers.c.node == node, workers.c.seq < seq)
        .values(seq=seq, **columns)
    )
    if done.rowcount == 1:
        return True
    known = conn.execute(
        select(workers.c.node).where(workers.c.attempt_id == attempt_id, workers.c.node == node)
    ).first()
    if known is None:
        raise NotFound(f"this attempt has no worker on node {node!r}")
    return False


def isolation(conn: Connection, attempt_id: str) -> Row:
    """By node, what holds its ranks: which cgroups, which interface."""
    rows = conn.execute(
        select(workers.c.node, workers.c.isolation).where(workers.c.attempt_id == attempt_id)
    )
    return {node: or_else(found, {}) or {} for node, found in rows}


def isolation_of(conn: Connection, found: Sequence[Mapping[str, Any]]) -> dict[str, Row]:
    """The same for each of these attempts, by its id."""
    rows = conn.execute(
        select(workers.c.attempt_id, workers.c.node, workers.c.isolation).where(
            workers.c.attempt_id.in_([attempt["id"] for attempt in found])
        )
    )
    by_attempt: dict[str, Row] = {}
    for attempt_id, node, isolation in rows:
        by_attempt.setdefault(attempt_id, {})[node] = or_else(isolation, {}) or {}
    return by_attempt


def ended_ranks(conn: Connection, attempt_id: str) -> list[Row]:
    """What the exit records of an attempt say of its ranks, each with its `node`."""
    rows = conn.execute(
        select(workers.c.node, workers.c.record)
        .where(workers.c.attempt_id == attempt_id, workers.c.record.is_not(None))
        .order_by(workers.c.node)
    )
    found: list[Row] = []
    for node, record in rows:
        try:
            whole = record_of({"record": record, "node": node}) or {}
        except Unreadable:
            continue  # of that node nothing is told
        found += [{**rank, "node": node} for rank in whole.get("ranks") or ()]
    return found


def keep_record(conn: Connection, attempt_id: str, node: str, record: Mapping[str, Any]) -> bool:
    """The first exit record of a node stands, and with it what its ranks used. False when there
    was one."""
    done = conn.execute(
        update(workers)
        .where(
            workers.c.attempt_id == attempt_id, workers.c.node == node, workers.c.record.is_(None)
        )
        .values(record=dict(record), **used.by_record(record))
    )
    return done.rowcount == 1


def give(
    conn: Connection,
    attempt: Mapping[str, Any],
    nodes: Sequence[str],
    kind: str,
    body: Mapping[str, Any],
    *,
    now_ms: int,
) -> int:
    """An order for the workers on `nodes`; returns its number."""
    number = conn.execute(
        update(attempts)
        .where(attempts.c.id == attempt["id"])
        .values(orders=attempts.c.orders + 1)
        .returning(attempts.c.orders)
    ).scalar_one()
    rows = [
        {
            "attempt_id": attempt["id"],
            "id": number,
            "node": node,
            "kind": kind,
            "body": dict(body),
            "asked_ms": now_ms,
        }
        for node in nodes
    ]
    conn.execute(insert(orders), rows)
    return int(number)


def pending(conn: Connection, attempt_id: str, node: str, after: int) -> list[Row]:
    rows = conn.execute(
        select(orders.c.id, orders.c.kind, orders.c.body)
        .where(
            orders.c.attempt_id == attempt_id,
            orders.c.node == node,
            orders.c.id > after,
            orders.c.done_ms.is_(None),
        )
        .order_by(orders.c.id)
    ).mappings()
    return [{"id": row["id"], "kind": row["kind"], **row["body"]} for row in rows]


def answer(
    conn: Connection, attempt_id: str, order: int, node: str, ok: bool, result: Any, now_ms: int
) -> None:
    conn.execute(
        update(orders)
        .where(
            orders.c.attempt_id == attempt_id,
            orders.c.id == order,
            orders.c.node == node,
            orders.c.done_ms.is_(None),
        )
        .values(done_ms=now_ms, ok=int(ok), result=result)
    )


def answers(conn: Connection, attempt_id: str, order: int) -> list[Row]:
    rows = conn.execute(
        select(orders).where(orders.c.attempt_id == attempt_id, orders.c.id == order)
    ).mappings()
    return [dict(row) for row in rows]
