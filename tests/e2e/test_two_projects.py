"""A second user in a second project, on the same server: what one lends the other gives back, and
neither sees, outspends or breaks the other."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from windlass.client import Client
from windlass.core.errors import LimitExceeded, NotFound
from windlass.testing import invariants
from windlass.testing.people import People
from windlass.testing.platform import Platform, wait_for

ONE = {"worker": {"gpus": 1, "nproc": 1}}
BOTH = {"worker": {"count": 2, "gpus": 1, "nproc": 1}}


@pytest.fixture
def wide(tmp_path, dialect, database_url) -> Iterator[Platform]:
    url = "" if dialect == "sqlite" else database_url
    words = ("--fake-nodes", "2", "--fake-gpus", "2", "--scheduler-min-run", "100ms")
    with Platform(tmp_path / "home", *words, database=url) as running:
        yield running
        invariants.check(running)


def running(client: Client, *jobs: str) -> bool:
    return all(client.jobs.get(job).state == "running" for job in jobs)


def test_what_was_lent_is_given_back_and_a_flood_of_one_does_not_keep_the_other_waiting(wide):
    people = People(wide)
    people.project("red")
    people.project("blue")
    with (
        people.user("ann", project="red", role="member").client() as ann,
        people.user("ben", project="blue", role="member").client() as ben,
    ):
        quotas = wide.client.quotas
        quotas.set("all", cohort=True)
        for project in ("red", "blue"):
            quotas.set(project, parent="all", nominal={"gpus": 2})
        wide.client.limits.set("blue", 30)

        # Blue is alone: it borrows what red lends, and floods the queue up to its limit.
        flood = [
            ben.jobs.submit({"run": "sleep 600", "roles": ONE, "name": f"flood-{number}"})
            for number in range(30)
        ]
        wait_for(lambda: running(ben, *[job.id for job in flood[:4]]), 60, "blue on all GPUs")
        with pytest.raises(LimitExceeded):
            ben.jobs.submit({"run": "true"})

        # Red wants what it owns: whole gangs of blue end for it, as many as borrow, no more.
        mine = ann.jobs.submit({"run": "sleep 600", "roles": BOTH, "name": "mine"})
        wait_for(lambda: running(ann, mine.id), 60, "red on what it owns")
        states = [ben.jobs.get(job.id).state for job in flood]
        assert states.count("running") == 2
        preempted = [job for job in (ben.jobs.get(each.id) for each in flood) if job.outcome]
        assert [job.outcome for job in preempted] == ["preempted"] * 2

        # Blue is told why, and not for which job of a stranger's.
        for job in preempted:
            told = ben.jobs.events(job.id)
            [wished] = [event for event in told if event["kind"] == "wished"]
            assert wished["data"]["wish"] == "preempt" and wished["data"]["for"] is None
            assert mine.id not in json.dumps(told) and "mine" not in wished["reason"]

        # Neither sees the other's jobs, by list or by name.
        assert {job.name for job in ann.jobs.list()} == {"mine"}
        for call in (ann.jobs.get, ann.jobs.why, ann.jobs.stop):
            with pytest.raises(NotFound):
                call(flood[0].id)

        # What blue spent is blue's.
        for job in flood:
            ben.jobs.stop(job.id, now=True)
        wait_for(lambda: not ben.jobs.list(state="queued,running,starting,stopping"), 60)
        assert running(ann, mine.id)
        ann.jobs.stop(mine.id, now=True)
        wait_for(lambda: ann.jobs.get(mine.id).state == "cancelled", 60)
