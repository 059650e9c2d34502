"""What becomes of jobs that fail, hang, or overstay: R-F32, R-F21, R-F16, limits and clean-up."""

from __future__ import annotations

import os
import signal
from itertools import pairwise
from pathlib import Path

import pytest

from windlass.client import Job
from windlass.testing.platform import Platform, wait_for

pytestmark = pytest.mark.slow


def test_r_f32_a_job_that_always_crashes_backs_off_and_stops(shared: Platform) -> None:
    job = shared.witness(
        "exit", 3,
        retry={"times": 3, "on": ["failed"], "backoff": "200ms", "backoff_cap": "400ms"},
    )  # fmt: skip
    job = shared.wait(job)
    assert (job.state, job.attempt, job.failures, job.exit_code) == ("failed", 4, 3, 3)
    assert "tried again 3 of 3" in job.reason
    starts = [line["at"] for line in shared.said(job, "began")]
    gaps = [later - earlier for earlier, later in pairwise(starts)]
    assert all(gap >= least for gap, least in zip(gaps, (0.1, 0.2, 0.2), strict=True)), gaps
    nobody_holds_anything(shared)


def test_r_f32_three_restarts_without_a_further_step_stop_a_job(shared: Platform) -> None:
    script = (
        "import os, windlass\n"
        "windlass.log(step=5, loss=1)\n"
        "assert int(os.environ['WINDLASS_ATTEMPT']) > 100"
    )
    retry = {"times": 50, "on": ["failed"], "backoff": "50ms", "backoff_cap": "50ms"}
    words = shared.witness_command()[:1] + ["-c", script]
    job = shared.wait(shared.submit(words, retry=retry))
    assert job.state == "failed" and job.attempt <= 5
    assert "no progress in 3 restarts" in job.reason
    assert "AssertionError" in job.reason


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"run": ["no-such-program"]}, "command not found: no-such-program"),
        ({"run": ["python", "-V"], "environment": {"python": "/no/such/python"}}, "/no/such"),
        ({"run": ["/etc/hostname"]}, "cannot be executed"),
    ],
)
def test_r_f32_a_command_that_is_not_there_is_refused_once_and_told(
    shared: Platform, spec: dict[str, object], reason: str
) -> None:
    retry = {"times": 5, "on": ["failed", "lost"], "backoff": "50ms"}
    job = shared.wait(shared.client.jobs.submit(spec, retry=retry), seconds=20)
    assert (job.state, job.outcome, job.attempt) == ("failed", "refused", 1)
    assert reason in shared.client.jobs.why(job.id)["sentence"]
    nobody_holds_anything(shared)


def nobody_holds_anything(platform: Platform) -> None:
    """Soon after the end of a job: its scheduler hears of that in its next round."""

    def is_free() -> bool:
        [node] = platform.client.nodes.list()
        return node.free == node.capacity

    wait_for(is_free, what="all of the node free again")


def test_a_time_limit_stops_a_job_with_its_grace(shared: Platform) -> None:
    # Long enough for a script on a busy machine to have said what it does with a SIGTERM.
    job = shared.witness("train", 10_000, 0.05, limits={"time": "5s"})
    job = shared.wait(job, seconds=30)
    assert shared.said(job, "asked to stop")
    assert job.state == "failed" and "time limit of 5 s" in job.reason, job
    assert job.attempt == 1


def test_a_job_that_ignores_its_time_limit_is_killed_after_the_grace(shared: Platform) -> None:
    job = shared.witness("escape", limits={"time": "1s", "grace": "500ms"})
    job = shared.wait(job, seconds=30)
    assert job.state == "failed" and "time limit" in job.reason


@pytest.mark.parametrize("server_args", [("--ttl", "700ms")])
def test_finished_jobs_go_with_their_files_when_their_time_is_over(platform: Platform) -> None:
    script = "import os; open(os.environ['WINDLASS_CHECKPOINT_DIR'] + '/f', 'w')"
    words = platform.witness_command()[:1] + ["-c", script]
    gone, stays = platform.submit(words), platform.submit(words, ttl="1h")
    waits = platform.submit(words, hold=True)
    folders = [platform.home / "jobs" / job.id for job in (gone, stays)]
    platform.wait(stays)
    known = wait_for(
        lambda: gone.id not in (ids := {job.id for job in platform.client.jobs.list()}) and ids,
        30,
        "the first is removed",
    )
    assert known == {stays.id, waits.id}
    assert [folder.exists() for folder in folders] == [False, True]
    assert len(platform.attempts()) == 1


