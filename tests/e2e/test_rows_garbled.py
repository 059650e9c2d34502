"""Rows that nobody can read, put straight into the database of a server: other jobs still start,
run, end, are listed and removed, and the server says what is wrong with which."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from sqlalchemy import make_url

from windlass.core.errors import Unreadable
from windlass.testing.platform import Platform, wait_for

CUT = '{"kind": "job", "run": ["tr'
OTHER = '{"kind": "job", "run": ["true"], "roles": {"worker": {}}, "ttl": "15250284452w"}'


class Rows:
    """The database behind a server's back."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform

    def change(self, words: str, *values: Any) -> int:
        if url := self._platform.database:
            found = make_url(url)
            with psycopg.connect(
                host=found.query.get("host") or found.host, port=found.port,
                user=found.username, password=found.password, dbname=found.database,
            ) as conn:  # fmt: skip
                return conn.execute(words.replace("?", "%s"), values).rowcount
        with sqlite3.connect(self._platform.home / "windlass.db", timeout=60) as conn:
            return conn.execute(words, values).rowcount

    def garble(self, job: str, spec: str) -> None:
        assert self.change("UPDATE jobs SET spec = ? WHERE id = ?", spec, job) == 1


@pytest.fixture
def town(platform: Platform) -> Iterator[tuple[Platform, Rows]]:
    yield platform, Rows(platform)


def test_jobs_with_garbled_rows_fail_alone_and_all_others_go_on(
    town: tuple[Platform, Rows], tmp_path: Path
) -> None:
    platform, rows = town
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    client = platform.client
    runs = platform.submit(run=["sleep", "600"], name="runs", limits={"grace": "1s"})
    fine = platform.submit(run=["cat", str(gate)], name="fine")
    done = platform.submit(run="true", name="done")
    held = platform.submit(run="true", name="held", hold=True)
    waits = platform.submit(run="true", name="waits", begin="2100-01-01T00:00:00Z")
    platform.wait(done)
    for job in (runs, fine):
        platform.wait_state(job, "running")
    platform.kill()
    for job, spec in ((runs, CUT), (held, CUT), (waits, OTHER), (done, CUT)):
        rows.garble(job.id, spec)
    assert rows.change("UPDATE nodes SET offer = '{\"name' WHERE engine = 'local'")
    client = platform.start().client

    # Each is set aside by itself, and says why.
    for job in (runs, held, waits):
        row = platform.wait(job)
        assert row.state == "failed" and "its spec cannot be read" in row.reason
        shown = client.jobs.detail(job.id)
        assert shown["spec"]["run"] == [] and "its spec cannot be read" in shown["unreadable"]
        assert platform.call("GET", f"/jobs/{job.id}/why").json()["sentence"]
        with pytest.raises(Unreadable, match="its spec cannot be read"):
            client.jobs.rerun(job.id)

    # What ran goes on, what is new starts: the node was offered anew.
    later = platform.submit(run="true", name="later")
    assert platform.wait(later).state == "succeeded"
    assert client.jobs.get(fine.id).state == "running"
    with gate.open("w"):
        pass
    assert platform.wait(fine).state == "succeeded"

    # Lists have all of them, `stop` of one that is over is as ever, `rm` takes them out.
    listed = {job.id: job.state for job in client.jobs.list()}
    assert listed[done.id] == "succeeded" and len(listed) == 6
    assert platform.call("GET", "/nodes").json()["items"][0]["reason"] == ""
    for path in ("/queues/default", "/quotas", "/status", "/usage"):
        assert platform.call("GET", path).status_code == 200, path
    for job in (runs, held, waits, done):
        client.jobs.stop(job.id)
        client.jobs.delete(job.id)
    assert {job.id for job in client.jobs.list()} == {fine.id, later.id}
    assert _health(platform)["ok"]


def test_health_is_not_ok_while_scheduling_is_dead(town: tuple[Platform, Rows]) -> None:
    """The table that admit reads its queues from is away: no object's fault, so all stands."""
    platform, rows = town
    platform.kill()
    rows.change("ALTER TABLE queues RENAME TO queues_away")
    platform.start()
    found = wait_for(lambda: None if _health(platform)["ok"] else _health(platform))
    assert found["alive"] is True and found["ready"] is False
    assert any(words.startswith("admit has failed ") for words in found["why"])
    assert _get(platform, "/health").status_code == 200  # it is alive: nobody should kill it
    assert _get(platform, "/health/ready").status_code == 503
    status = platform.client.status()
    assert status["ready"] is False
    [trouble] = [each for each in status["troubles"] if each["loop"] == "admit"]
    assert trouble["object"] == "" and trouble["times"] > 1 and "queues" in trouble["error"]
    rows.change("ALTER TABLE queues_away RENAME TO queues")
    wait_for(lambda: _health(platform)["ok"], what="ready again")
    assert _get(platform, "/health/ready").status_code == 200
    assert platform.client.status()["troubles"] == []
    assert platform.log().count("admit fails on its whole turn") < 3  # not a line for each try


def _get(platform: Platform, path: str) -> httpx.Response:
    return httpx.get(f"{platform.url}/api/v1{path}", trust_env=False, timeout=60)


def _health(platform: Platform) -> dict[str, Any]:
    found: dict[str, Any] = _get(platform, "/health").json()
    return found
