"""Writing a row of the audit log, in the transaction of what it tells of.

On SQLite the row gets its place in the chain here. On PostgreSQL it waits for `chain.link`: to
know the row before it, a transaction would have to lock the chain's end until it commits, and so
all submits of a project would go one by one.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, insert, text

from windlass.core.audit import BEGINNING, link
from windlass.server.audit.tables import audit
from windlass.server.clock import stamp
from windlass.server.store.hints import touch
from windlass.server.store.prepared import Prepared

TOPIC = "audit"
OK = "ok"
REPLAYED = "replayed"
_LONGEST = {
    "project_name": 40, "user_name": 255, "credential": 64, "source": 64, "request_id": 32,
    "action": 80, "object": 255, "outcome": 40,
}  # fmt: skip

_MOST_DETAILS = 2000

_INSERT = Prepared(insert(audit).inline())
_LAST = Prepared(
    text(
        "SELECT number, hash FROM audit WHERE project_id = :project_id AND number IS NOT NULL"
        " ORDER BY number DESC LIMIT 1"
    )
)


@dataclass(frozen=True, slots=True)
class Entry:
    """What is told. Texts may come from anywhere: they are cut and their control characters
    escaped. `details` is small, plain JSON, and never holds a secret."""

    action: str
    project_id: str = ""
    project_name: str = ""
    user_id: str = ""
    user_name: str = ""
    credential: str = ""
    source: str = ""
    request_id: str = ""
    object: str = ""
    outcome: str = OK
    times: int = 1
    details: dict[str, Any] = field(default_factory=dict)


def write(conn: Connection, entry: Entry) -> None:
    """One row, there when the transaction is."""
    row: dict[str, Any] = {
        "project_id": entry.project_id,
        "at_ms": now_ms(conn),
        "project_name": entry.project_name,
        "user_id": entry.user_id,
        "user_name": entry.user_name,
        "credential": entry.credential,
        "source": entry.source,
        "request_id": entry.request_id,
        "action": entry.action,
        "object": entry.object,
        "outcome": entry.outcome,
        "times": entry.times,
        "details": _bounded(entry.details) if entry.details else {},
    }
    for name, longest in _LONGEST.items():
        value = row[name]
        if len(value) > longest or not value.isprintable():
            row[name] = _tame(value, longest)
    if conn.dialect.name == "sqlite":
        last = _LAST.run(conn, {"project_id": entry.project_id}).fetchone()
        row["number"] = last[0] + 1 if last else 1
        row["hash"] = link(last[1] if last else BEGINNING, shown(row))
    _INSERT.run(conn, row)
    touch(conn, TOPIC)


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the table as the outside sees it, but for its hash: what is hashed."""
    return {
        "number": row["number"],
        "at": stamp(row["at_ms"]),
        "project_id": row["project_id"],
        "project": row["project_name"],
        "user_id": row["user_id"],
        "user": row["user_name"],
        "credential": row["credential"],
        "source": row["source"],
        "request_id": row["request_id"],
        "action": row["action"],
        "object": row["object"],
        "outcome": row["outcome"],
        "times": row["times"],
        "details": row["details"],
    }


def _bounded(details: dict[str, Any]) -> dict[str, Any]:
    size = len(json.dumps(details))
    return details if size <= _MOST_DETAILS else {"left_out": size}


def _tame(text: str, longest: int) -> str:
    text = text[:longest].encode("utf-8", "backslashreplace").decode()
    plain = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    return plain if len(plain) <= longest else plain[: longest - 1] + "…"


def now_ms(conn: Connection) -> int:
    clock = conn.info.get("clock")
    return int(clock.now_ms()) if clock is not None else time.time_ns() // 1_000_000
