"""Claim: the ledger adds at most a quarter to the CPU of a job's start and end.

A job's start and its end as `Admit` and `Reconcile` write them, in a real SQLite file, one
transaction each; without the ledger the two calls to it do nothing. All else is the same: this is
the database's part of a job's life alone, and its worker, reports and HTTP are far more.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

from sqlalchemy import Connection, insert

from benchmarks.measure import Row, at_most, folder, median
from windlass.core.access import CallerKind, OrgRole, Principal, ProjectRole, rights_in
from windlass.core.jobs import AttemptState, JobSpec, JobState
from windlass.core.usage import PriceBody
from windlass.server.access.tables import projects, users
from windlass.server.jobs import moves, service
from windlass.server.store.open import open_store
from windlass.server.usage import ledger, prices

ROUNDS = 30
JOBS = 20
WHO = Principal(
    kind=CallerKind.USER, project_id="p" * 32, project_name="default", user_id="u" * 32,
    user_name="ada", rights=rights_in(OrgRole.OWNER, ProjectRole.MAINTAINER),
)  # fmt: skip
SPEC = JobSpec.model_validate(
    {"run": "true", "roles": {"worker": {"count": 2, "gpus": 1, "cpus": 2, "memory": "8GiB"}}}
)
PLACES = {"n1": ("local", "H200"), "n2": ("local", "H200")}
SEATS = [{"role": "worker", "index": at, "node": f"n{at + 1}", "gpu_ids": []} for at in range(2)]


def measure() -> list[Row]:
    with folder() as place:
        found = asyncio.run(_measure(place))
    return [
        at_most(
            "metering, CPU of a job's start and end", median(found[True]), median(found[False]),
            1.25, lambda value: f"{value * 1e6:.0f} us",
        )
    ]  # fmt: skip


async def _measure(place: Path) -> dict[bool, list[float]]:
    found: dict[bool, list[float]] = {True: [], False: []}
    store = await open_store(f"sqlite:///{place}/windlass.db")
    try:
        await store.write(_people)
        numbers = itertools.count(1)
        for turn in range(-3, ROUNDS):
            for metered in (True, False):
                ids = [await store.write(_submit) for _ in range(JOBS)]
                before = time.process_time()
                for job_id in ids:
                    if metered:
                        await _live(store, job_id, next(numbers))
                    else:
                        with patch.multiple(ledger, open_=_nothing, close=_nothing):
                            await _live(store, job_id, next(numbers))
                if turn >= 0:
                    found[metered].append((time.process_time() - before) / JOBS)
    finally:
        await store.close()
    return found


async def _live(store: Any, job_id: str, number: int) -> None:
    at_ms = 1_800_000_000_000 + number * 1000
    await store.write(lambda conn: _start(conn, job_id, number, at_ms))
    await store.write(lambda conn: _end(conn, job_id, at_ms + 900))


def _start(conn: Connection, job_id: str, number: int, at_ms: int) -> None:
    attempt = {
        "id": f"{number:032x}", "worker_hash": f"w{number}", "run_hash": f"r{number}",
        "tokens": b"", "kek": "", "engine": "local", "placement": SEATS,
    }  # fmt: skip
    job = moves.load(conn, job_id)
    moves.start_attempt(conn, job, attempt, reason="placed", now_ms=at_ms, places=PLACES)


def _end(conn: Connection, job_id: str, at_ms: int) -> None:
    job = moves.load(conn, job_id)
    attempt = moves.load_attempt(conn, job_id, job["fence"])
    assert attempt is not None
    job, _ = moves.move_attempt(
        conn, job, attempt, AttemptState.OVER, reason="", now_ms=at_ms, outcome="succeeded"
    )
    moves.move(conn, job, JobState.QUEUED, owner="reconcile", reason="", now_ms=at_ms)


def _submit(conn: Connection) -> str:
    return service.submit(
        conn, WHO, SPEC, "python", key=None, digest="", now_ms=1_800_000_000_000
    ).job_id


def _people(conn: Connection) -> None:
    conn.execute(insert(projects).values(id=WHO.project_id, name="default", created_ms=0))
    conn.execute(insert(users).values(id=WHO.user_id, name="ada", created_ms=0))
    for resource in ("cpu", "memory", "gpu", "gpu:H200"):
        prices.put(conn, PriceBody(resource=resource, price="1"), by="ada", now_ms=1)  # type: ignore[arg-type]  # money is text outside


def _nothing(*_: Any) -> None:
    pass
