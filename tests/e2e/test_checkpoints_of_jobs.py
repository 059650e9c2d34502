"""Checkpoints of real jobs: what the catalogue tells and keeps, who starts from which."""

from __future__ import annotations

import hashlib
import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from windlass.client import Job
from windlass.core.errors import Conflict, InvalidInput
from windlass.job.manifest import verify
from windlass.testing.platform import Platform, wait_for

TRAIN = """
import sys, windlass
state = {"n": 0}
kept = windlass.checkpoint(state=state)
here = windlass.context()
print("began", kept.step, state["n"], here.start_from, flush=True)
if here.start_from is not None:
    print("given", sorted(p.name for p in here.start_from.iterdir()), flush=True)
accuracy = {1: 0.1, 2: 0.9, 3: 0.3, 4: 0.4, 5: 0.5, 6: 0.6}
for step in range((kept.step or 0) + 1, int(sys.argv[1]) + 1):
    state["n"] += step
    windlass.log(step=step, accuracy=accuracy.get(step, 0.0), loss=1 / step)
    kept.save(step)
print("ended", state["n"], flush=True)
"""


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with Platform(tmp_path_factory.mktemp("home")) as platform:
        yield platform


def train(platform: Platform, steps: int, **spec: Any) -> Job:
    return platform.submit([sys.executable, "-c", TRAIN, str(steps)], **spec)


def steps_of(platform: Platform, job: Job) -> list[int]:
    return [each["step"] for each in platform.client.checkpoints.list(job.id)]


def on_disk(platform: Platform, job: Job) -> list[Path]:
    folder = platform.home / "jobs" / job.id / "checkpoints"
    return sorted(path for path in folder.iterdir() if path.name != ".windlass")


@pytest.fixture(scope="module")
def source(platform: Platform) -> Job:
    """Six steps; the newest two are kept, and the best by accuracy, which is step 2."""
    best = {"metric": "accuracy", "goal": "max", "n": 1}
    job = train(platform, 6, name="source", outputs={"keep": 2, "keep_best": best})
    job = platform.wait(job)
    assert job.state == "succeeded", platform.logs(job)
    return job


def test_the_newest_and_the_best_are_kept_and_told_with_their_metrics(
    platform: Platform, source: Job
) -> None:
    kept = wait_for(lambda: settled(platform, source, [6, 5, 2]), what="clean-up")
    newest, _, best = kept
    assert newest["metrics"] == {"accuracy": 0.6, "loss": pytest.approx(1 / 6)}
    assert best["metrics"]["accuracy"] == 0.9
    assert newest["verified"] and newest["bad"] is None and newest["source"] == "windlass"
    assert verify(Path(newest["path"])).digest == newest["digest"]
    found = platform.client.checkpoints.get(source.id, "best")
    assert found["step"] == 2 and [file["path"] for file in found["files"]] == ["state.json"]


def settled(platform: Platform, job: Job, steps: list[int]) -> list[dict[str, Any]]:
    """The clean-up comes with registrations; a metric that was late is judged with a turn's."""
    found = list(platform.client.checkpoints.list(job.id))
    return found if [each["step"] for each in found] == steps else []


def test_a_checkpoint_comes_home_with_its_digests_checked(
    platform: Platform, source: Job, tmp_path: Path
) -> None:
    done = platform.cli("checkpoint", "get", "source", "6", "--dir", str(tmp_path / "home"))
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "home" / "state.json").read_text())
    assert "digests hold" in done.stderr
    listed = platform.cli("checkpoint", "ls", "source")
    assert listed.stdout.splitlines()[1].split()[0] == "6" and "accuracy=0.6" in listed.stdout
    shown = platform.cli("checkpoint", "show", "source", "6")
    file = tmp_path / "home" / "state.json"
    assert hashlib.sha256(file.read_bytes()).hexdigest() in shown.stdout


