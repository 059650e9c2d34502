"""Deferred batch statistics (1.8): running averages as of one mini-batch, moved once."""

from __future__ import annotations

import copy

import pytest
import torch
from cutting import one_thread
from torch import nn

from windlass.train.cut.normalise import Deferred
from windlass.train.cut.recompute import recomputed

__all__ = ["one_thread"]

SHAPES = [(nn.BatchNorm1d(3), (11, 3)), (nn.BatchNorm2d(3), (7, 3, 2, 5))]


@pytest.mark.parametrize(("norm", "shape"), SHAPES, ids=["1d", "2d"])
@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("micro", [1, 3])
@pytest.mark.parametrize("again", [False, True], ids=["", "recomputed"])
def test_running_statistics_are_those_of_the_whole_batch(
    norm: nn.Module, shape: tuple[int, ...], momentum: float | None, micro: int, again: bool
) -> None:
    whole = copy.deepcopy(norm).double()
    whole.momentum = momentum
    parts = copy.deepcopy(whole)
    stage = nn.Sequential(parts, nn.Tanh(), nn.Sigmoid())  # torch stops where it has enough
    deferred = Deferred(stage)
    dice = torch.Generator().manual_seed(4)
    for _ in range(3):
        batch = torch.randn(shape, generator=dice, dtype=torch.float64) * 3 + 100
        whole(batch)
        for part in batch.tensor_split(micro):
            part = part.clone().requires_grad_()
            found = recomputed(stage, part) if again else stage(part)
            torch.stack(list(found)).sum().backward()
        deferred.commit()
    for mine, theirs in zip(parts.buffers(), whole.buffers(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


def test_each_micro_batch_is_normalised_with_its_own_statistics() -> None:
    usual, parts = nn.BatchNorm1d(3).double(), nn.BatchNorm1d(3).double()
    deferred = Deferred(parts)
    batch = torch.randn(8, 3, dtype=torch.float64)
    for part in batch.split(4):
        assert torch.equal(parts(part), usual(part))
    assert torch.equal(parts.running_mean, torch.zeros(3, dtype=torch.float64))
    deferred.commit()
    deferred.commit()
    assert int(parts.num_batches_tracked) == 1 and int(usual.num_batches_tracked) == 2
    parts.eval()
    before = parts.running_mean.clone()
    parts(batch)
    deferred.commit()
    assert torch.equal(before, parts.running_mean)


def test_what_was_seen_can_be_dropped_and_the_modules_are_as_they_were() -> None:
    parts = nn.BatchNorm1d(3).double()
    deferred = Deferred(parts)
    parts(torch.randn(8, 3, dtype=torch.float64))
    deferred.drop()
    deferred.commit()
    assert int(parts.num_batches_tracked) == 0
    deferred.undo()
    parts(torch.randn(8, 3, dtype=torch.float64))
    assert int(parts.num_batches_tracked) == 1
    assert len(Deferred(nn.BatchNorm1d(3, track_running_stats=False))) == 0


def test_statistics_that_are_not_deferred_are_counted_once_under_recomputation() -> None:
    usual = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).double()
    again = copy.deepcopy(usual)
    batch = torch.randn(8, 4, dtype=torch.float64)
    usual(batch).sum().backward()
    torch.stack(list(recomputed(again, batch))).sum().backward()
    for mine, theirs in zip(again.buffers(), usual.buffers(), strict=True):
        assert torch.equal(mine, theirs)
