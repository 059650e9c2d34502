"""1.2, 1.5, 1.7: local steps and exchanges of parameters: equivalences and conservation."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from windlass.core.errors import InvalidInput
from windlass.train import registry
from windlass.train.group import Group
from windlass.train.policies.outer_opt import BlockMomentum, Mean, OuterNesterov
from windlass.train.runners.periods import PeriodRunner
from windlass.train.seat import Seat
from windlass.train.task import Task
from windlass.train.testing.tasks import alone, flat, network, regression

WORKERS = ["worker 0", "worker 1", "worker 2"]


@pytest.fixture(scope="module")
def group() -> Iterator[Group]:
    with Group(3, silent_seconds=30.0) as found:  # oracles, not faults: a busy machine is no loss
        yield found


def task_with(momentum: float = 0.0, lr: float = 0.05, count: int = 36) -> Task:
    """36 samples in batches of 6: equal shares of 2 for each of three."""
    return regression(
        count, 6, optimizer=lambda p: torch.optim.SGD(p, lr, momentum=momentum), shuffle=True
    )


def runner_of(seat: Seat, name: str, options: dict[str, Any], task: Task) -> PeriodRunner:
    strategy = registry.choose(name, options)
    strategy.check(task, seat.workers, 0)
    runner = strategy.runner(task, seat)
    assert isinstance(runner, PeriodRunner)
    return runner


def go(runner: PeriodRunner, first: int, last: int) -> None:
    data, seat = runner.task.data, runner.seat
    for step in range(first, last):
        runner.step(data.batch(data.at(step), seat.rank, seat.workers))


def train(
    seat: Seat, name: str, options: dict[str, Any], steps: int, momentum: float = 0.0
) -> Tensor:
    runner = runner_of(seat, name, options, task_with(momentum))
    go(runner, 0, steps)
    runner.finish()
    runner.drain()
    runner.close()
    return flat(runner.task.model)


def apart(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max())


# -- 1.2 ------------------------------------------------------------------------------------------


def test_an_average_after_every_step_is_synchronous_sgd(group: Group) -> None:
    answers = group.call(train, "local_sgd", {"every": 1}, 7)
    expected = flat(alone(task_with(), 7).model)
    for name in WORKERS:
        assert torch.equal(answers[name], answers["worker 0"])
        assert apart(answers[name], expected) < 1e-14


def test_with_momentum_that_holds_only_if_momentum_is_averaged_too(group: Group) -> None:
    """SGD's momentum is linear: with an average after each step its mean is the same whether it
    is averaged or not. It differs when it is dropped, and with more than one step between."""
    expected = flat(alone(task_with(0.9), 7).model)
    both = group.call(train, "local_sgd", {"every": 1, "average_state": True}, 7, 0.9)
    assert apart(both["worker 0"], expected) < 1e-14
    dropping = {"tau": 1, "mu": 0.0, "nesterov": False, "reset_momentum": True}
    assert apart(group.call(train, "bmuf", dropping, 7, 0.9)["worker 0"], expected) > 1e-6
    options = {"every": 3, "average_state": True}
    averaged = group.call(train, "local_sgd", options, 7, 0.9)["worker 0"]
    own = group.call(train, "local_sgd", {"every": 3}, 7, 0.9)["worker 0"]
    assert apart(own, averaged) > 1e-6


def test_one_average_at_the_end_is_that_of_independent_runs(group: Group) -> None:
    answers = group.call(train, "local_sgd", {"every": 1000}, 7)
    finals = []
    for rank in range(3):
        task = task_with()
        for step in range(7):
            share = task.data.batch(task.data.at(step), rank, 3)
            task.optimizer.zero_grad()
            total, count = task.loss_of(share.content)
            (total / count).backward()  # type: ignore[no-untyped-call]
            task.optimizer.step()
        finals.append(flat(task.model))
    assert apart(answers["worker 0"], sum(finals) / 3) < 1e-14  # type: ignore[arg-type]


def preserve(seat: Seat) -> tuple[Tensor, Tensor, list[tuple[int, float]]]:
    runner = runner_of(seat, "local_sgd", {"every": 50}, task_with())
    go(runner, 0, 5)
    before = flat(runner.task.model)
    runner.finish()
    runner.close()
    return before, flat(runner.task.model), runner.counters.drift[-1:]


def test_an_average_keeps_the_sum_and_reports_how_far_the_replicas_were(group: Group) -> None:
    answers = group.call(preserve)
    before = [answers[name][0] for name in WORKERS]
    total, mean = sum(before), sum(before) / 3  # type: ignore[operator]
    after = sum(answers[name][1] for name in WORKERS)
    assert apart(after, total) < 1e-15  # type: ignore[arg-type]
    for name in WORKERS:
        distance = float((answers[name][0] - mean).abs().max())
        assert answers[name][2][0] == (4, pytest.approx(distance, rel=1e-9))


def test_post_local_is_synchronous_at_first_and_local_after(group: Group) -> None:
    options = {"every": 4, "post_local": 5}
    at_five = group.call(train, "local_sgd", options, 5, 0.9)["worker 1"]
    assert apart(at_five, flat(alone(task_with(0.9), 5).model)) < 1e-14
    later = group.call(train, "local_sgd", options, 8, 0.9)["worker 1"]
    assert apart(later, flat(alone(task_with(0.9), 8).model)) > 1e-9


def uneven(seat: Seat) -> Tensor:
    """Worker r has 2 + 2r batches; averages are over those who stepped."""
    runner = runner_of(seat, "local_sgd", {"every": 2}, task_with(count=60))
    go(runner, 0, 2 + 2 * seat.rank)
    runner.finish()
    runner.drain()
    runner.close()
    return flat(runner.task.model)


def test_workers_with_fewer_batches_follow_those_that_still_step(group: Group) -> None:
    answers = group.call(uneven)
    assert torch.equal(answers["worker 0"], answers["worker 1"])
    assert torch.equal(answers["worker 0"], answers["worker 2"])
    task = task_with(count=60)
    start = {name: value.clone() for name, value in task.model.state_dict().items()}
    for block, ranks in ((0, (0, 1, 2)), (2, (1, 2)), (4, (2,))):
        finals: list[dict[str, Tensor]] = []
        for rank in ranks:
            task.model.load_state_dict(start)
            for step in (block, block + 1):
                share = task.data.batch(task.data.at(step), rank, 3)
                task.optimizer.zero_grad()
                total, count = task.loss_of(share.content)
                (total / count).backward()  # type: ignore[no-untyped-call]
                task.optimizer.step()
            finals.append({name: v.clone() for name, v in task.model.state_dict().items()})
        start = {name: sum(f[name] for f in finals) / len(finals) for name in start}  # type: ignore[misc]
    task.model.load_state_dict(start)
    assert apart(answers["worker 0"], flat(task.model)) < 1e-14


# -- 1.5 ------------------------------------------------------------------------------------------


def elastic(seat: Seat, workers: int, alpha: float, tau: int, lr: float, steps: int) -> Any:
    """Each begins elsewhere; gives the parameters and the centre after every step."""
    if seat.rank >= workers:
        return []
    seat = dataclasses.replace(seat, workers=workers)
    task = task_with(lr=lr)
    runner = runner_of(seat, "easgd", {"alpha": alpha, "tau": tau}, task)
    task.model.load_state_dict(network(seed=10 + seat.rank).state_dict())
    found = [(flat(task.model), runner.outer.centre[0].clone())]
    for step in range(steps):
        go(runner, step, step + 1)
        found.append((flat(task.model), runner.outer.centre[0].clone()))
    with runner.as_it_counts() as model:
        assert torch.equal(flat(model), runner.outer.centre[0])
    assert torch.equal(flat(task.model), found[-1][0])
    runner.close()
    return found


@pytest.mark.parametrize("workers", [2, 3])
def test_the_all_reduce_form_is_the_server_form(group: Group, workers: int) -> None:
    answers = group.call(elastic, workers, 0.15, 3, 0.05, 9)
    tasks = [task_with() for _ in range(workers)]
    for rank, task in enumerate(tasks):
        task.model.load_state_dict(network(seed=10 + rank).state_dict())
    centre = flat(network())
    for step in range(9):
        for rank, task in enumerate(tasks):
            share = task.data.batch(task.data.at(step), rank, workers)
            task.optimizer.zero_grad()
            total, count = task.loss_of(share.content)
            (total / count).backward()  # type: ignore[no-untyped-call]
            task.optimizer.step()
        if (step + 1) % 3 == 0:
            forces = [0.15 * (flat(task.model) - centre) for task in tasks]
            for task, force in zip(tasks, forces, strict=True):
                write(task, flat(task.model) - force)
            for force in forces:
                centre = centre + force
    bound = 1e-15 if workers == 2 else 1e-14
    assert apart(answers["worker 0"][-1][1], centre) < bound
    for rank, task in enumerate(tasks):
        assert apart(answers[f"worker {rank}"][-1][0], flat(task.model)) < bound


def write(task: Task, values: Tensor) -> None:
    torch.nn.utils.vector_to_parameters(values, task.model.parameters())


def test_an_elastic_exchange_keeps_the_sum_of_all_and_contracts_by_1_minus_alpha_p_plus_1(
    group: Group,
) -> None:
    answers = group.call(elastic, 2, 0.2, 1, 0.0, 20)
    first, second = answers["worker 0"], answers["worker 1"]
    for (x, c), (y, d) in zip(first, second, strict=True):
        assert torch.equal(c, d)
        assert apart(x + y + c, first[0][0] + second[0][0] + first[0][1]) < 4e-15
    begin = (first[0][0] + second[0][0]) / 2 - first[0][1]
    end = (first[-1][0] + second[-1][0]) / 2 - first[-1][1]
    assert float(end.norm() / begin.norm()) == pytest.approx(0.4**20, rel=1e-6)
    assert 0.4**20 == pytest.approx(1.099512e-08, rel=1e-6)


def test_an_unstable_alpha_is_refused_with_the_bound() -> None:
    strategy = registry.choose("easgd", {"alpha": 0.5})
    with pytest.raises(InvalidInput, match=r"needs alpha < 2/\(p\+1\) = 0.5 for 3 workers"):
        strategy.check(task_with(), 3, 0)
    assert strategy.check(task_with(), 2, 0) == []


# -- 1.7 ------------------------------------------------------------------------------------------


def test_block_momentum_of_zero_is_local_sgd(group: Group) -> None:
    plain = group.call(train, "local_sgd", {"every": 3}, 8)["worker 0"]
    options = {"tau": 3, "mu": 0.0, "zeta": 1.0, "nesterov": False}
    assert apart(group.call(train, "bmuf", options, 8)["worker 0"], plain) < 1e-15
    options = {"every": 3, "outer_lr": 1.0, "outer_momentum": 0.0}
    assert apart(group.call(train, "diloco", options, 8)["worker 0"], plain) < 1e-15
    moved = group.call(train, "bmuf", {"tau": 3}, 8)
    assert apart(moved["worker 0"], plain) > 1e-6
    assert torch.equal(moved["worker 0"], moved["worker 2"])


@pytest.mark.parametrize("mu, gain", [(0.5, 1.0), (2 / 3, 1.0), (0.9, 0.7)])
def test_cntk_sums_deltas_and_is_ours_at_zeta_p_1_minus_mu(mu: float, gain: float) -> None:
    workers, dice = 3, torch.Generator().manual_seed(0)
    start = torch.randn(20, generator=dice, dtype=torch.float64)
    ours = BlockMomentum(mu, workers * (1 - mu) * gain, nesterov=False)
    state = ours.begin([start])
    theirs, filtered = start.clone(), torch.zeros_like(start)
    for _ in range(6):
        moves = [torch.randn(20, generator=dice, dtype=torch.float64) for _ in range(workers)]
        filtered = mu * filtered + (1 - mu) * gain * sum(moves)  # type: ignore[operator]
        theirs = theirs + filtered
        state = ours.step(state, [sum(state.centre[0] + m for m in moves) / workers])  # type: ignore[list-item]
    assert apart(state.centre[0], theirs) < 1e-14
    if mu == 2 / 3:
        assert ours.zeta == pytest.approx(1.0), "mu = 1 - 1/p, zeta' = 1 is the mean with zeta = 1"


def test_diloco_is_nesterov_sgd_on_the_distance_from_the_mean() -> None:
    dice = torch.Generator().manual_seed(0)
    start = torch.randn(20, generator=dice, dtype=torch.float64)
    ours, parameter = OuterNesterov(0.7, 0.9), torch.nn.Parameter(start.clone())
    theirs = torch.optim.SGD([parameter], 0.7, momentum=0.9, nesterov=True)
    state = ours.begin([start])
    for _ in range(6):
        mean = state.centre[0] + torch.randn(20, generator=dice, dtype=torch.float64)
        parameter.grad = parameter.detach() - mean
        theirs.step()
        state = ours.step(state, [mean])
        assert apart(state.centre[0], parameter.detach()) < 1e-14
    assert isinstance(ours, Mean)


def resume(seat: Seat, name: str, options: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Eleven steps at once, and with a save in the middle of a block and a new runner."""
    whole = train(seat, name, options, 11, 0.9)
    runner = runner_of(seat, name, options, task_with(0.9))
    go(runner, 0, 5)
    file = io.BytesIO()
    torch.save((runner.shared_state(), runner.local_state()), file)
    runner.close()
    file.seek(0)
    shared, local = torch.load(file, weights_only=True)
    shared["optimizer"] = dict(shared["optimizer"])
    runner = runner_of(seat, name, options, task_with(0.9))
    runner.load_shared_state(shared)
    runner.load_local_state(local)
    go(runner, 5, 11)
    runner.finish()
    runner.drain()
    runner.close()
    return whole, flat(runner.task.model)


@pytest.mark.parametrize(
    "name, options",
    [
        ("local_sgd", {"every": 3, "average_state": True}),
        ("bmuf", {"tau": 3, "reset_momentum": False}),
        ("diloco", {"every": 3}),
        ("easgd", {"tau": 3}),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_save_in_the_middle_of_a_block_changes_nothing(
    group: Group, name: str, options: dict[str, Any]
) -> None:
    answers = group.call(resume, name, options)
    for whole, resumed in answers.values():
        assert torch.equal(whole, resumed)
        assert torch.equal(whole, answers["worker 0"][0]), "all end at what counts"
