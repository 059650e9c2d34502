"""Claim: a curve of 1,000,000 points, thinned to 1,000, costs the server no more than a tenth of
the CPU and of the bytes of reading the same points out in MLflow's form (`get-history`); and a
page of a table over 10,000 runs of 1,000 metrics each is filtered, sorted and answered within a
second of CPU, and so is a page of 10 of MLflow's `runs/search` over the same, which tells every
metric of each run.

Both contestants read the same SQLite file in this process and write the JSON that would be sent.
The first read of a long series sums it up for all that follow; it is told by itself.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from sqlalchemy import Connection, select

from benchmarks.measure import Row, at_most, below, folder, median
from windlass.server.mlflow import search_runs
from windlass.server.mlflow.shapes import runs_told
from windlass.server.runs import routes, series, table
from windlass.server.runs.tables import points, runs, tracking
from windlass.server.store.open import open_store

POINTS = int(os.environ.get("WINDLASS_BENCHMARK_POINTS", 1_000_000))
RUNS = int(os.environ.get("WINDLASS_BENCHMARK_RUNS", 10_000))
KEYS = int(os.environ.get("WINDLASS_BENCHMARK_KEYS", 1_000))
ROUNDS = 5
RUN = "a" * 32
PROJECT = "d" * 32


def measure() -> list[Row]:
    with folder() as place:
        curve = asyncio.run(_curve(f"sqlite:///{place}/curve.db"))
        return curve + asyncio.run(_table(f"sqlite:///{place}/table.db"))


async def _curve(url: str) -> list[Row]:
    store = await open_store(url, migrate=False, create=tracking, synchronous="NORMAL")
    try:
        await store.write(_fill_points)
        wanted = series.Wanted(keys=("loss",), limit=1000)
        sizes: dict[str, int] = {}

        async def ours() -> None:
            found = await series.read(store, RUN, wanted)
            sizes["ours"] = len(routes.as_json(found))

        async def theirs() -> None:
            sizes["theirs"] = len(await store.read(_history))

        first = await _cpu_ms(ours)
        found: dict[str, list[float]] = {"ours": [], "theirs": []}
        for _ in range(ROUNDS):
            found["ours"].append(await _cpu_ms(ours))
            found["theirs"].append(await _cpu_ms(theirs))
    finally:
        await store.close()
    claim = f"{POINTS:,} points for a curve of 1,000"
    mine, other = median(found["ours"]), median(found["theirs"])
    return [
        at_most(f"{claim}, CPU (all of them in MLflow's form)", mine, other, 0.1, _ms),
        at_most(f"{claim}, bytes", sizes["ours"], sizes["theirs"], 0.1, _kilobytes),
        at_most(f"{claim}, the first time, CPU", first, other, 1.0, _ms),
    ]


async def _table(url: str) -> list[Row]:
    store = await open_store(url, migrate=False, create=tracking, synchronous="NORMAL")
    try:
        for start in range(0, RUNS, 500):
            await store.write(lambda conn, start=start: _fill_runs(conn, start))  # type: ignore[misc]
        asked = table.Asked(
            "metrics.k7 < 0.5 and params.lr > 0.01", "-max.k3",
            ("params.lr", "metrics.k3", "metrics.k7"), limit=50,
        )  # fmt: skip
        plain = table.Asked(limit=50)
        size = 0

        async def ask(what: table.Asked) -> None:
            nonlocal size
            found = await store.read(lambda conn: table.page(conn, PROJECT, what))
            size = len(json.dumps(found))

        searched = search_runs.query(
            "metrics.k7 < 0.5 and params.lr != '0.5'", ["metrics.k3 DESC"], store.dialect
        ).where(runs.c.project_id == PROJECT, runs.c.experiment_id.in_(["0"]))

        def found(conn: Connection) -> str:
            rows = conn.execute(searched.limit(10)).mappings().all()
            return json.dumps(runs_told(conn, PROJECT, rows, model_inputs=False))

        async def search() -> None:
            assert len(await store.read(found)) > 10 * KEYS

        chosen = [await _cpu_ms(lambda: ask(asked)) for _ in range(ROUNDS)]
        mlflow = [await _cpu_ms(search) for _ in range(ROUNDS)]
        newest = [await _cpu_ms(lambda: ask(plain)) for _ in range(ROUNDS)]
    finally:
        await store.close()
    claim = f"a page of {RUNS:,} runs x {KEYS:,} metrics"
    return [
        below(f"{claim}, filtered and sorted, CPU", median(chosen), 1000.0, _ms),
        below(f"{claim}, the newest, common columns, CPU", median(newest), 1000.0, _ms),
        below(f"{claim}, bytes", size, 1e6, _kilobytes),
        below(f"runs/search, 10 of {RUNS:,} x {KEYS:,}, CPU", median(mlflow), 1000.0, _ms),
    ]


async def _cpu_ms(work: Callable[[], Coroutine[Any, Any, None]]) -> float:
    began = time.process_time()
    await work()
    return (time.process_time() - began) * 1000


def _fill_points(conn: Connection) -> None:
    rng = random.Random(1)
    raw = conn.info["raw"]

    def rows() -> Iterator[tuple[Any, ...]]:
        for step in range(POINTS):
            value = math.exp(-step / POINTS) + rng.random() / 10
            yield RUN, "loss", 0, 1, step * 80, step, 1_700_000_000_000 + step * 10, value

    raw.executemany("INSERT INTO points VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows())
    raw.execute(
        "INSERT INTO latest (run_id, key, rank, attempt, at_ms, value, count) "
        "VALUES (?, 'loss', 0, 1, 0, 0.0, ?)",
        (RUN, POINTS),
    )


def _history(conn: Connection) -> bytes:
    """The answer of `metrics/get-history`: every point, with its key."""
    query = select(points.c.key, points.c.value, points.c.at_ms, points.c.step)
    found = conn.execute(query.where(points.c.run_id == RUN, points.c.key == "loss"))
    return json.dumps(
        {
            "metrics": [
                {"key": key, "value": value, "timestamp": at_ms, "step": step}
                for key, value, at_ms, step in found
            ]
        }
    ).encode()


def _fill_runs(conn: Connection, start: int) -> None:
    rng = random.Random(start)
    raw = conn.info["raw"]
    ids = [f"{number:032x}" for number in range(start, min(RUNS, start + 500))]
    raw.executemany(
        'INSERT INTO runs (id, project_id, experiment_id, name, "user", status, state, started_ms,'
        " source, job_id) VALUES (?, ?, '0', ?, 'ada', 'FINISHED', 'active', ?, 'job', ?)",
        ((run, PROJECT, f"run-{run[-6:]}", int(run, 16), run) for run in ids),
    )
    raw.executemany(
        "INSERT INTO params (run_id, key, value, source) VALUES (?, 'lr', ?, 'argv')",
        ((run, str(round(rng.random(), 3))) for run in ids),
    )
    raw.executemany(
        "INSERT INTO latest (run_id, key, rank, attempt, step, at_ms, value, min, max, count,"
        " source) VALUES (?, ?, 0, 1, 100, 0, ?, 0.0, ?, 100, 'windlass.log')",
        ((run, f"k{key}", rng.random(), rng.random()) for run in ids for key in range(KEYS)),
    )


def _ms(value: float) -> str:
    return f"{value:.1f} ms"


def _kilobytes(value: float) -> str:
    return f"{value / 1000:,.0f} kB"
