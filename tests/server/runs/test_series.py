from __future__ import annotations

import asyncio
import json
import math
import random
from typing import Any

import pytest
from runs_scene import Runs, run_id
from sqlalchemy import func, select

from windlass.server.runs import export, service
from windlass.server.runs.blocks import HASHED
from windlass.server.runs.series import Marks, Wanted
from windlass.server.runs.tables import blocks
from windlass.server.runs.thinning import BLOCK, Point

RUN = run_id(1)
_RANDOM = random.Random(5)
VALUES = [_RANDOM.random() for _ in range(8 * BLOCK)]


def curve(start: int, end: int, *, base: float = 0.0, at_ms: int = 0) -> list[Point]:
    return [(step, at_ms + step * 10, base + VALUES[step]) for step in range(start, end)]


def test_a_short_series_comes_whole_with_where_it_was_picked_up(runs: Runs) -> None:
    runs.log(RUN, [(0, 5, 1.5), (1, 6, math.nan), (2, 7, math.inf)], source="tqdm")
    [found] = runs.series(RUN)
    assert (found.key, found.rank, found.source, found.thinned) == ("loss", 0, "tqdm", False)
    assert found.points[0] == (0, 5, 1.5)
    assert math.isnan(found.points[1][2]) and found.points[2][2] == math.inf


def test_keys_and_ranks_are_apart_and_may_be_chosen(runs: Runs) -> None:
    for key in ("acc", "loss"):
        for rank in (0, 1):
            runs.log(RUN, [(0, 0, float(rank))], key=key, rank=rank)
    runs.log(run_id(2), [(0, 0, 9.0)])
    assert [(s.key, s.rank) for s in runs.series(RUN)] == [
        ("acc", 0), ("acc", 1), ("loss", 0), ("loss", 1),
    ]  # fmt: skip
    assert [(s.key, s.rank) for s in runs.series(RUN, keys=("loss",), rank=1)] == [("loss", 1)]
    assert runs.series(RUN, keys=("other",)) == []


def test_of_a_step_done_again_the_later_attempt_counts(runs: Runs) -> None:
    runs.log(RUN, [(step, step, 1.0) for step in range(10)])
    runs.log(RUN, [(step, 100 + step, 2.0) for step in range(6, 12)], attempt=2)
    [found] = runs.series(RUN)
    assert [(p[0], p[2]) for p in found.points] == [
        *((step, 1.0) for step in range(6)), *((step, 2.0) for step in range(6, 12)),
    ]  # fmt: skip


def test_points_at_the_same_step_of_one_attempt_all_count(runs: Runs) -> None:
    runs.log(RUN, [(0, at, float(at)) for at in range(5)], first=HASHED)
    [found] = runs.series(RUN, axis="time")
    assert [p[2] for p in found.points] == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_a_long_series_keeps_its_peaks_whether_summed_up_or_not(runs: Runs) -> None:
    points = curve(0, 6 * BLOCK)
    points[9999] = (9999, 99990, 50.0)
    points[20_001] = (20_001, 200_010, math.nan)
    runs.log(RUN, points)
    first = runs.series(RUN, limit=100)
    made = runs.read(lambda conn: conn.execute(select(func.count()).select_from(blocks)).scalar())
    assert made == 5
    again = runs.series(RUN, limit=100)
    for [found] in (first, again):
        assert found.thinned and len(found.points) <= 150
        assert points[9999] in found.points
        assert min(points, key=lambda p: p[2]) in found.points
        assert any(math.isnan(value) for _, _, value in found.points)
        assert (found.points[0], found.points[-1]) == (points[0], points[-1])
    runs.log(RUN, [(6 * BLOCK, 10**7, -3.0)], first=6 * BLOCK)
    [grown] = runs.series(RUN, limit=100)
    assert grown.points[-1] == (6 * BLOCK, 10**7, -3.0)


