"""The server dies by SIGKILL, at any moment: R-F1, R-F2, R-F3, R-F4."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from windlass.testing import invariants
from windlass.testing.platform import Platform, wait_for

pytestmark = pytest.mark.slow

THREADS, SUBMITS = 8, 10


def submits_under_fire(platform: Platform, dice: random.Random, rounds: int) -> None:
    """Clients submit, each again with its key until it is answered; the server is killed at a
    random instant of each round and comes back."""
    acked: dict[str, str] = {}
    sent: list[str] = []
    for number in range(rounds):
        keys = [f"r{number}-{thread}-{n}" for thread in range(THREADS) for n in range(SUBMITS)]
        sent += keys
        begun = threading.Event()

        def client(mine: list[str], begun: threading.Event = begun) -> None:
            with platform.new_client(120) as api:
                for key in mine:
                    job = api.jobs.submit(
                        {"run": ["true"], "name": key, "hold": True}, idempotency_key=key
                    )
                    acked[key] = job.id
                    begun.set()

        with ThreadPoolExecutor(THREADS) as pool:
            clients = [pool.submit(client, keys[n::THREADS]) for n in range(THREADS)]
            begun.wait(60)
            time.sleep(dice.uniform(0, 0.4))
            platform.kill()
            platform.start()
            assert platform.process is not None
            spent = sum(psutil.Process(platform.process.pid).cpu_times()[:2])
            assert spent < 10, "the server took too long to come back, of its own time"
            for each in clients:
                each.result(120)
        assert len(acked) == len(sent)
    invariants.accepted(platform, acked, sent)
    for key in dice.sample(sent, 5):
        spec = {"run": ["true"], "name": key, "hold": True}
        assert platform.client.jobs.submit(spec, idempotency_key=key).id == acked[key]


def test_r_f1_no_submit_is_lost_or_doubled_when_the_server_is_killed(
    any_platform: Platform, dice: random.Random
) -> None:
    submits_under_fire(any_platform, dice, rounds=3)


@pytest.mark.soak
def test_r_f1_nor_in_fifty_rounds(any_platform: Platform, dice: random.Random) -> None:
    submits_under_fire(any_platform, dice, rounds=50)


def test_r_f2_a_submit_whose_answer_was_lost_is_answered_by_its_key(unstarted: Platform) -> None:
    platform = unstarted
    platform.env["WINDLASS_FAILPOINT"] = "after-submit-commit:kill@3"
    platform.start()
    body = {"spec": {"run": ["true"], "hold": True, "name": "once"}}
    for key in ("a", "b"):
        answer = platform.call("POST", "/jobs", body, headers={"Idempotency-Key": key})
        assert answer.status_code == 201
    with pytest.raises(OSError):
        _raw(platform, body, "c")
    assert platform.process is not None and platform.process.wait(120) == -9
    platform.kill()
    platform.env.pop("WINDLASS_FAILPOINT")
    platform.start()
    [unanswered] = [
        job
        for job in platform.client.jobs.list(name="once")
        if job.id not in _ids(platform, body, "a", "b")
    ]
    assert _ids(platform, body, "c", "c") == [unanswered.id, unanswered.id]
    assert len(platform.client.jobs.list(name="once")) == 3


def _raw(platform: Platform, body: object, key: str) -> None:
    import httpx

    try:
        platform.call("POST", "/jobs", body, headers={"Idempotency-Key": key})
    except httpx.TransportError as err:
        raise OSError(str(err)) from err


def _ids(platform: Platform, body: object, *keys: str) -> list[str]:
    found = []
    for key in keys:
        answer = platform.call("POST", "/jobs", body, headers={"Idempotency-Key": key})
        assert answer.status_code == 201 and answer.headers["idempotent-replay"] == "true"
        found.append(answer.json()["id"])
    return found


def test_r_f3_a_job_whose_end_was_seen_and_not_written_has_run_once(unstarted: Platform) -> None:
    platform = unstarted
    platform.env["WINDLASS_FAILPOINT"] = "before-over-commit:kill"
    platform.start()
    job = platform.witness("exit", 0)
    assert platform.process is not None and platform.process.wait(120) == -9
    platform.kill()
    platform.env.pop("WINDLASS_FAILPOINT")
    platform.start()
    job = platform.wait(job)
    assert (job.state, job.attempt) == ("succeeded", 1)
    assert len(platform.said(job, "began")) == 1


@pytest.mark.parametrize("server_args", [("--fake-nodes", "2", "--fake-gpus", "1")])
def test_r_f3_a_gang_is_placed_whole_or_not_at_all_and_runs_once(unstarted: Platform) -> None:
    """Two gangs that each want all there is: whichever step the server dies at, one runs with
    both its members and the other waits with none. Each rank of each runs once."""
    platform = unstarted
    gang = {"worker": {"count": 2, "gpus": 1, "nproc": 1}}
    for place in ("before-start-commit", "after-start-commit", "before-launch", "after-launch"):
        platform.kill()
        platform.env["WINDLASS_FAILPOINT"] = f"{place}:kill"
        platform.start()
        gate = platform.gate(place)
        jobs = [platform.witness("until", gate, roles=gang)]
        assert platform.process is not None and platform.process.wait(120) == -9
        platform.kill()
        platform.env.pop("WINDLASS_FAILPOINT")
        platform.start()
        jobs.append(platform.witness("until", gate, roles=gang))
        platform.wait_state(jobs[0], "running")
        wait_for(lambda jobs=jobs: len(platform.said(jobs[0], "began")) == 2, 30, "both began")
        assert platform.client.jobs.get(jobs[1].id).state == "queued"
        assert not platform.attempts(jobs[1])
        gate.touch()
        for job in jobs:
            over = platform.wait(job)
            assert (over.state, over.attempt) == ("succeeded", 1)
            assert sorted(line["rank"] for line in platform.said(job, "began")) == [0, 1]


def adopted(platform: Platform, away_seconds: float) -> None:
    """20 jobs run; the server is killed; some end meanwhile; the rest runs on under the next."""
    early, late = platform.gate("early"), platform.gate("late")
    jobs = [platform.witness("until", early if n % 4 == 0 else late, n % 3) for n in range(20)]
    for job in jobs:
        platform.wait_state(job, "running", seconds=60)
        wait_for(lambda job=job: platform.said(job, "began"), 30, "it bears witness")
    pids = {job.id: [line["pid"] for line in platform.said(job, "began")] for job in jobs}
    platform.kill()
    early.touch()
    for job in jobs[::4]:
        wait_for(lambda job=job: platform.said(job, "ended"), 20, "it ends while nobody looks")
    time.sleep(away_seconds)
    platform.start()
    for n, job in enumerate(jobs):
        if n % 4 == 0:
            over = platform.wait(job)
            assert over.exit_code == n % 3, f"its exit code is known: {over}"
        else:
            assert platform.client.jobs.get(job.id).state == "running"
    late.touch()
    for n, job in enumerate(jobs):
        over = platform.wait(job)
        assert (over.exit_code, over.attempt) == (n % 3, 1)
        assert over.state == ("failed" if n % 3 else "succeeded")
        assert [line["pid"] for line in platform.said(job, "began")] == pids[job.id]


@pytest.mark.parametrize("server_args", [("--fake-nodes", "5")])
def test_r_f4_twenty_running_jobs_outlive_the_server(any_platform: Platform) -> None:
    adopted(any_platform, away_seconds=1)


@pytest.mark.soak
@pytest.mark.parametrize("away_seconds", [30, 200])
@pytest.mark.parametrize("server_args", [("--fake-nodes", "5")])
def test_r_f4_also_when_it_is_away_for_long(platform: Platform, away_seconds: float) -> None:
    adopted(platform, away_seconds)


def test_r_f4_a_stopped_server_leaves_running_jobs_alone_too(platform: Platform) -> None:
    gate = platform.gate()
    job = platform.witness("until", gate)
    platform.wait_state(job, "running")
    platform.stop()
    gate.touch()
    wait_for(lambda: platform.said(job, "ended"), 20, "it ends while the server is down")
    platform.start()
    job = platform.wait(job)
    assert (job.state, job.attempt) == ("succeeded", 1)


def test_a_watcher_that_comes_back_with_its_cursor_misses_nothing(platform: Platform) -> None:
    """R-I6 over a crash: the stream goes on where it broke."""
    gate = platform.gate()
    job = platform.witness("until", gate)
    platform.wait_state(job, "running")
    seen: list[int] = []
    broken = threading.Event()

    def watch() -> None:
        with platform.new_client() as api:
            stream = api.jobs.stream(job.id, broken=lambda problem: broken.set())
            for message in stream:
                if message.event == "event":
                    seen.append(message.json()["seq"])

    watcher = threading.Thread(target=watch)
    watcher.start()
    wait_for(lambda: len(seen) >= 3, 20, "the watcher has seen the start")
    platform.kill()
    assert broken.wait(60)
    platform.start()
    gate.touch()
    platform.wait(job)
    watcher.join(120)
    assert not watcher.is_alive()
    assert seen == list(range(1, len(seen) + 1))
    assert len(seen) == len(platform.client.jobs.events(job.id))
