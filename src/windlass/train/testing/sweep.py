"""Every plan of a small graph, and its time straight from the equations: the planner's oracle.

Nothing of the planner's own is used, so that both would have to be wrong in the same way.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

from windlass.train.planning.profile import BlockCost, Profile

Stages = list[tuple[set[int], int]]
"""Blocks and replicas of each."""


def random_profile(draw: random.Random, most: int = 8, *, chain: bool = False) -> Profile:
    """Connected, with skips and branches, zeros among its numbers."""
    count = draw.randint(1, most)
    edges = {(at if chain else draw.randrange(at + 1), at + 1) for at in range(count - 1)}
    for _ in range(0 if chain else draw.randrange(count)):
        start, end = sorted(draw.sample(range(count), 2))
        edges.add((start, end))
    blocks = tuple(
        BlockCost(
            f"b{at}", draw.choice((0.0, draw.uniform(0, 20))), draw.uniform(0, 40),
            draw.choice((0, 10**5, 10**7)), draw.choice((0, 10**6, 10**8)), 10**6,
        )
        for at in range(count)
    )  # fmt: skip
    return Profile(8, blocks, tuple(sorted(edges)))


def every_plan(profile: Profile, workers: int) -> Iterator[Stages]:
    """Every row of stages that is closed under what blocks need, with every share of workers."""
    count = len(profile.blocks)

    def rows(done: frozenset[int], left: int) -> Iterator[Stages]:
        rest = [at for at in range(count) if at not in done]
        if not rest:
            if not left:
                yield []
            return
        for size in range(1, len(rest) + 1):
            for more in itertools.combinations(rest, size):
                after = done | set(more)
                if all(start in after for start, end in profile.edges if end in after):
                    for replicas in range(1, left + 1):
                        for others in rows(after, left - replicas):
                            yield [(set(more), replicas), *others]

    yield from rows(frozenset(), workers)


def slowest_ms(profile: Profile, plan: Stages, bytes_per_s: float, overlap: bool) -> float:
    """Between two batches: the slowest of stages and transfers."""
    rate, blocks = bytes_per_s / 1000, profile.blocks
    done: set[int] = set()
    times = [0.0]
    for members, m in plan:
        time = sum(blocks[at].forward_ms + blocks[at].backward_ms for at in members)
        sync = 4 * (m - 1) * sum(blocks[at].parameter_bytes for at in members) / (m * rate)
        times.append((max(time, sync) if overlap else time + sync) / m)
        done |= members
        across = {start for start, end in profile.edges if start in done and end not in done}
        times.append(2 * sum(blocks[at].activation_bytes for at in across) / rate)
    return max(times)


def held_bytes(profile: Profile, plan: Stages) -> float:
    """On the worker that holds most, under PipeDream."""
    workers, before, most = sum(m for _, m in plan), 0, 0.0
    for members, m in plan:
        flight = (workers - 1 - before) // m + 1
        weights = sum(profile.blocks[at].parameter_bytes for at in members)
        saved = sum(profile.blocks[at].saved_bytes for at in members)
        most = max(most, flight * (weights + saved) + weights * (1 + profile.optimiser_factor))
        before += m
    return most
