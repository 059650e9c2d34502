"""Claims: p99 of list, show and submit with 500,000 finished jobs in the database is at most 2x of
that with 500; the removal of 100,000 expired jobs does not raise it.

Two servers side by side, asked in turns, one request at a time, so that both see the same second
of the machine. The large database is made from the small one by SQL: each new job is a copy of a
real one with ids, names and times of its own, with its attempt, worker, events and key.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from benchmarks.load import SUBMIT, Caller, signed
from benchmarks.measure import Row, folder, milliseconds, percentile, script
from windlass.testing.platform import Platform

FEW, MANY, EXPIRED = 500, 500_000, 100_000
CALLS = 400
MINUTE_MS = 60_000


def measure() -> list[Row]:
    with folder() as place:
        small, large = Platform(place / "small"), Platform(place / "large")
        _seed(small)
        fill(small.home / "windlass.db", FEW)
        shutil.copytree(small.home, large.home)
        fill(large.home / "windlass.db", MANY - FEW)
        os.sync()  # what was written here is not to be paid by the first commit
        with small, large:
            calm = compare(small, large)
        expire(large.home / "windlass.db", EXPIRED)
        os.sync()
        with small, large:
            began, before = time.perf_counter(), count(large)
            clean = compare(small, large)
            after = count(large)
            # Both of them took `CALLS` and some new jobs meanwhile.
            rate = (before - after + CALLS) / (time.perf_counter() - began)
    rows = [
        _row(f"p99 of {what}, {MANY:,} jobs ({FEW} jobs)", *calm[what], 2.0)
        for what in ("list", "show", "submit")
    ]
    for what in ("list", "show", "submit"):
        # What the machine did meanwhile is taken out by the small server, asked in turns.
        claim = f"p99 of {what} while {rate:,.0f} jobs/s are removed ({FEW} jobs)"
        rows.append(_row(claim, *clean[what], 2.0))
    return rows


def _row(claim: str, small: list[float], large: list[float], goal: float) -> Row:
    ours, peer = percentile(large, 0.99), percentile(small, 0.99)
    ratio = ours / peer
    medians = percentile(large, 0.5) / percentile(small, 0.5)
    return Row(
        claim, milliseconds(ours), milliseconds(peer), f"{ratio:.2f}x (median {medians:.2f}x)",
        f"≤ {goal:g}x", ratio <= goal,
    )  # fmt: skip


def compare(small: Platform, large: Platform) -> dict[str, tuple[list[float], list[float]]]:
    """Seconds of each call, on both, in turns."""
    found: dict[str, tuple[list[float], list[float]]] = {
        what: ([], []) for what in ("list", "show", "submit")
    }
    sides = [(p, p.credentials(), Caller(p.port), _ids(p)) for p in (small, large)]
    choose = random.Random(7)
    for turn in range(CALLS + 20):
        for side, (platform, key, caller, ids) in enumerate(sides):
            for what, method, path, body in (
                ("list", "GET", "/jobs?limit=50", None),
                ("show", "GET", f"/jobs/{choose.choice(ids)}", None),
                ("submit", "POST", "/jobs", SUBMIT),
            ):
                spent, _ = caller.call(signed(platform, key, method, path, body))
                if turn >= 20:
                    found[what][side].append(spent)
    for _, _, caller, _ in sides:
        caller.close()
    return found


def _seed(platform: Platform) -> None:
    """One real job that ran, to copy."""
    with platform:
        job = platform.submit(["true"])
        assert platform.wait(job).state == "succeeded"
        time.sleep(0.5)
        platform.stop()


def _ids(platform: Platform) -> list[str]:
    """Some jobs of all ages that will not be removed."""
    with closing(_open(platform.home / "windlass.db")) as db:
        (last,) = db.execute("SELECT max(number) FROM jobs").fetchone()
        choose = random.Random(1)
        wanted = [choose.randint(1, last) for _ in range(400)]
        marks = ",".join("?" * len(wanted))
        return [
            row[0]
            for row in db.execute(
                f"SELECT id FROM jobs WHERE number IN ({marks})"
                " AND state = 'succeeded' AND expires_ms > 1000000",
                wanted,
            )
        ]


def count(platform: Platform) -> int:
    with closing(_open(platform.home / "windlass.db")) as db:
        (found,) = db.execute("SELECT count(*) FROM jobs").fetchone()
    return int(found)


def expire(path: Path, number: int) -> None:
    with closing(_open(path)) as db, db:
        db.execute(
            "UPDATE jobs SET expires_ms = 1 WHERE number IN (SELECT number FROM jobs"
            " WHERE state = 'succeeded' ORDER BY number LIMIT ?)",
            (number,),
        )


def fill(path: Path, number: int) -> None:
    """Add so many finished jobs, copies of the first one. The server must be down."""
    with closing(_open(path)) as db, db:
        db.execute("PRAGMA synchronous=OFF")
        db.execute("PRAGMA cache_size=-1000000")
        db.create_function("new_id", 2, _new_id, deterministic=True)
        (first,) = db.execute("SELECT min(number) FROM jobs").fetchone()
        (last,) = db.execute("SELECT max(number) FROM jobs").fetchone()
        (position,) = db.execute("SELECT max(position) FROM events").fetchone()
        db.execute("CREATE TEMP TABLE n (i INTEGER PRIMARY KEY)")
        db.execute(
            "WITH RECURSIVE c(i) AS (SELECT ? UNION ALL SELECT i + 1 FROM c WHERE i < ?)"
            " INSERT INTO n SELECT i FROM c",
            (last + 1, last + number),
        )
        (job_id,) = db.execute("SELECT id FROM jobs WHERE number = ?", (first,)).fetchone()
        (attempt_id,) = db.execute(
            "SELECT id FROM attempts WHERE job_id = ?", (job_id,)
        ).fetchone()
        job, attempt = "new_id('job', n.i)", "new_id('attempt', n.i)"
        _copy(db, "jobs", f"t.id = '{job_id}'", {
            "number": "n.i", "id": job, "name": "'job-' || n.i",
            "submitted_ms": f"t.submitted_ms - {MINUTE_MS} + n.i / 100",
        })  # fmt: skip
        _copy(db, "attempts", f"t.id = '{attempt_id}'", {
            "id": attempt, "job_id": job, "worker_hash": "new_id('w', n.i)",
            "run_hash": "new_id('r', n.i)",
        })  # fmt: skip
        _copy(db, "workers", f"t.attempt_id = '{attempt_id}'", {"attempt_id": attempt})
        _copy(db, "idempotency", f"t.job_id = '{job_id}'", {"key": job, "job_id": job})
        (events,) = db.execute(
            "SELECT count(*) FROM events WHERE job_id = ?", (job_id,)
        ).fetchone()
        place = f"{position} + (n.i - {last + 1}) * {events} + t.seq"
        _copy(db, "events", f"t.job_id = '{job_id}'", {
            "id": place, "position": place, "job_id": job,
        })  # fmt: skip
    with closing(_open(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _copy(db: sqlite3.Connection, table: str, where: str, changed: dict[str, str]) -> None:
    """Each matching row once per number, with some columns worked out anew."""
    columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
    values = ", ".join(changed.get(column, f"t.{column}") for column in columns)
    db.execute(
        f"INSERT INTO {table} ({', '.join(columns)})"
        f" SELECT {values} FROM n CROSS JOIN {table} AS t WHERE {where} ORDER BY n.i"
    )


def _new_id(kind: str, number: int) -> str:
    return hashlib.md5(f"{kind}{number}".encode()).hexdigest()


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path)


if __name__ == "__main__":
    script(measure)
