"""Who speaks to whom, and with which weights: pure functions of the members' number.

    ring            i ↔ i±1
    exponential     i → i+1, i+2, i+4 …          (undirected: both ways)
    complete        everybody with everybody
    regular         a random graph of one degree, the same on every member (seeded)
    bipartite       even ↔ odd; only the even ones initiate

Mixing weights are of Metropolis and Hastings: w_ij = 1 / (1 + max(degree i, degree j)), so that
two neighbours who know each other's degree agree on their weight without knowing the graph, and
any set of such pairs is symmetric and doubly stochastic. A ring has 1/3 each.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from windlass.core.errors import InvalidInput

Topology = Literal["ring", "exponential", "complete", "regular", "bipartite"]
Edge = tuple[int, int]
TOPOLOGIES: tuple[Topology, ...] = ("ring", "exponential", "complete", "regular", "bipartite")


def links(topology: str, members: Sequence[int], *, degree: int = 3, seed: int = 0) -> set[Edge]:
    """The undirected edges (lower, higher) among these members, who may be any survivors."""
    ranks = sorted(members)
    return {
        (min(ranks[a], ranks[b]), max(ranks[a], ranks[b]))
        for a, b in _positions(topology, len(ranks), degree, seed)
        if a != b
    }


def arrows(topology: str, members: Sequence[int], *, degree: int = 3, seed: int = 0) -> set[Edge]:
    """The directed edges (from, to): one way round for `ring` and `exponential`, else both."""
    ranks = sorted(members)
    one_way = topology in ("ring", "exponential")
    return {
        pair
        for a, b in _positions(topology, len(ranks), degree, seed)
        if a != b
        for pair in ((ranks[a], ranks[b]), (ranks[b], ranks[a]))[: 1 if one_way else 2]
    }


def neighbours(edges: Iterable[Edge], member: int) -> list[int]:
    """Sorted; of undirected edges."""
    return sorted({b if a == member else a for a, b in edges if member in (a, b)})


def is_active(members: Iterable[int], member: int) -> bool:
    """In a bipartite graph: whether this one initiates."""
    return sorted(members).index(member) % 2 == 0


def weight(degree: int, other: int) -> float:
    """Of a pair, from the degrees of both."""
    return 1.0 / (1 + max(degree, other))


def mixing(edges: Iterable[Edge], members: Sequence[int]) -> Tensor:
    """W of D-PSGD over the sorted members: symmetric, doubly stochastic."""
    ranks = sorted(members)
    place = {rank: at for at, rank in enumerate(ranks)}
    pairs = {(min(e), max(e)) for e in edges}
    degrees = {rank: len(neighbours(pairs, rank)) for rank in ranks}
    found = torch.zeros(len(ranks), len(ranks), dtype=torch.float64)
    for a, b in pairs:
        found[place[a], place[b]] = found[place[b], place[a]] = weight(degrees[a], degrees[b])
    for at in range(len(ranks)):
        found[at, at] = 1.0 - found[at].sum()
    return found


def pushing(edges: Iterable[Edge], members: Sequence[int]) -> Tensor:
    """P of push-sum: member j keeps 1/(1+out) of itself and sends as much along each arrow.
    Column-stochastic: column j is what becomes of j."""
    ranks = sorted(members)
    place = {rank: at for at, rank in enumerate(ranks)}
    found = torch.zeros(len(ranks), len(ranks), dtype=torch.float64)
    for rank in ranks:
        targets = [b for a, b in edges if a == rank]
        for target in [rank, *targets]:
            found[place[target], place[rank]] = 1.0 / (1 + len(targets))
    return found


def check_doubly_stochastic(weights: Tensor, tolerance: float = 1e-12) -> None:
    """Raises InvalidInput that names the first row or column that does not fit."""
    if not torch.equal(weights, weights.T):
        raise InvalidInput("weights: W is its own transpose (found one that is not)")
    check_column_stochastic(weights, tolerance)


def check_column_stochastic(weights: Tensor, tolerance: float = 1e-12) -> None:
    if weights.dim() != 2 or weights.shape[0] != weights.shape[1]:
        raise InvalidInput(f"weights: a square matrix (found {tuple(weights.shape)})")
    if bool((weights < -tolerance).any()):
        raise InvalidInput(f"weights: none below 0 (found {float(weights.min()):g})")
    for at, total in enumerate(weights.sum(0).tolist()):
        if abs(total - 1) > tolerance:
            raise InvalidInput(f"weights: column {at} adds up to 1 (found {total:.15g})")


def lambda_2(weights: Tensor) -> float:
    """The second largest size of an eigenvalue: what one mixing leaves of the disagreement."""
    if weights.shape[0] < 2:
        return 0.0
    sizes = torch.linalg.eigvals(weights).abs().sort(descending=True).values
    return float(sizes[1])


def components(edges: Iterable[Edge], members: Iterable[int]) -> list[list[int]]:
    """The connected parts, each sorted, by their lowest member."""
    parts = {member: {member} for member in members}
    for a, b in edges:
        if a in parts and b in parts and parts[a] is not parts[b]:
            joined = parts[a] | parts[b]
            parts.update({member: joined for member in joined})
    return sorted({min(part): sorted(part) for part in parts.values()}.values())


def distance(replicas: Mapping[int, Tensor]) -> float:
    """The consensus distance: the largest difference of an element from the mean."""
    stacked = torch.stack([replicas[rank] for rank in sorted(replicas)])
    return float((stacked - stacked.mean(0)).abs().max()) if stacked.numel() else 0.0


def _positions(topology: str, count: int, degree: int, seed: int) -> set[Edge]:
    if topology == "ring":
        return {(at, (at + 1) % count) for at in range(count)} if count > 1 else set()
    if topology == "exponential":
        hops = [1 << power for power in range(count.bit_length()) if 1 << power < count]
        return {(at, (at + hop) % count) for at in range(count) for hop in hops}
    if topology == "complete":
        return {(a, b) for b in range(count) for a in range(b)}
    if topology == "bipartite":
        return {(a, b) for a in range(0, count, 2) for b in range(1, count, 2)}
    if topology == "regular":
        return _regular(count, degree, seed)
    raise InvalidInput(
        f"topology: there is no {topology!r}", hint=f"known: {', '.join(TOPOLOGIES)}"
    )


def _regular(count: int, degree: int, seed: int) -> set[Edge]:
    """Connected and of one degree (the next lower one that fits): a ring's or a complete graph's
    edges, crossed at random in ways that keep both."""
    degree = min(degree, count - 1)
    if count * degree % 2:
        degree -= 1
    if degree < 2:
        return _positions("ring", count, degree, seed)
    pairs = {
        _pair(at, at + hop, count) for at in range(count) for hop in range(1, degree // 2 + 1)
    }
    if degree % 2:
        pairs |= {_pair(at, at + count // 2, count) for at in range(count)}
    dice = random.Random(seed)
    for _ in range(10 * len(pairs)):
        (a, b), (c, d) = dice.sample(sorted(pairs), 2)
        crossed = {_pair(a, d, count), _pair(c, b, count)}
        if len({a, b, c, d}) < 4 or crossed & pairs:
            continue
        changed = pairs - {(a, b), (c, d)} | crossed
        if len(components(changed, range(count))) == 1:
            pairs = changed
    return pairs


def _pair(a: int, b: int, count: int) -> Edge:
    a, b = a % count, b % count
    return (a, b) if a < b else (b, a)
