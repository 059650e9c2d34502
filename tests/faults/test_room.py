"""Disk space and inodes run out where jobs are to be started: the node's trouble, not theirs."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from windlass.client import Job
from windlass.testing import invariants
from windlass.testing.platform import Platform, wait_for

pytestmark = pytest.mark.slow


class TightDisk:
    """A tmpfs with few bytes and few inodes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True)
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=8m,nr_inodes=400,mode=700", "windlass", path],
            capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode:
            pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")

    def fill(self, what: str) -> None:
        ballast = self.path / "ballast"
        ballast.mkdir()
        try:
            if what == "inodes":
                for number in range(1000):
                    (ballast / str(number)).touch()
            with (ballast / "bytes").open("ab", buffering=0) as file:
                for size in (1 << 16, 1 << 12, 1):
                    try:
                        while True:
                            file.write(b"x" * size)
                    except OSError as err:
                        assert err.errno == errno.ENOSPC
        except OSError as err:
            assert err.errno == errno.ENOSPC

    def empty(self) -> None:
        for each in (self.path / "ballast").iterdir():
            each.unlink()
        (self.path / "ballast").rmdir()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[TightDisk]:
    if os.geteuid():
        pytest.skip("only root may mount a tmpfs")
    disk = TightDisk(tmp_path / "home" / "attempts")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk.path)], check=True)


@pytest.fixture
def platform(disk: TightDisk, tmp_path: Path) -> Iterator[Platform]:
    with Platform(tmp_path / "home") as platform:
        yield platform
        invariants.check(platform)


def test_a_node_without_room_is_paused_and_costs_no_job_anything(
    platform: Platform, disk: TightDisk
) -> None:
    for what, word in (("bytes", "disk space"), ("inodes", "inodes")):
        disk.fill(what)
        # Not one try is allowed, and a loss is none that this job would survive.
        job = platform.witness("exit", 0, retry={"times": 0, "on": [], "never": ["lost"]})
        waiting = wait_for(lambda job=job: _waiting(platform, job), 20, "it waits for room")
        assert word in waiting.reason and "counts as no try" in waiting.reason
        listed = json.loads(platform.cli("node", "ls", "-o", "json").stdout)["items"]
        assert [node["state"] for node in listed] == ["paused"]
        assert f"run out of {word}" in listed[0]["reason"]
        assert word in platform.cli("node", "ls").stdout
        told = platform.client.jobs.why(job.id)
        assert any(f"run out of {word}" in line for line in told["evidence"])
        disk.empty()
        over = platform.wait(job)
        assert (over.state, over.exit_code) == ("succeeded", 0), over.reason
        assert platform.client.jobs.detail(job.id)["failures"] == 0
        assert len(platform.said(job, "began")) == 1
    listed = platform.client.nodes.list()
    assert [(node.state, node.reason) for node in listed] == [("ready", "")]
    states = _states_of_nodes(platform)
    assert states.count("paused") >= 2 and states[-1] == "ready"


def _waiting(platform: Platform, job: Job) -> Job | None:
    found = platform.client.jobs.get(job.id)
    assert found.state in ("queued", "starting"), found.reason
    return found if found.state == "queued" and found.attempt else None


def _states_of_nodes(platform: Platform) -> list[str]:
    with sqlite3.connect(f"file:{platform.home}/windlass.db?mode=ro", uri=True) as database:
        query = "SELECT state FROM events WHERE kind = 'node' ORDER BY id"
        found = [state for (state,) in database.execute(query)]
    database.close()
    return found


_FILLS = """
import os, sys, time
ran, gate, code = sys.argv[1:]
with open(ran, "a") as file:
    file.write("ran\\n")
print("began", flush=True)
while not os.path.exists(gate):
    time.sleep(0.02)
try:
    with open("ballast", "wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
except OSError:
    pass
print("x" * 300_000)
sys.exit(int(code))
"""


def test_a_job_that_ends_while_the_disk_is_full_keeps_its_result_and_runs_once(
    platform: Platform, disk: TightDisk
) -> None:
    for server, code, state in (("there", 0, "succeeded"), ("away", 0, "succeeded"),
                                ("away", 9, "failed")):  # fmt: skip
        gate, ran = platform.gate(f"{server}-{code}"), platform.home / f"ran-{server}-{code}"
        words = [sys.executable, "-c", _FILLS, str(ran), str(gate), str(code)]
        job = platform.submit(words, retry={"on": ["lost"], "times": 3})
        platform.wait_state(job, "running")
        (folder,) = platform.attempts(job)
        if server == "away":
            platform.kill()
        gate.touch()
        wait_for(lambda folder=folder: list(folder.glob("exit.json")), 30, "its record")
        if server == "away":
            platform.start()
        over = platform.wait(job)
        assert (over.state, over.exit_code, over.attempt) == (state, code, 1), over.reason
        assert ran.read_text() == "ran\n"
        (work,) = folder.rglob("ballast")
        work.unlink()
