"""Claims: with 32 clients and SQLite the server takes at least 3x as many durable submits a second
as the disk can `fdatasync`; with PostgreSQL at least 0.35x of a bare driver that runs the same
SQL over 32 connections.

A submit is answered when it is on disk. Jobs are held, so that only the way in is measured. Many
submits share a commit, so on a slow disk the rate is bound by its syncs and on a fast one by the
server's CPU: the ratio says as much about the disk as about the server. So the same is measured on
slower disks too: this one, with syncs that take some milliseconds longer, in the server and in the
probe alike. The clients sign beforehand and speak over raw sockets from a process of their own:
about 0.1 ms of another core for each submit.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import slow_disk
from benchmarks.load import SUBMIT, flood, signed
from benchmarks.measure import (
    Row,
    at_least,
    cpu_seconds,
    folder,
    interleave,
    median,
    per_second,
    script,
)
from windlass.testing import postgres as postgres_kit
from windlass.testing.platform import Platform

CLIENTS = 32
REQUESTS = 2000
ROUNDS = 5
GOAL = 3
SLOWER_MS = (0, 2, 3, 5, 10)
"""By how much each sync takes longer than on this disk."""


def measure() -> list[Row]:
    return [*on_sqlite(), *on_postgres()]


def on_sqlite() -> list[Row]:
    claim = f"durable submits, {CLIENTS} clients, SQLite (fdatasync of the disk)"
    spent: list[float] = []
    with folder() as place, ExitStack() as servers:
        made = slow_disk.library(place)
        delays = SLOWER_MS if made is not None else SLOWER_MS[:1]
        contestants: dict[str, Callable[[], float]] = {}
        for delay in delays:
            env = slow_disk.slower_by(delay, made)
            platform = servers.enter_context(Platform(place / f"home-{delay}", env=env))
            told = spent if not delay else None
            contestants[f"submits {delay}"] = partial(submits, platform, told)
            contestants[f"fdatasync {delay}"] = partial(fdatasyncs, place, env)
        found = {name: median(v) for name, v in interleave(contestants, ROUNDS).items()}
    rows = []
    for delay in delays:
        slower = f", each sync {delay} ms longer" if delay else ""
        rate, disk = found[f"submits {delay}"], found[f"fdatasync {delay}"]
        rows.append(at_least(claim + slower, rate, disk, GOAL, per_second))
    if made is None:
        rows.append(Row(f"{claim}, slower", "no C compiler", "", "", f"≥ {GOAL}x", None))
    cpu = f"{median(spent) * 1e6:.0f} us"
    return [*rows, Row("server CPU of one submit, SQLite", cpu, "", "", "", None)]


def on_postgres() -> list[Row]:
    claim = f"durable submits, {CLIENTS} clients, PostgreSQL (bare driver, same SQL)"
    # The tests' server does not sync; this one must.
    settings = {"fsync": "on", "full_page_writes": "on", "autovacuum": "on"}
    kept = dict(postgres_kit._SETTINGS)
    postgres_kit._SETTINGS.update(settings, max_connections="120")
    try:
        with folder() as place, postgres_kit.postgres_server() as server:
            if server is None:
                return [Row(claim, "PostgreSQL is not installed", "", "", "≥ 0.35x", None)]
            url = server.fresh()
            with Platform(place / "home", database=url) as platform:
                found = interleave(
                    {"submits": lambda: submits(platform), "bare": lambda: bare(url)}, ROUNDS
                )
    finally:
        postgres_kit._SETTINGS.clear()
        postgres_kit._SETTINGS.update(kept)
    return [at_least(claim, median(found["submits"]), median(found["bare"]), 0.35, per_second)]


def submits(platform: Platform, spent: list[float] | None = None) -> float:
    """Submits a second; what each cost the server in CPU is added to `spent`."""
    key = platform.credentials()
    requests = [signed(platform, key, "POST", "/jobs", SUBMIT) for _ in range(REQUESTS)]
    assert platform.process is not None
    before = cpu_seconds(platform.process.pid)
    rate = flood(platform.port, requests, CLIENTS)
    if spent is not None:
        spent.append((cpu_seconds(platform.process.pid) - before) / REQUESTS)
    return rate


def fdatasyncs(place: Path, env: dict[str, str]) -> float:
    """How often a second a small append can be put on this disk, one after another, by a process
    with this environment."""
    words = [sys.executable, "-c", _PROBE, str(place / "probe")]
    ran = subprocess.run(
        words, env={**os.environ, **env}, check=True, stdout=subprocess.PIPE, timeout=60
    )
    return float(ran.stdout)


_PROBE = """
import os, sys, time
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
began, done = time.perf_counter(), 0
while time.perf_counter() - began < 1.5:
    os.write(file, b"x" * 4096)
    os.fdatasync(file)
    done += 1
print(done / (time.perf_counter() - began))
os.unlink(sys.argv[1])
"""


def bare(url: str) -> float:
    return asyncio.run(_bare(url))


async def _bare(url: str) -> float:
    """The statements of one submit, in one transaction each, over as many connections."""
    import psycopg

    connections = [await psycopg.AsyncConnection.connect(url) for _ in range(CLIENTS)]
    copies = []
    for table in ("signatures", "idempotency", "jobs", "events"):
        copies.append(await _copied(connections[0], table))
    await connections[0].commit()
    left = [REQUESTS]

    async def one(connection: Any) -> None:
        while left[0] > 0:
            left[0] -= 1
            await _submit(connection, copies)
            await connection.commit()

    try:
        began = time.perf_counter()
        await asyncio.gather(*(one(connection) for connection in connections))
        return REQUESTS / (time.perf_counter() - began)
    finally:
        for connection in connections:
            await connection.close()


async def _copied(connection: Any, table: str) -> tuple[str, dict[str, Any]]:
    """An INSERT like that of a real row of the table, and its values."""
    cursor = await connection.execute(f"SELECT * FROM {table} LIMIT 1")
    row = await cursor.fetchone()
    assert row is not None
    found = {column.name: value for column, value in zip(cursor.description, row, strict=True)}
    for name in {"jobs": ("number",), "events": ("id", "position")}.get(table, ()):
        del found[name]  # given by the database
    marks = ", ".join(f"%({name})s" for name in found)
    insert = f"INSERT INTO {table} ({', '.join(found)}) VALUES ({marks}) ON CONFLICT DO NOTHING"
    return insert, found


async def _submit(connection: Any, copies: list[tuple[str, dict[str, Any]]]) -> None:
    job, key = secrets.token_hex(16), secrets.token_hex(16)
    fresh = {"hash": secrets.token_hex(32), "id": job, "job_id": job, "key": key, "seq": 1}
    for insert, values in copies:
        new = {name: fresh[name] for name in values if name in fresh}
        await connection.execute(insert, {**values, **new})


if __name__ == "__main__":
    script(measure)
