"""What tenants used lately, kept for the next core.

Between tenants that have borrowed alike, the one that used less lately comes first. A core counts
that and dies with its server, so the count is written down: what has changed, at most once in a
while, and in a transaction of its own. What was used in that while before a crash is forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, select, text

from windlass.scheduler.events import Used
from windlass.server.quotas.tables import recent_use

SAVED_EVERY_MS = 1000

_SAVE = text(
    "INSERT INTO recent_use (tenant, amount, half_lives)"
    " VALUES (:tenant, :amount, :half_lives)"
    " ON CONFLICT (tenant) DO UPDATE"
    " SET amount = excluded.amount, half_lives = excluded.half_lives"
)


def save(conn: Connection, used: Sequence[Used]) -> None:
    conn.execute(
        _SAVE,
        [
            {"tenant": one.tenant, "amount": str(one.amount), "half_lives": one.half_lives}
            for one in sorted(used, key=lambda one: one.tenant)
        ],
    )


def remembered(conn: Connection) -> list[Used]:
    """As it was last written."""
    rows = conn.execute(select(recent_use).order_by(recent_use.c.tenant))
    return [Used(row.tenant, int(row.amount), row.half_lives) for row in rows]
