"""What a job leaves in its output folder becomes files of its run, and nothing else does."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from windlass.core.errors import TooLarge
from windlass.testing.platform import Platform

SCRIPT = """
import os, pathlib
out = pathlib.Path(os.environ["WINDLASS_OUTPUT_DIR"])
(out / "best.pt").write_bytes(b"weights")
(out / "deep").mkdir()
(out / "deep" / "log.txt").write_text("good")
(out / "link").symlink_to("/etc/passwd")
(out / "folder").symlink_to("/etc")
os.link(out / "best.pt", out / "twice.pt")
os.unlink(out / "twice.pt")
(out / "a").write_text("two names")
os.link(out / "a", out / "b")
os.mkfifo(out / "pipe")
(out / "new\\nline").write_text("x")
"""


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    home = tmp_path_factory.mktemp("outputs") / "home"
    with Platform(home, "--artifact-bytes", "2MiB") as platform:
        yield platform


def test_files_left_in_the_output_folder_become_files_of_the_run(
    platform: Platform, tmp_path: Path
) -> None:
    job = platform.submit([sys.executable, "-c", SCRIPT], name="leaves")
    assert platform.wait(job).state == "succeeded", platform.logs(job)
    listed = platform.call("GET", "/runs/leaves/artifacts").json()["items"]
    assert [(item["path"], item["folder"]) for item in listed] == [
        ("best.pt", False), ("deep", True),
    ]  # fmt: skip
    assert platform.call("GET", "/runs/leaves/artifacts/best.pt").content == b"weights"
    done = platform.cli("model", "register", "leaves", "best.pt", "--as", "digits", "-o", "json")
    made = json.loads(done.stdout)
    assert made["lineage"]["job"]["name"] == "leaves"
    assert (made["run"], made["unsafe"]) == (job.id, ["best.pt"])
    platform.client.jobs.delete(job.id)
    assert platform.call("GET", f"/runs/{job.id}/artifacts").status_code == 404
    platform.client.models.download("digits", tmp_path)  # a version outlives its job
    assert (tmp_path / "best.pt").read_bytes() == b"weights"


MANY = """
import os, pathlib
out = pathlib.Path(os.environ["WINDLASS_OUTPUT_DIR"])
(out / "a").touch()
(out / "b.bin").write_bytes(bytes(3 << 20))
for number in range(9_999):
    (out / ("many-%05d" % number)).touch()
"""


def test_what_is_cut_of_the_outputs_is_told_by_the_run(platform: Platform) -> None:
    """Too many files, one too large, and one where the run has a folder already."""
    job = platform.submit([sys.executable, "-c", MANY], name="cut", hold=True)
    platform.client.http.call("PUT", f"/runs/{job.id}/artifacts/a/mine", data=b"x")
    platform.client.jobs.release(job.id)
    assert platform.wait(job).state == "succeeded", platform.logs(job)
    listed = platform.client.http.call("GET", f"/runs/{job.id}/artifacts", timeout_seconds=300)
    kept = [item["path"] for item in listed["items"]]
    assert len(kept) == 9_999 and kept[:2] == ["a", "many-00000"]
    for words in (
        "files past 10000 of $WINDLASS_OUTPUT_DIR are left out",
        "b.bin of $WINDLASS_OUTPUT_DIR is left out: a file may have 2097152 bytes",
        "a is left out: the run has a folder of that name",
    ):
        told = f"tags.`windlass.left_out` LIKE '%{words}%'"
        assert [run.id for run in platform.client.runs.page(filter=told).items] == [job.id], words


def test_a_file_and_a_body_over_their_bounds_are_refused_by_the_real_server(
    platform: Platform,
) -> None:
    job = platform.submit(["true"], name="large", hold=True)
    path = f"/runs/{job.id}/artifacts/x"
    with pytest.raises(TooLarge) as refused:
        platform.client.http.call("PUT", path, data=bytes(3 << 20))
    assert refused.value.details["max_bytes"] == 2 << 20
    answer = platform.call("POST", "/jobs", {"run": ["true"], "name": "x" * (2 << 20)})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (413, "too-large")
    assert error["details"]["max_bytes"] == 1 << 20
    assert platform.call("GET", f"/runs/{job.id}/artifacts").json()["items"] == []
