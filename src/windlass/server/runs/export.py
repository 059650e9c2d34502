"""Every point of a run, unthinned, as lines of JSON: a page at a time, however many there are."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from sqlalchemy import Connection, select

from windlass.server.runs.blocks import HASHED, streams
from windlass.server.runs.series import NO_MARKS, Line, Marks, Wanted, value_of
from windlass.server.runs.tables import latest, points
from windlass.server.runs.thinning import spelled
from windlass.server.store.base import Store

_PAGE = 20_000


async def lines(store: Store, run_id: str, wanted: Wanted) -> AsyncIterator[bytes]:
    """By key and rank, in order; what a later attempt did again is left out."""
    for key in await store.read(lambda conn: _keys(conn, run_id, wanted.keys)):
        found = await store.read(lambda conn, key=key: list(streams(conn, run_id, key)))  # type: ignore[misc]
        for rank, attempt in found:
            if wanted.rank not in (None, rank):
                continue
            attempts = [other for each, other in found if each == rank]
            stretch = _Stretch(run_id, key, rank, attempt, attempts, wanted)
            await store.read(stretch.begin)
            while page := await store.read(stretch.page):
                yield page


def _keys(conn: Connection, run_id: str, keys: Sequence[str]) -> list[str]:
    query = select(latest.c.key).where(latest.c.run_id == run_id).order_by(latest.c.key)
    return list(conn.execute(query.where(latest.c.key.in_(keys)) if keys else query).scalars())


class _Stretch:
    """The points of one key, rank and attempt: how far they were read."""

    def __init__(
        self, run_id: str, key: str, rank: int, attempt: int, attempts: list[int], wanted: Wanted
    ) -> None:
        self._line = (run_id, key, rank, attempts)
        self._attempt = attempt
        self._wanted = wanted
        self._again: Marks = NO_MARKS
        self._offset = -1
        self._hashed_done = False
        self._head = f'{{"key": {json.dumps(key)}, "rank": {rank}, "attempt": {attempt}, '

    def begin(self, conn: Connection) -> None:
        """Which steps a later attempt did again."""
        attempts = self._line[3]
        if self._attempt == attempts[-1]:
            return
        line = Line(conn, *self._line)
        ranges = line.ranges()
        self._again = line.steps_after(self._attempt, ranges[self._attempt])

    def page(self, conn: Connection) -> bytes:
        """Some more lines; nothing when there are none."""
        run_id, key, rank, _ = self._line
        mine = (
            points.c.run_id == run_id, points.c.key == key, points.c.rank == rank,
            points.c.attempt == self._attempt,
        )  # fmt: skip
        query = select(points.c.offset, points.c.step, points.c.at_ms, points.c.value).where(*mine)
        while self._offset < HASHED:
            rising = query.where(points.c.offset > self._offset, points.c.offset < HASHED)
            rows = conn.execute(rising.order_by(points.c.offset).limit(_PAGE)).all()
            self._offset = rows[-1][0] if rows else HASHED
            if written := self._written(rows):
                return written
        if self._hashed_done:
            return b""
        # Their offsets have no order to go on from: all in one page.
        self._hashed_done = True
        rest = query.where(points.c.offset >= HASHED)
        return self._written(conn.execute(rest.order_by(points.c.step, points.c.at_ms)))

    def _written(self, rows: Any) -> bytes:
        return "".join(
            f'{self._head}"step": {"null" if step is None else step}, "at_ms": {at_ms}, '
            f'"value": {_json(value)}}}\n'
            for _, step, at_ms, value in rows
            if step not in self._again and self._wanted.takes((step, at_ms, 0.0))
        ).encode()


def _json(value: float | None) -> str:
    said = spelled(value_of(value))
    return f'"{said}"' if isinstance(said, str) else repr(said)
