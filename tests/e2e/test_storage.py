"""A server with `--storage s3://…`: a job's code, output, checkpoints and logs go there, are read
from there, and go from there with the job. The other side is a real S3 server."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from windlass.client import Job
from windlass.client.bundle import scan, upload
from windlass.testing.environments import Unavailable
from windlass.testing.platform import Platform, wait_for
from windlass.testing.postgres import PostgresServer
from windlass.testing.s3 import S3Server

pytestmark = pytest.mark.slow

PREFIX = "e2e"
TRAIN = """
import os, pathlib, windlass, own
state = {"n": 0}
kept = windlass.checkpoint(state=state)
print("began", kept.step, state["n"], own.WORD, flush=True)
print("keys", [n for n, v in os.environ.items() if n.startswith("AWS") or "of-a-test" in v])
for step in range((kept.step or 0) + 1, (kept.step or 0) + 4):
    state["n"] += step
    kept.save(step)
out = pathlib.Path(os.environ["WINDLASS_OUTPUT_DIR"])
(out / "best.pt").write_bytes(b"weights" * 1000)
print("ended", state["n"], flush=True)
"""


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    try:
        with S3Server(tmp_path_factory.mktemp("s3")) as server:
            yield server
    except Unavailable as why:
        pytest.skip(f"no S3 here: {why}")


@pytest.fixture(scope="module")
def platform(
    s3: S3Server, _postgres: PostgresServer | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Platform]:
    words = ("--storage", s3.url(PREFIX), "--storage-cache", "0s")
    home = tmp_path_factory.mktemp("storage") / "home"
    url = "" if _postgres is None else _postgres.fresh()  # where it is: the faults have SQLite
    with Platform(home, *words, database=url, env=s3.env) as platform:
        yield platform


def submit(platform: Platform, folder: Path, **spec: object) -> Job:
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(TRAIN)
    (folder / "own.py").write_text("WORD = 'from-the-bundle'\n")
    code = scan(folder)
    upload(platform.client.http, code)
    return platform.submit(
        [sys.executable, "train.py"], code={"bundle": code.digest}, outputs={"keep": 2}, **spec
    )


def local(platform: Platform, job: Job) -> list[str]:
    """Files on the server's disk that should go to the storage."""
    found = list(platform.home.glob("blobs/*/??/*"))
    found += (platform.home / "jobs" / job.id / "checkpoints").glob("step-*/*")
    for folder in platform.attempts(job):
        found += [*folder.glob("logs/*.log"), *folder.glob("logs/*.idx"), *folder.glob("out/*")]
    return sorted(str(path.relative_to(platform.home)) for path in found)


def test_a_job_lives_on_in_the_storage_and_goes_from_it(
    platform: Platform, s3: S3Server, tmp_path: Path
) -> None:
    first = platform.wait(submit(platform, tmp_path / "code", name="first"))
    assert first.state == "succeeded", (first.reason, platform.logs(first))
    wait_for(lambda: not local(platform, first), what=f"it moves: {local(platform, first)}")
    kinds = [key.partition("/")[0] for key in s3.keys(PREFIX)]
    assert sorted(set(kinds)) == ["blobs", "checkpoints", "logs"]
    assert kinds.count("checkpoints") == 2  # of the newest two, a file each
    assert s3.uploads() == 0

    said = platform.logs(first)
    assert "began None 0 from-the-bundle\nkeys []\nended 6" in said
    assert "ended 6" in platform.logs(first, tail=1)
    best = platform.call("GET", "/runs/first/artifacts/best.pt")
    assert best.content == b"weights" * 1000
    part = platform.call("GET", "/runs/first/artifacts/best.pt", headers={"Range": "bytes=7-13"})
    assert (part.status_code, part.content) == (206, b"weights")
    shown = platform.client.checkpoints.get(first.id, "3")
    assert [file["path"] for file in shown["files"]] == ["state.json"]
    path = f"/jobs/first/checkpoints/3/files/{shown['files'][0]['path']}"
    assert json.loads(platform.call("GET", path).content)
    assert b"from-the-bundle" in platform.call("GET", "/jobs/first/code/own.py").content

    for cached in platform.home.glob("cache/??/*"):  # the workers' own: the code comes anew
        cached.unlink()
    again = platform.client.jobs.rerun(
        first.id, changes={"start_from": {"job": first.id, "resume": True}, "name": "again"}
    )
    again = platform.wait(again)
    assert again.state == "succeeded", (again.reason, platform.logs(again))
    assert "began 3 6 from-the-bundle" in platform.logs(again)
    assert platform.client.jobs.detail(again.id)["lineage"][0]["id"] == first.id

    changed = platform.call("GET", f"/jobs/again/code-diff?against={first.id}").json()
    assert changed["files"] == []
    for job in (first, again):
        platform.client.jobs.delete(job.id)
    # Outputs and code are the project's, by content: they go a day after the last that named them.
    wait_for(
        lambda: {key.partition("/")[0] for key in s3.keys(PREFIX)} == {"blobs"},
        what="the storage is emptied",
    )
    assert platform.call("GET", f"/jobs/{first.id}/logs").status_code == 404


def test_what_a_waiting_job_starts_from_is_fetched_before_its_job_goes(
    platform: Platform, tmp_path: Path
) -> None:
    old = platform.wait(submit(platform, tmp_path / "code", name="old"))
    folder = platform.home / "jobs" / old.id / "checkpoints"
    wait_for(lambda: not list(folder.glob("step-*/*")), what="its checkpoints move")
    waits = submit(
        platform, tmp_path / "code", hold=True, start_from={"job": old.id, "resume": True}
    )
    platform.client.jobs.delete(old.id)
    platform.client.jobs.release(waits.id)
    job = platform.wait(waits)
    assert job.state == "succeeded", (job.reason, platform.logs(job))
    assert "began 3 6 from-the-bundle" in platform.logs(job)


def test_a_checkpoint_that_somebody_removes_goes_from_the_storage(
    platform: Platform, s3: S3Server, tmp_path: Path
) -> None:
    job = platform.wait(submit(platform, tmp_path / "code", name="saves"))

    def stored() -> list[str]:
        return [key for key in s3.keys(PREFIX) if key.startswith(f"checkpoints/{job.id}/")]

    wait_for(lambda: len(stored()) == 2 and not local(platform, job), what="they move")
    platform.client.checkpoints.delete(job.id, "2")
    wait_for(lambda: len(stored()) == 1, what="it goes")
    assert [each["step"] for each in platform.client.checkpoints.list(job.id)] == [3]
    assert platform.client.checkpoints.get(job.id, "3")["files"]
