"""A tracking store of either kind, and points in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from sqlalchemy import Connection, insert

from windlass.server.runs import latest, series
from windlass.server.runs.tables import params, runs, tags
from windlass.server.runs.thinning import Point
from windlass.server.store.base import Store

T = TypeVar("T")
PROJECT = "d" * 32


def run_id(number: int) -> str:
    return f"{number:032x}"


class Runs:
    def __init__(self, store: Store) -> None:
        self.store = store

    def write(self, fn: Callable[[Connection], T]) -> T:
        return asyncio.run(self.store.write(fn))

    def read(self, fn: Callable[[Connection], T]) -> T:
        return asyncio.run(self.store.read(fn))

    def log(
        self,
        run: str,
        found: Iterable[Point],
        *,
        key: str = "loss",
        rank: int = 0,
        attempt: int = 1,
        first: int = 0,
        source: str = "windlass.log",
    ) -> None:
        names = {"run_id": run, "key": key, "rank": rank, "attempt": attempt}
        rows = [
            {
                **names, "offset": first + at, "step": step, "at_ms": at_ms,
                "value": None if value != value else value,
            }
            for at, (step, at_ms, value) in enumerate(found)
        ]  # fmt: skip
        self.write(lambda conn: latest.add(conn, rows, source))

    def series(self, run: str, **wanted: Any) -> list[series.Series]:
        return asyncio.run(series.read(self.store, run, series.Wanted(**wanted)))

    def run(
        self,
        number: int,
        *,
        name: str = "",
        project: str = PROJECT,
        given: dict[str, str] | None = None,
        marked: dict[str, str] | None = None,
        **facts: Any,
    ) -> str:
        row = {
            "id": run_id(number), "project_id": project, "experiment_id": "0",
            "name": name or f"run-{number}", "user": "ada", "status": "FINISHED",
            "state": "active", "started_ms": 1_000_000 + number, "ended_ms": None,
            "source": "job", "job_id": run_id(number), **facts,
        }  # fmt: skip

        def make(conn: Connection) -> None:
            conn.execute(insert(runs).values(row))
            for table, values in ((params, given or {}), (tags, marked or {})):
                for key, value in values.items():
                    conn.execute(insert(table).values(run_id=row["id"], key=key, value=value))

        self.write(make)
        return run_id(number)
