"""Claims: with 32 clients and SQLite the server takes at least 3x as many durable submits a second
as the disk can `fdatasync`; with PostgreSQL at least 0.35x of a bare driver that runs the same
SQL over 32 connections.

A submit is answered when it is on disk. Jobs are held, so that only the way in is measured. Many
submits share a commit, so on a slow disk the rate is bound by its syncs and on a fast one by the
server's CPU: the ratio says as much about the disk as about the server. So two more lines are told
with it: the fastest disk on which this rate would still be 3x, and the server's CPU for one
submit, all its threads together. The clients sign beforehand and speak over raw sockets from a
process of their own: about 0.1 ms of another core for each submit.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from pathlib import Path
from typing import Any

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


def measure() -> list[Row]:
    return [*on_sqlite(), *on_postgres()]


def on_sqlite() -> list[Row]:
    spent: list[float] = []
    with folder() as place, Platform(place / "home") as platform:
        found = interleave(
            {
                "submits": lambda: submits(platform, spent),
                "fdatasync": lambda: fdatasyncs(place),
            },
            ROUNDS,
        )
    rate, disk = median(found["submits"]), median(found["fdatasync"])
    claim = f"durable submits, {CLIENTS} clients, SQLite (fdatasync of the disk)"
    return [
        at_least(claim, rate, disk, GOAL, per_second),
        Row(
            f"fdatasync/s of a disk on which that rate is {GOAL}x (of this disk)",
            per_second(rate / GOAL), per_second(disk), f"{rate / disk:.2f}x here", "", None,
        ),
        Row("server CPU of one submit, SQLite", f"{median(spent) * 1e6:.0f} us", "", "", "", None),
    ]  # fmt: skip


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


def fdatasyncs(place: Path, seconds: float = 1.5) -> float:
    """How often a second a small append can be put on this disk, one after another."""
    file = os.open(place / "probe", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        began, done = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            os.write(file, b"x" * 4096)
            os.fdatasync(file)
            done += 1
        return done / (time.perf_counter() - began)
    finally:
        os.close(file)
        os.unlink(place / "probe")


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
