"""Who was promised something, who owns what others borrow, who waited for too long: stories of
what once went wrong between them, and seeds of storms in which it did."""

from __future__ import annotations

import pytest
from storm import run
from storm_weather import PROFILES
from test_core import core_of, job, node, preempted, started

from windlass.scheduler.core import Core
from windlass.scheduler.events import NEVER, Promise, Quota, Release, Rules
from windlass.scheduler.quota import Tree

ONE_EACH = (Quota("c"), Quota("own", "c", {"gpus": 1000}), Quota("lean", "c", {"gpus": 0}))


def wait_for(core: Core, now_ms: int) -> int:
    """When the core wants to be asked again."""
    due = core.next_ms()
    assert due is not None and due > now_ms
    return due


def test_when_a_promise_is_passed_others_get_what_it_leaves_in_the_same_tick() -> None:
    core = core_of(node(1, gpus=6))
    core.apply([job("first", 1, gpus=2, expected_ms=100)], 0)
    core.apply([job("big", 2, gpus=6, expected_ms=100)], 1)
    found = core.apply([job("small", 3, gpus=1, expected_ms=150)], 2)
    assert [(d.job_id, d.start_ms) for d in found if isinstance(d, Promise)] == [("big", 100)]
    found = core.apply([job("urgent", 4, gpus=2, expected_ms=200, priority=90)], 3)
    slipped = [d for d in found if isinstance(d, Promise)]
    assert [(d.job_id, bool(d.slipped)) for d in slipped] == [("big", True)]
    assert started(found) == ["urgent", "small"]  # it ends before big is to start now


def test_a_promise_that_is_passed_and_cannot_be_made_anew_is_taken_back() -> None:
    core = core_of(node(1, gpus=2))
    core.apply([job("first", 1, gpus=1, expected_ms=100)], 0)
    found = core.apply([job("big", 2, gpus=2), job("small", 3, expected_ms=10)], 1)
    assert [(d.job_id, d.start_ms) for d in found if isinstance(d, Promise)] == [("big", 100)]
    found = core.apply([Release("small"), job("urgent", 4, priority=90)], 5)
    assert started(found) == ["urgent"]  # without an end: nobody knows when big could start
    taken = [d for d in found if isinstance(d, Promise)]
    assert [(d.job_id, d.start_ms, d.nodes) for d in taken] == [("big", NEVER, ())]
    assert "urgent came with a higher priority" in taken[0].slipped
    assert core.promise("big") is None
    assert [d for d in core.apply([], 6) if isinstance(d, Promise)] == []


def test_who_comes_to_own_what_another_borrowed_asks_again() -> None:
    rules = Rules(ONE_EACH, order="fifo", min_run_ms=0)
    core = core_of(node(1, gpus=1), rules=rules)
    core.apply([job("mine", 1, tenant="own")], 0)
    core.apply([job("borrows", 2, tenant="lean"), job("next", 3, tenant="own")], 1)
    assert started(core.apply([Release("mine")], 10)) == ["borrows"]  # it came first
    found = core.apply([], wait_for(core, 10))
    assert preempted(found) == ["borrows"]


def test_who_was_promised_a_start_far_off_still_takes_back_what_its_tenant_lent() -> None:
    quotas = (Quota("c"), Quota("own", "c", {"gpus": 3000}), Quota("lean", "c", {"gpus": 0}))
    core = core_of(node(1, gpus=2), rules=Rules(quotas, min_run_ms=60_000))
    core.apply([job("lent", 1, tenant="lean", expected_ms=10_000_000)], 0)
    core.apply([job("mine", 2, tenant="own", gpus=2)], 1)
    found = core.apply([job("brief", 3, tenant="lean", expected_ms=1000)], 2)
    assert [d.job_id for d in found if isinstance(d, Promise)] == ["mine"]
    now_ms, told = 2, []
    while now_ms < 130_000 and not told:
        now_ms = wait_for(core, now_ms)
        told = preempted(core.apply([Release("brief")], now_ms))
    assert told == ["lent"]


def test_who_asks_for_none_of_it_does_not_mind_that_more_is_used_than_there_is() -> None:
    tree = Tree((Quota("c"), Quota("a", "c", {"gpus": 1000, "cpus": 1000})), ())
    tree.charge("a", "", "", tree.amounts({"gpus": 2000}))
    assert tree.hopeless("a", tree.amounts({"gpus": 1}))
    assert not tree.hopeless("a", tree.amounts({"cpus": 1}))


ONCE_BROKEN = {
    "a promise that moved left its place to nobody": ("calm", 83, 45),
    "a promised job waited for quota that another needed only later": ("calm", 8, 165),
    "another start lifted what kept a promised job": ("plain", 197, 192),
    "a starving job with quota had no nodes kept": ("storm", 70, 70),
    "those that starved kept quota from each other": ("storm", 107, 60),
    "a promise was made on quota of another time": ("calm", 154, 50),
    "a late job's place was taken from a claim": ("steady", 72, 45),
    "a spread gang, though another model had one host": ("models", 267, 45),
    "the reason left out what is kept for the job itself": ("steady", 77, 95),
    "two that each kept what the other lacked": ("models", 20409, 200),
    "the reason left out models whose quota is promised": ("models", 54, 135),
    "a returning borrower was not asked to give way": ("alike", 43, 160),
    "those alike started out of turn": ("alike", 58, 135),
    "a starving job lost its turn when its promise slipped": ("storm", 27, 105),
    "a promise made another first in a strict queue": ("plain", 149, 121),
    "two counted on the same spare": ("storm", 14, 112),
    "a drain was not planned anew": ("storm", 312, 60),
    "a share was put on a device that another counted on": ("calm", 67, 95),
    "a share was put on a device that its holder had not left": ("plain", 30100, 20),
    "what was exchanged was not told": ("alike", 20295, 80),
    "one that came back delayed what its like was promised": ("alike", 20210, 50),
    "who was refused a moment ago was not asked when it mattered": ("steady", 40062, 105),
    "nobody ran, and a promised job waited for a drain": ("storm", 40039, 80),
    "a drain outlived a change of rules, a promise did not": ("models", 20071, 200),
    "two owners were promised what one borrowed": ("calm", 200083, 60),
    "one with surplus counted as if it kept it": ("steady", 400030, 135),
    "a later drain was in the way of an earlier one": ("storm", 100049, 90),
    "what was left for one was taken by another that had waited longer": ("alike", 300042, 75),
    "the auditor forgot models that are down": ("models", 20285, 50),
    "the auditor forgot the model of a promise": ("models", 20152, 40),
    "one grew and gave way in the same tick": ("storm", 50141, 150),
    "what has no end took the place that one would have had at last": ("storm", 1013, 400),
}


@pytest.mark.parametrize(("profile", "seed", "steps"), ONCE_BROKEN.values(), ids=ONCE_BROKEN)
def test_a_storm_that_once_broke_an_invariant_is_weathered(
    profile: str, seed: int, steps: int
) -> None:
    assert run(seed, steps, PROFILES[profile]).tally.violations == []
