"""The fake engine: what decisions become, and what the core hears of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from scripted import Scripted, cluster, job, scripted, seats

from windlass.scheduler.events import (
    Decision,
    Event,
    NodeDown,
    NodeUp,
    Preempt,
    Release,
    Resize,
    Resized,
    Start,
    Submit,
    Withdraw,
)
from windlass.scheduler.simulate.faults import Faults


def heard(core: Scripted) -> list[tuple[int, str]]:
    return [
        (now, type(event).__name__)
        for now, event in core.heard
        if not isinstance(event, NodeUp | Submit)
    ]


def test_a_job_runs_for_its_duration() -> None:
    core = Scripted()
    result = scripted(cluster([job("a", 1000, 5000)]), core).run().result
    assert heard(core) == [(6000, "Release")]
    assert (result["finished"], result["makespan_s"], result["jct_s"]["max"]) == (1, 5.0, 5.0)


def test_a_job_of_no_duration_ends_at_the_instant_it_starts() -> None:
    core = Scripted()
    assert scripted(cluster([job("a", 0, 0)]), core).run().result["finished"] == 1
    assert heard(core) == [(0, "Release")]


def test_a_job_is_killed_at_its_time_limit_unless_it_is_soft() -> None:
    work = cluster([job("a", 0, 5000, walltime_ms=3000)])
    result = scripted(work, Scripted()).run().result
    assert result["details"]["outcomes"]["killed"] == 1
    assert result["makespan_s"] == 3.0
    soft = scripted(work, Scripted(), soft_walltime=True).run().result
    assert soft["details"]["outcomes"]["done"] == 1 and soft["makespan_s"] == 5.0


def test_a_preempted_job_saves_its_state_and_goes_on_in_its_old_turn() -> None:
    def script(events: Sequence[Event], now: int) -> list[Decision]:
        found: list[Decision] = []
        for event in events:
            if isinstance(event, Submit):
                found.append(Start(event.job_id, seats(1)))
                if event.job_id == "b":
                    found.append(Preempt("a", "b", "priority"))
        return found

    core = Scripted(script)
    work = cluster([job("a", 0, 10_000), job("b", 4000, 1000)], grace_ms=500)
    result = scripted(work, core).run().result
    again = [event for _, event in core.heard if isinstance(event, Submit)][-1]
    assert (again.job_id, again.order_ms, again.number, again.preemptions) == ("a", 0, 0, 1)
    # 4 s of work, 0.5 s of grace, then the other 6 s.
    assert heard(core) == [(4500, "Release"), (5000, "Release"), (10_500, "Release")]
    assert result["preemptions"] == 1 and result["utilisation"]["useful"] > 0
    lossy = Scripted(script)
    scripted(work, lossy, lost_work=0.5).run()
    assert heard(lossy)[-1] == (12_500, "Release")  # half of the 4 s is done again


def test_a_time_limit_counts_over_all_attempts() -> None:
    def script(events: Sequence[Event], now: int) -> list[Decision]:
        if now == 4000:
            return [Preempt("a", "b", "priority")]
        return [Start(e.job_id, seats(1)) for e in events if isinstance(e, Submit)]

    core = Scripted(script)
    work = cluster([job("a", 0, 10_000, walltime_ms=6000), job("b", 4000, 1)], grace_ms=1)
    scripted(work, core).run()
    again = [e for _, e in core.heard if isinstance(e, Submit) and e.job_id == "a"][-1]
    assert again.expected_ms == 1999


def test_an_elastic_job_is_as_fast_as_it_is_large() -> None:
    def script(events: Sequence[Event], now: int) -> list[Decision]:
        if any(isinstance(event, Submit) and event.job_id == "tick" for event in events):
            return [Resize("a", seats(8))]
        return [Start("a", seats(4)) for e in events if isinstance(e, Submit)]

    core = Scripted(script)
    jobs = [job("a", 0, 10_000, 4, most=8, least=2), job("tick", 5000, 1)]
    outcome = scripted(cluster(jobs), core).run()
    # Half the work with 4 members, the other half with 8.
    assert [now for now, event in core.heard if event == Release("a")] == [7500]
    assert outcome.result["details"]["resizes"] == 1


def test_what_a_shrink_takes_is_held_until_it_is_given_up() -> None:
    def script(events: Sequence[Event], now: int) -> list[Decision]:
        if any(isinstance(event, Submit) and event.job_id == "tick" for event in events):
            return [Resize("a", seats(2), beneficiary="tick")]
        return [Start("a", seats(4)) for e in events if isinstance(e, Submit)]

    core = Scripted(script)
    jobs = [job("a", 0, 10_000, 4, most=4, least=2), job("tick", 5000, 1)]
    run = scripted(cluster(jobs, grace_ms=1000), core)
    run.run()
    assert (6000, Resized("a")) in core.heard
    assert [now for now, event in core.heard if event == Release("a")] == [15_000]
    account = run.ledger.accounts["default"]
    assert account.area == 4000 * 6000 + 2000 * 9000


def test_a_cancel_withdraws_a_waiting_job_and_ends_a_running_one() -> None:
    def script(events: Sequence[Event], now: int) -> list[Decision]:
        return [Start("a", seats(1)) for e in events if isinstance(e, Submit) and e.job_id == "a"]

    core = Scripted(script)
    jobs = [job("a", 0, 9000, cancel_ms=3000), job("b", 0, 9000, cancel_ms=2000)]
    result = scripted(cluster(jobs, grace_ms=10), core).run().result
    assert [each for each in core.heard[-2:]] == [(2000, Withdraw("b")), (3010, Release("a"))]
    assert result["finished"] == 0 and result["details"]["outcomes"]["cancelled"] == 2


def test_a_dispatch_that_fails_is_tried_again() -> None:
    core = Scripted()
    faults = Faults(start_delay_ms=100, dispatch_failed=500)
    result = scripted(cluster([job("a", 0, 1000)]), core, faults, seed=3).run().result
    starts = sum(isinstance(event, Submit) for _, event in core.heard)
    assert result["finished"] == 1
    assert starts == sum(isinstance(event, Release) for _, event in core.heard)


def test_lost_and_late_reports_only_delay_the_release() -> None:
    for faults in (Faults(lost=1000, lease_ms=5000), Faults(late=1000)):
        core = Scripted()
        result = scripted(cluster([job("a", 0, 1000)]), core, faults).run().result
        ((now, event),) = [each for each in core.heard if isinstance(each[1], Release)]
        assert now > 1000 and result["finished"] == 1


def test_a_lost_node_takes_its_gangs_with_it_and_comes_back() -> None:
    core = Scripted()
    faults = Faults(node_days=1, repair_ms=1000)
    day = 86_400_000
    work = cluster([job("a", 0, 20 * day)], nodes=1)
    run = scripted(work, core, faults, seed=1)
    # Work since the start is lost with the node, so that so long a job never ends.
    downs: list[int] = []

    def script(events: Sequence[Event], now: int) -> list[Decision]:
        downs.extend(now for event in events if isinstance(event, NodeDown))
        if len(downs) > 5:
            raise StopIteration
        return [Start(e.job_id, seats(1)) for e in events if isinstance(e, Submit)]

    core.script = script
    try:
        run.run()
    except StopIteration:
        pass
    ups = [now for now, event in core.heard if isinstance(event, NodeUp)]
    assert ups[1:5] == [down + 1000 for down in downs[:4]]
    assert run.ledger.lost > 0


def test_jobs_that_can_never_fit_are_rejected_and_counted() -> None:
    from windlass.scheduler.simulate.workload import Shapes

    big = job("b", 0, 1000, needs=Shapes().needs(1, gpus=9))
    result = scripted(cluster([job("a", 0, 1000), big]), Scripted()).run().result
    assert (result["jobs"], result["finished"], result["rejected"]) == (2, 1, 1)
    assert result["by_tenant"]["default"]["rejected"] == 1


def test_a_run_ends_when_nothing_that_waits_can_start() -> None:
    core = Scripted(lambda events, now: [])
    result = scripted(cluster([job("a", 0, 1000)]), core).run().result
    assert result["finished"] == 0
    assert result["details"]["unfinished"] == 1
    assert result["details"]["waiting_for"] == {"waiting-nodes": 1}


def test_a_core_that_wants_to_be_called_without_end_is_reported() -> None:
    core = Scripted(lambda events, now: [])
    core.wish = 0
    result = scripted(cluster([job("a", 0, 1000)]), core).run().result
    assert result["invariant_violations"] == 1
    assert "without end" in result["details"]["violations"][0]
