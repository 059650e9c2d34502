"""Looking into a running job."""

from __future__ import annotations

import socket
import sys

import pytest

from windlass.testing.platform import Platform, wait_for

BUSY = """
def inner_loop():
    while True:
        sum(range(1000))

print('up', flush=True)
inner_loop()
"""


@pytest.fixture(scope="module")
def busy(shared: Platform) -> str:
    job = shared.submit([sys.executable, "-c", BUSY], roles={"worker": {"count": 2}})
    shared.wait_state(job, "running")
    wait_for(lambda: shared.logs(job).count("up") == 2, what="both ranks run")
    return job.id


def test_stack_shows_where_every_rank_is(shared: Platform, busy: str) -> None:
    answer = shared.client.jobs.debug(busy, "stack")
    assert len(answer["ranks"]) == 2, answer
    assert all("inner_loop" in rank["text"] for rank in answer["ranks"])


def test_profile_gives_a_flame_graph(shared: Platform, busy: str) -> None:
    answer = shared.client.jobs.debug(busy, "profile", seconds=1, rank=0)
    assert any("<svg" in rank.get("svg", "") for rank in answer["ranks"]), answer["errors"]


def test_attach_opens_a_port_for_a_debugger(shared: Platform, busy: str) -> None:
    answer = shared.client.jobs.debug(busy, "attach", rank=0)
    (rank,) = answer["ranks"]
    with socket.create_connection((rank["host"], rank["port"]), timeout=60):
        pass


def test_a_job_that_is_over_cannot_be_looked_into(shared: Platform) -> None:
    job = shared.wait(shared.submit([sys.executable, "-c", "pass"]))
    done = shared.cli("debug", "stack", job.id)
    assert done.returncode == 1
    assert "only a running one" in done.stderr
    assert "Traceback" not in done.stderr
