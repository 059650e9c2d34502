"""The ledger's sums by day: kept by a loop, behind the ledger by the entries after its cursor.

Not in the transaction of each entry: all ends of a project's jobs on one day would wait for each
other at one row. Who asks adds the entries after the cursor to the sums, so an answer is exact at
any time; the loop only keeps them few.
"""

from __future__ import annotations

from sqlalchemy import Connection, func, insert, select, text, update

from windlass.server.settings import DAY_MS
from windlass.server.usage.ledger import ADVISORY_LOCK
from windlass.server.usage.tables import cursor, ledger

BATCH = 1000

_SUMS = ("cpu", "memory", "gpu", "used_cpu", "used_memory", "cost", "entries")
_ADD = text(
    f"""
    INSERT INTO usage_days (day, project_id, user_id, pool, gpu_model, kind, project_name,
        user_name, cpu, memory, gpu, used_cpu, used_memory, peak_bytes, cost, entries)
    SELECT l.from_ms / {DAY_MS}, h.project_id, h.user_id, h.pool, h.gpu_model, l.kind,
        max(h.project_name), max(h.user_name), sum(l.cpu), sum(l.memory), sum(l.gpu),
        sum(l.used_cpu), sum(l.used_memory), max(l.peak_bytes), sum(l.cost), count(*)
    FROM ledger l JOIN holdings h ON h.attempt_id = l.attempt_id AND h.part = l.part
    WHERE l.id > :after AND l.id <= :until
    GROUP BY l.from_ms / {DAY_MS}, h.project_id, h.user_id, h.pool, h.gpu_model, l.kind
    ON CONFLICT (day, project_id, user_id, pool, gpu_model, kind) DO UPDATE SET
        project_name = excluded.project_name, user_name = excluded.user_name,
        {", ".join(f"{name} = usage_days.{name} + excluded.{name}" for name in _SUMS)},
        peak_bytes = CASE WHEN excluded.peak_bytes > usage_days.peak_bytes
            THEN excluded.peak_bytes ELSE usage_days.peak_bytes END
    """
)


def behind(conn: Connection) -> bool:
    """Whether there are entries that the sums lack."""
    newest = conn.execute(select(func.max(ledger.c.id))).scalar()
    return newest is not None and newest > reached(conn)


def reached(conn: Connection) -> int:
    """The last entry that the sums have."""
    return int(conn.execute(select(cursor.c.ledger_id)).scalar() or 0)


def add(conn: Connection, batch: int = BATCH) -> bool:
    """Add the next entries to the sums; whether there may be more."""
    if conn.dialect.name == "postgresql":
        conn.exec_driver_sql(f"SELECT pg_advisory_xact_lock({ADVISORY_LOCK})")
    after = conn.execute(select(cursor.c.ledger_id)).scalar()
    if after is None:
        conn.execute(insert(cursor).values(id=1, ledger_id=0))
        after = 0
    ids = list(
        conn.scalars(select(ledger.c.id).where(ledger.c.id > after).order_by("id").limit(batch))
    )
    if not ids:
        return False
    conn.execute(_ADD, {"after": after, "until": ids[-1]})
    conn.execute(update(cursor).values(ledger_id=ids[-1]))
    return len(ids) == batch