def test_a_part_of_a_long_series_comes_as_fine_as_it_was_asked_for(runs: Runs) -> None:
    points = curve(0, 5 * BLOCK)
    runs.log(RUN, points)
    [few] = runs.series(RUN, low=5000, high=5099, limit=1000)
    assert few.points == points[5000:5100] and not few.thinned
    [by_time] = runs.series(RUN, axis="time", low=50_000, high=50_990, limit=1000)
    assert by_time.points == points[5000:5100]
    [wide] = runs.series(RUN, low=1000, high=19_000, limit=50)
    inside = points[1000:19_001]
    assert (wide.points[0], wide.points[-1]) == (inside[0], inside[-1])
    assert {min(inside, key=lambda p: p[2]), max(inside, key=lambda p: p[2])} <= set(wide.points)
    assert runs.series(RUN, low=10**6) == []


def test_long_attempts_that_went_over_the_same_steps_are_not_mixed(runs: Runs) -> None:
    runs.log(RUN, curve(0, 4 * BLOCK, base=100.0))
    resumed = 3 * BLOCK - 100
    runs.log(RUN, curve(resumed, 7 * BLOCK, at_ms=10**6), attempt=2)
    for limit in (60, 40_000):
        [found] = runs.series(RUN, limit=limit)
        assert all((value >= 100) == (step < resumed) for step, _, value in found.points)  # type: ignore[operator]
    assert len(found.points) == 7 * BLOCK


def test_a_long_series_without_steps_is_thinned_by_time(runs: Runs) -> None:
    points: list[Point] = [(None, at, float(at % 977)) for at in range(3 * BLOCK)]
    runs.log(RUN, points)
    [found] = runs.series(RUN, limit=100)
    assert 20 < len(found.points) <= 100
    assert (found.points[0], found.points[-1]) == (points[0], points[-1])


def test_points_of_mlflow_whose_offsets_are_hashes_are_sorted(runs: Runs) -> None:
    shuffled = curve(0, 2 * BLOCK)
    random.Random(1).shuffle(shuffled)
    runs.log(RUN, shuffled, first=HASHED)
    [found] = runs.series(RUN, limit=64)
    assert found.points == sorted(found.points)
    assert max(shuffled, key=lambda p: p[2]) in found.points
    lines = exported(runs, keys=("loss",))
    assert [line["step"] for line in lines] == list(range(2 * BLOCK))


def exported(runs: Runs, **wanted: Any) -> list[dict[str, Any]]:
    async def all_of() -> bytes:
        pages = [page async for page in export.lines(runs.store, RUN, Wanted(**wanted))]
        return b"".join(pages)

    return [json.loads(line) for line in asyncio.run(all_of()).splitlines()]


def test_every_point_can_be_had_but_those_done_again(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "_PAGE", 7)
    runs.log(RUN, [(step, step, 1.0) for step in range(30)])
    runs.log(RUN, [(step, step, math.nan) for step in range(20, 40)], attempt=2)
    runs.log(RUN, [(0, 0, 5.0)], key="acc")
    lines = exported(runs)
    assert lines[0] == {
        "key": "acc", "rank": 0, "attempt": 1, "step": 0, "at_ms": 0, "value": 5.0,
    }  # fmt: skip
    assert [(line["step"], line["value"]) for line in lines[1:]] == [
        *((step, 1.0) for step in range(20)), *((step, "NaN") for step in range(20, 40)),
    ]  # fmt: skip
    assert [line["step"] for line in exported(runs, keys=("loss",), low=5, high=7)] == [5, 6, 7]


def test_what_is_forgotten_leaves_no_summary(runs: Runs) -> None:
    runs.log(RUN, curve(0, 3 * BLOCK))
    assert runs.series(RUN)
    runs.write(lambda conn: service.forget(conn, [RUN]))
    assert runs.series(RUN) == []
    left = runs.read(lambda conn: conn.execute(select(func.count()).select_from(blocks)).scalar())
    assert left == 0


def test_marks_hold_numbers_of_a_narrow_and_of_a_wide_range() -> None:
    for high in (1000, 2**60):
        marks = Marks(-5, high)
        for number in (-5, 0, 999):
            marks.add(number)
        assert [n for n in (-6, -5, -4, 0, 999, 1000, None) if n in marks] == [-5, 0, 999]
