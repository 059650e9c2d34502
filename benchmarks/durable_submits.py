"""Claims: with 32 clients and SQLite the server takes at least 3x as many durable submits a second
as the disk can `fdatasync`; with PostgreSQL at least 0.35x of a bare driver that runs the same
SQL over 32 connections.

A submit is answered when it is on disk. Jobs are held, so that only the way in is measured.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import time
from pathlib import Path
from typing import Any

from benchmarks.load import SUBMIT, flood, signed
from benchmarks.measure import (
    Row,
    at_least,
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


def measure() -> list[Row]:
    return [*on_sqlite(), *on_postgres()]


def on_sqlite() -> list[Row]:
    with folder() as place, Platform(place / "home") as platform:
        found = interleave(
            {"submits": lambda: submits(platform), "fdatasync": lambda: fdatasyncs(place)}, ROUNDS
        )
    claim = f"durable submits, {CLIENTS} clients, SQLite (fdatasync of the disk)"
    return [at_least(claim, median(found["submits"]), median(found["fdatasync"]), 3, per_second)]


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


def submits(platform: Platform) -> float:
    key = platform.credentials()
    return flood(
        platform.port,
        [signed(platform, key, "POST", "/jobs", SUBMIT) for _ in range(REQUESTS)],
        CLIENTS,
    )


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
    cursor = await connections[0].execute(
        "SELECT project_id, user_id, spec, name FROM jobs ORDER BY number DESC LIMIT 1"
    )
    row = await cursor.fetchone()
    assert row is not None
    cursor = await connections[0].execute("SELECT answer FROM idempotency LIMIT 1")
    answer = await cursor.fetchone()
    assert answer is not None
    await connections[0].commit()
    facts = (row[0], row[1], json.dumps(row[2]), row[3], json.dumps(answer[0]))
    left = [REQUESTS]

    async def one(connection: Any) -> None:
        while left[0] > 0:
            left[0] -= 1
            await _submit(connection, *facts)
            await connection.commit()

    try:
        began = time.perf_counter()
        await asyncio.gather(*(one(connection) for connection in connections))
        return REQUESTS / (time.perf_counter() - began)
    finally:
        for connection in connections:
            await connection.close()


async def _submit(
    connection: Any, project: str, user: str, spec: str, name: str, answer: str
) -> None:
    now, job, key = int(time.time() * 1000), secrets.token_hex(16), secrets.token_hex(16)
    execute = connection.execute
    await execute(
        "INSERT INTO signatures (hash, expires_ms) VALUES (%s, %s) ON CONFLICT DO NOTHING",
        (f"{now:012x}{secrets.token_hex(26)}", now),
    )
    await execute("SELECT * FROM idempotency WHERE project_id = %s AND key = %s", (project, key))
    await execute(
        "INSERT INTO jobs (id, project_id, user_id, name, state, reason, wish_now, revision,"
        " fence, framework, spec, members, gpus, submitted_ms, not_before_ms, failures,"
        " stale_restarts, lost_nodes) VALUES (%s, %s, %s, %s, 'held', 'held', 0, 1, 0, 'python',"
        " %s, 2, 0, %s, 0, 0, 0, '[]') RETURNING number",
        (job, project, user, name, spec, now),
    )
    await execute(
        "INSERT INTO events (job_id, project_id, seq, kind, at_ms, state, reason, data)"
        " VALUES (%s, %s, 1, 'submitted', %s, 'held', '', '{}')",
        (job, project, now),
    )
    await execute(
        "INSERT INTO idempotency (project_id, key, digest, status, answer, job_id)"
        " VALUES (%s, %s, %s, 201, %s, %s)",
        (project, key, secrets.token_hex(32), answer, job),
    )


if __name__ == "__main__":
    script(measure)
