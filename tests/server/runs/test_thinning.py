from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.server.runs.thinning import (
    BLOCK,
    WIDTHS,
    Point,
    Thinner,
    points_of,
    spelled,
    summarise,
    telling,
    width_for,
)

VALUES = st.floats(allow_nan=True, allow_infinity=True)


def thinned(points: list[Point], limit: int, axis: str = "step") -> list[Point]:
    thinner = Thinner(limit, axis)  # type: ignore[arg-type]
    thinner.add(points)
    return thinner.result()


@given(st.lists(VALUES, min_size=1, max_size=400), st.integers(4, 60))
def test_peaks_ends_and_nan_are_never_lost(values: list[float], limit: int) -> None:
    points = [(step * 3, 1000 + step, value) for step, value in enumerate(values)]
    kept = thinned(points, limit)
    numbers = [value for value in values if value == value]
    if numbers:
        assert min(v for _, _, v in kept if v == v) == min(numbers)
        assert max(v for _, _, v in kept if v == v) == max(numbers)
    assert any(v != v for _, _, v in kept) == any(v != v for v in values)
    assert kept[0][:2] == points[0][:2] and kept[-1][:2] == points[-1][:2]
    assert set(p[:2] for p in kept) <= set(p[:2] for p in points)
    assert sum(v == v for _, _, v in kept) <= limit


def test_a_series_that_is_short_enough_stays_as_it_is() -> None:
    points = [(step, step, math.nan if step == 2 else float(step)) for step in range(10)]
    assert len(thinned(points, 10)) == 10


def test_what_comes_in_any_order_is_thinned_alike_and_sorted() -> None:
    points = [(step, step * 10, random.Random(step).random()) for step in range(5000)]
    shuffled = points.copy()
    random.Random(7).shuffle(shuffled)
    for axis in ("step", "time"):
        kept = thinned(shuffled, 100, axis)
        assert kept == sorted(kept) and len(kept) <= 100
        assert {min(points, key=lambda p: p[2]), max(points, key=lambda p: p[2])} <= set(kept)


def test_each_stretch_has_its_own_smallest_and_largest() -> None:
    points = [(step, step, math.sin(step / 50)) for step in range(10_000)]
    kept = thinned(points, 200)
    for low in range(0, 10_000, 1000):
        mine = [p for p in points if low <= p[0] < low + 1000]
        found = [p[2] for p in kept if low <= p[0] < low + 1000]
        assert max(found) == max(p[2] for p in mine)
        assert min(found) == min(p[2] for p in mine)


def test_negative_steps_have_a_place_too() -> None:
    points = [(step, 0, float(step)) for step in range(-500, 500)]
    kept = thinned(points, 50)
    assert (kept[0], kept[-1]) == (points[0], points[-1])


def test_a_block_is_summed_up_at_three_widths() -> None:
    points: list[Point] = [
        (None if step == 7 else step, step, step % 100) for step in range(BLOCK)
    ]
    points[700] = (700, 700, math.nan)
    coarse, middle, fine = (list(points_of(packed)) for packed in summarise(points))
    assert coarse[0] == points[0] and coarse[-1] == points[-1]
    assert len(coarse) == 4 and any(v != v for _, _, v in coarse)
    assert len(middle) <= 5 * BLOCK // WIDTHS[1] and len(fine) <= 5 * BLOCK // WIDTHS[2]
    assert {p[2] for p in coarse if p[2] == p[2]} >= {0, 99}


def test_of_a_few_points_those_that_tell_come_in_their_order() -> None:
    points = [(0, 0, 5.0), (1, 1, 9.0), (2, 2, 1.0), (3, 3, 4.0), (4, 4, 5.0)]
    assert telling(points) == [points[0], points[1], points[2], points[4]]
    nans: list[Point] = [(0, 0, math.nan), (1, 1, math.nan)]
    assert [p[0] for p in telling(nans)] == [0, 1]


@pytest.mark.parametrize(
    ("count", "limit", "width"),
    [(1000, 1000, 1), (40_000, 1000, 64), (1_000_000, 1000, 512), (10**7, 1000, 4096)],
)
def test_a_longer_series_is_read_more_coarsely(count: int, limit: int, width: int) -> None:
    assert width_for(count, limit) == width


def test_what_is_no_number_is_spelled() -> None:
    assert [spelled(v) for v in (1.5, math.nan, math.inf, -math.inf)] == [
        1.5, "NaN", "Infinity", "-Infinity",
    ]  # fmt: skip
