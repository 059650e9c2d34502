"""Workers and ranks die: R-F6, R-F7, R-F29, and the job that takes its workers with it."""

from __future__ import annotations

import json
import os
import signal
import uuid
from typing import Any

import pytest

from windlass.testing.platform import Platform, runs, wait_for

pytestmark = pytest.mark.slow

QUICK = {"backoff": "100ms", "backoff_cap": "200ms"}


def saved_by_all(platform: Platform, job: Any, step: int, ranks: int, attempt: int) -> None:
    wait_for(
        lambda: (
            len(
                {
                    line["rank"]
                    for line in platform.said(job, "saved")
                    if line["step"] >= step and line["attempt"] == attempt
                }
            )
            == ranks
        ),
        60,
        f"all ranks have saved step {step} in attempt {attempt}",
    )


def rank_pids(platform: Platform, job: Any, attempt: int) -> dict[int, int]:
    began = [line for line in platform.said(job, "began") if line["attempt"] == attempt]
    return {line["rank"]: line["pid"] for line in began}


@pytest.mark.parametrize("server_args", [("--fake-nodes", "2")])
def test_r_f6_a_killed_rank_takes_its_gang_along_and_all_resume_together(
    any_platform: Platform,
) -> None:
    platform = any_platform
    job = platform.witness(
        "train", 24, 0.2, workers=4, retry={"times": 3, **QUICK}, limits={"grace": "1s"}
    )
    saved_by_all(platform, job, 2, ranks=4, attempt=1)
    first = rank_pids(platform, job, 1)
    os.kill(first[2], signal.SIGKILL)
    saved_by_all(platform, job, 4, ranks=4, attempt=2)
    assert not any(map(runs, first.values()))
    os.kill(rank_pids(platform, job, 2)[0], signal.SIGKILL)
    job = platform.wait(job)
    assert (job.state, job.attempt, job.failures) == ("succeeded", 3, 2)
    for attempt in (2, 3):
        resumed = [
            line["step"] for line in platform.said(job, "resumed") if line["attempt"] == attempt
        ]
        assert len(resumed) == 4 and len(set(resumed)) == 1 and resumed[0] >= attempt
    told = platform.client.jobs.detail(job.id)["attempts"]
    assert "rank 2" in told[0]["reason"] and "SIGKILL" in told[0]["reason"]
    assert "rank 0" in told[1]["reason"]


def test_r_f6_the_budget_of_restarts_ends(shared: Platform) -> None:
    job = shared.witness(
        "until", shared.gate(), workers=2, retry={"times": 1, "stale_restarts": 9, **QUICK}
    )
    for attempt in (1, 2):
        pids = wait_for(
            lambda attempt=attempt: len(found := rank_pids(shared, job, attempt)) == 2 and found,
            30,
            f"both ranks of attempt {attempt} run",
        )
        os.kill(pids[1], signal.SIGKILL)
    job = shared.wait(job)
    assert (job.state, job.attempt, job.failures) == ("failed", 2, 1)
    assert "tried again 1 of 1" in job.reason


def test_r_f7_with_its_worker_a_job_dies_and_is_retried_for_free(shared: Platform) -> None:
    gate = shared.gate()
    job = shared.witness("until", gate, retry={"times": 0, **QUICK})
    shared.wait_state(job, "running")
    [rank] = wait_for(lambda: rank_pids(shared, job, 1).values(), 20, "the rank runs")
    shared.kill_worker(job)
    wait_for(lambda: rank_pids(shared, job, 2), 30, "the next attempt runs")
    assert not runs(rank)
    gate.touch()
    job = shared.wait(job)
    assert (job.state, job.attempt, job.failures) == ("succeeded", 2, 0)
    told = shared.client.jobs.detail(job.id)["attempts"]
    assert [attempt["outcome"] for attempt in told] == ["lost", "succeeded"]


