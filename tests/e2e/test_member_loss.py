"""`on_member_loss: continue`: who is lost is started again, and the others never stop.

Every rank is a witness that holds a lock of its own: two of one rank alive at once would say so.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from windlass.client import Job
from windlass.core.errors import InvalidInput
from windlass.testing.platform import Platform, read_json, wait_for

pytestmark = pytest.mark.slow
QUICK = {"times": 3, "backoff": 0.2}


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    home = tmp_path_factory.mktemp("home")
    with Platform(home, "--fake-nodes", "2", "--fake-gpus", "2") as started:
        yield started


def submit(platform: Platform, gate: str, **spec: Any) -> Job:
    usual: dict[str, Any] = {"workers": 3, "retry": QUICK, "on_member_loss": "continue"}
    return platform.witness("until", platform.gate(gate), **{**usual, **spec})


def begun(platform: Platform, job: Job, rank: int, times: int = 1) -> list[dict[str, Any]]:
    """What a rank said when it began, once it has so often."""

    def look() -> list[dict[str, Any]]:
        found = [each for each in platform.said(job, "began") if each["rank"] == rank]
        return found if len(found) >= times else []

    return wait_for(look, 30, f"rank {rank} has begun {times} times")


def kill(platform: Platform, job: Job, rank: int, times: int = 1) -> None:
    os.kill(begun(platform, job, rank, times)[-1]["pid"], signal.SIGKILL)


def events(platform: Platform, job: Job, *kinds: str) -> list[str]:
    items = platform.call("GET", f"/jobs/{job.id}/events").json()["items"]
    return [each["reason"] for each in items if each["kind"] in kinds]


def why(platform: Platform, job: Job) -> dict[str, Any]:
    found: dict[str, Any] = platform.call("GET", f"/jobs/{job.id}/why").json()
    return found


def test_a_rank_that_is_killed_is_started_again_and_the_others_never_stop(
    platform: Platform,
) -> None:
    job = submit(platform, "killed")
    before = [begun(platform, job, rank)[0]["pid"] for rank in (0, 2)]
    kill(platform, job, 1)
    begun(platform, job, 1, times=2)
    wait_for(lambda: events(platform, job, "rank-back"), 20, "its return is told")
    platform.wait_state(job, "running")
    found = why(platform, job)
    assert found["sentence"] == "running"
    assert found["evidence"][0].startswith("worker-1-0 was killed by signal 9; it is started")
    assert found["evidence"][1] == "worker-1-0 was started again, restart 1"
    platform.gate("killed").touch()
    done = platform.wait(job)
    assert (done.state, done.attempt) == ("succeeded", 1)
    assert [begun(platform, job, rank)[-1]["pid"] for rank in (0, 2)] == before
    assert not platform.said(job, "violation")
    assert "started again, restart 1" in platform.cli("why", job.id).stdout
    assert "rank-back" in platform.cli("events", job.id).stdout
    assert "started again, restart 1" in platform.cli("show", job.id).stdout


def test_a_server_that_dies_between_loss_and_return_neither_loses_nor_doubles_a_member(
    platform: Platform,
) -> None:
    job = submit(platform, "away", retry={"times": 3, "backoff": 4})
    kill(platform, job, 0)
    wait_for(lambda: events(platform, job, "rank-lost"), 20, "its loss is told")
    platform.kill()
    begun(platform, job, 0, times=2)  # nobody had to tell the worker
    platform.start()
    wait_for(lambda: events(platform, job, "rank-back"), 30, "what happened meanwhile is told")
    platform.gate("away").touch()
    done = platform.wait(job)
    assert (done.state, done.attempt) == ("succeeded", 1)
    assert len(platform.said(job, "began")) == 4
    assert not platform.said(job, "violation")
    assert len(events(platform, job, "rank-lost", "rank-back")) == 2


def test_a_rank_that_fails_for_good_is_given_up_and_the_rest_succeeds(
    platform: Platform,
) -> None:
    job = submit(platform, "rest", retry={"times": 1, "backoff": 0.1})
    kill(platform, job, 2)
    kill(platform, job, 2, times=2)
    wait_for(lambda: len(events(platform, job, "rank-lost")) == 2, 20, "both losses are told")
    assert events(platform, job, "rank-lost")[-1] == (
        "worker-2-0 was killed by signal 9; it is given up after 1 restarts, the others go on"
    )
    platform.wait_state(job, "running")
    assert why(platform, job)["sentence"] == "running, without worker-2-0"
    platform.gate("rest").touch()
    done = platform.wait(job)
    assert (done.state, done.exit_code) == ("succeeded", 0)
    assert done.reason == "all ranks ended well but worker-2"


def test_below_min_the_attempt_ends_and_the_retry_rules_count(platform: Platform) -> None:
    code = (
        "import os, sys, time; "
        "sys.exit(7) if os.environ['WINDLASS_RANK'] == '1' else time.sleep(600)"
    )
    command = [sys.executable, "-c", code]
    job = platform.submit(
        command, roles={"worker": {"count": 3, "min": 3}}, on_member_loss="continue",
        limits={"grace": 1},
    )  # fmt: skip
    done = platform.wait(job)
    assert (done.state, done.exit_code, done.attempt) == ("failed", 7, 1)
    assert done.reason == (
        "rank 1 (worker-1) exited with 7; "
        "2 of 3 members of role worker are left, `min` is 3: worker-1 gone"
    )


def on_two_nodes(platform: Platform, gate: str, **spec: Any) -> Job:
    role = {"count": 2, "gpus": 2, "nproc": 1}
    job = submit(platform, gate, workers=None, roles={"worker": role}, **spec)
    begun(platform, job, 0), begun(platform, job, 1)
    return job


def kill_worker_of(platform: Platform, job: Job, index: int) -> str:
    """The worker process of the node of a member; the node."""
    (folder,) = (
        each
        for each in platform.attempts(job)
        if read_json(each / "launch.json")["members"][0]["index"] == index
    )
    pid = platform.worker_pid(folder)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    return folder.name


def test_a_node_is_lost_with_its_members_and_the_others_go_on(platform: Platform) -> None:
    job = on_two_nodes(platform, "node")
    node = kill_worker_of(platform, job, 1)
    wait_for(lambda: events(platform, job, "rank-lost"), 30, "its loss is told")
    told = events(platform, job, "rank-lost")[0]
    assert told.startswith(f"node {node} was lost with worker-1")
    platform.gate("node").touch()
    done = platform.wait(job)
    assert (done.state, done.attempt) == ("succeeded", 1)
    assert done.reason == "all ranks ended well but worker-1"


def test_the_node_where_a_training_meets_cannot_be_missed(platform: Platform) -> None:
    """Its loss spends none of the tries."""
    job = on_two_nodes(platform, "meets", framework="pytorch", retry={"times": 0, "backoff": 0.1})
    node = kill_worker_of(platform, job, 0)
    begun(platform, job, 0, times=2)
    platform.gate("meets").touch()
    done = platform.wait(job)
    assert (done.state, done.attempt, done.failures) == ("succeeded", 2, 0)
    detail = platform.call("GET", f"/jobs/{job.id}").json()
    first = detail["attempts"][0]
    assert first["outcome"] == "lost"
    assert first["reason"].startswith(f"node {node} was lost, and with it the place where")
    assert not platform.said(job, "violation")


@pytest.mark.parametrize(
    ("framework", "run", "words"),
    [
        ("jax", "python train.py", "jax tells its members of each other once"),
        ("horovod", "python train.py", "horovod tells its members of each other once"),
        ("pytorch", "torchrun train.py", "torchrun starts and watches ranks of its own"),
    ],
)
def test_what_cannot_go_on_without_a_member_is_refused_with_the_reason(
    platform: Platform, framework: str, run: str, words: str
) -> None:
    with pytest.raises(InvalidInput, match=words):
        platform.submit(run, framework=framework, workers=2, on_member_loss="continue")
