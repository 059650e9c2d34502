"""S-I14 where it is hardest: a job that is preempted, cut into entries before, refunded after, and
a server that is killed. The other simulations check it too, over each crash and storm."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.server.usage import ledger
from windlass.testing.simulated.cluster import Fate
from windlass.testing.simulated.plans import JobPlan, Plan, _nodes, _spec
from windlass.testing.simulation import simulate


def preempted(saves: float | None = 25.0) -> Plan:
    """`low` runs for a minute, is preempted by `high`, and goes on after it."""
    whole = {"worker": {"count": 1, "gpus": 2, "cpus": 1.5, "memory": 10**9}}
    low = _spec("low", roles=whole, queue={"priority": 10})
    high = _spec("high", roles=whole, queue={"priority": 90})

    def fate(launch: dict[str, Any]) -> Fate:
        if launch["job_name"] == "high":
            return Fate(run=2)
        return Fate(run=90 if launch["attempt"] == 1 else 3, obeys=1.0, saves=saves)

    jobs = (JobPlan("low", low), JobPlan("high", high, at=62.0))
    return Plan(name="preempted", seed=0, nodes=_nodes(1), jobs=jobs, fate=fate)


ENDS = {"low": "succeeded", "high": "succeeded"}


@pytest.mark.parametrize("saves", [25.0, None])
def test_a_preempted_job_pays_neither_for_grace_nor_for_lost_work(saves: float | None) -> None:
    result = simulate(preempted(saves))
    assert not result.violations, result.explain()
    assert result.final == ENDS
    kinds = {row["kind"] for row in result.ledger}
    assert {"run", "refund", "lost", "grace"} <= kinds, "it was cut before it was preempted"
    if saves is None:
        first = [row for row in result.ledger if row["kind"] in ("run", "refund")]
        first = [row for row in first if row["attempt_id"].endswith("1")]
        assert sum(row["gpu"] for row in first) == 0, "all of its first attempt was lost"


def test_the_ledger_holds_whatever_commit_the_server_dies_at() -> None:
    points = [k for k, kind in enumerate(simulate(preempted()).points) if kind != "read"]
    assert len(points) > 60
    for k in points[len(points) // 2 :: 6]:  # the preemption, and what follows it
        result = simulate(preempted(), crash_at=k)
        assert not result.violations, result.explain()
        assert result.final == ENDS, result.explain()


@pytest.mark.soak
def test_the_ledger_holds_at_every_other_commit_too() -> None:
    points = [k for k, kind in enumerate(simulate(preempted()).points) if kind != "read"]
    for k in points:
        result = simulate(preempted(), crash_at=k)
        assert not result.violations, result.explain()


@pytest.mark.parametrize("hole", ["no refund", "no cut", "no entry", "grace is charged"])
def test_a_ledger_with_a_hole_is_noticed(hole: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if hole == "no refund":
        monkeypatch.setattr(ledger, "_take_back", lambda *_: None)
    elif hole == "no cut":  # harmless: what was not cut is written at the end
        monkeypatch.setattr(ledger, "cut", lambda *_: None)
    elif hole == "no entry":
        monkeypatch.setattr(ledger, "close", lambda *_: None)
    else:
        monkeypatch.setattr(ledger, "UNPAID_WISHES", frozenset())
    found = [each for each in simulate(preempted()).violations if each.startswith("S-I14")]
    assert bool(found) == (hole != "no cut")
