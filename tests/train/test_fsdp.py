"""1.12: sharded parameters, gradients and optimiser; equal to one process on the whole batch."""

from __future__ import annotations

import copy
import os
import signal
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from windlass.core.errors import InvalidInput, MemberLost
from windlass.train.group import Group
from windlass.train.runners.base import Runner
from windlass.train.runners.collective import AllReduce
from windlass.train.runners.fsdp import Fsdp, FsdpRunner, units_of
from windlass.train.seat import Seat
from windlass.train.state.pieces import Piece
from windlass.train.task import Task
from windlass.train.testing.joined import joined
from windlass.train.testing.stopped import silent
from windlass.train.testing.tasks import alone, flat, regression

STEPS = 5


@pytest.fixture(scope="module")
def group() -> Iterator[Group]:
    with Group(3, silent_seconds=30.0) as found:
        yield found


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, 0.05)


def deep() -> nn.Module:
    torch.manual_seed(5)
    layers = [nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 7), nn.Tanh(), nn.Linear(7, 2)]
    return nn.Sequential(*layers).double()


def task_of(workers_do_not_divide: bool = True) -> Task:
    # 22 samples in sixes: the last batch has 4, which 3 workers share as 2, 1, 1.
    return regression(model=deep(), optimizer=adam)


def steps(runner: Runner, first: int, last: int) -> None:
    data, seat = runner.task.data, runner.seat
    for step in range(first, last):
        runner.step(data.batch(data.at(step), seat.rank, seat.workers))


def train(seat: Seat, name: str, options: dict[str, Any], state: Any) -> dict[str, Any]:
    strategy = {"fsdp": Fsdp, "allreduce": AllReduce}[name](**options)
    task = task_of()
    runner = strategy.runner(task, seat)
    try:
        if state is not None:
            runner.load_shared_state(state)
        else:
            steps(runner, 0, 2)
        middle = copy.deepcopy(runner.shared_state())
        steps(runner, 2, STEPS)
        held = sum(
            (each.to_local() if hasattr(each, "to_local") else each).numel()
            for each in task.model.parameters()
        )
        runner.finish()
        runner.drain()
        with runner.as_it_counts() as model:
            end = flat(model) if seat.rank == 0 else None
        return {"middle": middle, "end": end, "held": held}
    finally:
        runner.close()


def close_to(found: Tensor, expected: Tensor) -> None:
    error = float((found - expected).abs().max() / expected.abs().max())
    assert error < 1e-14, error


@pytest.mark.parametrize("options", [{}, {"reshard": False}], ids=["zero3", "zero2"])
def test_it_equals_one_process_and_each_keeps_a_part(
    group: Group, options: dict[str, Any]
) -> None:
    found = group.call(train, "fsdp", options, None)
    close_to(found["worker 0"]["end"], flat(alone(task_of(), STEPS).model))
    whole = sum(each.numel() for each in deep().parameters())
    held = [each["held"] for each in found.values()]
    assert sum(held) == whole and max(held) < whole / 2


def test_a_checkpoint_loads_at_another_size_and_under_another_strategy(group: Group) -> None:
    parts = [each["middle"] for each in group.call(train, "fsdp", {}, None).values()]
    assert all(isinstance(each["model"]["0.weight"], Piece) for each in parts)
    sharded = joined(parts)
    usual = group.call(train, "allreduce", {}, None)["worker 0"]
    end = flat(alone(task_of(), STEPS).model)
    for name, state in (("fsdp", usual["middle"]), ("allreduce", sharded), ("fsdp", sharded)):
        close_to(group.call(train, name, {}, state)["worker 0"]["end"], end)
    with Group(2, silent_seconds=30.0) as smaller:
        close_to(smaller.call(train, "fsdp", {}, sharded)["worker 0"]["end"], end)


def killed(seat: Seat, at: int, signal_number: int) -> str:
    runner = Fsdp().runner(task_of(), seat)
    try:
        for step in range(STEPS):
            if step == at and seat.rank == 1:
                os.kill(os.getpid(), signal_number)
            elif step == at:
                # All that came before is done, and this step never is: torch need not wait for
                # it as long as a busy machine may take to bring the two together.
                dist.distributed_c10d._set_pg_timeout(timedelta(seconds=3))
            steps(runner, step, step + 1)
    except MemberLost as err:
        return str(err)
    finally:
        runner.close()
    return ""


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_worker_that_dies_or_stops_is_named(signal_number: int) -> None:
    with Group(2, silent_seconds=60.0, deadline_seconds=90.0) as mortal:
        number = mortal.begin(killed, 2, int(signal_number))
        if signal_number == signal.SIGSTOP:
            silent(mortal, "worker 1")
        answers = mortal.finish(number, only=["worker 0"])
        assert "worker 1" in answers["worker 0"]
        assert "step 2" in answers["worker 0"], answers["worker 0"]


def with_own_group(seat: Seat) -> str:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    try:
        with pytest.raises(InvalidInput, match="there already") as refused:
            Fsdp().runner(task_of(), seat)
        return str(refused.value)
    finally:
        dist.destroy_process_group()  # type: ignore[attr-defined]


def test_a_global_group_of_the_users_own_is_told(group: Group) -> None:
    assert all(group.call(with_own_group).values())


def test_a_batch_that_leaves_a_worker_without_samples_is_refused_before_it_begins() -> None:
    with pytest.raises(InvalidInput, match="smallest batch has 4 samples"):
        Fsdp().check(task_of(), 5, 0)
    assert Fsdp().check(task_of(), 4, 0) == []


def test_units_are_blocks_or_members_of_sequences_without_tied_parameters() -> None:
    model = deep()
    task = regression(model=model)
    assert len(units_of(task)) == 3
    model[4].weight = nn.Parameter(torch.zeros(2, 7, dtype=torch.float64))
    model[2].weight = model[0].weight  # type: ignore[union-attr]
    model[0].weight = model[2].weight  # type: ignore[union-attr]
    assert units_of(regression(model=model)) == [model[4]]


def of_one(seat: Seat) -> bool:
    runner = Fsdp().runner(task_of(), seat)
    runner.close()
    return not isinstance(runner, FsdpRunner)


def test_one_worker_shards_nothing() -> None:
    from windlass.train.testing.town import Town

    with Town(1, 0) as town:
        assert town.call(of_one)["worker 0"]
