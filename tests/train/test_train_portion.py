"""An optimiser in portions is the whole one: same steps, same state_dict, loads either way."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from windlass.train.state.portion import Portion


def trained(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 3) -> None:
    for step in range(steps):
        optimizer.zero_grad()
        inputs = torch.full((2, 4), 0.1 * (step + 1), dtype=torch.float64)
        model(inputs).square().sum().backward()
        optimizer.step()


def made(kind: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)).double()
    groups: list[dict[str, Any]] = [
        {"params": model[0].parameters(), "lr": 0.1},
        {"params": model[2].parameters(), "lr": 0.2},
    ]
    if kind == "adam":
        return model, torch.optim.Adam(groups)
    return model, torch.optim.SGD(groups, momentum=0.9)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    return bool(one == other)


@pytest.mark.parametrize("kind", ["adam", "momentum"])
def test_portions_together_are_the_whole(kind: str) -> None:
    model, optimizer = made(kind)
    trained(model, optimizer)
    portions = []
    for part in range(3):
        mine, own = made(kind)
        numbers = {id(each): n for n, each in enumerate(mine.parameters())}
        portion = Portion(own, lambda p, part=part, numbers=numbers: numbers[id(p)] % 3 == part)
        trained(mine, own, 1)
        assert {n % 3 for n in portion.state()} == {part}
        portions.append((mine, own, portion))
    whole = portions[0][2].whole(each.state() for _, _, each in portions)
    one_model, one = made(kind)
    trained(one_model, one, 1)
    assert same(whole["param_groups"], one.state_dict()["param_groups"])
    assert whole["state"].keys() == one.state_dict()["state"].keys()
    # Back in: the whole into portions, portions' whole into a whole one.
    for _, _, portion in portions:
        portion.load(copy.deepcopy(optimizer.state_dict()))
    again = portions[1][2].whole(each.state() for _, _, each in portions)
    assert same(again, optimizer.state_dict())
    _, other = made(kind)
    other.load_state_dict(again)
    assert same(other.state_dict(), optimizer.state_dict())


def test_an_optimiser_of_other_groups_is_refused() -> None:
    _, optimizer = made("adam")
    portion = Portion(optimizer, lambda _: True)
    model = nn.Linear(4, 2)
    with pytest.raises(ValueError, match="other groups"):
        portion.load(torch.optim.Adam(model.parameters()).state_dict())
