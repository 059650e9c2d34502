"""Following a job: everything once, in order, also over a restart of the server."""

from __future__ import annotations

import sys
import threading

import pytest

from windlass.testing.platform import Platform, wait_for

TICKS = "import time\nfor n in range({n}):\n    print(n, flush=True); time.sleep(0.05)\n"


@pytest.fixture
def platform(either: Platform) -> Platform:
    """One server for all of them: none leaves anything that disturbs the next."""
    return either


def test_a_follower_sees_every_line_once_over_a_restart(platform: Platform) -> None:
    job = platform.submit([sys.executable, "-c", TICKS.format(n=60)])
    platform.wait_state(job, "running")
    seen: list[str] = []
    kinds: list[str] = []

    def follow() -> None:
        with platform.new_client() as follower:
            for message in follower.jobs.stream(job.id):
                kinds.append(message.event)
                if message.event == "log":
                    seen.append(message.json()["text"])

    thread = threading.Thread(target=follow)
    thread.start()
    wait_for(lambda: seen or not thread.is_alive(), what="the first line")
    platform.kill()
    platform.start()
    thread.join(120)
    assert not thread.is_alive()
    assert "".join(seen).split() == [str(n) for n in range(60)]
    assert kinds[-1] == "end"
    assert platform.wait(job).state == "succeeded"


def test_the_feed_tells_each_event_once_in_order(platform: Platform) -> None:
    jobs = [platform.submit([sys.executable, "-c", "pass"]) for _ in range(3)]
    for job in jobs:
        platform.wait(job)
    events = []
    for message in platform.client.http.stream("/feed", {"cursor": 0}):
        if message.event == "event":
            events.append(message.json())
            done = {event["job"] for event in events if event["state"] == "succeeded"}
            if done >= {job.id for job in jobs}:
                break
    cursors = [int(event["cursor"]) for event in events]
    assert cursors == sorted(set(cursors))
    for job in jobs:
        seqs = [event["seq"] for event in events if event["job"] == job.id]
        assert seqs == list(range(1, len(seqs) + 1))
