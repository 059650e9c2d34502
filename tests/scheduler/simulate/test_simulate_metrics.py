"""The figures of a run: the fixed keys, and values that can be worked out by hand."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from scripted import Scripted, cluster, job, scripted, seats

from windlass.scheduler.events import (
    Decision,
    Event,
    Promise,
    Quota,
    Release,
    Rules,
    Seat,
    Start,
    Submit,
)
from windlass.scheduler.simulate.fragments import Demand, fragmented
from windlass.scheduler.simulate.live import Live
from windlass.scheduler.simulate.metrics import jain, spread
from windlass.scheduler.simulate.workload import Shapes

KEYS = [
    "jobs", "finished", "makespan_s", "wait_s", "jct_s", "slowdown", "utilisation",
    "fragmentation", "fairness", "preemptions", "reservation_slip_s", "decisions",
    "decisions_per_s", "tick_ms", "peak_rss_mb", "by_tenant", "invariant_violations",
]  # fmt: skip
SPREAD = ["mean", "p50", "p90", "p99", "max"]


class OneAtATime(Scripted):
    """A single place, first come first served."""

    def __init__(self) -> None:
        super().__init__(self.decide)
        self.line: list[str] = []
        self.busy = False

    def decide(self, events: Sequence[Event], now: int) -> list[Decision]:
        for event in events:
            if isinstance(event, Submit):
                self.line.append(event.job_id)
            elif isinstance(event, Release):
                self.busy = False
        if self.busy or not self.line:
            return []
        self.busy = True
        return [Start(self.line.pop(0), seats(1))]


def test_the_result_has_exactly_the_fixed_keys_first() -> None:
    result = scripted(cluster([job("a", 0, 1000)]), Scripted()).run().result
    assert list(result)[: len(KEYS)] == KEYS
    assert list(result)[len(KEYS) :] == ["rejected", "details"]
    for key in ("wait_s", "jct_s", "slowdown"):
        assert list(result[key]) == SPREAD
    assert list(result["utilisation"]) == ["allocated", "useful"]
    assert list(result["fairness"]) == ["jain", "unserved_nominal_s"]
    assert list(result["tick_ms"]) == ["p50", "p99", "max"]


def test_waits_completions_and_utilisation_of_three_jobs_on_one_gpu() -> None:
    jobs = [job("a", 0, 10_000), job("b", 0, 20_000), job("c", 5000, 5000)]
    result = scripted(cluster(jobs, nodes=1, gpus=1), OneAtATime()).run().result
    assert result["wait_s"] == {
        "mean": 11.666667,
        "p50": 10.0,
        "p90": 25.0,
        "p99": 25.0,
        "max": 25.0,
    }
    assert result["jct_s"]["mean"] == pytest.approx((10 + 30 + 30) / 3)
    assert result["slowdown"]["max"] == 3.0  # 30 s for a job that counts as 10 s long
    assert result["makespan_s"] == 35.0
    assert result["utilisation"] == {"allocated": 1.0, "useful": 1.0}
    assert result["details"]["pending_max"] == 2


def test_littles_law_holds_to_the_last_digit() -> None:
    rng = np.random.default_rng(0)
    jobs = [
        job(f"j{at}", int(rng.integers(0, 500_000)), int(rng.integers(1, 5000)))
        for at in range(200)
    ]
    run = scripted(cluster(jobs, nodes=1, gpus=1), OneAtATime())
    result = run.run().result
    waited = result["details"]["wait_all_s"] * 200 * 1000
    assert run.ledger.pending_area == pytest.approx(waited, abs=1)
    details = result["details"]
    product = details["arrivals_per_s"] * details["wait_all_s"]
    assert details["pending_mean"] == pytest.approx(product, rel=1e-3)


def test_a_start_after_the_promised_time_has_slipped_and_an_excused_one_has_not() -> None:
    def decide(excuse: str) -> float:
        def script(events: Sequence[Event], now: int) -> list[Decision]:
            if now == 0:
                return (
                    [Promise("a", 1000, ("n0",))]
                    if events[-1:] == [] or any(isinstance(event, Submit) for event in events)
                    else []
                )
            if now == 500:
                return [Promise("a", 3000, ("n0",), excuse)]
            return [Start("a", seats(1))] if now == 3000 else []

        jobs = [job("a", 0, 1000), *(job(f"t{at}", at, 1) for at in (500, 3000))]
        found = scripted(cluster(jobs), Scripted(script)).run().result["reservation_slip_s"]
        assert isinstance(found, float)
        return found

    assert decide("a node was lost") == 0.0
    assert decide("") == 2.0


def test_the_time_in_which_a_tenant_is_kept_from_its_own_is_told() -> None:
    def script(events: Sequence[Event], now: int) -> list[Decision]:
        return [Start("a", seats(1))] if now == 7000 else []

    rules = Rules(quotas=(Quota("c"), Quota("t", "c", nominal={"gpus": 1000})))
    jobs = [
        job("a", 1000, 1000, tenant="t"),
        job("big", 1000, 1, 2, tenant="t"),
        job("x", 7000, 1, tenant="other"),
    ]
    result = scripted(cluster(jobs, rules=rules), Scripted(script)).run().result
    assert result["fairness"]["unserved_nominal_s"] == 6.0
    assert result["by_tenant"]["t"]["unserved_nominal_s"] == 6.0


def test_jain_is_one_when_all_have_the_same_and_one_nth_when_one_has_all() -> None:
    assert jain([3.0, 3.0, 3.0]) == 1.0
    assert jain([1.0, 0.0, 0.0, 0.0]) == 0.25
    assert jain([]) == 1.0
    assert spread(np.array([])) == {word: 0.0 for word in SPREAD}


def test_fragmentation_is_the_share_of_free_gpus_that_the_demand_cannot_use() -> None:
    """Two nodes of 4 GPUs. On the first, 3 are taken and a half of the fourth; on the second, one
    is taken. Half of the jobs want 4 GPUs (nothing free is of use), half want one whole GPU (the
    half device is of no use): (3.5 + 0.5) / 2 of 3.5 GPUs."""
    shapes = Shapes()
    whole = job("w", 0, 1, needs=shapes.needs(1, gpus=1))
    four = job("f", 0, 1, needs=shapes.needs(1, gpus=4))
    offers = cluster([whole], nodes=2, gpus=4).offers
    holders = []
    for needs, taken in (
        (shapes.needs(1, gpus=3), ("n0", (0, 1, 2))),
        (shapes.needs(1, gpu_milli=500), ("n0", (3,))),
        (shapes.needs(1, gpus=1), ("n1", (2,))),
    ):
        live = Live(job("x", 0, 1, needs=needs), 0, 0)
        live.seats = (Seat("worker", 0, taken[0], taken[1]),)
        holders.append(live)
    found = fragmented(Demand([whole, four], "gpus"), offers, holders)
    assert found == pytest.approx((3.5 + 0.5) / 2 / 3.5)
    assert fragmented(Demand([whole, four], "gpus"), offers, []) == 0.0
