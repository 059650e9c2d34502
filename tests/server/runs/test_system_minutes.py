"""What ranks used, second by second: whole where it is short, averaged where it is long."""

from __future__ import annotations

import base64
import math
import struct
from typing import Any

import pytest
from runs_scene import Runs, run_id

from windlass.server.runs import system

BEGIN = 1_700_000_040_000


def minute(rank: int, number: int, values: list[float]) -> dict[str, Any]:
    data = base64.b64encode(struct.pack("<60f", *values)).decode()
    return {
        "rank": rank, "minute_ms": BEGIN + 60_000 * number, "names": ["cpu_percent"],
        "data": data,
    }  # fmt: skip


@pytest.fixture
def used(runs: Runs) -> Runs:
    """Two ranks, ten minutes; the second of them half as much, and nothing in its last second."""
    minutes = [
        minute(rank, at, [float(at) / (rank + 1)] * 59 + [math.nan if rank else float(at)])
        for rank in range(2)
        for at in range(10)
    ]
    for _ in range(2):  # sent again
        runs.write(lambda conn: system.keep(conn, run_id(1), 1, minutes))
    return runs


def test_all_seconds_come_where_they_fit(used: Runs) -> None:
    (first, second), left_out = used.read(lambda c: system.series(c, run_id(1), points=1000))
    assert left_out == ""
    assert (first["rank"], len(first["points"])) == (0, 600)
    assert (second["rank"], len(second["points"])) == (1, 590)
    assert first["points"][61] == (BEGIN + 61_000, 1.0)


def test_more_are_averaged_over_equal_spans_in_order(used: Runs) -> None:
    (first, second), _ = used.read(lambda conn: system.series(conn, run_id(1), points=10))
    assert first["points"] == [(BEGIN + 60_000 * at, float(at)) for at in range(10)]
    assert [value for _, value in second["points"]] == [at / 2 for at in range(10)]
    (one,), _ = used.read(lambda conn: system.series(conn, run_id(1), points=1, rank=0))
    assert one["points"] == [(BEGIN, 4.5)]


def test_a_stretch_of_time_and_nothing_at_all(used: Runs) -> None:
    found, _ = used.read(
        lambda conn: system.series(
            conn, run_id(1), since_ms=BEGIN + 30_000, until_ms=BEGIN + 61_000, rank=0
        )
    )
    assert [each for each, _ in found[0]["points"]] == [
        BEGIN + 1000 * second for second in range(30, 62)
    ]
    assert used.read(lambda conn: system.series(conn, run_id(2))) == ([], "")
    assert used.read(lambda conn: system.series(conn, run_id(1), names=("gpu",))) == ([], "")


def test_what_is_more_than_an_answer_holds_is_told(
    used: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "MAX_MINUTES", 15)
    found, left_out = used.read(lambda conn: system.series(conn, run_id(1), points=1000))
    assert [(each["rank"], len(each["points"])) for each in found] == [(0, 600), (1, 295)]
    assert "the first 15 minutes" in left_out and "rank 1 from 2023-11-14T22:19:00" in left_out
    found, left_out = used.read(lambda conn: system.series(conn, run_id(1), points=1000, rank=1))
    assert len(found[0]["points"]) == 590 and left_out == ""
