"""No space left: under the control database, under the logs. R-F13."""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from windlass.testing import invariants
from windlass.testing.platform import Platform, wait_for

pytestmark = pytest.mark.slow


class SmallDisk:
    """A tmpfs of a few megabytes that a test fills and empties."""

    def __init__(self, path: Path, megabytes: int) -> None:
        self.path = path
        path.mkdir(parents=True)
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=700", "windlass", str(path)],
            capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode:
            pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")

    def fill(self) -> None:
        with (self.path / "ballast").open("ab", buffering=0) as file:
            for size in (1 << 16, 1 << 12, 1):
                try:
                    while True:
                        file.write(b"x" * size)
                except OSError as err:
                    assert err.errno == errno.ENOSPC

    def empty(self) -> None:
        (self.path / "ballast").unlink()

    def remove(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.path)], check=True)


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[tuple[SmallDisk, SmallDisk]]:
    """The server's home, and below it the attempts, each a small disk of its own."""
    if os.geteuid():
        pytest.skip("only root may mount a tmpfs")
    home = SmallDisk(tmp_path / "home", 12)
    try:
        attempts = SmallDisk(tmp_path / "home" / "attempts", 8)
        try:
            yield home, attempts
        finally:
            attempts.remove()
    finally:
        home.remove()


@pytest.fixture
def platform(disks: tuple[SmallDisk, SmallDisk], tmp_path: Path) -> Iterator[Platform]:
    with Platform(tmp_path / "home") as platform:
        yield platform
        invariants.check(platform)


def test_r_f13_a_full_control_disk_refuses_submits_and_loses_none(
    platform: Platform, disks: tuple[SmallDisk, SmallDisk]
) -> None:
    home, _ = disks
    gate = platform.gate()
    running = platform.witness("until", gate, 3)
    platform.wait_state(running, "running")
    acked: dict[str, str] = {}
    refused = []

    def submit(key: str) -> int:
        body = {"spec": {"run": ["true"], "name": key, "hold": True}}
        answer = platform.call("POST", "/jobs", body, headers={"Idempotency-Key": key})
        if answer.status_code == 201:
            acked[key] = answer.json()["id"]
        else:
            refused.append(answer)
        return answer.status_code

    assert submit("before") == 201
    home.fill()
    for number in range(3000):
        submit(f"full-{number}")
        if len(refused) >= 10:
            break
    codes = {answer.status_code for answer in refused}
    assert len(refused) >= 10 and codes <= {507, 503} and 507 in codes, codes
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
    assert platform.call("GET", f"/jobs/{running.id}").json()["state"] == "running"
    gate.touch()
    wait_for(lambda: platform.said(running, "ended"), 20, "it runs to its end all the same")
    home.empty()
    wait_for(lambda: submit("after") == 201, 20, "it recovers by itself")
    over = platform.wait(running)
    assert (over.exit_code, over.attempt) == (3, 1)
    invariants.accepted(platform, acked)
    platform.stop()
    with sqlite3.connect(f"file:{platform.home}/windlass.db?mode=ro", uri=True) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    database.close()
    platform.start()
    invariants.accepted(platform, acked)


def test_r_f13_a_full_log_disk_does_not_harm_a_running_job(
    platform: Platform, disks: tuple[SmallDisk, SmallDisk]
) -> None:
    _, attempts = disks
    gate = platform.gate()
    jobs = [
        platform.witness("clock", gate),
        platform.witness("flood", gate),
    ]
    for job in jobs:
        platform.wait_state(job, "running")
        wait_for(lambda job=job: platform.logs(job, tail=1), 20, "it prints")
    attempts.fill()
    late = platform.witness("exit", 0, retry={"times": 0, "backoff": "200ms"})
    time.sleep(2)  # more output than any buffer of ours takes
    assert all(len(platform.said(job)) == 1 for job in jobs), "they run on"
    assert platform.client.jobs.get(late.id).state in ("queued", "starting")
    gate.touch()
    for job in jobs:
        over = platform.wait(job, seconds=40)
        assert (over.state, over.exit_code, over.attempt) == ("succeeded", 0, 1)
    attempts.empty()
    platform.client.jobs.delete(jobs[1].id)  # what it printed may have been most of the disk
    assert platform.wait(late, seconds=60).state == "succeeded", "it starts when it can"
