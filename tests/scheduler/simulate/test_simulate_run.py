"""Whole runs with the real core: determinism, charged time, chaos."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from scripted import cluster, job

from windlass.scheduler.core import Core
from windlass.scheduler.events import Decision, Event, Queue, Rules, Start
from windlass.scheduler.simulate.chaos import first_difference
from windlass.scheduler.simulate.generate import markov, scale
from windlass.scheduler.simulate.run import Options, Simulation, simulate

TIMED = {"decisions_per_s", "tick_ms", "peak_rss_mb"}


def figures(result: dict[str, object]) -> dict[str, object]:
    found = {key: value for key, value in result.items() if key not in TIMED}
    details = found["details"]
    assert isinstance(details, dict)
    found["details"] = {key: value for key, value in details.items() if key != "core_s"}
    return found


def test_two_runs_are_the_same_to_the_last_figure() -> None:
    made = scale(1.1, nodes=8, per_day=500, seed=5)
    one, two = (simulate(made, Options(seed=5)).result for _ in range(2))
    assert figures(one) == figures(two)


def test_hash_seeds_change_no_decision() -> None:
    code = (
        "from windlass.scheduler.simulate.generate import scale\n"
        "from windlass.scheduler.simulate.run import Options, Simulation\n"
        "run = Simulation(scale(1.1, nodes=8, per_day=400, seed=3), Options(), keep_log=True)\n"
        "print(hash('x'), run.run().digests)"
    )
    outs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split(" ", 1)
        for seed in ("1", "2")
    ]
    assert outs[0][0] != outs[1][0]
    assert outs[0][1] == outs[1][1]


def test_a_slow_core_shows_as_waiting_in_charged_time() -> None:
    class Slow(Core):
        """Takes two simulated seconds for each tick: told by a clock of its own."""

        def apply(self, events: Sequence[Event], now_ms: int) -> list[Decision]:
            clock.now += 2_000_000_000
            return super().apply(events, now_ms)

    class Clock:
        now = 0

        def perf_counter_ns(self) -> int:
            return self.now

    clock = Clock()
    from windlass.scheduler.simulate import run as module

    jobs = [job(f"j{at}", 10_000 + at * 1000, 500) for at in range(10)]
    made = cluster(jobs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "time", clock)
        slow = Simulation(made, Options(mode="charged"), new_core=Slow).run().result
        free = Simulation(made, Options(mode="replay"), new_core=Slow).run().result
    assert free["wait_s"]["max"] == 0.0
    assert slow["wait_s"]["p50"] >= 2.0
    assert slow["finished"] == 10


def test_what_differs_first_is_found() -> None:
    assert first_difference([(1, "a"), (2, "b")], [(1, "a"), (2, "b")]) is None
    assert first_difference([(1, "a"), (2, "b")], [(1, "a"), (2, "c")]) == 2
    assert first_difference([(1, "a")], [(1, "a"), (7, "b")]) == 7


@pytest.mark.parametrize("order", ["fifo", "fair"])
def test_crashes_of_the_core_change_no_decision(order: str) -> None:
    made = markov(4, 0.9, jobs=400, seed=1)
    made.rules = Rules(order=order, queues=(Queue("default", "backfill"),))
    result = simulate(made, Options(mode="chaos", crash_every=25, audit="all")).result
    assert result["details"]["violations"] == []
    assert result["details"]["crashes"] > 10
    assert result["details"]["digest"] == result["details"]["digest_without_crash"]


def test_a_core_that_forgets_is_found_out_by_chaos() -> None:
    class Forgetful(Core):
        """Starts the last first when it has been rebuilt."""

        def apply(self, events: Sequence[Event], now_ms: int) -> list[Decision]:
            found = super().apply(events, now_ms)
            if any(type(event).__name__ == "Restore" for event in events):
                self.rebuilt = True
            if getattr(self, "rebuilt", False):
                found = [
                    Start(each.job_id, each.seats, "mine") if isinstance(each, Start) else each
                    for each in found
                ]
            return found

    made = markov(2, 0.8, jobs=200, seed=1)
    options = Options(mode="chaos", crash_every=20, audit="off")
    result = simulate(made, options, new_core=Forgetful).result
    assert result["invariant_violations"] >= 1
    assert "S-I16" in result["details"]["violations"][0]


@pytest.mark.parametrize("policy", ["backfill", "strict"])
def test_replays_of_the_log_lead_to_the_same_state_whatever_is_lent_and_promised(
    policy: str,
) -> None:
    """Quotas, elastic jobs, preemption: what tables do not hold is forgotten by a core that is
    rebuilt from them, and told; a core that hears the log knows all of it."""
    made = scale(1.1, seed=4, nodes=10, per_day=300)
    made.rules = replace(made.rules, min_run_ms=0, queues=(Queue("default", policy),))
    result = simulate(made, Options(mode="chaos", crash_every=40)).result
    details = result["details"]
    assert details["violations"] == []
    assert details["replays"] >= 4 and details["crashes"] > 5
    assert "recent use" in details["rebuilt"]["forgot"]
    assert details["unfinished"] == 0


def test_a_core_that_depends_on_more_than_it_heard_is_found_out_by_a_replay() -> None:
    class Moody(Core):
        """Says otherwise in its second life."""

        lives = 0

        def __init__(self, rules: Rules) -> None:
            super().__init__(rules)
            Moody.lives += 1
            self.mood = f"life {Moody.lives}"

        def apply(self, events: Sequence[Event], now_ms: int) -> list[Decision]:
            return [
                Start(each.job_id, each.seats, self.mood) if isinstance(each, Start) else each
                for each in super().apply(events, now_ms)
            ]

    made = markov(2, 0.8, jobs=200, seed=1)
    result = simulate(made, Options(mode="chaos", audit="off"), new_core=Moody).result
    found = result["details"]["violations"]
    assert any("after a replay of the log" in line for line in found)
    assert any("S-I20" in line for line in found)
