"""The ledger: what every attempt held, written in the transaction of the move that says so.

`moves.py` calls `open_` when an attempt begins and `close` when it is over; the meter calls `cut`
at each full hour for those that go on. An entry that is there already is left alone, so doing
anything twice adds nothing. Nothing here ever changes a row.

On PostgreSQL ids commit out of order. Who writes entries holds a lock, shared, that the roll-up
takes for itself: it then sees all entries up to the last id, and may remember that id.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, func, select, text

from windlass.core.usage import MICRO
from windlass.server.jobs.tables import checkpoints, workers
from windlass.server.store.prepared import Prepared, Ran
from windlass.server.usage import metering
from windlass.server.usage.metering import Places, Preempted, Span
from windlass.server.usage.prices import Book, book
from windlass.server.usage.tables import holdings, ledger

Row = Mapping[str, Any]
ADVISORY_LOCK = 0x6C656467  # "ledg"
UNPAID_WISHES = frozenset({"preempt", "resize"})
"""Who ends for such a wish ends for others: neither its grace nor its lost work is charged."""
_MOST = 1 << 62

_OPEN = Prepared(
    text(
        "INSERT INTO holdings (attempt_id, part, number, job_id, job_name, project_id,"
        " project_name, user_id, user_name, pool, gpu_model, nodes, members, cpus_milli,"
        " memory_mib, gpu_milli, cost_limit, from_ms) VALUES (:attempt_id, :part, :number,"
        " :job_id, :job_name, :project_id, (SELECT name FROM projects WHERE id = :project),"
        " :user_id, (SELECT name FROM users WHERE id = :owner), :pool, :gpu_model, :nodes,"
        " :members, :cpus_milli, :memory_mib, :gpu_milli, :cost_limit, :from_ms)"
        " ON CONFLICT DO NOTHING"
    )
)
ENTRY = (
    "attempt_id", "part", "kind", "from_ms", "to_ms", "project_id", "cpu", "memory", "gpu",
    "used_cpu", "used_memory", "peak_bytes", "cost",
)  # fmt: skip
_ENTER = Prepared(
    text(
        f"INSERT INTO ledger ({', '.join(ENTRY)}) VALUES (:{', :'.join(ENTRY)})"
        " ON CONFLICT DO NOTHING"
    )
)
_HELD = (
    "part", "project_id", "gpu_model", "nodes", "cpus_milli", "memory_mib", "gpu_milli", "from_ms",
)  # fmt: skip
_HOLDINGS = Prepared(
    select(
        *(holdings.c[name] for name in _HELD),
        func.max(ledger.c.to_ms),
        func.sum(ledger.c.used_cpu),
        func.sum(ledger.c.used_memory),
    )
    .select_from(
        holdings.outerjoin(
            ledger,
            (ledger.c.attempt_id == holdings.c.attempt_id) & (ledger.c.part == holdings.c.part),
        )
    )
    .where(holdings.c.attempt_id == bindparam("attempt"))
    .group_by(holdings.c.attempt_id, holdings.c.part)
)
_USED = Prepared(
    select(workers.c.node, workers.c.used_cpu, workers.c.used_memory, workers.c.peak_bytes).where(
        workers.c.attempt_id == bindparam("attempt")
    )
)
_SAVED = select(func.max(checkpoints.c.registered_ms)).where(
    checkpoints.c.job_id == bindparam("job"),
    checkpoints.c.attempt == bindparam("of"),
    checkpoints.c.bad.is_(None),
)
_CHARGED = select(ledger.c.part, ledger.c.from_ms, ledger.c.to_ms).where(
    ledger.c.attempt_id == bindparam("attempt"),
    ledger.c.kind == "run",
    ledger.c.to_ms > bindparam("after"),
)


def open_(conn: Connection, job: Row, attempt: Row, places: Places, now_ms: int) -> None:
    """An attempt holds its seats from now on."""
    limit = job["spec"].get("limits", {}).get("cost")
    cost_limit = None if limit is None else min(round(limit * MICRO), _MOST)
    for number, part in enumerate(
        metering.parts(job["spec"]["roles"], attempt["placement"], places)
    ):
        _OPEN.run(
            conn,
            {
                "attempt_id": attempt["id"], "part": number, "number": attempt["number"],
                "job_id": job["id"], "job_name": job["name"], "project_id": job["project_id"],
                "user_id": job["user_id"], "project": job["project_id"],
                "owner": job["user_id"], "pool": part.pool, "gpu_model": part.gpu_model,
                "nodes": json.dumps(part.nodes), "members": part.members,
                "cpus_milli": part.cpus_milli, "memory_mib": part.memory_mib,
                "gpu_milli": part.gpu_milli,
                "cost_limit": cost_limit, "from_ms": now_ms,
            },
        )  # fmt: skip


def close(conn: Connection, job: Row, attempt: Row, outcome: str | None, now_ms: int) -> None:
    """An attempt holds nothing from now on."""
    preempted = None
    if outcome == "preempted" and attempt["ending_wish"] in UNPAID_WISHES:
        saved = conn.execute(_SAVED, {"job": job["id"], "of": attempt["number"]}).scalar()
        preempted = Preempted(saved or attempt["created_ms"], attempt["ending_ms"] or now_ms)
    steady(conn)
    prices = book(conn)
    held = held_of(conn, attempt["id"])
    if preempted is not None:
        _take_back(conn, attempt["id"], held, preempted, prices)
    _enter(conn, attempt["id"], held, now_ms, prices, preempted)


def cut(conn: Connection, attempt_id: str, until_ms: int) -> None:
    """Write what an attempt that goes on has held until then. The caller has locked its job, and
    knows that it was not told to end."""
    steady(conn)
    _enter(conn, attempt_id, held_of(conn, attempt_id), until_ms, book(conn), None)


def held_of(conn: Connection, attempt_id: str) -> list[dict[str, Any]]:
    """The parts of an attempt: what each holds, and how far the ledger has it (`told_ms`)."""
    found = []
    for values in rows_of(_HOLDINGS.run(conn, {"attempt": attempt_id})):
        held = dict(zip(_HELD, values, strict=False))
        last, used_cpu, used_memory = values[len(_HELD) :]
        held["nodes"] = json.loads(held["nodes"])
        held["told_ms"] = held["from_ms"] if last is None else last
        held["used_cpu"], held["used_memory"] = int(used_cpu or 0), int(used_memory or 0)
        found.append(held)
    return found


def rows_of(ran: Ran) -> Iterator[Sequence[Any]]:
    return iter(ran.fetchone, None)


def amounts(held: Row, length_ms: int) -> dict[str, int]:
    """What a part holds in so many milliseconds."""
    return {
        "cpu": held["cpus_milli"] * length_ms,
        "memory": held["memory_mib"] * length_ms,
        "gpu": held["gpu_milli"] * length_ms,
    }


def priced(held: Row, span: Span, prices: Book, sign: int = 1) -> dict[str, int]:
    """What a part holds in a span that has one price, and its cost."""
    found = amounts(held, sign * (span.to_ms - span.from_ms))
    found["cost"] = metering.cost(prices.at(span.from_ms, held["gpu_model"]), **found)
    return found


def _enter(
    conn: Connection,
    attempt_id: str,
    held: Sequence[dict[str, Any]],
    until_ms: int,
    prices: Book,
    preempted: Preempted | None,
) -> None:
    """All that is not on the ledger yet. What was used since the last entry stands in the last."""
    used = {row[0]: row[1:] for row in rows_of(_USED.run(conn, {"attempt": attempt_id}))}
    for part in held:
        rows = [
            {**_nothing(attempt_id, part, piece), **priced(part, piece, prices)}
            for span in metering.spans(part["told_ms"], until_ms, preempted)
            for piece in metering.pieces(span, prices.bounds)
        ]
        if rows:
            mine = [used[node] for node in part["nodes"] if node in used]
            rows[-1]["used_cpu"] = max(0, sum(row[0] for row in mine) - part["used_cpu"])
            rows[-1]["used_memory"] = max(0, sum(row[1] for row in mine) - part["used_memory"])
            rows[-1]["peak_bytes"] = sum(row[2] for row in mine)
        _write(conn, rows)


def _take_back(
    conn: Connection,
    attempt_id: str,
    held: Sequence[dict[str, Any]],
    preempted: Preempted,
    prices: Book,
) -> None:
    """Entries made before it was known that their work would be lost."""
    asked = {"attempt": attempt_id, "after": preempted.saved_ms}
    for number, from_ms, to_ms in conn.execute(_CHARGED, asked).all():
        part = next(part for part in held if part["part"] == number)
        since = max(from_ms, preempted.saved_ms)
        _write(
            conn,
            (
                {
                    **_nothing(attempt_id, part, piece),
                    **priced(part, piece, prices, -1 if kind == "refund" else 1),
                }
                for kind in ("refund", "lost")
                for piece in metering.pieces(Span(kind, since, to_ms), prices.bounds)
            ),
        )


def _nothing(attempt_id: str, part: Row, span: Span) -> dict[str, Any]:
    return {
        "attempt_id": attempt_id, "part": part["part"], "kind": span.kind,
        "from_ms": span.from_ms, "to_ms": span.to_ms, "project_id": part["project_id"],
        "used_cpu": 0, "used_memory": 0, "peak_bytes": 0,
    }  # fmt: skip


def _write(conn: Connection, rows: Iterable[Mapping[str, Any]]) -> None:
    for row in rows:
        _ENTER.run(conn, row)


def steady(conn: Connection) -> None:
    """Nobody adds to the sums by day before this transaction ends; others may write entries."""
    if conn.dialect.name == "postgresql":
        conn.exec_driver_sql(f"SELECT pg_advisory_xact_lock_shared({ADVISORY_LOCK})")
