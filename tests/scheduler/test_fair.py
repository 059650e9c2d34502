"""Dominant resource fairness: whole tasks against the exact solution, and decayed usage.

With tasks that cannot be divided the promises hold to within one task of each tenant; the bounds
below are those that follow from "the lowest share is next", not ones that happened to pass:

    when tenant i is refused, every other one has at most i's share plus one task of its own, and
    of some resource that i needs, less than one task of i's is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from windlass.scheduler.fair import fill

Demands = dict[str, dict[str, int]]
Case = tuple[dict[str, int], Demands, dict[str, int]]

RESOURCES = ("cpus", "gpus", "memory")


def dominant(capacity: Mapping[str, int], needs: Mapping[str, int]) -> Fraction:
    """The largest part of any resource that one task takes."""
    return max(Fraction(amount, capacity[name]) for name, amount in needs.items())


def exact(
    capacity: Mapping[str, int],
    demands: Mapping[str, Mapping[str, int]],
    weights: Mapping[str, int],
    limit: Mapping[str, int] | None = None,
) -> dict[str, Fraction]:
    """Progressive filling with tasks that can be divided: all shares grow together by weight; who
    needs what has run out, or has all it can use, stops."""
    limit = limit or {}
    pace = {  # tasks for each unit of share
        tenant: weights.get(tenant, 1) / dominant(capacity, needs)
        for tenant, needs in demands.items()
    }
    tasks = dict.fromkeys(demands, Fraction(0))
    free = {name: Fraction(amount) for name, amount in capacity.items()}
    growing = set(demands)
    while growing:
        drain = {
            name: sum((pace[t] * demands[t].get(name, 0) for t in growing), Fraction(0))
            for name in capacity
        }
        rise = min(
            [free[name] / drain[name] for name in capacity if drain[name]]
            + [(limit[t] - tasks[t]) / pace[t] for t in growing if t in limit]
        )
        for tenant in growing:
            tasks[tenant] += rise * pace[tenant]
        for name in capacity:
            free[name] -= rise * drain[name]
        growing = {
            tenant
            for tenant in growing
            if all(free[name] > 0 for name, amount in demands[tenant].items() if amount)
            and tasks[tenant] < limit.get(tenant, tasks[tenant] + 1)
        }
    return tasks


@st.composite
def cases(draw: st.DrawFn, least: int = 1, most: int = 40, weighted: bool = True) -> Case:
    names = RESOURCES[: draw(st.integers(1, 3))]
    capacity = {name: draw(st.integers(60, 400)) for name in names}
    demands: Demands = {}
    for number in range(draw(st.integers(least, 5))):
        needs = {name: draw(st.integers(0, most)) for name in names}
        assume(any(needs.values()))
        demands[f"t{number}"] = needs
    weights = {
        tenant: draw(st.sampled_from([1, 1, 2, 3])) if weighted else 1 for tenant in demands
    }
    return capacity, demands, weights


limits = st.dictionaries(st.sampled_from([f"t{number}" for number in range(5)]), st.integers(0, 9))


# By hand


def test_the_example_everyone_knows() -> None:
    """9 CPUs, 18 GB; A's tasks take 1 CPU, 4 GB and B's 3 CPUs, 1 GB: three of A, two of B."""
    demands = {"a": {"cpus": 1, "memory": 4}, "b": {"cpus": 3, "memory": 1}}
    assert fill({"cpus": 9, "memory": 18}, demands) == {"a": 3, "b": 2}
    assert exact({"cpus": 9, "memory": 18}, demands, {}) == {"a": 3, "b": 2}


@pytest.mark.parametrize(
    ("capacity", "demands", "weights", "limit", "tasks"),
    [
        ({"gpus": 8}, {"a": {"gpus": 1}, "b": {"gpus": 1}}, {}, {}, {"a": 4, "b": 4}),
        ({"gpus": 9}, {"b": {"gpus": 1}, "a": {"gpus": 1}}, {}, {}, {"a": 5, "b": 4}),
        ({"gpus": 8}, {"a": {"gpus": 1}, "b": {"gpus": 1}}, {"a": 3}, {}, {"a": 6, "b": 2}),
        ({"gpus": 8}, {"a": {"gpus": 1}, "b": {"gpus": 1}}, {}, {"a": 1}, {"a": 1, "b": 7}),
        ({"gpus": 8}, {"a": {"gpus": 9}, "b": {"gpus": 1}}, {}, {}, {"a": 0, "b": 8}),
        ({"gpus": 0, "cpus": 4}, {"a": {"gpus": 1}, "b": {"cpus": 1}}, {}, {}, {"a": 0, "b": 4}),
        ({"cpus": 4}, {"a": {"gpus": 1}, "b": {"cpus": 1, "gpus": 0}}, {}, {}, {"a": 0, "b": 4}),
        ({"gpus": 8}, {"a": {"gpus": 0}, "b": {"gpus": 4}}, {}, {"a": 7}, {"a": 7, "b": 2}),
        ({"gpus": 8}, {}, {}, {}, {}),
        ({}, {"a": {"gpus": 1}}, {}, {}, {"a": 0}),
    ],
)
def test_whole_tasks_by_the_lowest_share(
    capacity: dict[str, int],
    demands: Demands,
    weights: dict[str, int],
    limit: dict[str, int],
    tasks: dict[str, int],
) -> None:
    assert fill(capacity, demands, weights, limit) == tasks


@pytest.mark.parametrize(
    ("demands", "weights", "complaint"),
    [
        ({"a": {"gpus": 1}}, {"a": 0}, "the weight of a is 0"),
        ({"a": {"gpus": -1}}, {}, "a needs -1 of gpus"),
        ({"a": {"gpus": 0}}, {}, "a needs nothing"),
    ],
)
def test_what_has_no_fair_answer_is_refused(
    demands: Demands, weights: dict[str, int], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        fill({"gpus": 8}, demands, weights)


# The promises of S-I13, for whole tasks


@settings(max_examples=200, deadline=None)
@given(case=cases(), limit=limits)
def test_pareto_nobody_can_grow_and_nothing_is_given_twice(
    case: Case, limit: dict[str, int]
) -> None:
    capacity, demands, weights = case
    tasks = fill(capacity, demands, weights, limit)
    free = {
        name: amount - sum(tasks[tenant] * needs[name] for tenant, needs in demands.items())
        for name, amount in capacity.items()
    }
    assert min(free.values()) >= 0
    for tenant, needs in demands.items():
        assert tasks[tenant] <= limit.get(tenant, tasks[tenant])
        if tasks[tenant] < limit.get(tenant, tasks[tenant] + 1):
            assert any(needs[name] > free[name] for name in capacity)


@settings(max_examples=200, deadline=None)
@given(case=cases(), limit=limits)
def test_sharing_incentive_everyone_gets_its_part_of_the_whole(
    case: Case, limit: dict[str, int]
) -> None:
    capacity, demands, weights = case
    tasks = fill(capacity, demands, weights, limit)
    one_of_each = sum(dominant(capacity, needs) for needs in demands.values())
    for tenant, needs in demands.items():
        if tasks[tenant] < limit.get(tenant, tasks[tenant] + 1):
            share = tasks[tenant] * dominant(capacity, needs) / weights[tenant]
            assert share * sum(weights.values()) + one_of_each >= 1


@settings(max_examples=200, deadline=None)
@given(case=cases(least=2), limit=limits)
def test_envy_free_to_one_task_of_either(case: Case, limit: dict[str, int]) -> None:
    capacity, demands, weights = case
    tasks = fill(capacity, demands, weights, limit)
    for i, mine in demands.items():
        if tasks[i] >= limit.get(i, tasks[i] + 1):
            continue  # it has all it can use
        for j, theirs in demands.items():
            part = Fraction(weights[i], weights[j])
            with_theirs = min(
                tasks[j] * theirs[name] * part / amount for name, amount in mine.items() if amount
            )
            slack = part * (dominant(capacity, theirs) + dominant(capacity, mine))
            assert (with_theirs - tasks[i]) * dominant(capacity, mine) <= slack


@settings(max_examples=200, deadline=None)
@given(case=cases(least=2), limit=limits)
def test_single_resource_and_bottleneck_fairness(case: Case, limit: dict[str, int]) -> None:
    """Where all want the same resource most, it is divided evenly: no two shares of tenants that
    want more differ by more than one task, besides the rest that is too small for someone."""
    capacity, demands, weights = case
    first = next(iter(capacity))
    for needs in demands.values():  # make the first resource everyone's dominant one
        needs[first] = max(1, *(-(-a * capacity[first] // capacity[n]) for n, a in needs.items()))
        assume(needs[first] <= capacity[first])
    tasks = fill(capacity, demands, weights, limit)
    share = {t: tasks[t] * dominant(capacity, needs) / weights[t] for t, needs in demands.items()}
    for i, mine in demands.items():
        if tasks[i] < limit.get(i, tasks[i] + 1):
            for j, theirs in demands.items():
                one = (dominant(capacity, theirs) + dominant(capacity, mine)) / weights[j]
                assert share[j] <= share[i] + one


# Against the exact solution. A rest too small for one tenant may still hold several tasks of
# another, so demands here are of like size (1 to 3, or none), and many tasks fit.

FINE = 1000
NEAR = 10
"""In tasks, whatever FINE is: each refusal leaves less than three units, which others may use."""


@st.composite
def fine(draw: st.DrawFn, least: int = 0) -> Case:
    names = RESOURCES[: draw(st.integers(1, 3))]
    capacity = {name: draw(st.integers(FINE, 2 * FINE)) for name in names}
    demands: Demands = {}
    for number in range(draw(st.integers(2, 5))):
        needs = {name: draw(st.integers(least, 3)) for name in names}
        assume(any(needs.values()))
        demands[f"t{number}"] = needs
    return capacity, demands, {tenant: draw(st.sampled_from([1, 2])) for tenant in demands}


@settings(max_examples=150, deadline=None)
@given(case=fine(), limit=limits)
def test_whole_tasks_come_near_the_exact_solution(case: Case, limit: dict[str, int]) -> None:
    tasks, ideal = fill(*case, limit), exact(*case, limit)
    for tenant in case[1]:
        assert abs(tasks[tenant] - ideal[tenant]) <= NEAR


@settings(max_examples=150, deadline=None)
@given(case=fine(), lie=st.tuples(*[st.integers(0, 3)] * 3))
def test_strategy_proof_a_lie_earns_no_useful_tasks(case: Case, lie: tuple[int, int, int]) -> None:
    capacity, demands, weights = case
    told = dict(zip(capacity, lie, strict=False))
    assume(any(told.values()))
    liar = {**demands, "t0": told}

    def useful(tasks: Fraction | int) -> Fraction:
        truth = demands["t0"]
        return min(Fraction(tasks * told[name], truth[name]) for name in truth if truth[name])

    assert useful(exact(capacity, liar, weights)["t0"]) <= exact(capacity, demands, weights)["t0"]
    honest = fill(capacity, demands, weights)["t0"]
    assert useful(fill(capacity, liar, weights)["t0"]) <= honest + NEAR


@settings(max_examples=150, deadline=None)
@given(case=fine(least=1))
def test_population_monotonic_nobody_loses_when_one_leaves(case: Case) -> None:
    """Where everyone needs some of everything."""
    capacity, demands, weights = case
    fewer = {tenant: needs for tenant, needs in demands.items() if tenant != "t0"}
    before, after = fill(capacity, demands, weights), fill(capacity, fewer, weights)
    ideal, ideal_after = exact(capacity, demands, weights), exact(capacity, fewer, weights)
    for tenant in fewer:
        assert ideal_after[tenant] >= ideal[tenant]
        assert after[tenant] >= before[tenant] - NEAR


def test_one_who_leaves_can_cost_another_where_they_need_different_things() -> None:
    """Not a fault of whole tasks: the exact solution does it. While `a` holds `b` down on GPUs,
    `c` has the CPUs that `b` cannot use."""
    capacity = {"cpus": 3600, "gpus": 1200}
    demands = {"a": {"gpus": 1}, "b": {"cpus": 2, "gpus": 1}, "c": {"cpus": 1}}
    fewer = {tenant: demands[tenant] for tenant in ("b", "c")}
    assert fill(capacity, demands)["c"] == exact(capacity, demands, {})["c"] == 2400
    assert fill(capacity, fewer)["c"] == exact(capacity, fewer, {})["c"] == 2160


@settings(max_examples=100, deadline=None)
@given(case=fine())
def test_the_exact_solution_is_the_one_with_the_promises(case: Case) -> None:
    """The oracle judged in its turn: sharing incentive, envy-freeness, Pareto, without slack."""
    capacity, demands, weights = case
    tasks = exact(capacity, demands, weights)
    for i, mine in demands.items():
        share = tasks[i] * dominant(capacity, mine)
        assert share >= Fraction(weights[i], sum(weights.values()))
        full = [
            n for n in capacity if sum(tasks[t] * demands[t][n] for t in demands) == capacity[n]
        ]
        assert any(mine[name] for name in full)
        for j, theirs in demands.items():
            part = Fraction(weights[i], weights[j])
            assert tasks[i] >= min(tasks[j] * theirs[n] * part / mine[n] for n in mine if mine[n])
