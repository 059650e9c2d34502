"""What the fake engine does not take at once, and how a run shows it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from scripted import Scripted, cluster, job, scripted, seats

from windlass.scheduler.events import Decision, Event, Preempt, Release, Resize, Start, Submit
from windlass.scheduler.simulate.faults import CHAOS
from windlass.scheduler.simulate.generate import scale
from windlass.scheduler.simulate.limits import Bucket, Limits
from windlass.scheduler.simulate.run import Options, Simulation, simulate


def ends(core: Scripted) -> dict[str, int]:
    return {event.job_id: now for now, event in core.heard if isinstance(event, Release)}


def test_a_bucket_lets_a_burst_pass_at_once_and_the_rest_at_its_rate() -> None:
    bucket = Bucket(per_s=10, burst=5)
    assert bucket.passed_ms(0, 5) == 0
    assert bucket.passed_ms(0, 1) == 100
    assert bucket.passed_ms(0, 10) == 1100
    assert bucket.passed_ms(1100, 1) == 1200  # nothing was left over
    assert bucket.passed_ms(60_000, 5) == 60_000  # full again, and no fuller than full
    assert bucket.passed_ms(60_000, 1) == 60_100


@pytest.mark.parametrize("limits", [Limits(members=4), Limits(gangs=2)])
def test_gangs_that_find_no_room_wait_in_the_engine_in_turn(limits: Limits) -> None:
    core = Scripted()
    work = cluster([job(f"j{at}", 0, 1000, 2) for at in range(5)])
    result = scripted(work, core, limits=limits).run().result
    assert ends(core) == {"j0": 1000, "j1": 1000, "j2": 2000, "j3": 2000, "j4": 3000}
    engine = result["details"]["engine"]
    assert (engine["members_max"], engine["gangs_max"]) == (4, 2)
    assert engine["wait_s"]["max"] == 2.0
    assert result["wait_s"]["max"] == 0.0  # for the scheduler they have started
    assert result["utilisation"]["useful"] < result["utilisation"]["allocated"]


def test_members_start_no_faster_than_calls_pass() -> None:
    core = Scripted()
    work = cluster([job("a", 0, 1000, 4), job("b", 0, 1000, 4)])
    limits = Limits(calls_per_s=2, burst=4)
    scripted(work, core, limits=limits).run()
    assert ends(core) == {"a": 1000, "b": 3000}


def test_to_tell_a_job_to_stop_takes_calls_too() -> None:
    def script(events: Sequence[Event], now: int) -> list[Decision]:
        found: list[Decision] = []
        for event in events:
            if isinstance(event, Submit) and event.job_id == "a" and not event.preemptions:
                found.append(Start("a", seats(4)))
            elif isinstance(event, Submit) and event.job_id == "b":
                found.append(Preempt("a", "b", "to make room"))
            elif isinstance(event, Submit):
                found.append(Start("a", seats(4)))
            elif isinstance(event, Release) and event.job_id == "a" and now < 20_000:
                found.append(Start("b", seats(4)))
        return found

    core = Scripted(script)
    work = cluster([job("a", 0, 30_000, 4), job("b", 1000, 1000, 4)], grace_ms=5000)
    scripted(work, core, limits=Limits(calls_per_s=1, burst=4)).run()
    # Four calls for a; by 1 s one token is back, so the last of four stops passes at 4 s.
    gone = next(now for now, event in core.heard if isinstance(event, Release))
    assert gone == 4000 + 5000


def test_a_time_limit_counts_from_when_the_job_runs() -> None:
    core = Scripted()
    work = cluster([job(f"j{at}", 0, 1000, walltime_ms=1000) for at in range(3)])
    result = scripted(work, core, limits=Limits(gangs=1)).run().result
    assert result["details"]["outcomes"] == {"done": 3, "failed": 0, "killed": 0, "cancelled": 0}


def test_members_that_an_elastic_job_gets_later_wait_for_room_as_well() -> None:
    def script(events: Sequence[Event], now: int) -> list[Decision]:
        found: list[Decision] = []
        for event in events:
            if isinstance(event, Submit):
                found.append(Start(event.job_id, seats(2)))
            elif isinstance(event, Release) and event.job_id == "tick":
                found.append(Resize("a", seats(4)))
        return found

    core = Scripted(script)
    needs = job("x", 0, 0, 2, most=4, least=2).needs
    work = cluster(
        [
            job("a", 0, 10_000, 2, needs=needs),
            job("b", 0, 4000, 2),
            job("tick", 1000, 1, 2),
        ]
    )
    scripted(work, core, limits=Limits(members=4)).run()
    # tick waits for b to end at 4 s; then a has 6 s left at half speed, done by four in 3 s.
    assert ends(core)["b"] == 4000
    assert ends(core)["tick"] == 4001
    assert ends(core)["a"] == pytest.approx(7001, abs=2)


def test_a_job_that_the_engine_can_never_take_is_rejected() -> None:
    core = Scripted()
    work = cluster([job("a", 0, 1000, 8), job("b", 0, 1000, 4), job("c", 0, 1, 8, least=2)])
    result = scripted(work, core, limits=Limits(members=4)).run().result
    assert (result["rejected"], result["finished"]) == (1, 2)


def test_cancelled_and_lost_jobs_leave_the_line() -> None:
    core = Scripted()
    work = cluster(
        [job("a", 0, 10_000), job("b", 0, 1000, cancel_ms=2000), job("c", 0, 1000)], grace_ms=500
    )
    result = scripted(work, core, limits=Limits(gangs=1)).run().result
    assert result["details"]["outcomes"]["cancelled"] == 1
    assert ends(core) == {"a": 10_000, "b": 2500, "c": 11_000}


@pytest.mark.parametrize(
    "limits", [Limits(members=120, gangs=60), Limits(calls_per_s=0.5, burst=10)]
)
def test_with_faults_and_limits_every_job_ends_and_nothing_stays_inside(limits: Limits) -> None:
    made = scale(1.0, seed=3, nodes=12, per_day=600)
    made.rules = replace(made.rules, min_run_ms=0)
    run = Simulation(made, Options(faults=CHAOS, limits=limits, seed=5))
    result = run.run().result
    assert result["details"]["unfinished"] == 0
    assert result["details"]["violations"] == []
    gate = run.engine.gate
    assert gate is not None
    assert (gate.members, gate.gangs) == (0, 0)
    engine = result["details"]["engine"]
    assert engine["members_max"] <= (limits.members or 1 << 30)
    assert engine["gangs_max"] <= (limits.gangs or 1 << 30)


def test_limits_that_nobody_reaches_change_nothing() -> None:
    made = scale(1.0, seed=2, nodes=10, per_day=300)
    free = simulate(made, Options(audit="off")).result
    wide = simulate(made, Options(audit="off", limits=Limits(members=10**6, gangs=10**6))).result
    for key in ("makespan_s", "wait_s", "jct_s", "preemptions", "by_tenant", "utilisation"):
        assert free[key] == wide[key], key
