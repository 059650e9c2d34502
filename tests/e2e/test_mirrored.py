"""Jobs whose workers see nothing of the server's home, through a real server: logs, outputs, exit
records and checkpoints come and go over HTTP, also when the server dies on the way."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from windlass.client import Job
from windlass.testing import invariants
from windlass.testing.faraway import ENTRY_POINT
from windlass.testing.platform import Platform, wait_for
from windlass.testing.postgres import PostgresServer

pytestmark = pytest.mark.slow

STORY = """
import os, pathlib, sys, time, windlass
gate, there = pathlib.Path(sys.argv[1]), sys.argv[2]
here = windlass.context()
assert str(here.checkpoint_dir).startswith(there), here.checkpoint_dir
found = windlass.resume_from()
begin = int((found / "step.txt").read_text()) if found else 0
print("attempt", here.attempt, "from", begin, flush=True)
assert found is None or str(found).startswith(there), found
for step in range(begin + 1, begin + 4):
    windlass.log(step=step, loss=1 / step)
    with windlass.checkpoint(step) as folder:
        (folder / "step.txt").write_text(str(step))
        (folder / "inner").mkdir()
        (folder / "inner" / "big.bin").write_bytes(bytes([step]) * 2_500_000)
        (folder / "again.bin").write_bytes(bytes([step]) * 2_500_000)
if here.attempt == 1:
    print("waits", flush=True)
    while not gate.exists():
        time.sleep(0.05)
    print("x" * 3_000_000)
    (here.output_dir / "deep").mkdir()
    (here.output_dir / "deep" / "result.bin").write_bytes(b"r" * 3_000_001)
    (here.output_dir / "empty").touch()
    print("the last line of attempt 1", flush=True)
    sys.exit(3)
(here.output_dir / "deep").mkdir()
(here.output_dir / "deep" / "result.bin").write_bytes(b"s" * 3_000_001)
(here.output_dir / "link").symlink_to("/etc/passwd")
print("the last line of attempt 2", flush=True)
"""


@dataclass
class Far:
    """A platform, and the folder in which its workers run."""

    platform: Platform
    folder: Path

    def submit(self, code: str, *words: object, **spec: Any) -> Job:
        command = [sys.executable, "-c", code, *map(str, words)]
        return self.platform.submit(command, engine="far", **spec)

    def worker_pid(self, job: Job) -> int:
        """The worker of its newest attempt, by the directory that it runs in."""
        newest = self.platform.attempts(job)[-1].parent.name
        found = wait_for(
            lambda: list(self.folder.glob(f"attempts/{newest}/*/worker.json")), 60, "it runs"
        )
        pid = wait_for(lambda: self.platform.worker_pid(found[0].parent), 60, "its worker lives")
        return int(pid)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def far(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    base = tmp_path_factory.mktemp("far")
    plugin = base / "plugin" / "faraway-1.dist-info"
    plugin.mkdir(parents=True)
    (plugin / "METADATA").write_text("Metadata-Version: 2.1\nName: faraway\nVersion: 1\n")
    (plugin / "entry_points.txt").write_text(f"[windlass.engines]\n{ENTRY_POINT}\n")
    path = os.pathsep.join(filter(None, [str(plugin.parent), os.environ.get("PYTHONPATH")]))
    url, server = "", None
    if request.param == "postgresql":
        server = request.getfixturevalue("_postgres")
        if server is None:
            pytest.skip("PostgreSQL is not installed")
        assert isinstance(server, PostgresServer)
        url = server.fresh()
    folder = base / "elsewhere"
    with Platform(base / "home", database=url, env={"PYTHONPATH": path}) as platform:
        platform.client.engines.add("far", "faraway", {"folder": str(folder), "nodes": "2"})
        wait_for(
            lambda: any(each["nodes"] == 2 for each in platform.client.engines.list()
                        if each["name"] == "far"),
            60, "its node is offered",
        )  # fmt: skip
        yield Far(platform, folder)
        invariants.check(platform)
    if server is not None:
        server.drop(url)


on_one_database = pytest.mark.parametrize("far", ["sqlite"], indirect=True)
"""The first test below has seen that the other keeps the same."""


def test_a_job_of_a_worker_far_away_outlives_the_server_and_resumes(
    far: Far, tmp_path: Path
) -> None:
    platform, gate = far.platform, tmp_path / "gate"
    retry = {"times": 1, "on": ["exit:3"], "backoff": "100ms"}
    job = far.submit(STORY, gate, far.folder, name="story", retry=retry)
    wait_for(lambda: "waits" in platform.logs(job), 120, "its log is followed")
    wait_for(lambda: len(platform.client.checkpoints.list(job.id)) == 3, 120, "they are kept")
    platform.kill()
    gate.touch()  # the rank ends while there is no server
    wait_for(lambda: list(far.folder.glob("attempts/*/*/exit.json")), 120, "the rank has ended")
    platform.start()
    ended = platform.wait(job, 240)
    assert ended.state == "succeeded", (ended.reason, platform.logs(job))

    first = platform.logs(job, attempt=1)
    assert "attempt 1 from 0" in first and first.count("x") >= 3_000_000
    assert first.rstrip().endswith("the last line of attempt 1")
    second = platform.logs(job, attempt=2)
    assert "attempt 2 from 3" in second
    assert second.rstrip().endswith("the last line of attempt 2")

    attempts = platform.client.http.get(f"/jobs/{job.id}")["attempts"]
    assert [each["outcome"] for each in attempts] == ["failed", "succeeded"]
    assert attempts[0]["exit_code"] == 3
    saved = platform.client.checkpoints.list(job.id)
    assert [(each["step"], each["attempt"]) for each in saved[:3]] == [(6, 2), (5, 2), (4, 2)]
    assert all(Path(each["path"]).is_relative_to(platform.home) for each in saved)

    series = platform.client.http.get(f"/jobs/{job.id}/metrics")["series"]
    losses = next(each for each in series if each["key"] == "loss")
    assert [point[0] for point in losses["points"]] == [1, 2, 3, 4, 5, 6]
    kept = {
        each["path"]: each["digest"]
        for each in platform.client.http.get(f"/runs/{job.id}/artifacts", {"path": "deep"})[
            "items"
        ]
    }
    assert kept == {"deep/result.bin": hashlib.sha256(b"s" * 3_000_001).hexdigest()}
    for place in platform.attempts(job):
        assert not (place / "out" / "link").exists()
        assert (place / "exit.json").exists() and (place / "worker.json").exists()
    assert not list(platform.home.glob("jobs/*/checkpoints/.tmp-*"))


@on_one_database
def test_a_worker_that_is_killed_is_lost_and_its_job_goes_on_from_what_was_sent(
    far: Far, tmp_path: Path
) -> None:
    platform, gate = far.platform, tmp_path / "gate"
    job = far.submit(STORY, gate, far.folder, name="killed", retry={"times": 0, "on": ["lost"]})
    wait_for(lambda: len(platform.client.checkpoints.list(job.id)) == 3, 120, "they are kept")
    os.kill(far.worker_pid(job), signal.SIGKILL)
    ended = platform.wait(job, 240)
    assert ended.state == "succeeded", (ended.reason, platform.logs(job))
    assert "attempt 2 from 3" in platform.logs(job)
    attempts = platform.client.http.get(f"/jobs/{job.id}")["attempts"]
    assert [each["outcome"] for each in attempts] == ["lost", "succeeded"]


@on_one_database
def test_a_stopped_job_saves_a_last_time_and_its_files_go_with_it(
    far: Far, tmp_path: Path
) -> None:
    code = """
