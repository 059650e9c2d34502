"""Stopping a job at any moment: R-F30, R-F28, the grace to save, and the stop without one."""

from __future__ import annotations

import random
import time

import pytest

from windlass.client import Job
from windlass.core.errors import Conflict
from windlass.testing.platform import Platform, read_json, runs, wait_for

pytestmark = pytest.mark.slow

MOMENTS = ("queued", "starting", "running", "checkpointing", "finishing")


def begin(platform: Platform, moment: str, number: int) -> Job:
    """A job that is, or is about to be, at this moment of its life."""
    short = {"limits": {"grace": "300ms"}}
    if moment == "queued":
        return platform.witness("exit", 0, roles={"worker": {"gpus": 1}}, **short)
    if moment == "starting":
        return platform.witness("until", platform.gate(), **short)
    if moment == "running":
        job = platform.witness("until", platform.gate(), **short)
        platform.wait_state(job, "running")
        return job
    if moment == "checkpointing":
        job = platform.witness("train", 1000, 0, **short)
        wait_for(lambda: platform.said(job, "saved"), 30, "it saves")
        return job
    gate = platform.gate(f"gate-{number}")
    job = platform.witness("until", gate, **short)
    platform.wait_state(job, "running")
    gate.touch()
    return job


@pytest.mark.parametrize("server_args", [("--fake-nodes", "1", "--fake-gpus", "1")])
def test_r_f30_a_stop_at_any_moment_has_one_end(
    any_platform: Platform, dice: random.Random
) -> None:
    platform = any_platform
    blocker = platform.submit(["sleep", "600"], roles={"worker": {"gpus": 1}})
    platform.wait_state(blocker, "running")
    for number, moment in enumerate(MOMENTS * 2):
        job = begin(platform, moment, number)
        time.sleep(dice.uniform(0, 0.15))
        now = dice.random() < 0.5
        platform.client.jobs.stop(job.id, reason="enough", now=now)
        platform.client.jobs.stop(job.id, reason="really", now=True)
        over = platform.wait(job)
        may_be = {"cancelled"} if moment == "queued" else {"cancelled", "succeeded"}
        assert over.state in may_be, over
        # The worker itself obeyed: where the engine has to kill it, it is called lost.
        told = [read_json(folder / "exit.json") for folder in platform.attempts(job)]
        assert "lost" not in [record.get("outcome") for record in told], told
        assert platform.client.jobs.stop(job.id).state == over.state, "a late stop changes nothing"
        assert not any(runs(line["pid"]) for line in platform.said(job, "began"))
        with pytest.raises(Conflict):
            platform.client.jobs.restart(job.id)
    platform.client.jobs.stop(blocker.id, now=True)
    assert platform.wait(blocker).state == "cancelled"


def test_r_f30_a_stop_while_the_server_is_away_is_carried_out_when_it_is_back(
    platform: Platform,
) -> None:
    job = platform.witness("until", platform.gate(), limits={"grace": "300ms"})
    platform.wait_state(job, "running")
    platform.client.jobs.stop(job.id)
    platform.kill()  # perhaps before the order was given, perhaps after
    platform.start()
    assert platform.wait(job).state == "cancelled"


def test_a_stop_gives_the_script_time_to_save_and_leave(shared: Platform) -> None:
    job = shared.witness("train", 10_000, 0.05)
    wait_for(lambda: shared.said(job, "saved"), 30, "it trains")
    shared.client.jobs.stop(job.id, reason="for today")
    job = shared.wait(job, seconds=20)
    [stopped] = shared.said(job, "asked to stop")
    assert shared.said(job, "saved")[-1]["step"] == stopped["step"]
    assert shared.client.jobs.checkpoints(job.id)[0]["step"] == stopped["step"]
    assert job.state == "cancelled" and "for today" in job.reason, job


def test_a_stop_now_does_not_wait_for_the_grace(shared: Platform) -> None:
    """The script would take its whole grace, for longer than anybody waits here."""
    job = shared.witness("escape", limits={"grace": "30m"})
    wait_for(lambda: shared.said(job, "escaped"), 30, "it runs")
    shared.client.jobs.stop(job.id)
    shared.wait_state(job, "stopping")
    shared.client.jobs.stop(job.id, now=True)
    assert shared.wait(job).state == "cancelled"


def test_r_f28_what_ignores_stops_or_escapes_is_gone_with_the_job(shared: Platform) -> None:
    job = shared.witness("escape", limits={"grace": "500ms"})
    wait_for(lambda: shared.said(job, "escaped"), 30, "its daemon runs")
    shared.client.jobs.stop(job.id)
    assert shared.wait(job, seconds=30).state == "cancelled"


def test_r_f28_also_when_it_escaped_and_its_worker_was_killed(shared: Platform) -> None:
    job = shared.witness("escape", limits={"grace": "500ms"}, retry={"never": ["lost"]})
    wait_for(lambda: shared.said(job, "escaped"), 30, "its daemon runs")
    shared.kill_worker(job)
    job = shared.wait(job, seconds=30)
    assert (job.state, job.outcome) == ("failed", "lost")


def test_a_restart_ends_the_attempt_and_the_next_resumes_where_it_was(shared: Platform) -> None:
    job = shared.witness("train", 40, 0.2)
    wait_for(lambda: len(shared.said(job, "saved")) >= 3, 30, "it has saved three steps")
    shared.client.jobs.restart(job.id)
    job = shared.wait(job)
    assert (job.state, job.attempt, job.failures) == ("succeeded", 2, 0)
    first, second = shared.said(job, "resumed")
    assert (first["step"], second["attempt"]) == (0, 2)
    assert second["step"] >= 3, "nothing that was saved is computed again"
    steps = [line["step"] for line in shared.said(job, "saved")]
    assert steps == list(range(1, 41))
