"""Claims: p99 of list, show and submit with 500,000 finished jobs in the database is at most 2x of
that with 500; the removal of 100,000 expired jobs does not raise it.

First two servers side by side, asked in turns, one request at a time, so that both see the same
second of the machine. The large database is made from the small one by SQL: each new job is a copy
of a real one with ids, names and times of its own, with its attempt, worker, events and key.

Then the large one alone, in phases: the same jobs are due for removal in every second phase and
not yet due in those between, and the server is asked alike in both.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import sqlite3
import time
from contextlib import closing
from functools import partial
from pathlib import Path

from benchmarks.load import SUBMIT, Caller, signed
from benchmarks.measure import Row, folder, median, milliseconds, percentile, script
from windlass.testing.platform import Platform, wait_for

FEW, MANY, EXPIRED = 500, 500_000, 100_000
CALLS = 400
PHASES, PHASE_SECONDS = 5, 6.0
MINUTE_MS, DAY_MS = 60_000, 86_400_000
ASKED = ("list", "show", "submit")

Spent = dict[str, list[float]]
"""Seconds of each call, by what was asked."""


def measure() -> list[Row]:
    with folder() as place:
        small, large = Platform(place / "small"), Platform(place / "large")
        _seed(small)
        fill(small.home / "windlass.db", FEW)
        shutil.copytree(small.home, large.home)
        fill(large.home / "windlass.db", MANY - FEW)
        os.sync()  # what was written here is not to be paid by the first commit
        with small, large:
            few, many = compare(small, large)
            large.stop()  # in order, so that the next start need not read the whole file
        calm, clean, rate = removal(large)
    rows = [_few_or_many(what, few[what], many[what]) for what in ASKED]
    return rows + [_calm_or_clean(what, rate, calm, clean) for what in ASKED]


def _few_or_many(what: str, few: list[float], many: list[float]) -> Row:
    ours, peer = percentile(many, 0.99), percentile(few, 0.99)
    medians = percentile(many, 0.5) / percentile(few, 0.5)
    return Row(
        f"p99 of {what}, {MANY:,} jobs ({FEW} jobs)", milliseconds(ours), milliseconds(peer),
        f"{ours / peer:.2f}x (median {medians:.2f}x)", "≤ 2x", ours / peer <= 2,
    )  # fmt: skip


def _calm_or_clean(what: str, rate: float, calm: list[Spent], clean: list[Spent]) -> Row:
    """By the middle phase of each kind: one in which the machine stood still proves nothing."""

    def of(phases: list[Spent], share: float) -> float:
        return median([percentile(phase[what], share) for phase in phases])

    ours, peer = of(clean, 0.99), of(calm, 0.99)
    medians = of(clean, 0.5) / of(calm, 0.5)
    return Row(
        f"p99 of {what} while {rate:,.0f} jobs/s are removed (while none is)",
        milliseconds(ours), milliseconds(peer), f"{ours / peer:.2f}x (median {medians:.2f}x)",
        "≤ 1.25x", ours / peer <= 1.25,
    )  # fmt: skip


def compare(small: Platform, large: Platform) -> tuple[Spent, Spent]:
    """What calls took on both, in turns."""
    sides = [Asking(platform) for platform in (small, large)]
    for turn in range(CALLS + 20):
        for side in sides:
            side.ask()
            if turn < 20:
                side.taken()
    for side in sides:
        side.close()
    return sides[0].taken(), sides[1].taken()


def removal(platform: Platform) -> tuple[list[Spent], list[Spent], float]:
    """What calls took in phases without and with removal, and how many jobs a second went."""
    path = platform.home / "windlass.db"
    calm: list[Spent] = []
    clean: list[Spent] = []
    went = 0
    later = expire(path, EXPIRED, 60)
    with platform:
        asking = Asking(platform)
        for _ in range(PHASES):
            if later < time.time() + PHASE_SECONDS:
                raise RuntimeError("the machine is too busy: no time is left without a removal")
            asking.for_seconds(PHASE_SECONDS)
            calm.append(asking.taken())
            before = due(path)
            time.sleep(max(0.0, later - time.time()))
            wait_for(partial(_fewer_due, path, before), 60, "the removal begins")
            before = due(path)
            asking.for_seconds(PHASE_SECONDS)
            clean.append(asking.taken())
            left = due(path)
            if left == before:
                raise RuntimeError("no job was removed: there is nothing to compare")
            went += before - left
            later = expire(path, left, 30)
            time.sleep(4)  # until a batch that was under way is through
        asking.close()
    return calm, clean, went / (PHASES * PHASE_SECONDS)


class Asking:
    """Lists, shows and submits, one after the other."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._key = platform.credentials()
        self._caller = Caller(platform.port)
        self._ids = _ids(platform)
        self._choose = random.Random(7)
        self._spent: Spent = {what: [] for what in ASKED}

    def ask(self) -> None:
        for what, method, path, body in (
            ("list", "GET", "/jobs?limit=50", None),
            ("show", "GET", f"/jobs/{self._choose.choice(self._ids)}", None),
            ("submit", "POST", "/jobs", SUBMIT),
        ):
            request = signed(self._platform, self._key, method, path, body)
            self._spent[what].append(self._caller.call(request)[0])

    def for_seconds(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.ask()

    def taken(self) -> Spent:
        """What was spent since it was last asked for."""
        taken, self._spent = self._spent, {what: [] for what in ASKED}
        return taken

    def close(self) -> None:
        self._caller.close()


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
                " AND state = 'succeeded' AND expires_ms > ?",
                [*wanted, _tomorrow_ms()],
            )
        ]


def due(path: Path) -> int:
    """How many jobs are due for removal, or will be in a moment."""
    with closing(_open(path)) as db:
        (found,) = db.execute(
            "SELECT count(*) FROM jobs WHERE expires_ms < ?", (_tomorrow_ms(),)
        ).fetchone()
    return int(found)


def _fewer_due(path: Path, before: int) -> bool:
    return due(path) < before


def expire(path: Path, number: int, in_seconds: float) -> float:
    """Let the time of so many jobs be over in some seconds; when that is. The log that this
    leaves is folded back: no call is to pay for it."""
    when = time.time() + in_seconds
    with closing(_open(path)) as db:
        with db:
            db.execute(
                "UPDATE jobs SET expires_ms = ? WHERE number IN (SELECT number FROM jobs"
                " WHERE state = 'succeeded' ORDER BY number LIMIT ?)",
                (int(when * 1000), number),
            )
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    os.sync()
    return when


def _tomorrow_ms() -> int:
    """Before it end the times of those that are to go, and of no others."""
    return int(time.time() * 1000) + DAY_MS


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
