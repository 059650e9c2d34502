"""A newer release takes over the database and the workers of an older one: R-F31.

This release is the older one; the newer is a copy of it with steps of its own (`testing.release`).
"""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import windlass
from windlass.client import Job
from windlass.testing import earlier_worker, invariants
from windlass.testing.platform import Platform, read_json, wait_for
from windlass.testing.postgres import PostgresServer
from windlass.testing.release import Release

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parents[1] / "golden"
LATER = "99.0"
_STOP = "WINDLASS_TEST_STOP"
_STEPS = {
    # It fills a table from rows that are there: done twice, they would be there twice.
    "0002": """
import sqlalchemy as sa
from alembic import op

def upgrade():
    op.create_table("marks", sa.Column("job", sa.String(32)))
    op.execute("INSERT INTO marks SELECT id FROM jobs")
""",
    # It can be held where it has changed something, with all its locks.
    "0003": """
import os, signal
import sqlalchemy as sa
from alembic import op

def upgrade():
    op.create_table("half", sa.Column("job", sa.String(32)))
    op.add_column("jobs", sa.Column("mark", sa.Text(), nullable=True))
    op.execute("UPDATE jobs SET mark = name")
    if os.environ.get("WINDLASS_TEST_STOP"):
        open(os.environ["WINDLASS_TEST_STOP"], "w").close()
        while True:
            signal.pause()
""",
}


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return Release(tmp_path_factory.mktemp("later"), LATER, _STEPS)


class Jobs:
    """One that runs on, one that ends when it may, one that trains."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self.runs_on, self.ends = platform.gate("on"), platform.gate("ends")
        self.long = platform.witness("until", self.runs_on)
        self.short = platform.witness("until", self.ends, 3)
        self.trains = platform.witness("train", 10_000, 0.1)
        for job in (self.long, self.short, self.trains):
            platform.wait_state(job, "running")
        self.all_go_on()

    def all_go_on(self) -> None:
        saved = len(self.platform.said(self.trains, "saved"))
        wait_for(lambda: len(self.platform.said(self.trains, "saved")) > saved + 2, 30, "it saves")

    def end(self, api: Platform) -> None:
        """None has noticed."""
        over = api.wait(self.short)
        assert (over.state, over.exit_code, over.attempt) == ("failed", 3, 1)
        newest = self.platform.said(self.trains, "saved")[-1]["step"]
        wait_for(
            lambda: any(c["step"] >= newest for c in api.client.jobs.checkpoints(self.trains.id)),
            30,
            "what it saved is registered",
        )
        api.client.jobs.stop(self.trains.id)
        self.runs_on.touch()
        for job, state in ((self.long, "succeeded"), (self.trains, "cancelled")):
            over = api.wait(job)
            assert (over.state, over.attempt) == (state, 1)


def worker_version(platform: Platform, job: Job) -> str:
    [folder] = platform.attempts(job)
    return str(read_json(folder / "worker.json")["version"])


def query(platform: Platform, postgres: PostgresServer | None, statement: str) -> list[Any]:
    if postgres is None:
        with sqlite3.connect(f"file:{platform.home}/windlass.db?mode=ro", uri=True) as conn:
            return conn.execute(statement).fetchall()
    return postgres.execute(statement, platform.database.partition("?")[0].rpartition("/")[2])


def stopped_halfway(platform: Platform, later: Release, seen: Path) -> None:
    """Start the newer release; it stops in the middle of a step of the database."""
    platform.env |= {**later.env(), _STOP: str(seen)}
    platform.spawn()
    wait_for(seen.exists, 60, "it has begun with a step")
    platform.env.pop(_STOP)


def test_r_f31_an_upgrade_that_is_killed_goes_on_where_it_was(
    any_platform: Platform, later: Release, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    platform = any_platform
    postgres = request.getfixturevalue("postgres") if platform.database else None
    jobs = Jobs(platform)
    platform.stop()
    jobs.ends.touch()
    stopped_halfway(platform, later, tmp_path / "stopped")
    platform.kill()
    jobs.all_go_on()
    [[revision]] = query(platform, postgres, "SELECT version_num FROM alembic_version")
    assert revision == "0002", "the step that was whole stays, the other never was"

    platform.env.pop("PYTHONPATH")
    with pytest.raises(AssertionError, match="the server ended with 1") as refused:
        platform.start()
    for words in (
        f"the database is at revision 0002, which Windlass {windlass.__version__} does not know",
        "install that version, or restore the backup made before its upgrade",
    ):
        assert words in str(refused.value)

    platform.env |= later.env()
    platform.start()
    assert platform.about()["version"] == LATER
    [[revision]] = query(platform, postgres, "SELECT version_num FROM alembic_version")
    assert revision == "0003"
    [[marked, different]] = query(
        platform, postgres, "SELECT count(*), count(DISTINCT job) FROM marks"
    )
    assert (marked, different) == (3, 3), "each step was taken once"
    jobs.all_go_on()
    fresh = platform.wait(platform.witness("exit", 0))
    assert fresh.state == "succeeded"
    assert worker_version(platform, fresh) == LATER
    assert worker_version(platform, jobs.long) == windlass.__version__, "it was adopted"
    jobs.end(platform)


def test_r_f31_what_the_worker_of_an_earlier_release_says_is_understood(
    any_platform: Platform,
) -> None:
    """All that one said of a small job, with an order that it carried out: no call is refused,
    and no answer lacks what it was given then."""
    platform = any_platform
    earlier_worker.replay(platform, GOLDEN / "worker-0.1.jsonl")
    job = platform.submit(["true"])
    platform.wait_state(job, "running")
    told = platform.cli("debug", "stack", job.id)
    assert "in a script of long ago" in told.stdout, told.stderr
    over = platform.wait(job)
    assert (over.state, over.attempt, over.exit_code) == ("succeeded", 1, 0), over.reason
    assert over.step == 5
    assert worker_version(platform, job) == "0.0.1"


@pytest.mark.parametrize("dialect", ["postgresql"])
def test_r_f31_an_older_server_serves_on_while_a_newer_one_migrates(
    database_url: str, postgres: PostgresServer, later: Release, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        old = stack.enter_context(
            Platform(tmp_path / "a", "--lease", "10m", database=database_url)
        )
        jobs = Jobs(old)
        new = old.beside(tmp_path / "b", "--lease", "10m")
        stack.push(new)
        stopped_halfway(new, later, tmp_path / "stopped")
        with ThreadPoolExecutor(1) as other:
            # The step has locked the table that this reads: it waits, a few seconds at most.
            asked = other.submit(old.call, "GET", f"/jobs/{jobs.long.id}")
            jobs.all_go_on()
            new.kill()
            assert asked.result().status_code in (200, 503)
        assert old.client.jobs.get(jobs.long.id).state == "running"
        new.start()
        jobs.ends.touch()
        both = [(api, api.witness("exit", 0)) for api in (old, new)]
        for api, job in both:
            over = api.wait(job)
            assert (over.state, over.attempt) == ("succeeded", 1)
            assert worker_version(old, job) == windlass.__version__, "the older one leads"
        old.stop()
        over = new.wait(new.witness("exit", 0))
        assert (over.state, over.attempt) == ("succeeded", 1)
        assert worker_version(old, over) == LATER
        old.env |= later.env()
        old.start()  # its workers report to the address that launched them
        assert old.about()["version"] == LATER
        jobs.end(new)
        invariants.check(new)
