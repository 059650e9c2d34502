"""What a job is made of, asked of a real server: its code, what differs, how to write it again;
and what a job that is not yet there would meet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from windlass.testing.platform import Platform, wait_for

SCRIPT = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    home = tmp_path_factory.mktemp("recipe") / "home"
    with Platform(home, "--fake-nodes", "2", "--fake-gpus", "4") as found:
        yield found


@pytest.fixture(scope="module")
def jobs(platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Two jobs whose code differs."""
    folder = tmp_path_factory.mktemp("code")
    (folder / "train.py").write_text("print('one')\nprint('same')\n")
    (folder / "gone.py").write_text(SCRIPT)
    (folder / "data.bin").write_bytes(bytes(range(256)))
    first = platform.client.jobs.submit(run="python train.py", name="one", code=str(folder))
    (folder / "train.py").write_text("print('two')\nprint('same')\n")
    (folder / "gone.py").unlink()
    (folder / "data.bin").write_bytes(bytes(reversed(range(256))))
    (folder / "sub").mkdir()
    (folder / "sub" / "new.py").write_text("x = 1\n")
    second = platform.client.jobs.submit(run="python train.py", name="two", code=str(folder))
    for job in (first, second):
        platform.wait(job)
    return first.id, second.id


def test_its_files_are_listed_and_read(platform: Platform, jobs: tuple[str, str]) -> None:
    found = platform.call("GET", "/jobs/one/code").json()
    assert [file["path"] for file in found["files"]] == ["data.bin", "gone.py", "train.py"]
    answer = platform.call("GET", "/jobs/one/code/gone.py")
    assert answer.text == SCRIPT
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert platform.call("GET", "/jobs/one/code/nothing.py").status_code == 404
    assert platform.call("GET", "/jobs/one/code/..%2F..%2Fkek").status_code == 404


def test_what_differs_is_told_file_by_file(platform: Platform, jobs: tuple[str, str]) -> None:
    found = platform.call("GET", "/jobs/two/code-diff?against=one").json()
    files = {file["path"]: (file["change"], file["diff"]) for file in found["files"]}
    assert (found["job"], found["against"]) == (jobs[1], jobs[0])
    assert files["data.bin"] == ("changed", None), "no text"
    assert files["gone.py"][0] == "removed" and f"-{SCRIPT}" in files["gone.py"][1]
    assert files["sub/new.py"][0] == "added" and "+x = 1" in files["sub/new.py"][1]
    change, diff = files["train.py"]
    assert change == "changed" and "-print('one')\n+print('two')" in diff
    same = platform.call("GET", "/jobs/two/code-diff?against=two").json()
    assert same["files"] == []
    assert platform.call("GET", "/jobs/two/code-diff?against=none").status_code == 404
    assert platform.call("GET", "/jobs/two/code-diff").status_code == 422


def test_a_job_without_code_has_none(platform: Platform) -> None:
    job = platform.submit("true", name="bare")
    assert platform.call("GET", f"/jobs/{job.id}/code").json() == {"bundle": None, "files": []}


def test_it_is_spelled_in_three_ways(platform: Platform, jobs: tuple[str, str]) -> None:
    found = platform.call("GET", "/jobs/one/spellings").json()
    assert found["cli"] == "windlass run --name one --framework python python train.py"
    assert found["yaml"] == "name: one\nrun: python train.py\n"
    assert "client.jobs.submit(\n    name='one',\n    run='python train.py'," in found["python"]


def dry(platform: Platform, **spec: object) -> dict[str, object]:
    answer = platform.call("POST", "/jobs", {"spec": {"run": "true", **spec}, "dry_run": True})
    assert answer.status_code == 200, answer.text
    found: dict[str, object] = answer.json()
    return found


def test_a_dry_run_says_why_it_would_wait_and_what_would_not(
    platform: Platform, tmp_path: Path
) -> None:
    wait_for(lambda: dry(platform)["starts"] == "now", 30, "the scheduler knows its nodes")
    held = platform.submit("sleep 600", name="holder", roles={"worker": {"gpus": 3}})
    platform.wait_state(held, "running")
    asked = {"roles": {"worker": {"count": 2, "gpus": 4}}}
    found = dry(platform, **asked)
    assert found["starts"] == "waits for other jobs"
    assert "GPU" in str(found["sentence"])
    assert found["smaller"] == [
        {"role": "worker", "count": 1, "gpus": 4}, {"role": "worker", "count": 2, "gpus": 2},
    ]  # fmt: skip
    assert found["spellings"]["cli"].startswith("windlass run --workers 2 --gpus 4")  # type: ignore[index]
    for less in ({"count": 1, "gpus": 4}, {"count": 2, "gpus": 2}):
        told = dry(platform, roles={"worker": less})
        assert (told["starts"], told["sentence"], told["smaller"]) == ("now", "", [])
    platform.client.jobs.stop(held.id, now=True)
    platform.wait(held)


def test_a_dry_run_in_a_paused_queue_says_so(platform: Platform) -> None:
    assert platform.call("PUT", "/queues/night", {"paused": True}).status_code == 200
    wait_for(
        lambda: dry(platform, queue={"name": "night"})["sentence"] == "queue night is paused",
        30, "the scheduler has heard of the queue",
    )  # fmt: skip
