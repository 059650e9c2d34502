"""Thousands of jobs that are cancelled, or end, at once: R-F35. Nobody is locked out meanwhile."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import psutil
import pytest

from windlass.client import Client
from windlass.testing.platform import Platform, wait_for

pytestmark = pytest.mark.slow

THREADS = 8
ANSWER_SECONDS = 20.0
"""However many wait or end: a look and a submit are answered within this, also on a machine that
is busy with other things. On a quiet one it is some 40 ms."""


def spread(platform: Platform, work: Sequence[Any], do: Callable[[Client, Any], Any]) -> list[Any]:
    """Each item by one of a few clients, at once."""

    def some(mine: Sequence[Any]) -> list[Any]:
        with platform.new_client(120) as api:
            return [do(api, item) for item in mine]

    with ThreadPoolExecutor(THREADS) as pool:
        found = pool.map(some, [work[number::THREADS] for number in range(THREADS)])
        return [answer for part in found for answer in part]


@contextmanager
def never_locked_out(platform: Platform) -> Iterator[None]:
    """Somebody else looks, asks why and submits all the while, and waits for no answer long."""
    over, waits = threading.Event(), [0.0]

    def ask() -> None:
        with platform.new_client(120) as api:
            while not over.is_set():
                for call in (
                    lambda: api.jobs.list(limit=5),
                    lambda: api.jobs.submit({"run": ["true"], "hold": True, "name": "other"}),
                    lambda: api.jobs.why("other"),
                ):
                    began = time.monotonic()
                    call()
                    waits.append(time.monotonic() - began)
                time.sleep(0.05)

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask)
        try:
            yield
        finally:
            over.set()
        asking.result(ANSWER_SECONDS + 120)
    print(f"{len(waits)} answers meanwhile, the slowest after {max(waits) * 1000:.0f} ms")
    assert max(waits) < ANSWER_SECONDS


def _cpu_seconds(platform: Platform) -> float:
    assert platform.process is not None
    return float(sum(psutil.Process(platform.process.pid).cpu_times()[:2]))


def all_cancelled(platform: Platform, count: int, seconds: float) -> None:
    """So many wait, and are cancelled; they are over within so many seconds of the server's time
    after the last call."""
    blocker = platform.submit(["sleep", "600"], roles={"worker": {"gpus": 1}})
    platform.wait_state(blocker, "running")
    waits = {"run": ["true"], "roles": {"worker": {"gpus": 1}}}
    ids = spread(platform, range(count), lambda api, _: api.jobs.submit(waits).id)
    wait_for(lambda: "waiting" in platform.client.jobs.why(ids[-1])["sentence"], 60, "all wait")
    with never_locked_out(platform):
        began = time.monotonic()
        spread(platform, ids, lambda api, job_id: api.jobs.stop(job_id, reason="enough"))
        asked, spent = time.monotonic(), _cpu_seconds(platform)
        wait_for(lambda: not platform.client.jobs.list(state="queued", limit=1), 120, "none waits")
        took, spent = time.monotonic() - asked, _cpu_seconds(platform) - spent
    print(f"{count} asked for in {asked - began:.1f} s, over {took:.2f} s later")
    assert spent < seconds, "of the server's own time: the machine may be busy"
    over = {job.id: job for job in platform.client.jobs.list(state="cancelled", limit=count + 1)}
    assert set(over) == set(ids)
    assert {(job.attempt, job.outcome) for job in over.values()} == {(0, "cancelled")}
    # The next one is not kept waiting by what is over.
    platform.client.jobs.stop(blocker.id, now=True)
    assert platform.wait(platform.submit(["true"], roles={"worker": {"gpus": 1}})).exit_code == 0


@pytest.mark.parametrize("dialect", ["postgresql"])
@pytest.mark.parametrize("server_args", [("--fake-nodes", "1", "--fake-gpus", "1")])
def test_r_f35_two_thousand_that_wait_are_cancelled(any_platform: Platform) -> None:
    all_cancelled(any_platform, 2_000, seconds=15)


@pytest.mark.parametrize("server_args", [("--fake-nodes", "1", "--fake-gpus", "1")])
def test_r_f35_four_thousand_that_wait_are_cancelled(platform: Platform) -> None:
    all_cancelled(platform, 4_000, seconds=4)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("server_args", [("--fake-nodes", "1", "--fake-gpus", "1")])
def test_r_f35_ten_thousand_that_wait_are_cancelled(platform: Platform) -> None:
    all_cancelled(platform, 10_000, seconds=6)


@pytest.mark.soak
@pytest.mark.parametrize("dialect", ["postgresql"])
@pytest.mark.parametrize("server_args", [("--fake-nodes", "1", "--fake-gpus", "1")])
def test_r_f35_also_on_postgresql(any_platform: Platform) -> None:
    all_cancelled(any_platform, 10_000, seconds=30)


def test_r_f35_many_that_wait_for_one_that_fails(platform: Platform) -> None:
    gate = platform.gate()
    first = platform.witness("until", gate, 1, name="first", retry={"times": 0})
    waits = {"run": ["true"], "after": [first.id]}
    ids = spread(platform, range(1_000), lambda api, _: api.jobs.submit(waits).id)
    with never_locked_out(platform):
        gate.touch()
        wait_for(
            lambda: len(platform.client.jobs.list(state="cancelled", limit=2_000)) == len(ids),
            60,
            "all are cancelled",
        )
    reason = platform.client.jobs.get(ids[0]).reason
    assert reason == "job first, which it waited for, is failed"


def all_end(platform: Platform, count: int, seconds: float) -> None:
    """So many run, and end within a second of each other; all is told in so many seconds."""
    gate = platform.gate()
    os.mkfifo(gate)  # who reads it waits, without any work, until somebody has written it
    spread(platform, range(count), lambda api, _: api.jobs.submit({"run": ["cat", str(gate)]}))
    wait_for(
        lambda: len(platform.client.jobs.list(state="running", limit=count)) == count,
        60 + count * 0.4,
        "all run",
    )

    def all_over() -> bool:
        with suppress(OSError):  # nobody reads any more
            os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
        return not platform.client.jobs.list(state="starting,running", limit=1)

    with never_locked_out(platform):
        began = time.monotonic()
        wait_for(all_over, seconds, "all have ended")
        took = time.monotonic() - began
    print(f"{count} ended, all told after {took:.1f} s")
    over = platform.client.jobs.list(state="succeeded", limit=count + 1)
    assert [job.attempt for job in over] == [1] * count


@pytest.mark.parametrize("server_args", [("--fake-nodes", "25")])
def test_r_f35_a_hundred_that_run_end_in_one_second(platform: Platform) -> None:
    all_end(platform, 100, seconds=60)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("server_args", [("--fake-nodes", "250")])
def test_r_f35_a_thousand_that_run_end_in_one_second(platform: Platform) -> None:
    all_end(platform, 1_000, seconds=240)