def test_a_job_that_its_user_removes_goes_with_its_files(shared: Platform) -> None:
    """Its checkpoints used to stay, for ever."""
    script = "import os; open(os.environ['WINDLASS_CHECKPOINT_DIR'] + '/f', 'w')"
    job = shared.wait(shared.submit([*shared.witness_command()[:1], "-c", script]))
    folder = shared.home / "jobs" / job.id
    assert (folder / "checkpoints").exists()
    shared.client.jobs.delete(job.id)
    assert not folder.exists()


def test_a_silent_job_is_told_of_with_its_stack_and_left_alone(shared: Platform) -> None:
    """R-F21, as a report: the default."""
    job = shared.witness("silent", limits={"idle": "5s", "grace": "300ms"})
    [hung, *_] = wait_for(lambda: events(shared, job, "hung"), 30, "the hang is told")
    assert "no progress" in hung["reason"]
    assert "_for_ever" in str(hung["data"]["stacks"]), hung
    assert shared.client.jobs.get(job.id).state == "running"
    assert "no progress" in shared.client.jobs.why(job.id)["sentence"]
    shared.client.jobs.stop(job.id)
    assert shared.wait(job).state == "cancelled"


def test_r_f21_a_hung_job_is_restarted_where_its_rules_say_so(shared: Platform) -> None:
    retry = {"times": 1, "on": ["hung"], "backoff": "50ms"}
    job = shared.witness("silent", retry=retry, limits={"idle": "1s", "grace": "300ms"})
    job = shared.wait(job, seconds=60)
    assert (job.state, job.outcome, job.attempt, job.failures) == ("failed", "hung", 2, 1)
    assert len(events(shared, job, "hung")) == 2


def events(platform: Platform, job: Job, kind: str) -> list[dict[str, object]]:
    return [event for event in platform.client.jobs.events(job.id) if event["kind"] == kind]


def test_r_f16_a_damaged_checkpoint_is_left_aside_for_the_one_before(shared: Platform) -> None:
    job = shared.witness("train", 10_000, 0.1, retry={"backoff": "50ms"})
    wait_for(lambda: len(shared.said(job, "saved")) >= 3, 30, "three checkpoints")
    wait_for(lambda: stopped_between_saves(shared, job), what="all it saved is registered")
    shared.client.queues.set("default", paused=True)
    try:
        shared.kill_worker(job)
        wait_for(lambda: not shared.worker_pid(shared.attempts(job)[0]), 10, "it is dead")
        shared.wait_state(job, "queued")
        newest, before = shared.client.jobs.checkpoints(job.id)[:2]
        flip_a_bit(Path(newest["path"]) / "step")
    finally:
        shared.client.queues.set("default", paused=False)
    second = wait_for(lambda: shared.said(job, "resumed")[1:], 30, "the next attempt")[0]
    assert second["step"] == before["step"]
    [told] = wait_for(lambda: events(shared, job, "bad-checkpoint"), 20, "it is told")
    assert newest["path"] in str(told["reason"])
    wait_for(lambda: len(shared.said(job, "saved")) >= 6, 30, "it goes on")
    bad = {c["path"] for c in shared.client.jobs.checkpoints(job.id) if c["bad"]}
    assert newest["path"] in bad
    shared.client.jobs.stop(job.id)
    shared.wait(job)


def stopped_between_saves(platform: Platform, job: Job) -> bool:
    """Its rank is stopped, and has saved nothing that the server has not heard of: what is on
    disk would be offered to the next attempt as well. Otherwise it goes on."""
    pid = platform.said(job, "began")[-1]["pid"]
    os.kill(pid, signal.SIGSTOP)
    known = {Path(each["path"]) for each in platform.client.jobs.checkpoints(job.id)}
    folder = platform.home / "jobs" / job.id / "checkpoints"
    if {path for path in folder.iterdir() if not path.name.startswith(".")} <= known:
        return True
    os.kill(pid, signal.SIGCONT)
    return False


def flip_a_bit(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[0] ^= 1
    path.write_bytes(raw)
