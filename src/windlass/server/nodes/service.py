"""Nodes: what the engines offer, kept in the database for whoever schedules or shows it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, insert, select, update

from windlass.core.resources import Node
from windlass.server import feed
from windlass.server.nodes.tables import nodes
from windlass.server.store.base import Store
from windlass.server.store.hints import touch

TOPIC = "nodes"
KNOWN_SECONDS = 2.0


def record(conn: Connection, engine: str, offers: Sequence[Node], now_ms: int) -> bool:
    """Write what an engine offers now; True when anything changed. A node that is unhealthy
    stays so until an operator, or a new boot of it, says otherwise."""
    known = {
        row["name"]: row
        for row in conn.execute(select(nodes).where(nodes.c.engine == engine)).mappings()
    }
    changed = False
    for offer in offers:
        content = offer.model_dump(mode="json")
        row = known.pop(offer.name, None)
        if row is None:
            conn.execute(
                insert(nodes).values(
                    engine=engine,
                    name=offer.name,
                    state="ready",
                    reason="",
                    offer=content,
                    seen_ms=now_ms,
                )
            )
            _event(conn, offer.name, "ready", "offered by engine " + engine, now_ms)
            changed = True
            continue
        rebooted = row["offer"].get("boot_id") != content["boot_id"]
        heals = row["state"] == "gone" or (row["state"] in ("unhealthy", "paused") and rebooted)
        if row["offer"] != content or heals:
            values: dict[str, Any] = {"offer": content, "seen_ms": now_ms}
            if heals:
                values |= {"state": "ready", "reason": ""}
            _set(conn, engine, offer.name, values)
            _event(conn, offer.name, values.get("state", row["state"]), "offer changed", now_ms)
            changed = True
    for name, row in known.items():
        if row["state"] != "gone":
            why = f"engine {engine} no longer offers it"
            _set(conn, engine, name, {"state": "gone", "reason": why, "seen_ms": now_ms})
            _event(conn, name, "gone", why, now_ms)
            changed = True
    return changed


def mark_unhealthy(conn: Connection, engine: str, name: str, why: str, now_ms: int) -> None:
    """Nothing more is placed there."""
    _set(conn, engine, name, {"state": "unhealthy", "reason": why, "seen_ms": now_ms})
    _event(conn, name, "unhealthy", why, now_ms)


def pause(conn: Connection, engine: str, name: str, why: str, now_ms: int) -> None:
    """Nothing more is placed there until there is room again (`nodes/room.py`)."""
    row = conn.execute(
        select(nodes.c.state, nodes.c.reason).where(nodes.c.engine == engine, nodes.c.name == name)
    ).first()
    if row is None or row.state not in ("ready", "paused") or tuple(row) == ("paused", why):
        return
    _set(conn, engine, name, {"state": "paused", "reason": why, "seen_ms": now_ms})
    _event(conn, name, "paused", why, now_ms)


def mark_ready(
    conn: Connection, engine: str, name: str, now_ms: int, why: str = "resumed"
) -> None:
    _set(conn, engine, name, {"state": "ready", "reason": "", "seen_ms": now_ms})
    _event(conn, name, "ready", why, now_ms)


def paused(conn: Connection) -> list[dict[str, Any]]:
    query = select(nodes).where(nodes.c.state == "paused").order_by(nodes.c.engine, nodes.c.name)
    return [dict(row) for row in conn.execute(query).mappings()]


def every(conn: Connection) -> list[dict[str, Any]]:
    return [dict(row) for row in conn.execute(select(nodes).order_by(nodes.c.name)).mappings()]


def ready(conn: Connection) -> list[Node]:
    """Those that take jobs, now or as soon as there is room again."""
    rows = conn.execute(
        select(nodes.c.offer).where(nodes.c.state.in_(("ready", "paused")))
    ).scalars()
    return [Node.model_validate(offer) for offer in rows]


class ReadyNodes:
    """The nodes that are ready, as every submit wants to know them. Read anew after a change
    that this server made, and otherwise every few seconds: another server may write too."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: list[Node] = []
        self._until = 0.0
        store.listen(TOPIC, self.forget)

    def forget(self) -> None:
        self._until = 0.0

    async def ready(self) -> list[Node]:
        now = time.monotonic()
        if now >= self._until:
            self._until = now + KNOWN_SECONDS  # first: a change while we read is not missed
            try:
                self._known = await self._store.read(ready)
            except BaseException:
                self.forget()
                raise
        return self._known


def _set(conn: Connection, engine: str, name: str, values: dict[str, Any]) -> None:
    conn.execute(
        update(nodes).where(nodes.c.engine == engine, nodes.c.name == name).values(**values)
    )


def _event(conn: Connection, name: str, state: str, reason: str, now_ms: int) -> None:
    touch(conn, TOPIC)
    feed.append(
        conn, job_id=None, project_id="", seq=0, attempt=None, kind="node", at_ms=now_ms,
        state=state, reason=reason, data={"node": name},
    )  # fmt: skip
