"""Versions of a stage's weights: kept while they are needed, no longer, and never overwritten."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from windlass.core.errors import TrainingFailed
from windlass.train.policies import schedules, versions
from windlass.train.policies.schedules import Lane
from windlass.train.policies.versions import Rule, Versions

REPLICAS = st.lists(st.integers(1, 4), min_size=1, max_size=5)


def weights(value: float = 1.0) -> list[nn.Parameter]:
    return [nn.Parameter(torch.full((3,), value, dtype=torch.float64)) for _ in range(2)]


def add_one(parameters: Sequence[Tensor]) -> None:
    with torch.no_grad():
        for each in parameters:
            each.add_(1.0)


def test_a_batch_goes_back_with_what_it_went_forward_with() -> None:
    """Through autograd: the gradient of w·w·x is 2·w·x at the forward's w, whatever w is now, and
    the update in place trips no counter."""
    own = weights()
    kept = Versions(own, bound=3, rule=versions.newest)
    results = {}
    for batch in (0, 1, 2):
        leaves = kept.pin(batch).leaves
        results[batch] = leaves, sum(((leaf * leaf).sum() for leaf in leaves), torch.zeros(()))
        if batch < 2:
            kept.update(lambda: add_one(own), batch + 1)
    assert kept.alive == (0, 1, 2) and kept.newest == 2
    for batch, (leaves, total) in results.items():
        assert kept.check(batch, leaves).number == batch
        found = torch.autograd.grad(total, leaves)
        assert all(torch.equal(each, torch.full_like(each, 2.0 * (batch + 1))) for each in found)
        kept.unpin(batch, 3)
    assert kept.alive == (2,)
    assert torch.equal(own[0], torch.full((3,), 3.0, dtype=torch.float64))


def test_nothing_is_copied_where_nothing_is_in_flight() -> None:
    """As at the last stage."""
    own = weights()
    kept = Versions(own, bound=1, rule=versions.newest)
    memory = [each.data_ptr() for each in own]
    for batch in range(3):
        leaves = kept.pin(batch).leaves
        kept.check(batch, leaves)
        kept.unpin(batch, batch + 1)
        kept.update(lambda: add_one(own), batch + 1)
    assert [each.data_ptr() for each in own] == memory and kept.most_alive == 1


def test_the_newest_version_is_the_parameters_own_memory() -> None:
    own = weights()
    kept = Versions(own, bound=2, rule=versions.newest)
    leaves = kept.pin(0).leaves
    assert [each.data_ptr() for each in leaves] == [each.data_ptr() for each in own]
    kept.update(lambda: add_one(own), 1)
    assert all(a.data_ptr() != b.data_ptr() for a, b in zip(leaves, own, strict=True))


def test_a_lost_stash_is_an_error_not_a_wrong_gradient() -> None:
    """1.9, failure: asserted on every backward. Each way to lose one is put in."""
    own = weights()
    kept = Versions(own, bound=3, rule=versions.newest)
    with pytest.raises(TrainingFailed, match="batch 7 goes back without a version"):
        kept.check(7, ())
    leaves = kept.pin(0).leaves
    with pytest.raises(TrainingFailed, match="other weights than version 0"):
        kept.check(0, tuple(each.clone() for each in leaves))
    with pytest.raises(TrainingFailed, match="in flight already"):
        kept.pin(0)
    with pytest.raises(TrainingFailed, match="written to with 0 in flight"):
        kept.restart(0)
    kept.update(lambda: add_one(own), 1)
    own[1].data = leaves[1].data  # an update that took the stash's memory
    with pytest.raises(TrainingFailed, match="version 0 of the weights was overwritten"):
        kept.check(0, leaves)
    del kept._alive[0]
    with pytest.raises(TrainingFailed, match="other weights than version 0"):
        kept.check(0, leaves)


def test_more_versions_than_the_bound_are_an_error() -> None:
    own = weights()
    kept = Versions(own, bound=2, rule=versions.newest)
    kept.pin(0)
    kept.update(lambda: add_one(own), 1)
    kept.pin(1)
    with pytest.raises(TrainingFailed, match=r"2 at most \(alive are 0, 1, 2\)"):
        kept.update(lambda: add_one(own), 2)


def test_frozen_parameters_ask_for_no_gradient() -> None:
    own = weights()
    own[0].requires_grad_(False)
    leaves = Versions(own, bound=1, rule=versions.newest).pin(0).leaves
    assert [each.requires_grad for each in leaves] == [False, True]


# -- every order, every layout ----------------------------------------------------------------


def follow(lane: Lane, rule: Rule, bound: int, batches: int) -> list[tuple[int, int]]:
    """A lane's order with nothing but its versions: (batch, version at its forward)."""
    own = weights()[:1]
    kept = Versions(own, bound=bound, rule=rule, number=lane.version)
    used: dict[int, Sequence[Tensor]] = {}
    found = []
    for turn in range(batches + 1):
        for kind, _, number in lane.let_in() if turn < batches else lane.drain():
            if kind == "F":
                version = kept.pin(number)
                used[number] = version.leaves
                found.append((number, version.number))
            elif kind == "B":
                kept.check(number, used.pop(number))
                kept.unpin(number, lane.next_of_mine)
            else:
                assert number == kept.newest
                kept.update(lambda: add_one(own), lane.next_of_mine)
    assert not used and kept.newest == lane.version
    assert torch.equal(own[0], torch.full((3,), 1.0 + kept.newest, dtype=torch.float64))
    return found


@settings(max_examples=60, deadline=None)
@given(replicas=REPLICAS, batches=st.integers(1, 40), overlap=st.booleans(), sync=st.booleans())
def test_versions_are_there_within_their_bound_in_any_layout(
    replicas: list[int], batches: int, overlap: bool, sync: bool
) -> None:
    """1.9 (1), (2)."""
    held: dict[int, set[int]] = {}
    for stage, count in enumerate(replicas):
        rule: Rule = versions.newest
        if sync:
            rule = versions.vertical(replicas, stage, first=0, version=0, overlap=overlap)
        bound = versions.most_alive(replicas, stage, vertical_sync=sync, overlap=overlap)
        assert sync or bound == schedules.warm_up(replicas, stage) + 1
        late = schedules.is_late(replicas, stage, overlap)
        for replica in range(count):
            lane = Lane(replicas, stage, replica, late=late)
            for batch, version in follow(lane, rule, bound, batches):
                held.setdefault(batch, set()).add(version * count)
    if sync:
        assert all(len(each) == 1 for each in held.values())


@settings(max_examples=60, deadline=None)
@given(replicas=REPLICAS, updates=st.integers(1, 8), more=st.integers(0, 3))
def test_2bw_never_needs_more_than_two(replicas: list[int], updates: int, more: int) -> None:
    every = schedules.depth(replicas) + more
    rule = versions.delayed(every, 0, 0)
    for stage, count in enumerate(replicas):
        for replica in range(count):
            lane = Lane(replicas, stage, replica, update_every=every)
            for batch, version in follow(lane, rule, 2, updates * every):
                assert version == max(0, batch // every - 1)
