"""Long series, summed up once: stretches of points that no longer change get their telling points
written beside them, so that a curve of a million points is drawn from a few thousand.

Made by the first who reads a long series, a bounded piece at a time, and not with the writes: a
metric that is logged pays nothing for being looked at. Only points out of spools are summed up:
their offsets rise with time, so a stretch with enough behind it is final. Points of MLflow's wire
have hashes for offsets and are always read one by one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, func, select

from windlass.server.runs.tables import blocks, latest, points
from windlass.server.runs.thinning import BLOCK, Point, summarise
from windlass.server.store.base import Store
from windlass.server.store.upsert import insert_of

HASHED = 2**62
"""Offsets from here on are hashes of MLflow's points: no order of time."""

LEFT = BLOCK // 4
"""The newest points of a series, which stay without a summary: they are read one by one."""

_AT_ONCE = 32
"""Blocks made in one read: a tenth of a second."""


async def make(store: Store, run_id: str, keys: Iterable[str] = ()) -> None:
    """Sum up what is long enough and not summed up yet. Whoever does the same meanwhile makes the
    same blocks."""
    for key in await store.read(lambda conn: long_keys(conn, run_id, keys)):
        while made := await store.read(lambda conn, key=key: due(conn, run_id, key)):  # type: ignore[misc]
            await store.write(lambda conn, made=made: keep(conn, made))  # type: ignore[misc]


def long_keys(conn: Connection, run_id: str, keys: Iterable[str] = ()) -> list[str]:
    """The keys of a run whose points are not simply read."""
    query = select(latest.c.key).where(latest.c.run_id == run_id, latest.c.count > BLOCK + LEFT)
    if chosen := list(keys):
        query = query.where(latest.c.key.in_(chosen))
    return list(conn.execute(query.order_by(latest.c.key)).scalars())


def due(conn: Connection, run_id: str, key: str) -> list[dict[str, Any]]:
    """Some blocks that can be made now; none when all are there."""
    sealed = {
        (rank, attempt): last
        for rank, attempt, last in conn.execute(
            select(blocks.c.rank, blocks.c.attempt, func.max(blocks.c.last_offset))
            .where(blocks.c.run_id == run_id, blocks.c.key == key)
            .group_by(blocks.c.rank, blocks.c.attempt)
        )
    }
    made: list[dict[str, Any]] = []
    for rank, attempt in streams(conn, run_id, key):
        rest = (
            points.c.run_id == run_id, points.c.key == key, points.c.rank == rank,
            points.c.attempt == attempt, points.c.offset > sealed.get((rank, attempt), -1),
            points.c.offset < HASHED,
        )  # fmt: skip
        in_order = select(points.c.offset).where(*rest).order_by(points.c.offset)
        if conn.execute(in_order.offset(BLOCK + LEFT - 1).limit(1)).first() is None:
            continue
        query = select(points.c.offset, points.c.step, points.c.at_ms, points.c.value)
        found = conn.execute(
            query.where(*rest)
            .order_by(points.c.offset)
            .limit((_AT_ONCE - len(made)) * BLOCK + LEFT)
        ).all()
        for start in range(0, len(found) - LEFT - BLOCK + 1, BLOCK):
            part = found[start : start + BLOCK]
            names = {"run_id": run_id, "key": key, "rank": rank, "attempt": attempt}
            made.append({**names, **_block(part)})
        if len(made) >= _AT_ONCE:
            break
    return made


def keep(conn: Connection, made: list[dict[str, Any]]) -> None:
    upsert = insert_of(conn)
    conn.execute(upsert(blocks).on_conflict_do_nothing(), made)


def streams(conn: Connection, run_id: str, key: str) -> Iterator[tuple[int, int]]:
    """The ranks and attempts that logged a key, each found by one step down the index: a million
    points between them are not looked at."""
    query = select(points.c.rank, points.c.attempt).where(
        points.c.run_id == run_id, points.c.key == key
    )
    query = query.order_by(points.c.rank, points.c.attempt).limit(1)
    found = conn.execute(query).first()
    while found is not None:
        rank, attempt = found
        yield rank, attempt
        # Two questions: SQLite answers one for (rank, attempt) > (…) by looking at every point.
        same = query.where(points.c.rank == rank, points.c.attempt > attempt)
        found = (
            conn.execute(same).first() or conn.execute(query.where(points.c.rank > rank)).first()
        )


def _block(rows: Sequence[Any]) -> dict[str, Any]:
    found: list[Point] = [
        (step, at_ms, math.nan if value is None else value) for _, step, at_ms, value in rows
    ]
    steps = [step for step, _, _ in found if step is not None]
    whole = len(steps) == len(found)
    times = [at_ms for _, at_ms, _ in found]
    coarse, middle, fine = summarise(found)
    return {
        "first_offset": rows[0][0], "last_offset": rows[-1][0],
        "step_low": min(steps) if whole else None, "step_high": max(steps) if whole else None,
        "at_low": min(times), "at_high": max(times),
        "coarse": coarse, "middle": middle, "fine": fine,
    }  # fmt: skip
