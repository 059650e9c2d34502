"""Each sample of an epoch is used once, whatever the number of workers."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.errors import InvalidInput
from windlass.train import Data
from windlass.train.data import Cursor


@given(
    size=st.integers(1, 60),
    batch=st.integers(1, 20),
    workers=st.integers(1, 7),
    epoch=st.integers(0, 3),
    shuffle=st.booleans(),
)
def test_the_shares_of_an_epoch_are_all_samples_once(
    size: int, batch: int, workers: int, epoch: int, shuffle: bool
) -> None:
    data = Data(list(range(size)), batch, shuffle=shuffle, seed=5)
    seen: list[int] = []
    for step in range(data.steps_per_epoch):
        shares = [data.share(Cursor(epoch, step, 0), rank, workers) for rank in range(workers)]
        lengths = [len(share) for share in shares]
        assert max(lengths) - min(lengths) <= 1
        together = [sample for share in shares for sample in share]
        assert together == list(data.share(Cursor(epoch, step, 0), 0, 1)), "the same global batch"
        seen += together
    assert sorted(seen) == list(range(size))


def test_epochs_have_other_orders_and_the_same_seed_the_same() -> None:
    first, again = (Data(list(range(100)), 100, seed=3) for _ in range(2))
    orders = [first.share(Cursor(epoch, 0, 0), 0, 1) for epoch in range(3)]
    assert len(set(orders)) == 3
    assert again.share(Cursor(1, 0, 0), 0, 1) == orders[1]
    assert Data(list(range(100)), 100, seed=4).share(Cursor(1, 0, 0), 0, 1) != orders[1]


def test_a_cursor_counts_on_and_can_be_found_again() -> None:
    data = Data(list(range(10)), 4)
    cursor = Cursor()
    for steps in range(8):
        assert data.at(steps) == cursor
        cursor = data.after(cursor)
    assert cursor == Cursor(2, 2, 8)


def test_tensors_and_samples_give_the_same_batches() -> None:
    x, y = torch.arange(12.0).reshape(6, 2), torch.arange(6)
    tensors = Data((x, y), 4, seed=1).batch(Cursor())
    samples = Data([(x[i], y[i]) for i in range(6)], 4, seed=1).batch(Cursor())
    assert tensors.samples == samples.samples
    assert all(torch.equal(a, b) for a, b in zip(tensors.content, samples.content, strict=True))


def test_a_share_may_be_empty_and_the_rest_may_be_left_out() -> None:
    data = Data((torch.zeros(5, 1),), 4)
    assert data.batch(Cursor(0, 1, 1), 1, 2).content is None
    assert data.batch(Cursor(0, 1, 1), 0, 2).content[0].shape == (1, 1)
    assert Data((torch.zeros(5, 1),), 4, drop_last=True).steps_per_epoch == 1


@pytest.mark.parametrize(
    ("dataset", "batch", "said"),
    [(iter([1]), 4, "len"), ([], 4, "no batch"), ([1], 0, "global_batch"), ([1], "4", "'4'")],
)
def test_what_cannot_be_shared_out_is_refused(dataset: object, batch: int, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        Data(dataset, batch)
