"""1.11 and 1.13: layers cut over workers, alone and with replicas, equal one process."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from windlass.core.errors import InvalidInput
from windlass.train.cut.pairs import chosen
from windlass.train.group import Group
from windlass.train.runners.base import Runner
from windlass.train.runners.collective import AllReduce
from windlass.train.runners.tensor import TensorParallel, TensorRunner
from windlass.train.seat import Seat
from windlass.train.task import Task
from windlass.train.testing.joined import joined
from windlass.train.testing.tasks import alone, flat, regression

STEPS = 5


@pytest.fixture(scope="module")
def group() -> Iterator[Group]:
    with Group(4, silent_seconds=30.0) as found:
        yield found


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, 0.05)


def deep(dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(5)
    layers = [nn.Linear(4, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 5), nn.LayerNorm(5)]
    return nn.Sequential(*layers, nn.Linear(5, 2)).double()


def task_of(dropout: float = 0.0) -> Task:
    return regression(model=deep(dropout), optimizer=adam)


def steps(runner: Runner, strategy: Any, first: int, last: int) -> None:
    data = runner.task.data
    index, of = strategy.share_of(runner.seat)
    for step in range(first, last):
        runner.step(data.batch(data.at(step), index, of))


def train(seat: Seat, name: str, options: dict[str, Any], state: Any) -> dict[str, Any]:
    strategy = {"tensor": TensorParallel, "allreduce": AllReduce}[name](**options)
    task = task_of()
    runner = strategy.runner(task, seat)
    try:
        if state is not None:
            runner.load_shared_state(state)
        else:
            steps(runner, strategy, 0, 2)
        middle = copy.deepcopy(runner.shared_state())
        steps(runner, strategy, 2, STEPS)
        runner.finish()
        runner.drain()
        with runner.as_it_counts() as model:
            end = flat(model) if seat.rank == 0 else None
        held = sum(
            (each.to_local() if hasattr(each, "to_local") else each).numel()
            for each in task.model.parameters()
        )
        return {"middle": middle, "end": end, "held": held}
    finally:
        runner.close()


def close_to(found: Tensor, expected: Tensor) -> None:
    error = float((found - expected).abs().max() / expected.abs().max())
    assert error < 1e-13, error


@pytest.mark.parametrize("size", [None, 2], ids=["4 wide", "2 wide, 2 replicas"])
def test_it_equals_one_process_and_each_holds_a_piece(group: Group, size: int | None) -> None:
    found = group.call(train, "tensor", {"size": size}, None)
    close_to(found["worker 0"]["end"], flat(alone(task_of(), STEPS).model))
    whole = sum(each.numel() for each in deep().parameters())
    assert all(each["held"] < whole for each in found.values())


def test_a_checkpoint_loads_under_all_reduce_and_back(group: Group) -> None:
    found = group.call(train, "tensor", {"size": 2}, None)
    parts = [found[f"worker {rank}"]["middle"] for rank in range(4)]
    assert parts[2] is None and parts[3] is None, "they are replicas of the others"
    cut = joined(parts)
    usual = group.call(train, "allreduce", {}, None)["worker 0"]["middle"]
    end = flat(alone(task_of(), STEPS).model)
    close_to(group.call(train, "allreduce", {}, cut)["worker 0"]["end"], end)
    close_to(group.call(train, "tensor", {}, usual)["worker 0"]["end"], end)


def masks(seat: Seat) -> dict[str, Tensor]:
    """What dropout does to ones: between the cuts, and outside of them."""
    strategy = TensorParallel(size=2)
    model = nn.Sequential(
        nn.Linear(4, 32), nn.Dropout(0.5), nn.Linear(32, 4), nn.Dropout(0.5), nn.LayerNorm(4)
    ).double()
    runner = strategy.runner(regression(model=model), seat)
    assert isinstance(runner, TensorRunner)
    try:
        ones = torch.ones(8, 16, dtype=torch.float64)
        return {
            "between": torch.stack([model[1](ones), model[1](ones)]),
            "outside": torch.stack([model[3](ones), model[3](ones)]),
        }
    finally:
        runner.close()


def test_dice_differ_between_the_cuts_and_agree_outside(group: Group) -> None:
    found = group.call(masks)
    one, two, other = found["worker 0"], found["worker 1"], found["worker 2"]
    assert not torch.equal(one["between"], two["between"])
    assert not torch.equal(one["between"][0], one["between"][1]), "they go on from call to call"
    assert torch.equal(one["outside"], two["outside"])
    assert not torch.equal(one["outside"], other["outside"]), "another replica, another mask"


def test_pairs_are_found_and_others_named() -> None:
    assert chosen(deep(0.1), None) == {"0": "column", "2": "apart", "3": "row"}
    layer = nn.TransformerEncoderLayer(8, 2, 16)
    assert chosen(nn.ModuleList([layer]), None) == {
        "0.linear1": "column", "0.dropout": "apart", "0.linear2": "row",
    }  # fmt: skip
    assert chosen(deep(), {"0": "column", "3": "row"}) == {"0": "column", "3": "row"}
    with pytest.raises(InvalidInput, match="no module is called 'up'"):
        chosen(deep(), {"up": "column"})
    with pytest.raises(InvalidInput, match="1 is a Tanh"):
        chosen(deep(), {"1": "row"})
    with pytest.raises(InvalidInput, match="no pair of linear layers"):
        chosen(nn.Linear(2, 2), None)
    with pytest.raises(InvalidInput, match="size: 3 does not divide the 4 workers"):
        TensorParallel(size=3).check(task_of(), 4, 0)
    with pytest.raises(InvalidInput, match="0 is 8 wide where it is cut, which 3 does not divide"):
        TensorParallel().check(task_of(), 3, 0)
