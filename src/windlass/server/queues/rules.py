"""The scheduler's configuration, from the rows of queues and quotas."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import Connection, select

from windlass.core.queues import DEFAULT
from windlass.scheduler.events import Cap, Queue, Quota, Rules
from windlass.server.queues.tables import queues
from windlass.server.quotas.tables import quotas

_FIRST = Rules()


def rules(conn: Connection, base: Rules = _FIRST) -> Rules:
    """All of the configuration at once; `base` says what is set for the server as a whole
    (`Settings.scheduling`). A tenant is a project, by its name."""
    found = conn.execute(select(quotas).order_by(quotas.c.cohort.desc(), quotas.c.name))
    rows = [dict(row) for row in found.mappings()]
    lines = [
        Queue(row.name, row.policy, bool(row.paused))
        for row in conn.execute(select(queues).order_by(queues.c.name))
    ]
    if not any(queue.name == DEFAULT for queue in lines):
        lines.append(Queue(DEFAULT))
    return replace(
        base,
        queues=tuple(lines),
        quotas=tuple(
            Quota(
                name=row["name"], parent=row["parent"] or "", nominal=row["nominal"],
                borrow=row["borrow"], lend=row["lend"], weight_milli=row["weight_milli"],
                reclaim_any=bool(row["reclaim_any"]),
            )
            for row in rows
        ),
        caps=tuple(
            Cap(row["name"], cap["limits"], cap["kind"] or "", cap["user"] or "")
            for row in rows
            for cap in row["caps"]
        ),
    )  # fmt: skip
