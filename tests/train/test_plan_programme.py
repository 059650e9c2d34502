"""Section 3: PipeDream's programme against every plan there is, on small graphs."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from windlass.train.planning.costless import costless
from windlass.train.planning.levels import solve_levels
from windlass.train.planning.links import parse_link
from windlass.train.planning.problem import (
    Memory,
    Piece,
    Problem,
    problem_of,
    warm_up,
)  # fmt: skip
from windlass.train.planning.profile import BlockCost, Profile
from windlass.train.planning.programme import Table, solve
from windlass.train.planning.states import States, states_of
from windlass.train.planning.threshold import solve_by_threshold
from windlass.train.testing.sweep import every_plan, held_bytes, random_profile, slowest_ms

PROFILES = 60


def as_plan(states: States, pieces: list[Piece]) -> list[tuple[set[int], int]]:
    return [(set(states.blocks(each.start, each.end)), each.replicas) for each in pieces]


@pytest.mark.parametrize("seed", range(PROFILES))
def test_the_programme_finds_the_best_of_all_plans(seed: int) -> None:
    draw = random.Random(seed)
    workers = draw.randint(1, 4)
    profile = random_profile(draw, 7 if workers < 4 else 6)
    link = parse_link(draw.choice(("200Mbit", "1Gbit", "10Gbit", "80Gbit")))
    overlap = draw.random() < 0.5
    states = states_of(profile)
    assert states.exact
    problem = problem_of(states, workers, link, overlap)
    plans = list(every_plan(profile, workers))
    best = min(slowest_ms(profile, plan, link.bytes_per_s, overlap) for plan in plans)
    for pieces in (solve(problem), solve_by_threshold(problem)):
        assert pieces is not None
        assert sum(each.replicas for each in pieces) == workers
        found = slowest_ms(profile, as_plan(states, pieces), link.bytes_per_s, overlap)
        assert found == pytest.approx(best, rel=1e-9, abs=1e-9)
        assert problem.bottleneck_ms(pieces) == pytest.approx(found, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("seed", range(PROFILES))
def test_a_limit_of_memory_leaves_the_best_of_the_plans_that_fit(seed: int) -> None:
    draw = random.Random(1000 + seed)
    workers = draw.randint(1, 4)
    profile = random_profile(draw, 6)
    link, overlap = parse_link("1Gbit"), draw.random() < 0.5
    plans = list(every_plan(profile, workers))
    limit = draw.choice(sorted(held_bytes(profile, plan) for plan in plans)) * draw.choice(
        (1, 0.99)
    )
    fitting = [plan for plan in plans if held_bytes(profile, plan) <= limit]
    states = states_of(profile)
    problem = problem_of(states, workers, link, overlap, Memory(limit, profile.optimiser_factor))
    for pieces in (solve(problem), solve_by_threshold(problem)):
        if not fitting:
            assert pieces is None
            continue
        assert pieces is not None
        best = min(slowest_ms(profile, plan, link.bytes_per_s, overlap) for plan in fitting)
        plan = as_plan(states, pieces)
        assert held_bytes(profile, plan) <= limit
        assert slowest_ms(profile, plan, link.bytes_per_s, overlap) == pytest.approx(
            best, rel=1e-9, abs=1e-9
        )


@pytest.mark.parametrize("seed", range(30))
def test_both_ways_to_solve_it_agree_on_larger_graphs(seed: int) -> None:
    draw = random.Random(2000 + seed)
    profile = random_profile(draw, 30)
    workers = draw.choice((5, 16, 33))
    limit = draw.choice((None, 4e8, 1.2e9))
    problem = problem_of(
        states_of(profile, 300), workers, parse_link("1Gbit"), True, Memory(limit)
    )
    one, other = solve(problem), solve_by_threshold(problem)
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        assert problem.bottleneck_ms(one) == problem.bottleneck_ms(other)
        assert len(one) == len(other)


def test_on_equal_times_there_are_fewer_stages() -> None:
    blocks = tuple(BlockCost(f"b{at}", 1.0, 1.0, 0, 0, 0) for at in range(4))
    problem = _problem(Profile(1, blocks, ((0, 1), (1, 2), (2, 3))), 4)
    assert [each.replicas for each in solve(problem) or ()] == [4]


def test_a_branch_may_lie_on_either_side_of_a_cut_and_a_producer_counts_once() -> None:
    """a feeds b, c and d; with b alone behind the cut only what a gives crosses it."""
    sizes = (100, 7, 9, 1)
    blocks = tuple(BlockCost(f"b{at}", 1, 1, size, 0, 0) for at, size in enumerate(sizes))
    states = states_of(Profile(1, blocks, ((0, 1), (0, 2), (0, 3), (1, 3), (2, 3))))
    cuts = {
        tuple(np.flatnonzero(row)): float(cut)
        for row, cut in zip(states.members, states.cut_bytes, strict=True)
    }
    assert cuts == {
        (): 0, (0,): 100, (0, 1): 107, (0, 2): 109, (0, 1, 2): 116, (0, 1, 2, 3): 0,
    }  # fmt: skip


def test_the_table_solves_every_stretch_at_once() -> None:
    """What planning on nodes of several workers needs: A(i→j, m) for all i and j."""
    draw = random.Random(5)
    profile = random_profile(draw, 6, chain=True)
    problem = _problem(profile, 3)
    table = Table(problem, np.arange(problem.count))
    whole = table.pieces(0, problem.count - 1, 3)
    assert whole is not None
    assert problem.bottleneck_ms(whole) == table.best[0, -1, 3]
    for start in range(problem.count):
        for end in range(start + 1, problem.count):
            pieces = table.pieces(start, end, 1)
            assert pieces == [Piece(start, end, 1)]
            assert table.best[start, end, 1] == problem.time_ms[start, end]


def test_wide_graphs_keep_some_cuts_and_say_so() -> None:
    """Twelve branches of ten blocks have 11**12 downsets."""
    edges, count = [], 1
    tails = []
    for _ in range(12):
        last = 0
        for _ in range(10):
            edges.append((last, count))
            last, count = count, count + 1
        tails.append(last)
    edges += [(tail, count) for tail in tails]
    blocks = tuple(BlockCost(f"b{at}", 1, 2, 1000, 1000, 10) for at in range(count + 1))
    profile = Profile(1, blocks, tuple(edges))
    states = states_of(profile)
    assert not states.exact and states.count <= 1200
    pieces = solve(problem_of(states, 8, parse_link("1Gbit"), True))
    assert pieces is not None
    done: set[int] = set()
    for members, _ in as_plan(states, pieces):
        done |= members
        assert all(start in done for start, end in profile.edges if end in done)
    assert done == set(range(len(blocks)))


def recurrent(draw: random.Random, layers: int) -> Profile:
    """As tracing writes a recurrent network down: each layer gives a row of values, of which some
    are taken out and never used, every other one is added to what went around it, and a state
    that nobody computes goes in."""
    blocks, edges = [BlockCost("state", 0.0, 0.0, 0, 0, 0)], []

    def more(time: float, activation: int, *needs: int) -> int:
        edges.extend((start, len(blocks)) for start in needs)
        blocks.append(BlockCost(f"b{len(blocks)}", time / 3, time * 2 / 3, activation, 0, 0))
        return len(blocks) - 1

    last = more(draw.uniform(1, 20), draw.randint(10**5, 10**7), 0)
    for number in range(layers):
        size = draw.randint(10**5, 10**7)
        own = more(0.0, 0, 0)
        layer = more(draw.uniform(1, 20), size + 2000, last, own)
        first = more(0.0, size, layer)
        more(0.0, 1000, layer)
        more(0.0, 1000, layer)
        last = more(0.0, size, first, last) if number % 2 else first
    return Profile(8, tuple(blocks), tuple(edges))


@pytest.mark.parametrize("seed", range(10))
def test_what_costs_nothing_makes_no_graph_too_wide(seed: int) -> None:
    """As the published profile of GNMT, which has eight values that nobody uses. The oracle tries
    all its downsets."""
    draw = random.Random(4000 + seed)
    profile = recurrent(draw, 3)
    link, workers = parse_link(draw.choice(("200Mbit", "1Gbit", "10Gbit"))), draw.randint(2, 6)
    every = states_of(profile)
    few = states_of(profile, 100)
    assert every.exact and every.count > 200
    assert few.exact and few.count <= 100
    best, found = (problem_of(states, workers, link, True) for states in (every, few))
    assert found.bottleneck_ms(solve(found) or []) == pytest.approx(
        best.bottleneck_ms(solve(best) or []), rel=1e-12
    )


@pytest.mark.parametrize("seed", range(120))
def test_of_all_plans_one_that_takes_along_what_costs_nothing_is_as_fast(seed: int) -> None:
    """Of the blocks without time some are dear to send: those stay where they were. A stage of
    nothing but such blocks, in which workers stand idle, is no plan."""
    draw = random.Random(5000 + seed)
    while len((profile := random_profile(draw, 7)).blocks) < 5:
        pass
    blocks = tuple(
        replace(each, forward_ms=0.0, backward_ms=0.0, parameter_bytes=0)
        if draw.random() < 0.5
        else replace(each, parameter_bytes=10**8)
        for each in profile.blocks
    )
    profile = replace(profile, blocks=blocks)
    nothing = {at for at, each in enumerate(blocks) if not each.time_ms + each.parameter_bytes}
    free = costless(profile)
    needs = {at: {start for start, end in profile.edges if end == at} for at in free}

    def takes_along(plan: list[tuple[set[int], int]]) -> bool:
        done: set[int] = set()
        for members, _ in plan:
            done |= members
            if any(at not in done and needs[at] <= done for at in free):
                return False
        return True

    plans = [
        plan
        for plan in every_plan(profile, draw.randint(2, 4))
        if all(not members <= nothing for members, _ in plan)
    ]
    speed = parse_link(draw.choice(("1Gbit", "10Gbit"))).bytes_per_s
    best = min((slowest_ms(profile, plan, speed, True) for plan in plans), default=0.0)
    kept = [slowest_ms(profile, plan, speed, True) for plan in plans if takes_along(plan)]
    assert min(kept, default=0.0) == pytest.approx(best, rel=1e-12, abs=1e-12)


def test_a_chain_of_thousands_is_thinned_to_its_cheapest_cuts() -> None:
    blocks = tuple(
        BlockCost(f"b{at}", 1, 1, 10 if at % 100 == 50 else 10**6, 0, 0) for at in range(5000)
    )
    states = states_of(Profile(1, blocks, tuple((at, at + 1) for at in range(4999))))
    assert states.count <= 1200 and not states.exact
    sizes = set(states.members.sum(axis=1).tolist())
    assert {0, 5000} <= sizes
    assert {at + 1 for at in range(50, 5000, 100)} <= sizes, "every cheap cut is there"


def test_thousands_of_workers_are_planned_in_a_moment() -> None:
    draw = random.Random(9)
    profile = random_profile(draw, 8, chain=True)
    problem = _problem(profile, 4000)
    pieces = solve(problem)
    assert pieces is not None and sum(each.replicas for each in pieces) == 4000
    assert math.isfinite(problem.bottleneck_ms(pieces))


def test_the_warm_up_is_that_of_round_robin() -> None:
    """1.9: floor((R - 1 - workers before) / replicas)."""
    assert [warm_up(4, 0, 3), warm_up(4, 3, 1)] == [1, 0]
    assert [warm_up(4, before, 1) for before in range(4)] == [3, 2, 1, 0]


def _problem(profile: Profile, workers: int) -> Problem:
    return problem_of(states_of(profile), workers, parse_link("1Gbit"), True)


# -- nodes of several workers -----------------------------------------------------------------


def rows_of(first: int, end: int, workers: int) -> list[list[tuple[int, int, int]]]:
    """Every row of stretches of a chain with every share of the workers."""
    if first == end:
        return [[]] if not workers else []
    return [
        [(first, middle, replicas), *others]
        for middle in range(first + 1, end + 1)
        for replicas in range(1, workers + 1)
        for others in rows_of(middle, end, workers - replicas)
    ]


@pytest.mark.parametrize("seed", range(30))
def test_on_nodes_of_several_workers_it_is_the_best_of_the_nested_plans(seed: int) -> None:
    """Within a node on its fast link, then between nodes with that as the time of a stage."""
    draw = random.Random(3000 + seed)
    profile = random_profile(draw, 5, chain=True)
    per_node, nodes = draw.choice(((2, 2), (2, 3), (3, 2)))
    inside, between = parse_link("20Gbit"), parse_link("1Gbit")
    overlap = draw.random() < 0.5
    blocks = profile.blocks

    def stage(time: float, weights: float, m: int, rate: float, share: float = 1.0) -> float:
        sync = 4 * (m - 1) * weights / (m * rate) * 1000 * share
        return (max(time, sync) if overlap else time + sync) / m

    def weights(first: int, end: int) -> float:
        return sum(block.parameter_bytes for block in blocks[first:end])

    def cut(at: int, rate: float) -> float:
        return 2 * blocks[at - 1].activation_bytes / rate * 1000 if at else 0.0

    def within(first: int, end: int) -> float:
        rate = inside.bytes_per_s
        return min(
            max(
                max(
                    stage(sum(b.time_ms for b in blocks[a:z]), weights(a, z), m, rate),
                    cut(a, rate) if a > first else 0.0,
                )
                for a, z, m in row
            )
            for row in rows_of(first, end, per_node)
        )

    rate = between.bytes_per_s
    best = min(
        max(
            max(stage(within(a, z), weights(a, z), m, rate, 1 / per_node), cut(a, rate))
            for a, z, m in row
        )
        for row in rows_of(0, len(blocks), nodes)
    )
    problem = problem_of(states_of(profile), per_node * nodes, between, overlap)
    found = solve_levels(problem, per_node, inside)
    assert found is not None
    assert found.slowest_ms == pytest.approx(best, rel=1e-9, abs=1e-9)
    assert sum(piece.replicas for piece in found.pieces) == per_node * nodes
    assert [piece.end for piece in found.pieces[:-1]] == [p.start for p in found.pieces[1:]]