def test_a_rerun_goes_on_from_the_step_that_was_named(platform: Platform, source: Job) -> None:
    done = platform.cli("rerun", "source", "--from", "step=5", "-n", "again", "-q")
    assert done.returncode == 0, done.stderr
    job = platform.wait(done.stdout.strip())
    assert job.state == "succeeded", platform.logs(job)
    assert "began 5 15 None" in platform.logs(job) and "ended 21" in platform.logs(job)
    shown = platform.cli("show", "again").stdout
    assert "step 5 of job source" in shown and ", resumed" in shown


def test_a_new_job_is_given_the_files_and_the_lineage_is_told(
    platform: Platform, source: Job
) -> None:
    job = platform.wait(
        train(platform, 2, name="child", start_from={"job": "source", "step": "best"})
    )
    assert job.state == "succeeded", platform.logs(job)
    text = platform.logs(job)
    assert "began None 0 /" in text and "given ['manifest.json', 'state.json']" in text
    grandchild = platform.wait(train(platform, 1, start_from={"job": "child"}))
    lineage = platform.client.jobs.detail(grandchild.id)["lineage"]
    assert [(each["name"], each["step"]) for each in lineage] == [("child", 2), ("source", 2)]


def test_the_command_line_starts_a_job_from_anothers_checkpoint(
    platform: Platform, source: Job, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    for named, step in (("source:best", 2), ("source:5", 5), (source.id[:12], 6)):
        ran = platform.cli(
            "run", "--name", f"from-{step}", "--from-job", named, "train.py", "1", cwd=tmp_path
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert "given ['manifest.json', 'state.json']" in ran.stdout
        [origin] = platform.client.jobs.detail(f"from-{step}")["lineage"]
        assert (origin["id"], origin["step"]) == (source.id, step)
    both = ("--from-job", "source", "--from-model", "digits", "train.py", "1")
    assert platform.cli("run", *both, cwd=tmp_path).returncode == 2
    absent = platform.cli("run", "--from-job", "source:3", "train.py", "1", cwd=tmp_path)
    assert absent.returncode != 0 and "has no checkpoint 3" in absent.stderr


def test_the_jobs_own_checkpoint_wins_after_a_restart(platform: Platform, source: Job) -> None:
    script = TRAIN + "\nimport os\nif here.attempt == 1: os.kill(os.getpid(), 9)\n"
    job = platform.submit(
        [sys.executable, "-c", script, "3"],
        start_from={"job": source.id, "step": 2, "resume": True}, retry={"backoff": "10ms"},
    )  # fmt: skip
    job = platform.wait(job)
    assert (job.state, job.attempt) == ("succeeded", 2), platform.logs(job)
    assert "began 2 3 None" in platform.logs(job, attempt=1)
    assert "began 3 6 None" in platform.logs(job, attempt=2)


def test_what_a_waiting_job_starts_from_survives_its_job(platform: Platform) -> None:
    old = platform.wait(train(platform, 2, name="old"))
    waits = train(platform, 3, hold=True, start_from={"job": old.id, "resume": True})
    [newest, _] = platform.client.checkpoints.list(old.id)
    assert newest["held_by"] == [waits.name]
    with pytest.raises(Conflict, match=f"is what {waits.name} starts from"):
        platform.client.checkpoints.delete(old.id, "2")
    platform.client.checkpoints.delete(old.id, "1")
    assert steps_of(platform, old) == [2] and len(on_disk(platform, old)) == 1
    platform.client.jobs.delete(old.id)
    assert not (platform.home / "jobs" / old.id).exists()
    platform.client.jobs.release(waits.id)
    job = platform.wait(waits)
    assert job.state == "succeeded", (job.reason, platform.logs(job))
    assert "began 2 3 None" in platform.logs(job)
    [origin] = platform.client.jobs.detail(job.id)["lineage"]
    assert (origin["name"], origin["id"], origin["step"]) == ("old", old.id, 2)


def test_a_damaged_beginning_is_refused_before_anything_runs(platform: Platform) -> None:
    old = platform.wait(train(platform, 1))
    waits = train(platform, 3, hold=True, start_from={"job": old.id})
    [path] = on_disk(platform, old)
    raw = (path / "state.json").read_bytes()
    (path / "state.json").write_bytes(bytes([raw[0] ^ 1]) + raw[1:])
    platform.client.jobs.release(waits.id)
    job = platform.wait(waits)
    assert job.state == "failed" and "is damaged: its digest differs" in job.reason
    assert platform.logs(job) == ""


def test_wrong_words_are_told(platform: Platform, source: Job) -> None:
    for given, words in [
        ({"job": "nobody"}, "no job 'nobody'"),
        ({"job": "source", "step": 77}, "job source has no checkpoint 77"),
        ({"model": "nothing@best"}, "no model 'nothing'"),
        ({}, "give `job` or `model`"),
        ({"job": "source", "step": "worst"}, "start_from"),
    ]:
        with pytest.raises(InvalidInput, match=words):
            train(platform, 1, start_from=given)
    with pytest.raises(InvalidInput, match="best: job again-plain does not say"):
        platform.wait(train(platform, 1, name="again-plain"))
        train(platform, 1, start_from={"job": "again-plain", "step": "best"})


def test_an_unfinished_job_keeps_what_it_would_go_on_from(platform: Platform) -> None:
    script = TRAIN + "\nimport time\ntime.sleep(600)\n"
    job = platform.submit([sys.executable, "-c", script, "3"])
    wait_for(lambda: steps_of(platform, job) == [3, 2, 1], what="three are saved")
    with pytest.raises(Conflict, match="would go on from checkpoint 3"):
        platform.client.checkpoints.delete(job.id, "latest")
    platform.client.checkpoints.delete(job.id, "1")
    assert steps_of(platform, job) == [3, 2]
    platform.client.jobs.stop(job.id, now=True)
    platform.wait(job)


def test_a_gang_of_two_resumes_from_a_checkpoint_in_parts(platform: Platform) -> None:
    script = textwrap.dedent(
        """
        import windlass
        state = {"rank": windlass.context().rank}
        kept = windlass.checkpoint(state=state, ranks="all")
        print("began", kept.step, state["rank"], flush=True)
        kept.save((kept.step or 0) + 1)
        """
    )
    job = platform.wait(platform.submit([sys.executable, "-c", script], workers=2, name="parts"))
    assert job.state == "succeeded", platform.logs(job)
    [saved] = platform.client.checkpoints.list(job.id)
    assert saved["ranks"] == 2
    done = platform.cli("rerun", "parts", "--from", "latest")
    assert "has the parts of 2 ranks" in done.stderr, done.stderr
    again = platform.wait(done.stdout.strip())
    assert again.state == "succeeded", platform.logs(again)
    assert sorted(platform.logs(again).splitlines()) == ["began 1 0", "began 1 1"]


def test_a_registered_model_is_handed_to_a_new_job(platform: Platform, tmp_path: Path) -> None:
    (tmp_path / "model" / "deep").mkdir(parents=True)
    (tmp_path / "model" / "deep" / "w.bin").write_bytes(b"weights")
    platform.client.models.register_files("digits", tmp_path / "model", aliases=["champion"])
    look = (
        "import os, pathlib, windlass; top = windlass.context().start_from; "
        "print((top / 'deep' / 'w.bin').read_text(), "
        "os.environ['WINDLASS_START_FROM'] == str(top))"
    )
    done = platform.cli(
        "run", "-q", "-d", "--no-code", "--from-model", "digits@champion",
        "--", sys.executable, "-c", look,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    job = platform.wait(done.stdout.strip())
    assert job.state == "succeeded", (job.reason, platform.logs(job))
    assert platform.logs(job).strip() == "weights True"
    detail = platform.client.jobs.detail(job.id)
    assert detail["spec"]["start_from"]["model"] == "digits@1"
    [origin] = detail["lineage"]
    assert (origin["kind"], origin["name"], origin["version"]) == ("model", "digits", 1)
    assert "model digits@1" in platform.cli("show", job.id).stdout
