"""Points of MLflow's wire that say the same time and step: each is kept, once, and soon."""

from __future__ import annotations

import time
from typing import Any

import pytest
from runs_scene import Runs, run_id
from sqlalchemy import select

from windlass.core.errors import InvalidInput
from windlass.server.runs import latest
from windlass.server.runs.tables import latest as latest_rows
from windlass.server.runs.tables import points


def crowd(first: int, count: int) -> list[dict[str, Any]]:
    return [
        {
            "run_id": run_id(1), "key": "loss", "rank": 0, "attempt": 0, "step": 0, "at_ms": 1000,
            "offset": latest.made_offset(1000, 0, float(value)), "value": float(value),
        }
        for value in range(first, first + count)
    ]  # fmt: skip


def test_a_thousand_points_of_one_moment_are_kept_once_and_quickly(runs: Runs) -> None:
    began = time.monotonic()
    for first in (0, 500, 500, 1000):  # a batch that is sent again, and one that overlaps
        runs.write(lambda conn, first=first: latest.add(conn, crowd(first, 1000), "mlflow"))  # type: ignore[misc]
    assert time.monotonic() - began < 60
    stored = runs.read(lambda conn: conn.execute(select(points.c.value)).scalars().all())
    assert sorted(stored) == [float(value) for value in range(2000)]
    row = runs.read(lambda conn: conn.execute(select(latest_rows)).mappings().one())
    assert (row["count"], row["min"], row["max"]) == (2000, 0.0, 1999.0)


def test_the_same_point_twice_in_a_batch_is_one(runs: Runs) -> None:
    found = [*crowd(0, 100), *crowd(0, 100)]
    assert runs.write(lambda conn: latest.add(conn, found, "mlflow")) == 100


def test_more_than_a_moment_holds_is_refused(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latest, "MOST_AT_ONCE", 100)
    runs.write(lambda conn: latest.add(conn, crowd(0, 150), "mlflow"))
    with pytest.raises(InvalidInput, match="more than 100 points"):
        runs.write(lambda conn: latest.add(conn, crowd(150, 100), "mlflow"))
