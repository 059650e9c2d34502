"""Fewer points that tell the same: the smallest and largest value of each stretch, first and
last point, and that there was a NaN. Pure.

Two forms. `Thinner` takes points in any order and keeps so many stretches of equal length; it
widens them as the series grows, so nobody has to know beforehand how long that is, and its memory
does not grow with it. `summarise` is for good: of a block of 4096 consecutive points, the few that
any thinner could ask for, at three widths.

    4096 points   ■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■   first, min, max, last, a NaN
      512         ■■■■┊■■■■┊■■■■┊■■■■┊■■■■┊■■■■┊…    of each eighth
       64         ■┊■┊■┊■┊■┊■┊■┊■┊■┊■┊■┊■┊■┊■┊■┊…    of each 64th
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

Point = tuple[int | None, int, float]
"""Step, UTC milliseconds, value; a value may be NaN or infinite."""

Axis = Literal["step", "time"]

BLOCK = 4096
WIDTHS = (4096, 512, 64)
"""Of how many points a summary tells, coarse to fine."""

_POINT = struct.Struct("<qqd")
_NO_STEP = -(2**63)


class Thinner:
    """At most `limit` points of a series, added in any order; `all` of them when it has no more.

    The smallest and the largest value of each stretch are kept, so no peak is lost; beyond
    `limit` there may be a NaN for each stretch that has one."""

    def __init__(self, limit: int, axis: Axis) -> None:
        self._stretches = max(1, (limit - 2) // 2)
        self._few: list[Point] | None = []
        self._limit = limit
        self._at: Literal[0, 1] = 0 if axis == "step" else 1
        self._axis = axis
        self._width = 1
        self._kept: dict[int, list[Point | None]] = {}  # smallest, largest, NaN
        self._first: Point | None = None
        self._last: Point | None = None

    def add(self, points: Iterable[Point]) -> None:
        if self._few is not None:
            self._few.extend(points)
            if len(self._few) <= self._limit:
                return
            points, self._few = self._few, None
        kept, at, width = self._kept, self._at, self._width
        for point in points:
            value = point[2]
            where = (point[at] or 0) // width
            found = kept.get(where)
            if found is None:
                nan = value != value
                kept[where] = [None, None, point] if nan else [point, point, None]
                if len(kept) > self._stretches:
                    self._widen()
                    kept, width = self._kept, self._width
            elif value != value:
                if found[2] is None:
                    found[2] = point
            elif found[0] is None or found[1] is None:
                found[0] = found[1] = point
            elif value < found[0][2]:
                found[0] = point
            elif value > found[1][2]:
                found[1] = point
            self._ends(point)

    def result(self) -> list[Point]:
        """In order of the axis."""
        if self._few is not None:
            return sorted(self._few, key=self._place)
        chosen = {id(each): each for found in self._kept.values() for each in found if each}
        for end in (self._first, self._last):
            if end is not None:
                chosen[id(end)] = end
        return sorted(chosen.values(), key=self._place)

    def _ends(self, point: Point) -> None:
        # The order of the axis first: most points come in it, and then one comparison is enough.
        at = self._at
        if self._last is None or self._first is None:
            self._first = self._last = point
        elif (point[at] or 0) >= (self._last[at] or 0):
            self._last = point
        elif (point[at] or 0) < (self._first[at] or 0):
            self._first = point

    def _widen(self) -> None:
        while len(self._kept) > self._stretches:
            self._width *= 2
            merged: dict[int, list[Point | None]] = {}
            for where, found in self._kept.items():
                there = merged.setdefault(where // 2, found)
                if there is not found:
                    _merge(there, found)
            self._kept = merged

    def _place(self, point: Point) -> tuple[int, int]:
        step = _NO_STEP if point[0] is None else point[0]
        return (step, point[1]) if self._axis == "step" else (point[1], step)


def _merge(into: list[Point | None], found: Sequence[Point | None]) -> None:
    low, high, nan = found
    if low is not None and (into[0] is None or low[2] < into[0][2]):
        into[0] = low
    if high is not None and (into[1] is None or high[2] > into[1][2]):
        into[1] = high
    into[2] = into[2] or nan


def summarise(points: Sequence[Point]) -> tuple[bytes, ...]:
    """A block's telling points at each of `WIDTHS`, to be read with `points_of`."""
    return tuple(
        b"".join(
            _POINT.pack(_NO_STEP if step is None else step, at_ms, value)
            for start in range(0, len(points), width)
            for step, at_ms, value in telling(points[start : start + width])
        )
        for width in WIDTHS
    )


def telling(points: Sequence[Point]) -> list[Point]:
    """First, smallest, largest, last and a NaN of some points, in their order."""
    low = high = nan = -1
    for at, (_, _, value) in enumerate(points):
        if value != value:
            nan = at
        elif low < 0:
            low = high = at
        elif value < points[low][2]:
            low = at
        elif value > points[high][2]:
            high = at
    return [points[at] for at in sorted({0, low, high, nan, len(points) - 1} - {-1})]


def points_of(packed: bytes) -> Iterator[Point]:
    for step, at_ms, value in _POINT.iter_unpack(packed):
        yield (None if step == _NO_STEP else step), at_ms, value


def width_for(count: int, limit: int) -> int:
    """The widest summary that still has one for each stretch of so many points thinned to
    `limit`; 1: the points themselves."""
    return next((width for width in WIDTHS if count // width >= max(1, limit // 2)), 1)


def spelled(value: float) -> float | str:
    """As JSON can say it: what is not a number by its name."""
    if math.isfinite(value):
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
