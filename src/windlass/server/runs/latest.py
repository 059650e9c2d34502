"""New points of a run, and with them the one row of each key that says where it stands.

Both in one transaction, and each statement merges by itself: two servers that write the same
run's points at once lose nothing of each other's.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection, Executable, case, func, literal_column, or_, select, tuple_

from windlass.core.errors import InvalidInput
from windlass.server.runs.tables import latest, points
from windlass.server.store.prepared import Prepared
from windlass.server.store.upsert import insert_for

Point = dict[str, Any]
"""The columns of a row of `points`."""
MADE = 1 << 62
"""Offsets from here on are made of what a point says."""
MOST_AT_ONCE = 100_000
"""Points of one series that have the same millisecond."""
_WITHIN = 20
"""Bits of such an offset that tell points of a millisecond apart."""
_SERIES = ("run_id", "key", "rank", "attempt")


def add(conn: Connection, found: Sequence[Point], source: str | Callable[[Point], str]) -> int:
    """Keep the points that are new, and what is the latest of each key; how many were new. One
    that is there already changes nothing. `source` is where they were picked up."""
    if not found:
        return 0
    insert, merge = _statements(conn.dialect.name)
    new = list(found)
    if len(found) > 1:
        _say(conn, "SAVEPOINT points")
        if insert.run_many(conn, found) != len(found):
            # Which of them were there before is not told; a repeat is rare, and taken one by one.
            _say(conn, "ROLLBACK TO SAVEPOINT points")
            new = _one_by_one(conn, insert, found)
        _say(conn, "RELEASE SAVEPOINT points")
    else:
        new = _one_by_one(conn, insert, found)
    merge.run_many(conn, _summaries(new, source))
    return len(new)


def made_offset(at_ms: int, step: int, value: float | None) -> int:
    """The offset of a point that has no line in a spool: it rises with the point's time, and is
    the same for the same point."""
    told = 0 if value is None else zlib.crc32(struct.pack("<d", value)) & 0x3F
    return MADE | min(at_ms, (1 << 42) - 1) << _WITHIN | (step & 0x3FFF) << 6 | told


def _one_by_one(conn: Connection, insert: Prepared, found: Sequence[Point]) -> list[Point]:
    new: list[Point] = []
    crowds: dict[tuple[Any, ...], _Crowd] = {}
    for point in found:
        crowd = crowds.get(_moment(point))
        while insert.run(conn, point).rowcount != 1:
            if point["offset"] < MADE:
                break
            # Another one has this number. Of one moment all are looked at once, however many.
            if crowd is None or crowd.missed(point):
                crowd = crowds[_moment(point)] = _Crowd(conn, point)
            if crowd.has(point):
                break
            point = {**point, "offset": crowd.free()}
        else:
            new.append(point)
            if crowd is not None:
                crowd.add(point)
    return new


def _moment(point: Point) -> tuple[Any, ...]:
    """What the points of one millisecond have in common."""
    return (*(point[name] for name in _SERIES), point["offset"] >> _WITHIN)


class _Crowd:
    """The points of one millisecond of a series, as they are stored."""

    def __init__(self, conn: Connection, point: Point) -> None:
        self._said: set[tuple[Any, ...]] = set()
        self._used: set[int] = set()
        first: int = point["offset"] >> _WITHIN << _WITHIN
        self._free = first
        query = select(points.c.offset, points.c.step, points.c.at_ms, points.c.value).where(
            *(points.c[name] == point[name] for name in _SERIES),
            points.c.offset.between(first, first | (1 << _WITHIN) - 1),
        )
        for offset, *said in conn.execute(query):
            self._used.add(offset)
            self._said.add(tuple(said))
        if len(self._used) >= MOST_AT_ONCE:
            raise InvalidInput(
                f"{point['key']}: more than {MOST_AT_ONCE} points have the time {point['at_ms']}",
                hint="give each its own step and its own time",
            )

    def missed(self, point: Point) -> bool:
        """Whether that number was thought to be free: then another has written meanwhile."""
        return point["offset"] not in self._used

    def has(self, point: Point) -> bool:
        return (point["step"], point["at_ms"], point["value"]) in self._said

    def add(self, point: Point) -> None:
        self._used.add(point["offset"])
        self._said.add((point["step"], point["at_ms"], point["value"]))

    def free(self) -> int:
        while self._free in self._used:
            self._free += 1
        return self._free


def _say(conn: Connection, words: str) -> None:
    raw = conn.info.get("raw")
    if raw is not None:
        raw.execute(words)
    else:
        conn.exec_driver_sql(words)


def _summaries(
    found: Sequence[Point], source: str | Callable[[Point], str]
) -> list[dict[str, Any]]:
    """By run, key and rank: the latest point, the least and the greatest value, how many. In the
    order of keys: two who change the same rows of a table in one order do not wait for each
    other in a circle."""
    made: dict[tuple[str, str, int], dict[str, Any]] = {}
    for point in found:
        value, step = point["value"], point["step"]
        name = (point["run_id"], point["key"], point["rank"])
        row = made.get(name)
        if row is None:
            made[name] = {
                "run_id": name[0], "key": name[1], "rank": name[2], "attempt": point["attempt"],
                "step": step, "at_ms": point["at_ms"], "value": value,
                "min": value, "max": value, "min_step": step, "max_step": step, "count": 1,
                "source": source if isinstance(source, str) else source(point),
            }  # fmt: skip
            continue
        row["count"] += 1
        if value is not None:
            if row["min"] is None or value < row["min"]:
                row["min"], row["min_step"] = value, step
            if row["max"] is None or value > row["max"]:
                row["max"], row["max_step"] = value, step
        if _order(point) >= _order(row):
            for column in ("attempt", "step", "at_ms", "value"):
                row[column] = point[column]
            if not isinstance(source, str):
                row["source"] = source(point)
    return [made[name] for name in sorted(made)]


def _order(point: dict[str, Any]) -> tuple[int, int, int, float]:
    """What makes a point later than another: MLflow's rule, within the attempt."""
    return (point["attempt"], point["step"] or 0, point["at_ms"], point["value"] or 0.0)


@cache
def _statements(dialect: str) -> tuple[Prepared, Prepared]:
    upsert = insert_for(dialect)
    return Prepared(upsert(points).on_conflict_do_nothing()), Prepared(_merge(upsert(latest)))


def _merge(row: Any) -> Executable:
    new, old = row.excluded, latest.c
    afresh = new.rank < old.rank
    later = or_(afresh, tuple_(*_ordered(new)) >= tuple_(*_ordered(old)))
    least = or_(afresh, old.min.is_(None), new.min < old.min)
    greatest = or_(afresh, old.max.is_(None), new.max > old.max)

    def either(told: Any, *names: str) -> dict[str, Any]:
        return {name: case((told, new[name]), else_=old[name]) for name in names}

    statement: Executable = row.on_conflict_do_update(
        index_elements=["run_id", "key"],
        set_={
            "rank": new.rank,
            "count": case((afresh, new["count"]), else_=old["count"] + new["count"]),
            **either(later, "attempt", "step", "at_ms", "value", "source"),
            **either(least, "min", "min_step"),
            **either(greatest, "max", "max_step"),
        },
        where=new.rank <= old.rank,
    )
    return statement


def _ordered(row: Any) -> tuple[Any, ...]:
    none: Any = literal_column("0")
    nan: Any = literal_column("0.0")
    return (row.attempt, func.coalesce(row.step, none), row.at_ms, func.coalesce(row.value, nan))
