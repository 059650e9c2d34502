"""min-max over a chain is exact (1.8): against every cut there is."""

from __future__ import annotations

import pytest
from cutting import cuts
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.core.errors import InvalidInput
from windlass.train.cut import balance


def greatest(costs: list[int], cut: tuple[tuple[int, int], ...]) -> int:
    return max(sum(costs[first : last + 1]) for first, last in cut)


@given(st.lists(st.integers(0, 20), min_size=1, max_size=9), st.data())
@settings(max_examples=200, deadline=None)
def test_no_cut_is_better(costs: list[int], data: st.DataObject) -> None:
    stages = data.draw(st.integers(1, len(costs)))
    found = balance(costs, stages)
    assert len(found) == stages
    assert [n for first, last in found for n in range(first, last + 1)] == list(range(len(costs)))
    assert all(first <= last for first, last in found)
    best = min(greatest(costs, cut) for cut in cuts(len(costs)) if len(cut) == stages)
    assert greatest(costs, found) == best


def test_a_long_chain_is_cut_at_once() -> None:
    found = balance([1.0] * 2000, 64)
    assert max(last - first + 1 for first, last in found) == 32


@pytest.mark.parametrize("stages", [0, 4, -1])
def test_more_stages_than_blocks_are_refused_in_words(stages: int) -> None:
    with pytest.raises(InvalidInput, match="from 1 to 3, the number of blocks"):
        balance([1, 2, 3], stages)


@pytest.mark.parametrize("cost", [-1.0, float("nan"), float("inf")])
def test_a_cost_that_is_none_is_refused(cost: float) -> None:
    with pytest.raises(InvalidInput, match="block 1"):
        balance([1.0, cost], 2)
