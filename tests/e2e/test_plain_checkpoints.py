"""Scripts that know nothing of us and write files below $WINDLASS_CHECKPOINT_DIR."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from windlass.client import Job
from windlass.testing.platform import Platform, wait_for

SCRIPT = """
import os, sys, time
from pathlib import Path
folder = Path(os.environ["WINDLASS_CHECKPOINT_DIR"])
print("began", os.environ.get("WINDLASS_RESUME_FROM"), os.environ["WINDLASS_ATTEMPT"], flush=True)
"""


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with Platform(tmp_path_factory.mktemp("home")) as platform:
        yield platform


def script(platform: Platform, body: str, **spec: Any) -> Job:
    usual = {"retry": {"backoff": "10ms"}, **spec}
    return platform.submit([sys.executable, "-c", SCRIPT + body], **usual)


def listed(platform: Platform, job: Job) -> list[dict[str, Any]]:
    return list(platform.client.checkpoints.list(job.id))


def pid_of(platform: Platform, job: Job) -> int:
    ranks = [path for path in platform.attempts(job)[-1].glob("processes.json")]
    import json

    return int(json.loads(ranks[0].read_text())["ranks"][0]["pid"])


def test_a_finished_file_is_catalogued_and_the_next_attempt_finds_it(platform: Platform) -> None:
    job = script(
        platform,
        """
if os.environ["WINDLASS_ATTEMPT"] == "1":
    (folder / "ckpt-400.pt").write_bytes(b"weights")
    time.sleep(600)
print(Path(os.environ["WINDLASS_RESUME_FROM"]).read_text())
""",
    )
    [saved] = wait_for(lambda: listed(platform, job), what="it is noticed")
    assert (saved["step"], saved["attempt"], saved["source"]) == (400, 1, "files")
    assert saved["path"].endswith("/ckpt-400.pt") and saved["bytes"] == 7
    os.kill(pid_of(platform, job), signal.SIGKILL)
    job = platform.wait(job)
    assert job.state == "succeeded", platform.logs(job)
    text = platform.logs(job, attempt=2)
    assert "ckpt-400.pt 2" in text and "weights" in text
    found = platform.client.checkpoints.get(job.id, "400")
    assert [file["path"] for file in found["files"]] == ["ckpt-400.pt"]


def test_a_writer_that_is_killed_leaves_no_checkpoint_but_the_one_before(
    platform: Platform,
) -> None:
    """R-F15 for scripts of their own: a half-written file is quiet and closed, too."""
    job = script(
        platform,
        """
if os.environ["WINDLASS_ATTEMPT"] == "1":
    (folder / "checkpoint-10").mkdir()
    (folder / "checkpoint-10" / "model.bin").write_bytes(b"good")
    time.sleep(4)
    with open(folder / "ckpt-20.bin", "wb") as file:
        for piece in range(10**6):
            file.write(b"x" * 100)
            file.flush()
            print("wrote", flush=True)
            time.sleep(0.2)
""",
    )
    wait_for(lambda: [each["step"] for each in listed(platform, job)] == [10], what="the first")
    wait_for(lambda: platform.logs(job).count("wrote") > 12, what="the second is being written")
    assert [each["step"] for each in listed(platform, job)] == [10], "it was never closed"
    os.kill(pid_of(platform, job), signal.SIGKILL)
    job = platform.wait(job)
    assert job.state == "succeeded", platform.logs(job)
    assert "checkpoint-10 2" in platform.logs(job, attempt=2)
    assert [each["step"] for each in listed(platform, job)] == [10]
    folder = Path(platform.client.checkpoints.list(job.id)[0]["path"]).parent
    assert (folder / "ckpt-20.bin").exists(), "a script's own files are left alone"


def test_what_is_saved_last_counts_when_all_ended_well(platform: Platform) -> None:
    job = script(
        platform,
        """
for step in (1, 2):
    (folder / f"model-{step}.npz").write_bytes(b"x" * step)
""",
    )
    assert platform.wait(job).state == "succeeded"
    assert [each["step"] for each in listed(platform, job)] == [2, 1]
    again = script(
        platform,
        'print(Path(os.environ["WINDLASS_START_FROM"]), os.listdir('
        'os.environ["WINDLASS_START_FROM"]))',
        start_from={"job": job.id, "step": 2},
    )
    again = platform.wait(again)
    assert again.state == "succeeded", platform.logs(again)
    assert "model-2.npz" in platform.logs(again)
    resumed = platform.wait(
        script(
            platform,
            "import windlass; print(windlass.resume_from())",
            start_from={"job": job.id, "step": 1, "resume": True},
        )
    )
    assert resumed.state == "succeeded", platform.logs(resumed)
    assert platform.logs(resumed).splitlines()[-1].endswith("/start/model-1.npz")


def test_one_that_the_script_removes_leaves_the_list(platform: Platform) -> None:
    job = script(
        platform,
        """
(folder / "ckpt-1.pt").write_bytes(b"1")
(folder / "ckpt-2.pt").write_bytes(b"2")
while not (folder / "go").exists():
    time.sleep(0.05)
(folder / "ckpt-1.pt").unlink()
time.sleep(600)
""",
    )
    wait_for(lambda: [each["step"] for each in listed(platform, job)] == [2, 1], what="both")
    (Path(listed(platform, job)[0]["path"]).parent / "go").touch()
    wait_for(lambda: [each["step"] for each in listed(platform, job)] == [2], what="one is gone")
    platform.client.jobs.stop(job.id, now=True)
    platform.wait(job)
