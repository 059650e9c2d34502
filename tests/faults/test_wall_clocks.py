"""The wall clock of a server, or of a worker, is a day ahead, a day behind, an hour behind: R-F17.

Each process has a clock of its own here (`windlass.testing.wallclock`); nobody's else is moved.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from windlass.client import Client, Job
from windlass.testing import invariants
from windlass.testing.platform import Platform, wait_for
from windlass.testing.wallclock import WallClock

pytestmark = pytest.mark.slow

STEPS = ({"days": 1}, {"days": -1}, {"hours": -1})
FAR = timedelta(hours=3)
"""Nothing that is due so late may happen in a test; a day ahead, it is long over."""


@pytest.fixture
def clock(tmp_path: Path) -> WallClock:
    try:
        return WallClock(tmp_path)
    except LookupError as why:
        pytest.skip(str(why))


class Timers:
    """A job for each kind of timer, all of them due in three hours."""

    def __init__(self, platform: Platform) -> None:
        late = f"{int(FAR.total_seconds())}s"
        begin = (datetime.now(UTC) + FAR).isoformat()
        self.platform = platform
        self.gate = platform.gate("timers")
        limits = {"time": late, "idle": late}
        self.limited = platform.witness("until", self.gate, limits=limits, ttl=late)
        self.later = platform.witness("exit", 0, begin=begin)
        retry = {"times": 1, "on": ["failed"], "backoff": late, "backoff_cap": late}
        self.backoff = platform.witness("exit", 1, retry=retry)
        self.removed = platform.witness("exit", 0, ttl=late)
        platform.wait(self.removed)
        platform.wait_state(self.limited, "running")
        wait_for(lambda: self._state(self.backoff) == ("queued", 1), what="it waits to be retried")

    def hold(self, api: Platform | None = None) -> None:
        """None has come, and whoever looks after them has had the occasion to find so: a job that
        comes and goes wakes them all."""
        api = api or self.platform
        before = datetime.now(UTC) - timedelta(seconds=5)
        fresh = api.wait(api.witness("exit", 0, limits={"time": "1h"}))
        assert (fresh.state, fresh.attempt) == ("succeeded", 1), fresh.reason
        assert self._state(self.limited) == ("running", 1)
        assert self._state(self.later) == ("held", 0)
        assert self._state(self.backoff) == ("queued", 1)
        assert self._state(self.removed) == ("succeeded", 1), "it is still there"
        self.said = [before, *_moments(fresh), datetime.now(UTC) + timedelta(seconds=5)]

    def end(self) -> None:
        self.gate.touch()
        over = self.platform.wait(self.limited)
        assert (over.state, over.attempt) == ("succeeded", 1)
        for job, ran in ((self.limited, 1), (self.later, 0), (self.backoff, 1)):
            assert len(self.platform.said(job, "began")) == ran

    def _state(self, job: Job) -> tuple[str, int]:
        found = self.platform.client.jobs.get(job.id)
        return found.state, found.attempt


def _moments(job: Job) -> list[datetime]:
    return [datetime.fromisoformat(str(at)) for at in (job.submitted, job.started, job.ended)]


@pytest.mark.parametrize("server_args", [("--lease", "10m")])
def test_r_f17_a_step_of_a_servers_clock_fires_nothing_early(
    clock: WallClock, tmp_path: Path, server_args: tuple[str, ...], dialect: str, database_url: str
) -> None:
    url = "" if dialect == "sqlite" else database_url
    home = tmp_path / "home"
    with Platform(home, *server_args, database=url, env=clock.env()) as platform:
        timers = Timers(platform)
        for step in STEPS:
            clock.set(**step)
            _refused_and_corrected(platform, timedelta(**step))
            timers.hold()
            assert timers.said == sorted(timers.said), "it tells the time as before"
        clock.set()
        timers.end()
        assert platform.log().count("leading with epoch") == 1, "it led all the while"
        invariants.check(platform)


def _refused_and_corrected(platform: Platform, step: timedelta) -> None:
    """What is signed by another clock is refused, with the server's; who hears that corrects
    itself, once."""
    answer = platform.call("GET", "/status")
    assert answer.status_code == 401
    error = answer.json()["error"]
    assert error["code"] == "clock-skew"
    told = timedelta(milliseconds=error["details"]["server_time_ms"] - time.time() * 1000)
    assert abs(told - step) < timedelta(minutes=2)
    with platform.new_client() as client:
        sent = _sent(client)
        client.status()
        client.status()
        assert sent == [401, 200, 200]


def _sent(client: Client) -> list[int]:
    """The status of each answer that this client hears from now on."""
    statuses: list[int] = []
    send = client.http._send

    def noted(*words: Any) -> Any:
        response = send(*words)
        statuses.append(response.status)
        return response

    client.http._send = noted  # type: ignore[method-assign]
    return statuses


def test_r_f17_a_server_that_starts_under_a_wrong_clock_ends_no_job_for_it(
    clock: WallClock, tmp_path: Path
) -> None:
    """What has run is counted: by the worker, whatever clock each server has."""
    with Platform(tmp_path / "home", env=clock.env()) as platform:
        gate = platform.gate("hours")
        hour = platform.witness("until", gate, limits={"time": "1h", "grace": "5s"})
        kept = platform.wait(platform.witness("exit", 0, ttl="1h"))
        retry = {"times": 1, "on": ["failed"], "backoff": "1h", "backoff_cap": "1h"}
        again = platform.witness("exit", 1, retry=retry)
        platform.wait_state(hour, "running")
        never = platform.witness("until", platform.gate("never"), limits={"time": "12s"})
        platform.wait_state(never, "running")
        began = time.monotonic()
        wait_for(lambda: platform.client.jobs.get(again.id).failures == 1, what="it backs off")
        for step in STEPS:
            platform.kill()
            clock.set(**step)
            platform.start()
            fresh = platform.wait(platform.witness("exit", 0, limits={"time": "1h"}))
            assert fresh.state == "succeeded", fresh.reason
            for job, state in ((hour, "running"), (kept, "succeeded"), (again, "queued")):
                found = platform.client.jobs.get(job.id)
                assert (found.state, found.attempt) == (state, 1), found.reason
        over = platform.wait(never, seconds=60)
        assert (over.state, over.attempt) == ("failed", 1)
        assert over.reason == "time limit of 12 s reached", "it is counted over three servers"
        assert time.monotonic() - began >= 11
        gate.touch()
        ended = platform.wait(hour)
        assert (ended.state, ended.attempt) == ("succeeded", 1), ended.reason
        invariants.check(platform)


@pytest.mark.parametrize("dialect", ["postgresql"])
@pytest.mark.parametrize("wrong", ["scheduler", "api"])
def test_r_f17_servers_of_one_database_agree_on_the_time(
    clock: WallClock, tmp_path: Path, database_url: str, wrong: str
) -> None:
    """One of two has started with a wrong clock: the one that leads, or one that would lead."""
    with ExitStack() as stack:
        scheduler = Platform(tmp_path / "a", "--lease", "10m", database=database_url)
        stack.enter_context(scheduler)
        # With the scheduler itself away nobody else is to lead.
        loops = "off" if wrong == "scheduler" else "on"
        api = scheduler.beside(tmp_path / "b", "--lease", "10m", "--loops", loops)
        stack.enter_context(api)
        timers = Timers(scheduler)
        false = scheduler if wrong == "scheduler" else api
        false.env |= clock.env()
        for step in STEPS:
            clock.set(**step)
            false.kill()
            false.start()
            timers.hold(api)
            assert timers.said == sorted(timers.said)
        timers.end()
        led = [one.log().count("leading with epoch") for one in (scheduler, api)]
        assert led == ([4, 0] if wrong == "scheduler" else [1, 0])
        invariants.check(scheduler)


def test_r_f17_a_nodes_clock_is_nobody_elses(clock: WallClock, platform: Platform) -> None:
    """Its worker and its ranks have another time than the server."""
    started = _worker_under(platform, clock)
    late = f"{int(FAR.total_seconds())}s"
    limits = {"time": late, "idle": late}
    moved = {"vars": clock.env()}
    script = "import windlass, time; print(windlass.context().seconds_left(), time.time())"
    for step in STEPS:
        clock.set(**step)
        job = platform.submit([sys.executable, "-c", script], limits=limits, environment=moved)
        over = platform.wait(job)
        assert (over.state, over.attempt) == ("succeeded", 1), over.reason
        left, at = map(float, platform.logs(job).split())
        assert abs(at - time.time() - timedelta(**step).total_seconds()) < 120, "it was moved"
        assert FAR.total_seconds() - 120 < left <= FAR.total_seconds()
    clock.set()
    gate = platform.gate()
    trains = platform.witness("train", 10_000, 0.1, limits=limits, environment=moved)
    waits = platform.witness("until", gate, limits=limits, environment=moved)
    for step in STEPS:
        clock.set(**step)
        saved = len(platform.said(trains, "saved"))
        wait_for(lambda saved=saved: len(platform.said(trains, "saved")) > saved + 3, 60)
    newest = platform.said(trains, "saved")[-1]["step"]
    wait_for(
        lambda: any(c["step"] >= newest for c in platform.client.jobs.checkpoints(trains.id)),
        what="what it saved is registered",
    )
    gate.touch()
    platform.client.jobs.stop(trains.id)
    for job, state in ((waits, "succeeded"), (trains, "cancelled")):
        over = platform.wait(job)
        assert (over.state, over.attempt) == (state, 1), over.reason
    assert started.read_text().count("run\n") == len(STEPS) + 2, "all of them by that worker"


def _worker_under(platform: Platform, clock: WallClock) -> Path:
    """From here on workers start with this clock. The file has a line for each start."""
    started = platform.home / "worker-started"
    platform.replace_worker(
        lambda true: (
            f"""
import os, sys
with open({str(started)!r}, "a") as file:
    file.write(sys.argv[1] + "\\n")
os.environ.update({clock.env()!r})
os.execv(sys.executable, [sys.executable, "-I", "-S", {str(true)!r}, *sys.argv[1:]])
"""
        )
    )
    return started
