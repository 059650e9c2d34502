"""The storage answers 503, is away, or the server dies while it moves files there: R-F34."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from windlass.client.bundle import scan, upload
from windlass.testing import invariants
from windlass.testing.environments import Unavailable
from windlass.testing.platform import Platform, wait_for
from windlass.testing.s3 import S3Server

pytestmark = pytest.mark.slow

WRITES = """
import os, pathlib, windlass
kept = windlass.checkpoint(state={"n": 1})
kept.save(1)
data = b"%032d" % int(os.environ["WINDLASS_JOB_ID"], 16).bit_length() * (20 * 2**15)
pathlib.Path(os.environ["WINDLASS_OUTPUT_DIR"], "large").write_bytes(data)
print("written", flush=True)
"""
LARGE = 20 * 2**20
"""Of several parts."""


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    try:
        with S3Server(tmp_path_factory.mktemp("s3")) as server:
            yield server
    except Unavailable as why:
        pytest.skip(f"no S3 here: {why}")


def beside(home: Path, s3: S3Server) -> Platform:
    words = ("--storage", s3.url(home.parent.name), "--storage-cache", "0s")
    return Platform(home, *words, env=s3.env)


def kinds(s3: S3Server, platform: Platform) -> set[str]:
    return {key.partition("/")[0] for key in s3.keys(platform.home.parent.name)}


def left(platform: Platform) -> list[Path]:
    found = [*platform.home.glob("blobs/*/??/*"), *platform.home.glob("attempts/*/*/logs/*.log")]
    return [*found, *platform.home.glob("jobs/*/checkpoints/step-*/*")]


@pytest.mark.parametrize("how", ["shut", "jam"])
def test_r_f34_jobs_go_on_while_the_storage_is_away_and_nothing_is_lost(
    tmp_path: Path, s3: S3Server, how: str
) -> None:
    with beside(tmp_path / "home", s3) as platform:
        before = platform.wait(platform.submit([sys.executable, "-c", WRITES], name="before"))
        wait_for(lambda: not left(platform), what="the first moves")
        getattr(s3.door, how)()
        try:
            during = platform.wait(platform.submit([sys.executable, "-c", WRITES], name="during"))
            assert during.state == "succeeded", (during.reason, platform.logs(during))
            turned = s3.door.turned_away
            wait_for(lambda: s3.door.turned_away > turned, what="the server asks in vain")
            assert platform.logs(during) == "written"  # it is here
            for path in (f"/jobs/{before.id}/logs", "/runs/before/artifacts/large"):
                answer = platform.call("GET", path)
                assert answer.status_code == 503 and int(answer.headers["retry-after"]) > 0
                assert "does not answer" in answer.json()["error"]["message"]
            assert platform.call("GET", "/status").status_code == 200
        finally:
            s3.door.open()
        wait_for(lambda: not left(platform), what="all moves once it is back")
        for job in (before, during):
            assert platform.logs(job) == "written"
            found = platform.call("GET", f"/runs/{job.id}/artifacts/large")
            assert len(found.content) == LARGE
        assert s3.uploads() == 0
        invariants.check(platform)


def test_r_f34_a_storage_that_hangs_holds_up_nothing_else(tmp_path: Path, s3: S3Server) -> None:
    with beside(tmp_path / "home", s3) as platform:
        wait_for(lambda: platform.call("GET", "/status").status_code == 200)
        s3.door.hang()
        try:
            jobs = [platform.submit([sys.executable, "-c", WRITES]) for _ in range(3)]
            for job in jobs:
                over = platform.wait(job)
                assert over.state == "succeeded", (over.reason, platform.logs(job))
            wait_for(lambda: s3.door.turned_away, what="the server asks in vain")
            for job in jobs:
                assert platform.logs(job) == "written"
                found = platform.call("GET", f"/runs/{job.id}/artifacts/large")
                assert len(found.content) == LARGE
        finally:
            s3.door.open()
        wait_for(lambda: not left(platform), what="all moves once it answers")


def test_r_f34_a_job_whose_code_lies_there_waits_for_it(tmp_path: Path, s3: S3Server) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "main.py").write_text("print('ran')\n")
    with beside(tmp_path / "home", s3) as platform:
        code = scan(tmp_path / "code")
        upload(platform.client.http, code)
        wait_for(lambda: not left(platform), what="the code moves")
        s3.door.jam()
        try:
            job = platform.submit([sys.executable, "main.py"], code={"bundle": code.digest})
            turned = s3.door.turned_away
            wait_for(lambda: s3.door.turned_away > turned, what="its worker asks in vain")
            assert platform.client.jobs.get(job.id).state in ("queued", "starting")
        finally:
            s3.door.open()
        over = platform.wait(job)
        assert (over.state, over.attempt) == ("succeeded", 1), over.reason
        assert platform.logs(over) == "ran"


@pytest.mark.parametrize(
    "place", ["before-object-row", "after-object-row@2", "before-local-removal"]
)
def test_r_f34_a_server_that_dies_in_a_move_loses_nothing(
    tmp_path: Path, s3: S3Server, place: str
) -> None:
    platform = beside(tmp_path / "home", s3)
    name, _, number = place.partition("@")
    platform.env["WINDLASS_FAILPOINT"] = f"{name}:kill@{number or 1}"
    with platform:
        job = platform.submit([sys.executable, "-c", WRITES], name="job")
        assert platform.process is not None
        platform.process.wait(240)
        platform.process = None
        del platform.env["WINDLASS_FAILPOINT"]
        platform.start()
        job = platform.wait(job)
        assert job.state == "succeeded", (job.reason, platform.logs(job))
        wait_for(lambda: not left(platform), what="it moves")
        assert kinds(s3, platform) == {"blobs", "checkpoints", "logs"}
        assert platform.logs(job) == "written"
        found = platform.call("GET", "/runs/job/artifacts/large")
        assert found.headers["etag"] == f'"{hashlib.sha256(found.content).hexdigest()}"'
        assert len(found.content) == LARGE
        shown = platform.client.checkpoints.get(job.id, "latest")
        path = f"/jobs/job/checkpoints/1/files/{shown['files'][0]['path']}"
        assert platform.call("GET", path).status_code == 200
        invariants.check(platform)


def test_a_storage_that_cannot_be_is_told_at_the_start(tmp_path: Path) -> None:
    for url, words in {
        "s3://key:secret@bucket/x": "keys and options do not belong into the address",
        "nowhere": "an absolute folder, or an address with file://, s3://",
        "gs://bucket/x": "needs the package gcsfs",
    }.items():
        with pytest.raises(AssertionError, match=words):
            Platform(tmp_path / "home", "--storage", url).start()
