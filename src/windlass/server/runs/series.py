"""Series of a run, thinned on the way out: a point for each pixel is enough, and a job may have
logged millions.

A short series is read point by point. A long one comes from its blocks (`blocks`): summaries
where a stretch is wanted whole, the points themselves at the ends of what was asked for and where
two attempts went over the same steps. Of a step that a later attempt did again, the later counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, Connection, RowMapping, func, select

from windlass.server.runs import blocks as making
from windlass.server.runs.tables import blocks, latest, points
from windlass.server.runs.thinning import (
    BLOCK,
    WIDTHS,
    Axis,
    Point,
    Thinner,
    points_of,
    width_for,
)
from windlass.server.store.base import Store

_PAGE = 10_000
_BITS = 2**27
"""The widest range of steps that is marked in bits (16 MiB) and not kept as numbers."""


@dataclass(frozen=True)
class Wanted:
    """What to read: all keys and ranks where none is named, at most `limit` points of each."""

    keys: tuple[str, ...] = ()
    rank: int | None = None
    axis: Axis = "step"
    low: int | None = None
    high: int | None = None
    limit: int = 1000

    def takes(self, point: Point) -> bool:
        if self.low is None and self.high is None:
            return True
        at = point[0] if self.axis == "step" else point[1]
        return (
            at is not None
            and (self.low is None or at >= self.low)
            and (self.high is None or at <= self.high)
        )


@dataclass(frozen=True)
class Series:
    key: str
    rank: int
    points: list[Point]
    source: str
    thinned: bool
    """Whether there are more points than these."""


async def read(store: Store, run_id: str, wanted: Wanted) -> list[Series]:
    """By key and rank. Bounded in time and memory however long the series are."""
    await making.make(store, run_id, wanted.keys)
    return await store.read(lambda conn: series(conn, run_id, wanted))


def series(conn: Connection, run_id: str, wanted: Wanted) -> list[Series]:
    known = _sources(conn, run_id, wanted.keys)
    long = set(making.long_keys(conn, run_id, wanted.keys))
    found = [*_short(conn, run_id, wanted, long, known)]
    for key in long:
        ranks: dict[int, list[int]] = {}
        for rank, attempt in making.streams(conn, run_id, key):
            if wanted.rank in (None, rank):
                ranks.setdefault(rank, []).append(attempt)
        for rank, attempts in ranks.items():
            line = Line(conn, run_id, key, rank, attempts)
            read, count = line.read(wanted)
            if read:
                thinned = count > len(read)
                found.append(Series(key, rank, read, known.get(key, ""), thinned))
    return sorted(found, key=lambda each: (each.key, each.rank))


def _sources(conn: Connection, run_id: str, keys: Sequence[str]) -> dict[str, str]:
    query = select(latest.c.key, latest.c.source).where(latest.c.run_id == run_id)
    if keys:
        query = query.where(latest.c.key.in_(keys))
    return {key: source for key, source in conn.execute(query)}


def _short(
    conn: Connection, run_id: str, wanted: Wanted, long: set[str], known: Mapping[str, str]
) -> Iterator[Series]:
    """All short series in one read, in the order of the index."""
    if wanted.keys and long.issuperset(wanted.keys):
        return
    query = select(
        points.c.key, points.c.rank, points.c.attempt, points.c.step, points.c.at_ms,
        points.c.value,
    ).where(points.c.run_id == run_id)  # fmt: skip
    if wanted.keys:
        query = query.where(points.c.key.in_(set(wanted.keys) - long))
    elif long:
        query = query.where(points.c.key.not_in(long))
    if wanted.rank is not None:
        query = query.where(points.c.rank == wanted.rank)
    order = (points.c.key, points.c.rank, points.c.attempt, points.c.offset)
    line: dict[int, list[Point]] = {}
    name: tuple[str, int] | None = None
    for key, rank, attempt, step, at_ms, value in _rows(conn, query.order_by(*order)):
        if name != (key, rank):
            if name is not None:
                yield from _of_short(name, line, wanted, known)
            name, line = (key, rank), {}
        line.setdefault(attempt, []).append((step, at_ms, value_of(value)))
    if name is not None:
        yield from _of_short(name, line, wanted, known)


def _of_short(
    name: tuple[str, int], line: dict[int, list[Point]], wanted: Wanted, known: Mapping[str, str]
) -> Iterator[Series]:
    stepless = any(point[0] is None for found in line.values() for point in found)
    thinner = Thinner(wanted.limit, "time" if stepless else wanted.axis)
    again: set[int] = set()
    count = 0
    for attempt in sorted(line, reverse=True):
        good = [p for p in line[attempt] if p[0] not in again and wanted.takes(p)]
        again.update(p[0] for p in line[attempt] if p[0] is not None)
        thinner.add(good)
        count += len(good)
    if count:
        read = thinner.result()
        yield Series(*name, read, known.get(name[0], ""), count > len(read))


class Line:
    """One long series: a key of one rank, over its attempts."""

    def __init__(
        self, conn: Connection, run_id: str, key: str, rank: int, attempts: list[int]
    ) -> None:
        self._conn = conn
        self._attempts = attempts
        self._blocks_of = (
            blocks.c.run_id == run_id, blocks.c.key == key, blocks.c.rank == rank,
        )  # fmt: skip
        self._points_of = (
            points.c.run_id == run_id, points.c.key == key, points.c.rank == rank,
        )  # fmt: skip
        columns = [column for column in blocks.c if column.name not in _BY_WIDTH.values()]
        self._blocks: dict[int, list[RowMapping]] = {attempt: [] for attempt in attempts}
        for row in conn.execute(
            select(*columns)
            .where(*self._blocks_of)
            .order_by(blocks.c.attempt, blocks.c.first_offset)
        ).mappings():
            self._blocks.setdefault(row["attempt"], []).append(row)

    def read(self, wanted: Wanted) -> tuple[list[Point], int]:
        """Its points, and how many there were to choose from."""
        stepless = any(row["step_low"] is None for made in self._blocks.values() for row in made)
        thinner = Thinner(wanted.limit, "time" if stepless else wanted.axis)
        ranges = self.ranges() if len(self._attempts) > 1 else {}
        inside = {
            attempt: [row for row in found if _meets(row, wanted)]
            for attempt, found in self._blocks.items()
        }
        whole = sum(len(found) for found in inside.values()) * BLOCK
        width = width_for(whole, wanted.limit)
        count = 0
        for attempt in self._attempts:
            later = [ranges[other] for other in self._attempts if other > attempt and ranges]
            later = [each for each in later if _crosses(ranges[attempt], each)]
            again = self.steps_after(attempt, ranges[attempt]) if later else NO_MARKS
            summed: list[RowMapping] = []
            for row in inside[attempt]:
                apart = not any(_crosses((row["step_low"], row["step_high"]), r) for r in later)
                if width > 1 and apart and _within(row, wanted):
                    summed.append(row)
                else:
                    rest = points.c.offset.between(row["first_offset"], row["last_offset"])
                    page = list(_good(self._points(attempt, rest), wanted, again))
                    thinner.add(page)
                    count += len(page)
            thinner.add(self._summaries(attempt, summed, width))
            count += len(summed) * BLOCK
            sealed = max((row["last_offset"] for row in self._blocks[attempt]), default=-1)
            tail = points.c.offset > sealed
            for page in _pages(_good(self._points(attempt, tail), wanted, again)):
                thinner.add(page)
                count += len(page)
        return thinner.result(), count

    def _points(self, attempt: int, *which: Any) -> Iterator[Point]:
        query = select(points.c.step, points.c.at_ms, points.c.value)
        mine = (*self._points_of, points.c.attempt == attempt, *which)
        for step, at_ms, value in _rows(self._conn, query.where(*mine).order_by(points.c.offset)):
            yield step, at_ms, value_of(value)

    def _summaries(self, attempt: int, rows: list[RowMapping], width: int) -> Iterator[Point]:
        if not rows:
            return
        chosen = {row["first_offset"] for row in rows}
        column: Column[bytes] = blocks.c[_BY_WIDTH[width]]
        query = select(blocks.c.first_offset, column).where(
            *self._blocks_of, blocks.c.attempt == attempt,
            blocks.c.first_offset.between(min(chosen), max(chosen)),
        )  # fmt: skip
        for first, packed in _rows(self._conn, query.order_by(blocks.c.first_offset), 64):
            if first in chosen:
                yield from points_of(packed)

    def ranges(self) -> dict[int, tuple[int, int]]:
        """By attempt, the lowest and the highest step."""
        found: dict[int, tuple[int, int]] = {}
        for attempt in self._attempts:
            made = self._blocks[attempt]
            steps = [row["step_low"] for row in made] + [row["step_high"] for row in made]
            sealed = max((row["last_offset"] for row in made), default=-1)
            query = select(func.min(points.c.step), func.max(points.c.step)).where(
                *self._points_of, points.c.attempt == attempt, points.c.offset > sealed
            )
            steps += list(self._conn.execute(query).one())
            known = [step for step in steps if step is not None]
            found[attempt] = (min(known), max(known)) if known else (1, 0)
        return found

    def steps_after(self, attempt: int, within: tuple[int, int]) -> Marks:
        marks = Marks(*within)
        query = select(points.c.step).where(
            *self._points_of, points.c.attempt > attempt, points.c.step.between(*within)
        )
        for (step,) in _rows(self._conn, query):
            marks.add(step)
        return marks


class Marks:
    """Some whole numbers between two others, in little memory."""

    def __init__(self, low: int, high: int) -> None:
        self._low = low
        narrow = high - low < _BITS
        self._bits = bytearray((high - low) // 8 + 1) if narrow and high >= low else None
        self._set: set[int] = set()
        self._high = high

    def add(self, number: int) -> None:
        if self._bits is None:
            self._set.add(number)
        else:
            place = number - self._low
            self._bits[place >> 3] |= 1 << (place & 7)

    def __contains__(self, number: int | None) -> bool:
        if number is None or not self._low <= number <= self._high:
            return False
        if self._bits is None:
            return number in self._set
        place = number - self._low
        return bool(self._bits[place >> 3] & (1 << (place & 7)))


_BY_WIDTH = dict(zip(WIDTHS, ("coarse", "middle", "fine"), strict=True))
NO_MARKS = Marks(1, 0)


def _good(found: Iterable[Point], wanted: Wanted, again: Marks) -> Iterator[Point]:
    return (point for point in found if wanted.takes(point) and point[0] not in again)


def _pages(found: Iterator[Point]) -> Iterator[list[Point]]:
    page: list[Point] = []
    for point in found:
        page.append(point)
        if len(page) == _PAGE:
            yield page
            page = []
    yield page


def _rows(conn: Connection, query: Any, page: int = _PAGE) -> Iterator[Any]:
    """Row by row, of which only a page is in memory."""
    return iter(conn.execute(query, execution_options={"yield_per": page}))


def value_of(stored: float | None) -> float:
    return math.nan if stored is None else stored


def _crosses(one: tuple[int | None, int | None], other: tuple[int, int]) -> bool:
    low, high = one
    return low is None or high is None or (low <= other[1] and other[0] <= high)


def _ends(row: RowMapping, axis: Axis) -> tuple[int | None, int | None]:
    if axis == "step":
        return row["step_low"], row["step_high"]
    return row["at_low"], row["at_high"]


def _meets(row: RowMapping, wanted: Wanted) -> bool:
    low, high = _ends(row, wanted.axis)
    return (
        low is None
        or high is None
        or (
            (wanted.high is None or low <= wanted.high)
            and (wanted.low is None or high >= wanted.low)
        )
    )


def _within(row: RowMapping, wanted: Wanted) -> bool:
    if wanted.low is None and wanted.high is None:
        return True
    low, high = _ends(row, wanted.axis)
    return (
        low is not None
        and high is not None
        and (wanted.low is None or low >= wanted.low)
        and (wanted.high is None or high <= wanted.high)
    )
