"""A gang that goes on without those it loses: when it is done, when too few are left, and why."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.core.jobs import JobSpec, Outcome
from windlass.server.jobs import losses

KILLED = {"exit": None, "signal": 9}


def gang(
    *,
    roles: dict[str, dict[str, Any]] | None = None,
    finish: dict[str, str] | None = None,
    ended: list[dict[str, Any]] | None = None,
    holds: str | None = None,
) -> losses.Gang:
    """Three workers, one a node, but for what is given."""
    roles = roles or {"worker": {"count": 3}}
    placement = [
        {"role": role, "index": index, "node": f"n{index}" if role == "worker" else "n0"}
        for role, told in roles.items()
        for index in range(told["count"])
    ]
    nodes = sorted({placed["node"] for placed in placement})
    return losses.Gang(
        spec=JobSpec.model_validate({"run": "x", "roles": roles, "on_member_loss": "continue"}),
        finish=finish or {role: "never" if role == "ps" else "all" for role in roles},
        placement=placement,
        processes=dict.fromkeys(roles, 1),
        workers=[{"node": node, "ended_ranks": ended if node == "n0" else None} for node in nodes],
        holds=holds,
    )


def rank(index: int, how: dict[str, Any] | None = None, role: str = "worker") -> dict[str, Any]:
    bad = how is not None
    return {
        "role": role, "index": index, "local_rank": 0, "rank": index, "exit": 0, "signal": None,
        "ended_by": "itself", "ended_ms": 1000 + index, "given_up": bad, **(how or {}),
    }  # fmt: skip


def record(node: str, outcome: str, *ranks: dict[str, Any]) -> dict[str, Any]:
    return {"node": node, "outcome": outcome, "reason": outcome, "ranks": list(ranks)}


def three(*found: dict[str, Any] | None) -> dict[str, dict[str, Any] | None]:
    return {f"n{at}": each for at, each in enumerate(found)}


def test_a_loss_alone_changes_nothing() -> None:
    ended = [{**rank(1), **KILLED, "given_up": True}]
    assert losses.ended(gang(ended=ended), three(None, None, None)) is None
    assert losses.ended(gang(), three(None, record("n1", "lost"), None)) is None


def test_it_is_done_when_all_that_are_left_ended_well() -> None:
    found = three(record("n0", "succeeded", rank(0)), record("n1", "lost"), None)
    assert losses.ended(gang(), found) is None, "worker 2 still works"
    found["n2"] = record("n2", "succeeded", rank(2))
    assert losses.ended(gang(), found) == (
        Outcome.SUCCEEDED,
        "all ranks ended well but worker-1",
    )
    assert losses.judge(gang(), found, None, "").outcome is Outcome.SUCCEEDED


def test_a_node_whose_members_had_all_ended_well_takes_nobody_with_it() -> None:
    ended = [{**rank(0)}]
    found = three(record("n0", "lost"), record("n1", "succeeded", rank(1)), None)
    now = losses.standings(gang(ended=ended), found)
    assert (now["worker"].done, now["worker"].gone) == (2, ())


@pytest.mark.parametrize(("least", "ends"), [(None, False), (2, False), (3, True)])
def test_min_says_with_how_many_it_goes_on(least: int | None, ends: bool) -> None:
    roles = {"worker": {"count": 3, **({"min": least} if least else {})}}
    found = three(None, record("n1", "lost"), None)
    told = losses.ended(gang(roles=roles), found)
    assert (told is not None) is ends
    if told is not None:
        assert told[0] is Outcome.LOST
        assert "2 of 3 members of role worker are left, `min` is 3: worker-1 gone" in told[1]


def test_the_last_server_cannot_be_missed_and_the_first_member_where_it_decides() -> None:
    roles = {"worker": {"count": 3}, "ps": {"count": 1}}
    ended = [{**rank(0, KILLED, "ps"), "given_up": True}]
    told = losses.ended(gang(roles=roles, ended=ended), three(None, None, None))
    assert told is not None and told[0] is Outcome.FAILED and "role ps" in told[1]
    first = gang(finish={"worker": "first"}, ended=[{**rank(0, KILLED), "given_up": True}])
    told = losses.ended(first, three(None, None, None))
    assert told is not None and "worker-0 is gone" in told[1]


def test_the_node_where_they_meet_cannot_be_missed() -> None:
    found = three(record("n0", "lost"), None, None)
    told = losses.ended(gang(holds="n0"), found)
    assert told is not None and told[0] is Outcome.LOST
    found["n1"] = record("n1", "failed", rank(1, {"exit": 1}))
    found["n2"] = record("n2", "failed", rank(2, {"exit": 1}))
    verdict = losses.judge(gang(holds="n0"), found, *told)
    assert verdict.outcome is Outcome.LOST, "whoever failed then failed because of it"


def test_a_refused_launch_and_a_limit_that_was_reached_end_it_as_ever() -> None:
    for outcome in ("refused", "hung", "failed"):
        told = losses.ended(gang(), three(record("n0", outcome), None, None))
        assert told == (Outcome(outcome), outcome)


def test_the_cause_is_the_first_loss_not_what_followed_from_it() -> None:
    killed_once = {"exit": 1, "ended_ms": 9000, "first_loss": {**KILLED, "ended_ms": 1000}}
    found = three(
        record("n0", "failed", rank(0, {"exit": 1, "ended_ms": 2000})),
        record("n1", "failed", rank(1, killed_once)),
        record("n2", "failed", rank(2, {"exit": 1, "ended_ms": 2001})),
    )
    verdict = losses.judge(gang(), found, None, "")
    assert verdict.outcome is Outcome.FAILED
    assert verdict.reason.startswith("rank 1 (worker-1) was killed by SIGKILL; 0 of 3 members")
    assert verdict.exit_code == 137
    assert verdict.failure is not None and verdict.failure["signal"] == 9


def test_who_was_told_to_stop_is_cancelled_whoever_was_lost_before() -> None:
    stopped = {**rank(0), "exit": None, "signal": 15, "ended_by": "worker"}
    found = three(record("n0", "cancelled", stopped), record("n1", "lost"), None)
    found["n2"] = record("n2", "cancelled", {**stopped, "index": 2, "rank": 2})
    verdict = losses.judge(gang(), found, Outcome.CANCELLED, "stopped by ada")
    assert (verdict.outcome, verdict.reason) == (Outcome.CANCELLED, "stopped by ada")
