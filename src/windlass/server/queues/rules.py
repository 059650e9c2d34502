"""The scheduler's configuration, from the rows of queues and quotas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, select

from windlass.core.errors import Unreadable
from windlass.core.explain import found as told
from windlass.core.queues import DEFAULT
from windlass.scheduler.events import Cap, Queue, Quota, Rules
from windlass.server.queues.tables import queues
from windlass.server.quotas.tables import quotas
from windlass.server.store.metadata import Garbled

_FIRST = Rules()
_NONE = {"gpus": 0, "cpus": 0, "memory": 0}
_NOTHING = {"nominal": _NONE, "borrow": _NONE, "lend": {}, "caps": []}


def rules(
    conn: Connection,
    base: Rules = _FIRST,
    unreadable: Callable[[str, Unreadable], None] = lambda name, err: None,
) -> Rules:
    """All of the configuration at once; `base` says what is set for the server as a whole
    (`Settings.scheduling`). A tenant is a project, by its name. One whose quota cannot be read
    owns nothing until it is set anew: its jobs wait, the others do not."""
    found = conn.execute(select(quotas).order_by(quotas.c.cohort.desc(), quotas.c.name))
    rows = []
    for row in found.mappings():
        try:
            rows.append(_checked(dict(row)))
        except Unreadable as err:
            unreadable(row["name"], err)
            rows.append({**row, **_NOTHING})
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


def _checked(row: dict[str, Any]) -> dict[str, Any]:
    caps = row["caps"]
    if not isinstance(caps, list) or not all(isinstance(cap, dict) for cap in caps):
        raise Unreadable(f"its caps cannot be read: {told(caps)}")
    amounts = [(field, row[field]) for field in ("nominal", "borrow", "lend")]
    amounts += [("caps", cap.get("limits")) for cap in caps]
    for field, value in amounts:
        if isinstance(value, Garbled) or not (
            isinstance(value, dict) and all(isinstance(each, int) for each in value.values())
        ):
            raise Unreadable(f"its {field} cannot be read: {told(value)}")
    return row
