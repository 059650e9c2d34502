"""A server that is stopped and started again: nothing is lost, nothing runs twice."""

from __future__ import annotations

import pytest

from windlass.testing.platform import Platform, wait_for


@pytest.fixture
def platform(either: Platform) -> Platform:
    """One server for all of them: none leaves anything that disturbs the next."""
    return either


def test_queued_held_and_finished_jobs_are_as_they_were_after_a_restart(
    platform: Platform,
) -> None:
    done = platform.wait(platform.witness("exit", 0, name="done"))
    held = platform.witness("exit", 0, name="held", hold=True)
    before = {job.id: job for job in platform.client.jobs.list()}
    platform.stop()
    platform.start()
    assert {job.id: job for job in platform.client.jobs.list()} == before
    assert platform.logs(done) == ""
    platform.client.jobs.release(held.id)
    assert platform.wait(held).state == "succeeded"


def test_a_wish_given_just_before_a_restart_is_carried_out_after_it(platform: Platform) -> None:
    gate = platform.gate()
    job = platform.witness("until", gate, limits={"grace": "300ms"})
    platform.wait_state(job, "running")
    wait_for(lambda: platform.said(job, "began"), 20, "its rank runs")
    platform.client.jobs.restart(job.id)
    platform.stop()
    platform.start()
    wait_for(lambda: len(platform.said(job, "began")) == 2, 40, "it was restarted")
    gate.touch()
    job = platform.wait(job)
    assert (job.state, job.attempt) == ("succeeded", 2)


def test_a_second_server_in_the_same_home_is_refused(platform: Platform) -> None:
    second = Platform(platform.home, database=platform.database)
    note = platform.note.read_text()
    with pytest.raises(AssertionError, match=r"another server \(pid [0-9]+\) uses"):
        second.start()
    platform.note.write_text(note)  # the kit cleared it before it tried
    assert platform.client.status()["pid"] == platform.about()["pid"]
