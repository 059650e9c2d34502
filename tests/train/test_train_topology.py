"""Graphs and weights of gossip: stochastic as they must be, and they contract as they should."""

from __future__ import annotations

import pytest
import torch

from windlass.core.errors import InvalidInput
from windlass.train.policies import topology
from windlass.train.policies.patience import Patience

SIZES = (1, 2, 3, 4, 5, 8, 9)


@pytest.mark.parametrize("name", topology.TOPOLOGIES)
@pytest.mark.parametrize("size", SIZES)
def test_weights_are_doubly_stochastic_over_any_survivors(name: str, size: int) -> None:
    members = [3 * n + 1 for n in range(size)]
    edges = topology.links(name, members, degree=3, seed=7)
    weights = topology.mixing(edges, members)
    topology.check_doubly_stochastic(weights)
    assert len(topology.components(edges, members)) == 1, "in one piece"
    assert topology.lambda_2(weights) < 1 - 1e-9 or size == 1


@pytest.mark.parametrize("name", topology.TOPOLOGIES)
@pytest.mark.parametrize("size", SIZES)
def test_pushing_is_column_stochastic_and_in_one_piece(name: str, size: int) -> None:
    members = list(range(size))
    edges = topology.arrows(name, members, degree=3, seed=7)
    weights = topology.pushing(edges, members)
    topology.check_column_stochastic(weights)
    if size > 1:
        reached = torch.linalg.matrix_power(weights, 4 * size)
        assert bool((reached > 0).all()), "everybody's parameters reach everybody"


def test_a_ring_has_a_third_each_and_its_known_lambda_2() -> None:
    members = list(range(6))
    weights = topology.mixing(topology.links("ring", members), members)
    assert weights[0].tolist() == pytest.approx([1 / 3, 1 / 3, 0, 0, 0, 1 / 3])
    expected = 1 / 3 + 2 / 3 * torch.cos(torch.tensor(2 * torch.pi / 6, dtype=torch.float64))
    assert topology.lambda_2(weights) == pytest.approx(float(expected), rel=1e-12)


def test_a_complete_graph_agrees_at_once() -> None:
    members = list(range(5))
    weights = topology.mixing(topology.links("complete", members), members)
    assert topology.lambda_2(weights) < 1e-12


@pytest.mark.parametrize("name", topology.TOPOLOGIES)
def test_disagreement_contracts_by_lambda_2(name: str) -> None:
    """1.4: g = 0, D-PSGD contracts by lambda_2(W), and keeps the sum."""
    torch.manual_seed(3)
    members = list(range(8))
    weights = topology.mixing(topology.links(name, members, seed=2), members)
    rate = topology.lambda_2(weights)
    x = torch.randn(8, 16, dtype=torch.float64)
    total = x.sum(0)
    spread = (x - x.mean(0)).norm()
    for _ in range(10):
        x = weights @ x
        found = (x - x.mean(0)).norm()
        assert found <= rate * spread * (1 + 1e-12) + 1e-14
        spread = found
    assert torch.allclose(x.sum(0), total, rtol=0, atol=1e-13)
    slowest = torch.linalg.eigh(weights).eigenvectors
    values = torch.linalg.eigvalsh(weights).abs()
    order = values.argsort(descending=True)
    mode = slowest[:, order[1]]
    assert (weights @ mode).norm() == pytest.approx(rate, rel=1e-12, abs=1e-15)


def test_random_pairs_lose_one_part_in_p_minus_one_of_the_variance() -> None:
    """1.4: E[V'] = V (1 - 1/(p-1)), as the mean of the squared pair averagings over all pairs."""
    for size in (2, 3, 5, 8):
        pairs = [(a, b) for b in range(size) for a in range(b)]
        mean_square = torch.zeros(size, size, dtype=torch.float64)
        for a, b in pairs:
            w = torch.eye(size, dtype=torch.float64)
            w[a, a] = w[b, b] = w[a, b] = w[b, a] = 0.5
            mean_square += w.T @ w / len(pairs)
        x = torch.randn(size, 4, dtype=torch.float64)
        x -= x.mean(0)
        left = float((x * (mean_square @ x)).sum() / (x * x).sum())
        assert left == pytest.approx(1 - 1 / (size - 1), abs=1e-12)


def test_a_regular_graph_is_regular_connected_and_the_same_everywhere() -> None:
    members = list(range(10))
    edges = topology.links("regular", members, degree=3, seed=5)
    assert {len(topology.neighbours(edges, m)) for m in members} == {3}
    assert edges == topology.links("regular", members, degree=3, seed=5)
    assert edges != topology.links("regular", members, degree=3, seed=6)


def test_a_bipartite_graph_has_no_edge_within_a_side() -> None:
    members = [0, 2, 3, 7, 9]
    for a, b in topology.links("bipartite", members):
        assert topology.is_active(members, a) != topology.is_active(members, b)


def test_what_is_not_stochastic_is_refused_with_the_column() -> None:
    weights = torch.full((2, 2), 0.4, dtype=torch.float64)
    with pytest.raises(InvalidInput, match="column 0 adds up to 1"):
        topology.check_doubly_stochastic(weights)
    with pytest.raises(InvalidInput, match="transpose"):
        topology.check_doubly_stochastic(torch.tensor([[0.5, 0.1], [0.5, 0.9]]))
    with pytest.raises(InvalidInput, match="there is no 'star'") as caught:
        topology.links("star", [0, 1])
    assert "ring" in caught.value.hint


def test_parts_and_the_distance_within_each() -> None:
    assert topology.components({(0, 1), (2, 3), (3, 4)}, range(6)) == [[0, 1], [2, 3, 4], [5]]
    replicas = {0: torch.tensor([1.0, 2.0]), 1: torch.tensor([3.0, 2.0])}
    assert topology.distance(replicas) == 1.0


def test_patience_follows_what_was_observed() -> None:
    patience = Patience(30.0, floor_seconds=0.01)
    assert patience.seconds == 30.0, "nothing is known yet"
    for _ in range(50):
        patience.arrived(0.1)
    usual = patience.seconds
    assert 0.1 <= usual < 0.2
    patience.missed()
    assert patience.seconds == pytest.approx(2 * usual)
    patience.arrived(0.1)
    assert patience.seconds == pytest.approx(usual, rel=0.1)
    for _ in range(50):
        patience.arrived(5.0)
    assert patience.seconds >= 5.0
