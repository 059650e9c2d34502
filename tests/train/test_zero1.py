"""1.12, first stage: equal to `allreduce` to the bit, with the optimiser's state on one worker
each."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from windlass.core.errors import TrainingFailed
from windlass.train.group import Group
from windlass.train.runners.collective import AllReduce, CollectiveRunner
from windlass.train.runners.zero1 import Zero1, Zero1Runner, owners
from windlass.train.seat import Seat
from windlass.train.testing.joined import joined
from windlass.train.testing.tasks import flat, regression


@pytest.fixture(scope="module")
def group() -> Iterator[Group]:
    with Group(3, silent_seconds=30.0) as found:
        yield found


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, 0.05)


def steps(runner: CollectiveRunner, first: int, last: int) -> None:
    data, seat = runner.task.data, runner.seat
    for step in range(first, last):
        runner.step(data.batch(data.at(step), seat.rank, seat.workers))


def train(seat: Seat, name: str, state: dict[str, Any] | None) -> dict[str, Any]:
    """Four steps, or the last two of them from a state after two."""
    strategy = {"zero1": Zero1, "allreduce": AllReduce}[name]()
    task = regression(optimizer=adam)
    runner = strategy.runner(task, seat)
    try:
        if state is not None:
            runner.load_shared_state(state)
        else:
            steps(runner, 0, 2)
        middle = copy.deepcopy(runner.shared_state())
        steps(runner, 2, 4)
        runner.finish()
        runner.drain()
        return {
            "middle": middle,
            "end": flat(task.model),
            "held": len(task.optimizer.state),
            "sent": dict(seat.counters.sent_bytes),
        }
    finally:
        runner.close()


def test_it_equals_all_reduce_to_the_bit_and_each_keeps_a_share_of_the_state(
    group: Group,
) -> None:
    usual = group.call(train, "allreduce", None)
    found = group.call(train, "zero1", None)
    for name, each in found.items():
        assert torch.equal(each["end"], usual["worker 0"]["end"]), name
    held = [each["held"] for each in found.values()]
    assert sum(held) == 4 and max(held) < 4, "4 parameters, none of them twice"


def test_a_checkpoint_of_the_one_goes_on_under_the_other(group: Group) -> None:
    usual = group.call(train, "allreduce", None)
    parts = [each["middle"] for each in group.call(train, "zero1", None).values()]
    assert sum(len(each["model"]) for each in parts) == 4, "each has its own, none twice"
    sharded = joined(parts)
    end = usual["worker 0"]["end"]
    for name, state in (
        ("zero1", usual["worker 0"]["middle"]), ("allreduce", sharded), ("zero1", sharded),
    ):  # fmt: skip
        for each in group.call(train, name, state).values():
            assert torch.equal(each["end"], end), name
    with Group(2, silent_seconds=30.0) as smaller:  # other sizes: only the sums' order differs
        for each in smaller.call(train, "zero1", sharded).values():
            assert torch.allclose(each["end"], end, rtol=1e-12, atol=1e-14)


def broken_off(seat: Seat) -> str:
    runner = Zero1().runner(regression(optimizer=adam), seat)
    assert isinstance(runner, Zero1Runner)
    try:
        steps(runner, 0, 1)
        runner._is_between = True  # as a lost peer leaves it
        with pytest.raises(TrainingFailed, match="broken off") as refused:
            runner.shared_state()
        return str(refused.value)
    finally:
        runner.close()


def test_a_step_that_was_broken_off_is_never_a_checkpoint(group: Group) -> None:
    assert all(group.call(broken_off).values())


def test_parameters_are_shared_out_evenly_and_once() -> None:
    sizes = [100, 50, 50, 7, 3, 1, 1]
    parameters = [torch.nn.Parameter(torch.zeros(size)) for size in sizes]
    found = owners(parameters, 3)
    assert sorted(each.numel() for row in found for each in row) == sorted(sizes)
    assert [sum(each.numel() for each in row) for row in found] == [100, 57, 55]