def test_r_f7_when_worker_and_server_die_together_the_next_server_sees_it(
    platform: Platform,
) -> None:
    gate = platform.gate()
    job = platform.witness("until", gate, retry=QUICK)
    platform.wait_state(job, "running")
    wait_for(lambda: rank_pids(platform, job, 1), 20, "the rank runs")
    platform.kill()
    platform.kill_worker(job)
    platform.start()
    wait_for(lambda: rank_pids(platform, job, 2), 30, "the next attempt runs")
    gate.touch()
    assert platform.wait(job).state == "succeeded"


def test_a_job_that_loses_worker_after_worker_is_held_until_released(shared: Platform) -> None:
    gate = shared.gate()
    job = shared.witness("until", gate, retry=QUICK)
    for attempt in (1, 2, 3):
        wait_for(lambda attempt=attempt: rank_pids(shared, job, attempt), 30, f"attempt {attempt}")
        shared.kill_worker(job)
    held = shared.wait_state(job, "held")
    assert "quarantined: 3 attempts" in held.reason and "release" in held.reason
    assert "quarantined" in shared.client.jobs.why(job.id)["sentence"]
    shared.client.jobs.release(job.id)
    wait_for(lambda: rank_pids(shared, job, 4), 30, "it goes on after the release")
    gate.touch()
    assert shared.wait(job).state == "succeeded"


def test_losses_of_workers_without_a_further_step_hold_a_job_and_do_not_fail_it(
    shared: Platform,
) -> None:
    """Losing a node is never the job's fault, also when it had no time to get further."""
    job = shared.witness("train", 1, 0, retry=QUICK)
    assert shared.wait(job).state == "succeeded"  # warm: imports are cached from here on
    job = shared.witness("train", 1000, 2, retry=QUICK)
    saved_by_all(shared, job, 1, ranks=1, attempt=1)
    for attempt in (1, 2, 3, 4):
        pids = wait_for(
            lambda attempt=attempt: rank_pids(shared, job, attempt), 30, f"attempt {attempt}"
        )
        os.kill(pids[0], signal.SIGSTOP)  # it gets no further, however late its end comes
        shared.kill_worker(job)
    assert shared.wait_state(job, "held", "failed").state == "held"
    shared.client.jobs.stop(job.id)


@pytest.mark.parametrize("server_args", [("--fake-nodes", "3")])
def test_r_f29_after_a_reboot_attempts_are_lost_at_once_and_tried_again(
    platform: Platform,
) -> None:
    """Everything dies together; the files speak of another boot. Their pids may belong to
    anybody by now: here to a bystander, who must not be touched."""
    import subprocess

    gate = platform.gate()
    jobs = [platform.witness("until", gate, retry={"times": 0, **QUICK}) for _ in range(3)]
    for job in jobs:
        platform.wait_state(job, "running")
        wait_for(lambda job=job: rank_pids(platform, job, 1), 20, "the rank runs")
    platform.kill()
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        for job in jobs:
            platform.kill_worker(job)
            [folder] = platform.attempts(job)
            [rank] = rank_pids(platform, job, 1).values()
            wait_for(lambda rank=rank: not runs(rank), 10, "all is dead")
            for name in ("worker.json", "spawn.json"):
                about = json.loads((folder / name).read_text())
                about |= {"boot_id": str(uuid.uuid4()), "pid": bystander.pid}
                (folder / name).write_text(json.dumps(about))
        platform.start()
        for job in jobs:
            wait_for(lambda job=job: rank_pids(platform, job, 2), 30, "it was tried again")
        assert bystander.poll() is None, "a recycled pid was taken for the worker"
    finally:
        bystander.kill()
        bystander.wait()
    gate.touch()
    for job in jobs:
        over = platform.wait(job)
        assert (over.state, over.attempt, over.failures) == ("succeeded", 2, 0)
        [first, _] = platform.client.jobs.detail(job.id)["attempts"]
        assert first["outcome"] == "lost"
