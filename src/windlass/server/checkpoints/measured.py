"""The metrics that a run had at a checkpoint: of each key the last value at its step or before, as
far as the checkpoint's own attempt had come."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, select

from windlass.server.checkpoints.rules import Scores
from windlass.server.runs.tables import latest, points

MAX_KEYS = 64
"""Of a run that logs more, the first by name are shown with a checkpoint."""


def keys_of(conn: Connection, run_id: str) -> list[str]:
    query = select(latest.c.key).where(latest.c.run_id == run_id).order_by(latest.c.key)
    return list(conn.execute(query.limit(MAX_KEYS)).scalars())


def values_at(
    conn: Connection, run_id: str, saved: Sequence[Mapping[str, Any]], keys: Sequence[str]
) -> dict[str, dict[str, float | None]]:
    """By path: key → value; None for NaN. A key that had no value yet is not there."""
    found: dict[str, dict[str, float | None]] = {row["path"]: {} for row in saved}
    for key in keys:
        line = _line(conn, run_id, key)
        places = [place for place, _ in line]
        for row in saved:
            at = bisect_right(places, (row["attempt"], row["step"])) - 1
            if at >= 0:
                found[row["path"]][key] = line[at][1]
    return found


def scores(conn: Connection, run_id: str, saved: Sequence[Mapping[str, Any]], key: str) -> Scores:
    """The one metric that checkpoints are kept by."""
    values = values_at(conn, run_id, saved, [key])
    line = _line(conn, run_id, key)
    return Scores(
        {
            path: math.nan if by_key[key] is None else float(by_key[key] or 0.0)
            for path, by_key in values.items()
            if key in by_key
        },
        line[-1][0] if line else (-1, -1),
    )


def _line(conn: Connection, run_id: str, key: str) -> list[tuple[tuple[int, int], float | None]]:
    """The key's values of the rank that counts, by attempt and step; of equal ones the last."""
    rank = select(latest.c.rank).where(latest.c.run_id == run_id, latest.c.key == key)
    rows = conn.execute(
        select(points.c.attempt, points.c.step, points.c.value)
        .where(
            points.c.run_id == run_id,
            points.c.key == key,
            points.c.rank == rank.scalar_subquery(),
            points.c.step.is_not(None),
        )
        .order_by(points.c.attempt, points.c.step, points.c.at_ms, points.c.offset)
    )
    return [((row.attempt, row.step), row.value) for row in rows]
