"""One look at an attempt: evidence in, steps out. The faults it must see through, one by one."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.core.jobs import JobSpec, Outcome
from windlass.engines.base import Seen, Sight
from windlass.server.jobs.decide import (
    DELIVER_LIMIT_MS,
    GATHER_LIMIT_MS,
    KILL_MARGIN_MS,
    SILENT_MS,
    Gathered,
    Kill,
    Launch,
    Over,
    Situation,
    Started,
    Tell,
    decide,
    next_due_ms,
)

NOW = 1_000_000
GRACE = 30_000


def situation(
    *,
    job: dict[str, Any] | None = None,
    attempt: dict[str, Any] | None = None,
    workers: int = 1,
    worker: dict[str, Any] | None = None,
    sights: dict[str, Sight] | None = None,
    records: dict[str, dict[str, Any]] | None = None,
    limits: dict[str, Any] | None = None,
    began_ms: int = 0,
) -> Situation:
    """A gang of one rank a node that runs well, but for what is given."""
    blank = {
        "record": None, "registered_ms": NOW, "started_ms": NOW, "ended_ranks": None,
        **(worker or {}),
    }  # fmt: skip
    rows = [
        {**blank, "node": f"n{at}", "record": (records or {}).get(f"n{at}")}
        for at in range(workers)
    ]
    return Situation(
        job={"state": "running", "wish": None, "wish_now": 0, "wish_reason": "", **(job or {})},
        attempt={
            "state": "alive", "ending_outcome": None, "reason": "", "ending_ms": None,
            "grace_ms": None, "deadline_ms": None, "launched_ms": NOW, "created_ms": NOW,
            **(attempt or {}),
        },
        workers=rows,
        seen={node: Seen("a", node, sight) for node, sight in (sights or {}).items()},
        spec=JobSpec.model_validate(
            {"run": ["true"], "workers": workers, "limits": limits or {}}
        ),
        finish={"worker": "all"},
        deciding=workers,
        began_ms=began_ms,
    )  # fmt: skip


def record(node: str, outcome: str = "succeeded", code: int = 0) -> dict[str, Any]:
    rank = {
        "role": "worker", "index": int(node[1:]), "local_rank": 0, "rank": int(node[1:]),
        "exit": code, "signal": None, "ended_by": "itself", "ended_ms": NOW,
    }  # fmt: skip
    ranks = [] if outcome == "lost" else [rank]
    return {"node": node, "outcome": outcome, "reason": outcome, "ranks": ranks}


def test_nothing_is_done_about_a_job_that_runs() -> None:
    assert decide(situation(workers=3), NOW) == []
    assert next_due_ms(situation(), NOW) is None


def test_a_fresh_attempt_is_launched_and_one_that_vanished_is_launched_again() -> None:
    fresh = {"launched_ms": None, "state": "launching"}
    unregistered = {"registered_ms": None, "started_ms": None}
    starting = {"state": "starting"}
    at = situation(job=starting, attempt=fresh, worker=unregistered)
    assert decide(at, NOW) == [Launch()]
    at = situation(
        job=starting, attempt={"state": "launching"}, worker=unregistered,
        sights={"n0": Sight.ABSENT},
    )  # fmt: skip
    assert decide(at, NOW) == [Launch()]


def test_a_gang_is_whole_when_all_registered_and_runs_when_all_started() -> None:
    starting, launching = {"state": "starting"}, {"state": "launching"}
    at = situation(job=starting, attempt=launching, worker={"started_ms": None}, workers=2)
    assert decide(at, NOW) == [Gathered()]
    at = situation(job=starting, attempt=launching, workers=2)
    assert decide(at, NOW) == [Gathered(), Started()]


def test_who_sends_its_last_files_is_not_late_while_it_is_heard_of() -> None:
    """Of a job that was preempted, the checkpoint that it saved in its grace is what counts."""
    ending = {
        "state": "ending", "ending_ms": NOW, "grace_ms": GRACE, "ending_outcome": "preempted",
    }  # fmt: skip
    late = NOW + GRACE + KILL_MARGIN_MS
    ended = {"ranks": [{"rank": 0, "exit": 0}], "beat_ms": late - 1}
    at = situation(job={"state": "stopping"}, attempt=ending, worker=ended)
    assert decide(at, late) == [] and next_due_ms(at, late) == late - 1 + SILENT_MS
    assert decide(at, late - 1 + SILENT_MS) == [Kill("n0")]
    always = {**ended, "beat_ms": late + 2 * DELIVER_LIMIT_MS}
    at = situation(job={"state": "stopping"}, attempt=ending, worker=always)
    assert decide(at, late + DELIVER_LIMIT_MS) == [Kill("n0")]
    running = {"ranks": [{"rank": 0, "exit": 0}, {"rank": 1}], "beat_ms": late - 1}
    at = situation(job={"state": "stopping"}, attempt=ending, worker=running)
    assert decide(at, late) == [Kill("n0")] and next_due_ms(at, late) == late
    at_once = {**ending, "grace_ms": 0}
    at = situation(job={"state": "stopping"}, attempt=at_once, worker=ended)
    assert decide(at, NOW + KILL_MARGIN_MS) == [Kill("n0")]


@pytest.mark.parametrize("wish", ["cancel", "restart"])
def test_who_was_never_launched_is_not_waited_for(wish: str) -> None:
    """Else a job that is cancelled as it is placed keeps its slots for the whole grace."""
    never = {"launched_ms": None, "state": "launching"}
    [told] = decide(situation(job={"state": "starting", "wish": wish}, attempt=never), NOW)
    assert isinstance(told, Tell) and told.stopping
    ending = {
        "launched_ms": None, "state": "ending", "ending_ms": NOW, "grace_ms": GRACE,
        "ending_outcome": told.outcome.value,
    }  # fmt: skip
    at = situation(job={"state": "stopping", "wish": wish}, attempt=ending, workers=2)
    assert decide(at, NOW) == [Kill("n0"), Kill("n1")]


def test_who_was_told_is_given_its_grace_then_killed_and_a_stop_now_cuts_it_short() -> None:
    ending = {
        "state": "ending",
        "ending_ms": NOW,
        "grace_ms": GRACE,
        "ending_outcome": "cancelled",
    }
    late = NOW + GRACE + KILL_MARGIN_MS
    at = situation(job={"state": "stopping", "wish": "cancel"}, attempt=ending)
    assert decide(at, late - 1) == [] and next_due_ms(at, late - 1) == late
    assert decide(at, late) == [Kill("n0")]
    at = situation(job={"state": "stopping", "wish": "cancel", "wish_now": 1}, attempt=ending)
    [told] = decide(at, NOW + 1)
    assert isinstance(told, Tell) and told.grace_ms == 0


def test_a_dead_worker_is_cleaned_up_before_anything_is_judged() -> None:
    at = situation(workers=2, sights={"n0": Sight.DEAD}, records={"n1": record("n1")})
    assert decide(at, NOW) == [Kill("n0")]


def test_the_failure_of_one_node_ends_the_others_and_is_judged_when_all_are_proven_over() -> None:
    at = situation(workers=2, records={"n0": record("n0", "failed", 3)})
    [told] = decide(at, NOW)
    assert isinstance(told, Tell) and told.nodes == ("n1",) and not told.stopping
    at = situation(workers=2, records={"n0": record("n0", "lost")})
    [told] = decide(at, NOW)
    assert isinstance(told, Tell) and told.outcome is Outcome.LOST
    both = {"n0": record("n0", "failed", 3), "n1": record("n1", "failed", 4)}
    [over] = decide(situation(workers=2, records=both), NOW)
    assert isinstance(over, Over) and over.verdict.outcome is Outcome.FAILED


def test_a_time_limit_is_a_failure_with_grace() -> None:
    at = situation(attempt={"deadline_ms": NOW})
    assert decide(at, NOW - 1) == [] and next_due_ms(at, NOW - 1) == NOW
    [told] = decide(at, NOW)
    assert isinstance(told, Tell)
    assert (told.outcome, told.grace_ms, told.stopping) == (Outcome.FAILED, GRACE, True)


HOUR, DAY = 3_600_000, 86_400_000


@pytest.mark.parametrize("step", [-DAY, 0, DAY])
@pytest.mark.parametrize(("ran", "over"), [(HOUR - 1_000, False), (HOUR, True)])
def test_a_limit_of_time_counts_what_ran_whatever_clock_a_restarted_server_has(
    step: int, ran: int, over: bool
) -> None:
    """Its worker was last heard, and its deadline set, by a server with another clock."""
    worker = {"ranks": [{"rank": 0, "ran_ms": ran}], "beat_ms": NOW - 500}
    attempt = {"started_ms": NOW - ran, "deadline_ms": NOW - ran + HOUR}
    boot = NOW + step
    now = situation(attempt=attempt, worker=worker, limits={"time": "1h"}, began_ms=boot)
    steps = decide(now, boot)
    assert bool(steps) == over
    if over:
        assert isinstance(steps[0], Tell) and steps[0].reason == "time limit of 3600 s reached"
    else:
        assert next_due_ms(now, boot) == boot + 1_000
        assert decide(now, boot + 1_000), "this server has counted the rest itself"


def test_a_gang_counts_from_its_last_member_and_adds_what_a_silent_worker_runs() -> None:
    ranks = [{"rank": 0, "ran_ms": HOUR - 5_000}, {"rank": 1, "ran_ms": HOUR - 5_000}]
    worker = {"ranks": ranks, "beat_ms": NOW}
    attempt = {"deadline_ms": NOW + DAY}
    now = situation(attempt=attempt, worker=worker, limits={"time": "1h"}, began_ms=NOW - 1)
    assert not decide(now, NOW + 4_999)
    assert decide(now, NOW + 5_000)


@pytest.mark.parametrize("step", [-DAY, DAY])
def test_a_grace_and_a_launch_are_counted_anew_by_a_server_with_another_clock(step: int) -> None:
    boot = NOW + step
    ending = {"state": "ending", "ending_ms": NOW, "grace_ms": 5_000, "ending_outcome": "failed"}
    sights = {"n0": Sight.ALIVE}
    now = situation(attempt=ending, sights=sights, began_ms=boot)
    assert not decide(now, boot), "it has its whole grace"
    assert next_due_ms(now, boot) == boot + 5_000 + KILL_MARGIN_MS
    assert decide(now, boot + 5_000 + KILL_MARGIN_MS) == [Kill("n0")]
    launching = {"state": "launching", "created_ms": NOW}
    absent = {"registered_ms": None, "started_ms": None}
    job = {"state": "starting"}
    now = situation(job=job, attempt=launching, worker=absent, sights=sights, began_ms=boot)
    assert not decide(now, boot)
    assert decide(now, boot + GATHER_LIMIT_MS)
