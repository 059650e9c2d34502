"""What follows an attempt's end, by table."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.core.jobs import JobSpec, JobState, Outcome
from windlass.server.jobs.policy import Verdict, follow, judge

FINISH = {"worker": "all"}


def spec(**fields: Any) -> JobSpec:
    return JobSpec.model_validate({"run": ["x"], **fields})


def rank(number: int = 0, **fields: Any) -> dict[str, Any]:
    return {
        "role": "worker", "index": number, "local_rank": 0, "rank": number, "exit": 0,
        "signal": None, "ended_by": "itself", "ended_ms": 100 + number, **fields,
    }  # fmt: skip


def record(
    *ranks: dict[str, Any], node: str = "a", outcome: str = "succeeded", **fields: Any
) -> Any:
    return {"node": node, "outcome": outcome, "ranks": list(ranks), "reason": "", **fields}


def test_all_ranks_well_is_success() -> None:
    verdict = judge(FINISH, [record(rank(0)), record(rank(1), node="b")], None, "")
    assert (verdict.outcome, verdict.exit_code) == (Outcome.SUCCEEDED, 0)


def test_the_first_to_fail_by_itself_is_the_cause() -> None:
    victim = rank(0, exit=None, signal=15, ended_by="worker", ended_ms=1)
    cause = rank(1, exit=7, ended_ms=50, traceback="Traceback\nValueError: no")
    verdict = judge(FINISH, [record(victim, cause, outcome="failed")], Outcome.FAILED, "")
    assert verdict.exit_code == 7
    assert verdict.failure is not None and verdict.failure["rank"] == 1
    assert "ValueError: no" in verdict.reason


ENDED = record(rank(exit=0, ended_by="worker"), outcome="cancelled")


@pytest.mark.parametrize(
    ("records", "told", "outcome"),
    [
        ([record(rank(oom=True, exit=None, signal=9), outcome="oom")], None, Outcome.OOM),
        ([record(outcome="lost")], None, Outcome.LOST),
        ([ENDED], Outcome.CANCELLED, Outcome.CANCELLED),
        ([ENDED], Outcome.PREEMPTED, Outcome.PREEMPTED),
        ([record(rank(exit=0))], Outcome.CANCELLED, Outcome.SUCCEEDED),  # it ended well first
        ([record(outcome="refused", reason="no such command")], None, Outcome.REFUSED),
        ([record(outcome="hung")], None, Outcome.HUNG),
    ],
)  # fmt: skip
def test_outcomes(records: list[Any], told: Outcome | None, outcome: Outcome) -> None:
    assert judge(FINISH, records, told, "why").outcome is outcome


def test_a_parameter_server_that_was_ended_does_not_spoil_success() -> None:
    ps = rank(1, role="ps", index=0, exit=None, signal=15, ended_by="worker")
    finish = {"worker": "all", "ps": "never"}
    assert judge(finish, [record(rank(0), ps)], Outcome.SUCCEEDED, "").outcome is Outcome.SUCCEEDED


def after(verdict: Verdict, job: JobSpec | None = None, **facts: Any) -> Any:
    facts = {
        "wish": None, "failures": 0, "stale_restarts": 0, "lost_nodes": [], "progressed": None,
        "jitter": 0.0, **facts,
    }  # fmt: skip
    return follow(job or spec(), verdict, **facts)


def killed(**fields: Any) -> Verdict:
    return Verdict(Outcome.FAILED, "killed", 137, {"exit": None, "signal": 9, **fields})


def test_a_bug_is_not_tried_again() -> None:
    bug = Verdict(Outcome.FAILED, "exited with 1", 1, {"exit": 1})
    assert after(bug).state is JobState.FAILED


def test_a_kill_is_tried_again_and_spends_the_budget() -> None:
    then = after(killed(), failures=1)
    assert (then.state, then.failures, then.delay_ms) == (JobState.QUEUED, 2, 1000)
    assert after(killed(), failures=3).state is JobState.FAILED


def test_loss_of_a_node_spends_nothing() -> None:
    then = after(Verdict(Outcome.LOST, "gone", lost_nodes=("a",)), failures=3)
    assert (then.state, then.failures, then.lost_nodes) == (JobState.QUEUED, 3, ["a"])


def test_preemption_spends_nothing() -> None:
    then = after(Verdict(Outcome.PREEMPTED, "room needed"), failures=3, wish="preempt")
    assert (then.state, then.failures) == (JobState.QUEUED, 3)


def test_node_after_node_means_quarantine() -> None:
    lost = Verdict(Outcome.LOST, "gone", lost_nodes=("c",))
    assert not after(lost, lost_nodes=["a"]).quarantine
    assert after(lost, lost_nodes=["a", "b"]).quarantine
    assert not after(lost, lost_nodes=["a", "b"], progressed=True).quarantine


def test_no_progress_in_three_restarts_is_the_end() -> None:
    assert (
        after(killed(), spec(retry={"times": 100}), stale_restarts=1, progressed=False).state
        is JobState.QUEUED
    )
    ended = after(killed(), spec(retry={"times": 100}), stale_restarts=2, progressed=False)
    assert ended.state is JobState.FAILED
    assert "no progress in 3 restarts" in ended.reason
    assert (
        after(
            killed(), spec(retry={"times": 100}), stale_restarts=2, progressed=True
        ).stale_restarts
        == 0
    )


@pytest.mark.parametrize(
    ("on", "failure", "again"),
    [
        (["exit:33"], {"exit": 33}, True),
        (["exit:33"], {"exit": 34}, False),
        (["failed"], {"exit": 1}, True),
        (["log:CUDA error"], {"exit": 1, "matched": ["x", "CUDA error"]}, True),
        (["log:CUDA error"], {"exit": 1, "traceback": "CUDA error", "matched": []}, False),
        (["log:CUDA error"], {"exit": 1}, False),
        (["signal"], {"exit": 137}, True),
    ],
)
def test_rules(on: list[str], failure: dict[str, Any], again: bool) -> None:
    verdict = Verdict(Outcome.FAILED, "x", 1, failure)
    state = after(verdict, spec(retry={"times": 1, "on": on})).state
    assert (state is JobState.QUEUED) == again


def test_never_beats_on() -> None:
    job = spec(retry={"times": 5, "on": ["failed"], "never": ["exit:2"]})
    assert after(Verdict(Outcome.FAILED, "x", 2, {"exit": 2}), job).state is JobState.FAILED


def test_backoff_doubles_to_its_cap_with_jitter() -> None:
    job = spec(retry={"times": 50, "backoff": "1s", "backoff_cap": "10s"})
    delays = [after(killed(), job, failures=n, jitter=1.0).delay_ms for n in range(6)]
    assert delays == [1000, 2000, 4000, 8000, 10_000, 10_000]
    assert after(killed(), job, failures=2, jitter=0.0).delay_ms == 2000


LACKS = "the node has run out of disk space: No space left on device"


def test_a_node_without_room_is_the_nodes_trouble_whoever_else_failed_for_it() -> None:
    lacking = record(node="b", outcome="lost", need="disk space") | {"reason": LACKS}
    failed = record(rank(exit=1, traceback="ConnectionRefusedError"), outcome="failed")
    verdict = judge(FINISH, [failed, lacking], Outcome.LOST, "node b lost its part of the gang")
    assert (verdict.outcome, verdict.lost_nodes) == (Outcome.LOST, ())
    assert verdict.needs == {"b": LACKS} and verdict.reason == f"not started on b: {LACKS}"
    told = judge(FINISH, [lacking], Outcome.CANCELLED, "cancelled by ada")
    assert told.outcome is Outcome.CANCELLED and not told.needs
    assert judge(FINISH, [record(rank()), record(need="memory")], None, "", 1).needs == {}


def test_a_node_without_room_costs_the_job_nothing_whatever_its_rules() -> None:
    verdict = judge(FINISH, [record(outcome="lost", need="processes")], None, "")
    job = spec(retry={"times": 0, "on": [], "never": ["lost"]})
    counted = {"failures": 2, "stale_restarts": 2, "lost_nodes": ["x", "y"], "progressed": False}
    then = after(verdict, job, **counted)
    assert then.state is JobState.QUEUED and "counts as no try" in then.reason
    assert (then.failures, then.stale_restarts, then.lost_nodes) == (2, 2, ["x", "y"])
    assert not then.quarantine
    # It may be its own code that there is no room for: it does not keep the node from others.
    pauses = [after(verdict, job, lacked=lacked).delay_ms for lacked in range(12)]
    assert pauses[:3] == [500, 1_000, 2_000] and pauses[-1] == 150_000
    assert after(verdict, job, wish="cancel").state is JobState.CANCELLED
