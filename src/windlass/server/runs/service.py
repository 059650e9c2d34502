"""What ranks report through their spools: metrics, progress, checkpoints.

Lines arrive with their offset in the rank's spool, so a batch that is sent twice is kept once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, delete, select
from sqlalchemy.dialects import postgresql, sqlite

from windlass.server.runs.tables import points, spools

_MAX_KEY = 255


@dataclass
class Batch:
    """Spool lines, sorted by what they mean."""

    points: list[dict[str, Any]] = field(default_factory=list)
    checkpoints: list[dict[str, Any]] = field(default_factory=list)
    step: int | None = None
    done: int | None = None
    total: int | None = None


def sort(lines: Sequence[Any], *, job_id: str, attempt: int, rank: int, offset: int) -> Batch:
    """What is in a batch. A line of user code may hold anything: what is not understood is
    left out, nothing here raises."""
    batch = Batch()
    for place, line in enumerate(lines):
        if not isinstance(line, dict):
            continue
        kind, step = line.get("kind"), _whole(line.get("step"))
        if step is not None:
            batch.step = max(step, batch.step or 0)
        if kind == "metric" and isinstance(line.get("values"), dict):
            at = {"step": step, "at_ms": _whole(line.get("t")) or 0}
            names = {"job_id": job_id, "attempt": attempt, "rank": rank, "offset": offset + place}
            for key, value in line["values"].items():
                number = _number(value)
                if number is not None or value in ("NaN", "Infinity", "-Infinity"):
                    batch.points.append(
                        {**names, **at, "key": str(key)[:_MAX_KEY], "value": number}
                    )
        elif kind == "progress":
            batch.done, batch.total = _whole(line.get("done")), _whole(line.get("total"))
        elif kind == "checkpoint":
            batch.checkpoints.append(line)
    return batch


def known_offset(conn: Connection, job_id: str, attempt: int, rank: int) -> int:
    found = conn.execute(
        select(spools.c.offset).where(
            spools.c.job_id == job_id, spools.c.attempt == attempt, spools.c.rank == rank
        )
    ).scalar()
    return int(found or 0)


def keep(
    conn: Connection, batch: Batch, *, job_id: str, attempt: int, rank: int, end: int
) -> None:
    """Store the points and how far the spool was read; a repeat changes nothing."""
    upsert = sqlite.insert if conn.dialect.name == "sqlite" else postgresql.insert
    if batch.points:
        conn.execute(upsert(points).on_conflict_do_nothing(), batch.points)
    row = upsert(spools).values(job_id=job_id, attempt=attempt, rank=rank, offset=end)
    conn.execute(
        row.on_conflict_do_update(
            index_elements=["job_id", "attempt", "rank"],
            set_={"offset": row.excluded.offset},
            where=spools.c.offset < row.excluded.offset,
        )
    )


def series(conn: Connection, job_id: str, keys: Sequence[str]) -> list[dict[str, Any]]:
    """By key and rank, the points in order of time. Of a step that a later attempt did again,
    the later one counts."""
    query = select(points).where(points.c.job_id == job_id)
    if keys:
        query = query.where(points.c.key.in_(keys))
    lines: dict[tuple[str, int], dict[Any, tuple[Any, int, float | None]]] = {}
    for row in conn.execute(
        query.order_by(points.c.key, points.c.rank, points.c.attempt, points.c.offset)
    ).mappings():
        line = lines.setdefault((row["key"], row["rank"]), {})
        place = row["step"] if row["step"] is not None else ("n", row["attempt"], row["offset"])
        line[place] = (row["step"], row["at_ms"], row["value"])
    return [
        {"key": key, "rank": rank, "points": tuple(line.values())}
        for (key, rank), line in lines.items()
    ]


def forget(conn: Connection, job_ids: Sequence[str]) -> None:
    for table in (points, spools):
        conn.execute(delete(table).where(table.c.job_id.in_(job_ids)))


def _whole(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    number = int(value)
    return number if -(2**63) <= number < 2**63 else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return float(value)
    if not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
