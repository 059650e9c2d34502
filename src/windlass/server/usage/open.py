"""What live attempts hold that no entry of the ledger has yet: worked out when somebody asks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, select

from windlass.server.jobs.tables import attempts, workers
from windlass.server.usage import metering
from windlass.server.usage.ledger import UNPAID_WISHES, priced
from windlass.server.usage.metering import Preempted
from windlass.server.usage.prices import book
from windlass.server.usage.tables import holdings, ledger

_TOLD = (
    select(
        ledger.c.attempt_id,
        ledger.c.part,
        func.max(ledger.c.to_ms).label("told_ms"),
        func.sum(ledger.c.used_cpu).label("told_cpu"),
        func.sum(ledger.c.used_memory).label("told_memory"),
    )
    .join(attempts, attempts.c.id == ledger.c.attempt_id)
    .where(attempts.c.state != "over")
    .group_by(ledger.c.attempt_id, ledger.c.part)
    .subquery()
)
_LIVE = (
    select(
        holdings,
        attempts.c.ending_ms,
        attempts.c.ending_wish,
        _TOLD.c.told_ms,
        _TOLD.c.told_cpu,
        _TOLD.c.told_memory,
    )
    .join(attempts, attempts.c.id == holdings.c.attempt_id)
    .outerjoin(
        _TOLD,
        (_TOLD.c.attempt_id == holdings.c.attempt_id) & (_TOLD.c.part == holdings.c.part),
    )
    .where(attempts.c.state != "over")
)
_USED = (
    select(workers)
    .with_only_columns(
        workers.c.attempt_id,
        workers.c.node,
        workers.c.used_cpu,
        workers.c.used_memory,
        workers.c.peak_bytes,
    )
    .join(attempts, attempts.c.id == workers.c.attempt_id)
    .where(attempts.c.state != "over")
)


def entries(
    conn: Connection, now_ms: int, *where: ColumnElement[bool]
) -> Iterator[dict[str, Any]]:
    """As they would be written now: rows of the ledger with the names of their holding; `where`
    says of which holdings. An attempt that ends for others counts as charged until it was told to;
    whether work is lost is not known before its end."""
    live = [dict(row) for row in conn.execute(_LIVE.where(*where)).mappings()]
    if not live:
        return
    prices = book(conn)
    used = {(row[0], row[1]): row[2:] for row in conn.execute(_USED)}
    for held in live:
        since = held["from_ms"] if held["told_ms"] is None else held["told_ms"]
        preempted = None
        if held["ending_wish"] in UNPAID_WISHES:
            preempted = Preempted(held["ending_ms"], held["ending_ms"])
        pieces = [
            piece
            for span in metering.spans(since, now_ms, preempted)
            for piece in metering.pieces(span, prices.bounds)
        ]
        mine = [
            used[held["attempt_id"], node]
            for node in held["nodes"]
            if (held["attempt_id"], node) in used
        ]
        told = (int(held["told_cpu"] or 0), int(held["told_memory"] or 0))
        for piece in pieces:
            last = piece is pieces[-1]
            yield {
                **held, **piece._asdict(), **priced(held, piece, prices),
                "used_cpu": max(0, sum(row[0] for row in mine) - told[0]) if last else 0,
                "used_memory": max(0, sum(row[1] for row in mine) - told[1]) if last else 0,
                "peak_bytes": sum(row[2] for row in mine) if last else 0,
            }  # fmt: skip
