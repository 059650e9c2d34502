"""The core by its stories: a few jobs, a few nodes, what it decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from windlass.scheduler.core import Core
from windlass.scheduler.events import (
    Decision,
    Need,
    NodeDown,
    NodeUp,
    Offer,
    Preempt,
    Promise,
    Queue,
    Quota,
    Release,
    Resize,
    Resized,
    Restore,
    Rules,
    Start,
    Submit,
    Withdraw,
)

RULES = Rules(min_run_ms=0)
MINUTE = 60_000


def node(number: int, gpus: int = 8, **more: Any) -> NodeUp:
    return NodeUp(Offer(f"n{number}", cpus_milli=64_000, gpus=gpus, **more))


def job(
    name: str,
    number: int,
    *,
    workers: int = 1,
    gpus: int = 1,
    tenant: str = "vision",
    minimum: int = 0,
    models: tuple[str, ...] = (),
    **more: Any,
) -> Submit:
    need = Need("worker", workers, gpus=gpus, minimum=minimum, gpu_models=models)
    return Submit(name, tenant, (need,), order_ms=number, number=number, **more)


def core_of(*nodes: NodeUp, rules: Rules = RULES) -> Core:
    core = Core(rules)
    core.apply(list(nodes), 0)
    return core


def started(decisions: Sequence[Decision]) -> list[str]:
    return [d.job_id for d in decisions if isinstance(d, Start)]


def preempted(decisions: Sequence[Decision]) -> list[str]:
    return [d.job_id for d in decisions if isinstance(d, Preempt)]


def test_a_gang_starts_whole_or_not_at_all() -> None:
    core = core_of(node(1), node(2))
    assert started(core.apply([job("wide", 1, workers=3, gpus=8)], 1)) == []
    assert started(core.apply([node(3)], 2)) == ["wide"]
    assert {seat.node for seat in core.holdings()["wide"].seats} == {"n1", "n2", "n3"}


def test_no_device_is_given_twice() -> None:
    core = core_of(node(1, gpus=4))
    core.apply([job(f"j{n}", n, gpus=1) for n in range(6)], 1)
    devices = [seat.gpus for held in core.holdings().values() for seat in held.seats]
    assert sorted(devices) == [(0,), (1,), (2,), (3,)]


def test_higher_priority_first_then_first_come() -> None:
    core = core_of(node(1, gpus=1), rules=Rules(preemption=False))
    core.apply([job("runs", 1)], 1)
    core.apply([job("late", 3), job("early", 2), job("urgent", 4, priority=90)], 2)
    assert core.line() == ["urgent", "early", "late"]
    order = []
    for at in range(3):
        (name,) = started(core.apply([Release(order[-1] if order else "runs")], 3 + at))
        order.append(name)
    assert order == ["urgent", "early", "late"]


def test_a_job_that_comes_back_keeps_its_turn() -> None:
    core = core_of(node(1, gpus=1))
    first = job("first", 1)
    core.apply([first], 1)
    core.apply([job("second", 2)], 2)
    assert started(core.apply([Release("first"), first], 3)) == ["first"]


def test_a_short_job_passes_a_gang_that_waits_and_a_long_one_does_not() -> None:
    core = core_of(node(1), node(2))
    core.apply([job("runs", 1, gpus=8, expected_ms=10 * MINUTE)], 0)
    found = core.apply(
        [
            job("gang", 2, workers=2, gpus=8, expected_ms=MINUTE),
            job("long", 3, gpus=1, expected_ms=20 * MINUTE),
            job("short", 4, gpus=1, expected_ms=5 * MINUTE),
        ],
        1,
    )
    assert started(found) == ["short"]
    (promise,) = [d for d in found if isinstance(d, Promise) and d.job_id == "gang"]
    assert promise.start_ms == 10 * MINUTE
    reason = core.why("long")
    assert reason is not None and reason.code == "waiting-reservation"
    core.apply([Release("short")], 5 * MINUTE)
    assert started(core.apply([Release("runs")], 10 * MINUTE)) == ["gang"]


def test_a_strict_queue_lets_nobody_pass() -> None:
    core = core_of(node(1), rules=replace(RULES, queues=(Queue("default", "strict"),)))
    core.apply([job("runs", 1, gpus=4, expected_ms=MINUTE)], 0)
    core.apply([job("big", 2, gpus=8), job("small", 3, expected_ms=1)], 1)
    assert core.line() == ["big", "small"]
    reason = core.why("small")
    assert reason is not None and reason.code == "waiting-queue"


def test_a_paused_queue_starts_nothing_until_it_goes_on() -> None:
    core = core_of(node(1), rules=replace(RULES, queues=(Queue("default", paused=True),)))
    assert started(core.apply([job("a", 1)], 1)) == []
    reason = core.why("a")
    assert reason is not None and reason.code == "paused"
    assert started(core.apply([RULES], 2)) == ["a"]


def test_preemption_takes_the_fewest_and_keeps_their_place_for_the_preemptor() -> None:
    core = core_of(node(1, gpus=4))
    core.apply([job(f"low{n}", n, priority=10) for n in range(4)], 0)
    found = core.apply([job("high", 9, gpus=2, priority=90), job("thief", 10, priority=10)], 1)
    victims = preempted(found)
    assert len(victims) == 2
    reason = core.why("high")
    assert reason is not None and reason.code == "preempting"
    assert started(core.apply([Release(victims[0])], 2)) == []  # kept, though `thief` would fit
    assert started(core.apply([Release(victims[1])], 3)) == ["high"]


def test_nobody_is_preempted_before_it_ran_for_a_while_or_for_its_equal() -> None:
    core = core_of(node(1, gpus=1), rules=Rules(min_run_ms=MINUTE))
    core.apply([job("runs", 1, priority=10)], 0)
    assert preempted(core.apply([job("equal", 2, priority=10)], 1)) == []
    assert preempted(core.apply([job("high", 3, priority=90)], 2)) == []
    due = core.next_ms()
    assert due is not None
    while due is not None and due <= 2 * MINUTE:
        if preempted(core.apply([], due)):
            break
        due = core.next_ms()
    assert core.now_ms >= MINUTE and core.holdings()["runs"].leaving


COHORT = (
    Quota("all"),
    Quota("owner", "all", nominal={"gpus": 4000}),
    Quota("guest", "all", nominal={"gpus": 4000}),
)


def test_what_is_idle_is_lent_and_reclaimed_when_its_owner_wants_it() -> None:
    core = core_of(node(1), rules=replace(RULES, quotas=COHORT))
    found = core.apply([job(f"g{n}", n, tenant="guest") for n in range(8)], 0)
    assert len(started(found)) == 8  # four of its own, four borrowed
    found = core.apply([job("mine", 9, gpus=2, tenant="owner")], 1)
    assert len(preempted(found)) == 2
    assert started(core.apply([Release(name) for name in preempted(found)], 2)) == ["mine"]


def test_what_is_not_lent_stays_at_home() -> None:
    quotas = (COHORT[0], replace(COHORT[1], lend={"gpus": 0}), COHORT[2])
    core = core_of(node(1), rules=replace(RULES, quotas=quotas))
    found = core.apply([job(f"g{n}", n, tenant="guest") for n in range(8)], 0)
    assert len(started(found)) == 4
    reason = core.why("g7")
    assert reason is not None and reason.code == "waiting-quota"
    assert reason.missing == {"gpus": 1000}


def test_who_uses_less_goes_first() -> None:
    core = core_of(node(1, gpus=4))
    core.apply([job(f"a{n}", n, tenant="a") for n in range(8)], 0)
    core.apply([job("b0", 20, tenant="b")], 1)
    assert started(core.apply([Release("a0")], 2)) == ["b0"]


def test_an_elastic_gang_starts_small_grows_and_gives_back_first() -> None:
    core = core_of(node(1, gpus=4), rules=replace(RULES, cool_down_ms=MINUTE))
    core.apply([job("other", 1, gpus=2)], 0)
    found = core.apply([job("elastic", 2, workers=4, minimum=1)], 1)
    assert len(core.holdings()["elastic"].seats) == 2, found
    found = core.apply([Release("other")], 2)
    (grown,) = [d for d in found if isinstance(d, Resize)]
    assert len(grown.seats) == 4
    assert core.apply([job("next", 3, gpus=2)], 3) == []  # it was resized a moment ago
    found = core.apply([job("next2", 4, gpus=2, priority=50)], 2 * MINUTE)
    shrunk = [d for d in found if isinstance(d, Resize)]
    assert len(shrunk) == 1 and len(shrunk[0].seats) == 2
    assert started(core.apply([Resized("elastic")], 2 * MINUTE + 1)) == ["next"]


def test_a_gang_stays_in_one_rack_if_it_must() -> None:
    racks = [node(n, rack=f"r{n % 2}") for n in range(4)]
    core = core_of(*racks)
    core.apply([job("one", 1, gpus=8), job("two", 2, gpus=8)], 0)
    gang = job("gang", 3, workers=2, gpus=8, level="rack", required=True)
    found = core.apply([gang], 1)
    if found:
        racks_used = {int(seat.node[1:]) % 2 for seat in core.holdings()["gang"].seats}
        assert len(racks_used) == 1
    assert core.never_fits(replace(gang, needs=(Need("worker", 3, gpus=8),))) is not None


def test_what_can_never_fit_is_said_at_once() -> None:
    core = core_of(node(1, gpus=4))
    why = core.never_fits(job("big", 1, gpus=8))
    assert why == "a member of role worker wants 8 GPUs, the largest node has 4 GPUs"
    why = core.never_fits(job("a100", 1, models=("A100",)))
    assert why is not None and "A100" in why
    rules = replace(RULES, quotas=(Quota("vision", nominal={"gpus": 2000}),))
    why = core_of(node(1), rules=rules).never_fits(job("rich", 1, gpus=4))
    assert why is not None and "quota" in why


def test_a_node_that_is_down_takes_nothing_and_keeps_what_runs() -> None:
    core = core_of(node(1), node(2))
    core.apply([job("runs", 1, gpus=8)], 0)
    (where,) = {seat.node for seat in core.holdings()["runs"].seats}
    core.apply([NodeDown(where)], 1)
    core.apply([job("a", 2, gpus=8), job("b", 3, gpus=8)], 2)
    assert set(core.holdings()) == {"runs", "a"}


def test_a_restarted_core_holds_the_same_and_goes_on_the_same() -> None:
    core = core_of(node(1, gpus=4))
    core.apply([job(f"low{n}", n, priority=10) for n in range(4)], 0)
    core.apply([job("high", 9, gpus=2, priority=90)], 1)
    again = Core(RULES)
    told: list[Any] = [node(1, gpus=4)]
    for name, held in core.holdings().items():
        told.append(
            Restore(held.job, held.seats, held.started_ms, held.leaving, "high" * held.leaving)
        )
        assert name == held.job.job_id
    again.apply([*told, job("high", 9, gpus=2, priority=90)], 1)
    leaving = [name for name, held in again.holdings().items() if held.leaving]
    assert len(leaving) == 2
    for each in (core, again):
        assert started(each.apply([Release(name) for name in leaving], 2)) == ["high"]


def test_a_restart_gives_nobody_a_claim_that_its_quota_no_longer_allows() -> None:
    """Others were told to end for it, then the quota was lowered, then the server restarted: the
    claim was made anew without a look at the quota (found by the state machine)."""
    core = Core(replace(RULES, quotas=(Quota("vision", nominal={"gpus": 4000}),)))
    leaves = job("leaves", 1, gpus=4, priority=10)
    stays = job("stays", 2, gpus=2, preemptible=False)
    held = core_of(node(1))
    held.apply([leaves, stays], 0)
    seats = {name: holding.seats for name, holding in held.holdings().items()}
    core.apply(
        [
            node(1),
            Restore(leaves, seats["leaves"], 0, leaving=True, leaving_for="high"),
            Restore(stays, seats["stays"], 0),
            job("high", 3, gpus=4, priority=90),
        ],
        1,
    )
    assert started(core.apply([Release("leaves")], 2)) == []
    assert started(core.apply([Release("stays")], 3)) == ["high"]


@pytest.mark.parametrize("what", ["withdrawn", "released"])
def test_every_event_may_be_told_again(what: str) -> None:
    core = core_of(node(1, gpus=1))
    first = job("first", 1)
    assert started(core.apply([first, first], 1)) == ["first"]
    assert core.apply([first], 2) == []
    end = Withdraw("second") if what == "withdrawn" else Release("second")
    core.apply([job("second", 2)], 3)
    core.apply([end, end], 4)
    assert core.line() == []
    assert started(core.apply([Release("first"), Release("first")], 5)) == []