import sys, time, windlass
windlass.context(watch_stop=True)
print("runs", flush=True)
while not windlass.should_stop():
    time.sleep(0.05)
with windlass.checkpoint(7) as folder:
    (folder / "late").write_text("late")
print("saved", flush=True)
"""
    platform = far.platform
    job = far.submit(code, name="stopped")
    wait_for(lambda: "runs" in platform.logs(job), 120, "it runs")
    platform.client.jobs.stop(job.id)
    assert platform.wait(job, 120).state == "cancelled"
    assert platform.logs(job).rstrip().endswith("saved")
    assert [each["step"] for each in platform.client.checkpoints.list(job.id)] == [7]
    place = platform.attempts(job)[-1]
    platform.client.jobs.delete(job.id)
    wait_for(lambda: not place.exists(), 60, "its folder is gone")
    assert not list(far.folder.glob(f"attempts/{place.parent.name}"))


@on_one_database
def test_files_that_a_script_saves_by_itself_are_there_when_it_runs_again(far: Far) -> None:
    code = """
import os, pathlib, sys, time
folder = pathlib.Path(os.environ["WINDLASS_CHECKPOINT_DIR"])
found = sorted(each.name for each in folder.glob("*.bin"))
print("found", found, os.path.basename(os.environ.get("WINDLASS_RESUME_FROM", "none")), flush=True)
if not found:
    (folder / "ckpt-10.bin").write_bytes(b"own" * 700_000)
    time.sleep(600)
assert (folder / "ckpt-10.bin").read_bytes() == b"own" * 700_000
"""
    platform = far.platform
    job = far.submit(code, name="own")
    wait_for(lambda: platform.client.checkpoints.list(job.id), 120, "it was noticed and sent")
    [saved] = platform.client.checkpoints.list(job.id)
    assert (saved["step"], saved["source"]) == (10, "files")
    assert Path(saved["path"]).read_bytes() == b"own" * 700_000
    os.kill(far.worker_pid(job), signal.SIGKILL)
    ended = platform.wait(job, 240)
    assert ended.state == "succeeded", (ended.reason, platform.logs(job))
    assert "found ['ckpt-10.bin'] ckpt-10.bin" in platform.logs(job)


@on_one_database
def test_each_node_of_a_gang_fetches_what_one_of_them_saved(far: Far, tmp_path: Path) -> None:
    code = """
import pathlib, sys, time, windlass
here, found = windlass.context(), windlass.resume_from()
print("rank", here.rank, "node", here.node_rank, "from", found and found.name, flush=True)
if found is None:
    if here.rank == 0:
        with windlass.checkpoint(1) as folder:
            (folder / "state").write_text("of rank 0")
    while not pathlib.Path(sys.argv[1]).exists():
        time.sleep(0.05)
    sys.exit(3 if here.rank == 1 else 0)
assert (found / "state").read_text() == "of rank 0"
"""
    platform, gate = far.platform, tmp_path / "gate"
    [free] = {
        node["capacity"]["cpus_milli"] / 1000
        for node in platform.client.http.get("/nodes")["items"]
        if node["engine"] == "far"
    }
    job = far.submit(
        code, gate, name="gang", retry={"times": 1, "on": ["exit:3"], "backoff": "100ms"},
        roles={"worker": {"count": 2, "cpus": round(free * 0.7, 2)}},
    )  # fmt: skip
    wait_for(lambda: platform.client.checkpoints.list(job.id), 120, "it was sent")
    gate.touch()
    ended = platform.wait(job, 240)
    assert ended.state == "succeeded", (ended.reason, platform.logs(job))
    first, second = platform.logs(job, attempt=1), platform.logs(job, attempt=2)
    for rank in (0, 1):
        assert f"rank {rank} node {rank} from None" in first
        assert f"rank {rank} node {rank} from step-000000000001-000001" in second
