"""1.19: blocks of parameters, scheduled by their changes and their dependences (STRADS)."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from windlass.core.errors import InvalidInput, MemberLost
from windlass.train.data import Data
from windlass.train.policies.curvature import Block, Curvature, blocks_of
from windlass.train.policies.dispatch import Dispatch
from windlass.train.registry import choose
from windlass.train.runners.blocks import BlockRunner, Blocks
from windlass.train.runners.blockserving import BlockServing, Line
from windlass.train.seat import Seat
from windlass.train.task import Task, sum_loss
from windlass.train.testing.tasks import flat, network, regression
from windlass.train.testing.town import Town

Make = Callable[[], Task]
Pace = Callable[[Seat, int], None]


# -- the schedule ---------------------------------------------------------------------------------


def independent(first: int, second: int) -> float:
    return float(first == second)


def test_cyclic_takes_one_after_another() -> None:
    found = Dispatch(5, at_once=2, order="cyclic", bound=2.0)
    assert [found.next(independent) for _ in range(5)] == [[0, 1], [2, 3], [4, 0], [1, 2], [3, 4]]


def test_what_a_lost_worker_had_comes_first_again() -> None:
    found = Dispatch(5, at_once=2, order="cyclic", bound=None)
    assert found.next(independent) == [0, 1]
    found.left_out([1])
    assert found.next(independent) == [1, 2]


def test_priority_begins_with_all_and_then_follows_the_changes() -> None:
    found = Dispatch(10, at_once=2, order="priority", bound=None, seed=3)
    first = [found.next(independent) for _ in range(10)]
    for chosen in first[:5]:
        for each in chosen:
            found.changed(each, 1e-6)
    assert sorted(b for chosen in first[:5] for b in chosen) == list(range(10))
    for block in range(10):
        found.changed(block, 1.0 if block in (4, 7) else 1e-4)
    drawn = [b for _ in range(200) for b in found.next(independent)]
    assert drawn.count(4) > 150 and drawn.count(7) > 150
    assert len(set(drawn)) > 2, "and yet the others come too"


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 8), st.integers(1, 5), st.sampled_from(["priority", "cyclic"]),
    st.integers(0, 10**6),
)  # fmt: skip
def test_blocks_of_a_round_are_weakly_dependent_and_none_is_left_for_ever(
    count: int, at_once: int, order: Any, seed: int
) -> None:
    dice = torch.Generator().manual_seed(seed)
    matrix = torch.rand(count, count, generator=dice)
    matrix = (matrix + matrix.T) / 2 + torch.eye(count)

    def dependence(first: int, second: int) -> float:
        return float(matrix[first, second])

    found = Dispatch(count, at_once=at_once, order=order, bound=2.0, seed=seed)
    seen: set[int] = set()
    for _ in range(count):
        chosen = found.next(dependence)
        assert 1 <= len(chosen) <= at_once and len(set(chosen)) == len(chosen)
        if len(chosen) > 1:
            assert all(sum(dependence(a, b) for b in chosen) <= 2.0 for a in chosen)
        for each in chosen:
            found.changed(each, 1.0)
        seen |= set(chosen)
    assert seen == set(range(count))
    again = Dispatch(count, at_once=at_once, order=order, bound=2.0)
    again.load(copy.deepcopy(found.state()))
    assert [again.next(dependence) for _ in range(4)] == [found.next(dependence) for _ in range(4)]


def test_curvature_is_that_of_the_loss_exactly_for_small_blocks() -> None:
    dice = torch.Generator().manual_seed(0)
    half = torch.randn(12, 12, generator=dice, dtype=torch.float64)
    matrix = half @ half.T
    x = torch.randn(3, 4, generator=dice, dtype=torch.float64, requires_grad=True)
    blocks = blocks_of([x], 5)
    assert blocks == [Block(0, 0, 5), Block(0, 5, 10), Block(0, 10, 12)]
    found = Curvature([x], blocks, lambda: 0.5 * x.flatten() @ matrix @ x.flatten())
    for a, one in enumerate(blocks):
        for b, other in enumerate(blocks):
            part = matrix[other.start : other.stop, one.start : one.stop]
            assert found.norm(a, b) == pytest.approx(float(part.norm()), abs=1e-12)
    large = Curvature([x], blocks_of([x], None), lambda: 0.5 * x.flatten() @ matrix @ x.flatten())
    assert large.norm(0, 0) == pytest.approx(float(matrix.norm()), rel=0.5), "an estimate"


# -- trainings ------------------------------------------------------------------------------------


def member(
    seat: Seat, strategy: Blocks, tasks: dict[str, Task], steps: range, pace: Pace | None,
    state: Any,
) -> Any:  # fmt: skip
    task = tasks[seat.name]
    if seat.role == "server":
        with strategy.serving(task, seat) as serving:
            assert isinstance(serving, BlockServing)
            serving.run()
            return serving.lines
    strategy.check(task, seat.workers, seat.servers)
    runner = strategy.runner(task, seat)
    assert isinstance(runner, BlockRunner)
    try:
        if state is not None:
            runner.load_shared_state(state)
        for step in steps:
            if pace is not None:
                pace(seat, step)
            runner.step(task.data.batch(task.data.at(step), *strategy.share_of(seat)))
        kept = copy.deepcopy(runner.shared_state())
        runner.finish()
        runner.drain()
        return flat(task.model), kept
    finally:
        runner.close()


def train(
    strategy: Blocks, make: Make, workers: int, steps: int | range, *, pace: Pace | None = None,
    state: Any = None,
) -> tuple[Tensor, list[Line], Any]:  # fmt: skip
    torch.set_num_threads(1)
    steps = range(steps) if isinstance(steps, int) else steps
    with Town(workers, 1) as town:
        tasks = {name: make() for name in town.seats}
        found = town.call(member, strategy, tasks, steps, pace, state)
    for n in range(workers):
        assert torch.equal(found[f"worker {n}"][0], found["worker 0"][0]), "all end with the same"
    return found["worker 0"][0], found["server 0"], found["worker 0"][1]


def momentum() -> Task:
    return regression(optimizer=lambda p: torch.optim.SGD(p, 0.02, momentum=0.9, nesterov=True))


def adam() -> Task:
    return regression(optimizer=lambda p: torch.optim.Adam(p, 0.01))


def descent(
    make: Make, size: int | None, rounds: list[tuple[int, ...]], l1: float = 0.0
) -> Tensor:
    return list(descents(make, size, rounds, l1))[-1]


def descents(
    make: Make, size: int | None, rounds: list[tuple[int, ...]], l1: float = 0.0
) -> Iterator[Tensor]:
    """The parameters before the first round and after each.

    Block coordinate descent in one process: an optimiser for each block, one after another; the
    blocks of a round at the same parameters. Knows nothing of servers or schedules."""
    task = make()
    parameters = list(task.model.parameters())
    spans = [
        (n, start, min(start + (size or p.numel()), p.numel()))
        for n, p in enumerate(parameters)
        for start in range(0, p.numel(), size or p.numel())
    ]
    views = [parameters[n].detach().view(-1)[a:b].requires_grad_() for n, a, b in spans]
    defaults = {k: v for k, v in task.optimizer.param_groups[0].items() if k != "params"}
    kind: Any = type(task.optimizer)
    optimizers = [kind([view], **_known(kind, defaults)) for view in views]
    yield flat(task.model)
    for step, blocks in enumerate(rounds):
        total, count = task.loss_of(task.data.batch(task.data.at(step)).content)
        gradients = torch.autograd.grad(total, parameters)
        for block in blocks:
            n, a, b = spans[block]
            views[block].grad = gradients[n].contiguous().view(-1)[a:b].div(count)
            optimizers[block].step()
            if l1 and parameters[n].dim() > 1:
                with torch.no_grad():
                    by = defaults["lr"] * l1
                    views[block].copy_(
                        views[block].sign() * (views[block].abs() - by).clamp_min(0)
                    )
        yield flat(task.model)


def _known(kind: Any, options: dict[str, Any]) -> dict[str, Any]:
    import inspect

    return {k: v for k, v in options.items() if k in inspect.signature(kind).parameters}


@pytest.mark.parametrize(
    ("workers", "size", "make"), [(1, 7, momentum), (2, None, adam), (3, 5, regression)]
)
def test_single_blocks_in_turn_are_sequential_block_coordinate_descent(
    workers: int, size: int | None, make: Make
) -> None:
    """To the bit, whoever updates them."""
    strategy = Blocks(size=size, at_once=1, order="cyclic", trace=True)
    found, lines, _ = train(strategy, make, workers, 14)
    count = len(blocks_of(list(make().model.parameters()), size))
    turns = [(step % count,) for step in range(14)]
    assert [line.blocks for line in lines] == turns
    assert torch.equal(found, descent(make, size, turns))


@pytest.mark.parametrize("make", [momentum, adam])
def test_the_log_of_many_workers_replays_to_the_same_bits(make: Make) -> None:
    found, lines, _ = train(Blocks(size=4, trace=True), make, 3, 12)
    assert [line.round for line in lines] == list(range(12))
    assert max(len(line.blocks) for line in lines) > 1, "some went together"
    assert torch.equal(found, descent(make, 4, [line.blocks for line in lines]))


def lasso(correlated: float = 0.6) -> Task:
    """Columns of length sqrt(n), so that the curvature of each is 1 and SGD's rate of 1 makes an
    exact step along it; neighbours are alike."""
    dice = torch.Generator().manual_seed(4)
    rows, columns = 40, 16
    x = torch.randn(rows, columns, generator=dice, dtype=torch.float64)
    for n in range(1, columns):
        x[:, n] = correlated * x[:, n - 1] + (1 - correlated**2) ** 0.5 * x[:, n]
    x = x / x.norm(dim=0) * rows**0.5
    truth = torch.zeros(columns, dtype=torch.float64)
    truth[::5] = torch.tensor([2.0, -1.5, 1.0, 0.5], dtype=torch.float64)
    y = x @ truth + 0.1 * torch.randn(rows, generator=dice, dtype=torch.float64)
    model = nn.Linear(columns, 1, bias=False).double()
    nn.init.zeros_(model.weight)
    loss = sum_loss(lambda out, t: 0.5 * functional.mse_loss(out[:, 0], t, reduction="sum"))
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    return Task(model, loss, optimizer, Data((x, y), rows, shuffle=False))


L1 = 0.05


def objectives(rounds: list[tuple[int, ...]], make: Make = lasso) -> list[float]:
    """After each round of coordinate steps, done again here."""
    task = make()
    inputs, targets = task.data.dataset.tensors
    found = []
    for x in descents(make, 1, rounds, L1):
        residual = inputs @ x - targets
        found.append(float(0.5 * residual.square().mean() + L1 * x.abs().sum()))
    return found


@pytest.mark.parametrize("order", ["priority", "cyclic"])
def test_on_lasso_the_objective_never_rises(order: Any) -> None:
    strategy = Blocks(size=1, at_once=4, order=order, l1=L1, trace=True)
    found, lines, _ = train(strategy, lasso, 2, 60)
    rounds = [line.blocks for line in lines]
    assert torch.equal(found, descent(lasso, 1, rounds, L1))
    values = objectives(rounds)
    assert all(b <= a + 1e-12 for a, b in zip(values, values[1:], strict=False))
    best = objectives([(step % 16,) for step in range(16 * 30)])[-1]
    assert values[-1] < best + 1e-3 < values[0], "and it gets there"
    assert sum(len(each) for each in rounds) > 1.5 * len(rounds), "several at once"


def test_without_the_filter_the_objective_rises() -> None:
    """So that the filter is what keeps it: columns that are nearly the same, all at once."""

    def make() -> Task:
        return lasso(0.995)

    strategy = Blocks(size=1, at_once=8, order="cyclic", l1=L1, trace=True, dependence=None)
    values = objectives([line.blocks for line in train(strategy, make, 2, 6)[1]], make)
    assert any(b > a + 1e-6 for a, b in zip(values, values[1:], strict=False))
    safe = Blocks(size=1, at_once=8, order="cyclic", l1=L1, trace=True)
    values = objectives([line.blocks for line in train(safe, make, 2, 6)[1]], make)
    assert all(b <= a + 1e-12 for a, b in zip(values, values[1:], strict=False))


class Factors(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rows, self.columns = nn.Embedding(6, 3), nn.Embedding(5, 3)

    def forward(self, pairs: Tensor) -> Tensor:
        return (self.rows(pairs[:, 0]) * self.columns(pairs[:, 1])).sum(1)


def factorisation() -> Task:
    dice = torch.Generator().manual_seed(1)
    torch.manual_seed(8)
    truth = torch.randn(6, 3, generator=dice) @ torch.randn(3, 5, generator=dice)
    pairs = torch.cartesian_prod(torch.arange(6), torch.arange(5))
    model = Factors().double()
    loss = sum_loss(functional.mse_loss, reduction="sum")
    data = Data((pairs, truth.double().flatten()), 30, shuffle=False)
    return Task(model, loss, torch.optim.SGD(model.parameters(), 0.3), data)


def test_rows_of_factors_are_blocks_of_which_many_do_not_touch() -> None:
    """Two rows of one table never meet in a sample: they go together."""
    strategy = Blocks(size=3, at_once=4, trace=True, measure_every=10)
    found, lines, _ = train(strategy, factorisation, 2, 60)
    task = factorisation()
    content = task.data.batch(task.data.at(0)).content
    before = float(task.loss_of(content)[0].detach())
    nn.utils.vector_to_parameters(found, task.model.parameters())
    after = float(task.loss_of(content)[0].detach())
    assert after < 0.2 * before
    assert max(len(line.blocks) for line in lines) >= 3


# -- failures, checkpoints ------------------------------------------------------------------------


@pytest.mark.parametrize("victim", [0, 2])
def test_the_blocks_of_a_worker_that_dies_are_dispatched_again(victim: int) -> None:
    here, go = threading.Event(), threading.Event()
    strategy = Blocks(size=4, at_once=3, order="cyclic", trace=True, dependence=None)

    def make() -> Task:
        task = momentum()
        plain = task.loss

        def loss(model: nn.Module, batch: Any) -> tuple[Tensor, float]:
            if threading.current_thread().name == f"town worker {victim}" and here_now():
                here.set()
                assert go.wait(60)
            return plain(model, batch)

        task.loss = loss
        return task

    calls: list[int] = []

    def here_now() -> bool:
        calls.append(1)
        return len(calls) == 4

    torch.set_num_threads(1)
    with Town(3, 1, silent_seconds=5.0) as town:
        tasks = {name: make() for name in town.seats}
        running = {
            name: town.start(name, member, strategy, tasks, range(9), None, None)
            for name in town.seats
        }
        try:
            assert here.wait(60)
            town.fell(f"worker {victim}")
            others = [running[f"worker {n}"].result(60) for n in range(3) if n != victim]
            lines: list[Line] = running["server 0"].result(60)
        finally:
            go.set()
        with pytest.raises(MemberLost):
            running[f"worker {victim}"].result(60)
    assert [fault.who for fault in town.seats["server 0"].counters.faults] == [f"worker {victim}"]
    assert len(lines) == 9
    left = lines[3].left_out
    assert left and set(left) <= set(lines[4].blocks), "first of all in the next round"
    assert torch.equal(others[0][0], others[1][0])
    rounds = [line.blocks for line in lines]
    assert torch.equal(others[0][0], descent(momentum, 4, rounds))


@pytest.mark.parametrize("make", [momentum, adam])
def test_saving_and_loading_in_mid_run_changes_nothing(make: Make) -> None:
    """To the bit, and by another number of workers: also which blocks come next."""
    strategy = Blocks(size=4, at_once=2, trace=True)
    whole, lines, _ = train(strategy, make, 2, 20)
    _, first, state = train(strategy, make, 2, 12)
    resumed, second, _ = train(strategy, make, 3, range(12, 20), state=state)
    assert [e.blocks for e in first + second] == [e.blocks for e in lines]
    assert torch.equal(resumed, whole)


def test_a_checkpoint_is_a_state_dict_like_any_other() -> None:
    _, _, state = train(Blocks(size=4), adam, 2, 20)
    task = adam()
    task.model.load_state_dict(state["model"])
    task.optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))
    total, count = task.loss_of(task.data.batch(task.data.at(20)).content)
    (total / count).backward()
    task.optimizer.step()
    plain = {name: state[name] for name in ("model", "optimizer")}
    train(Blocks(size=3), adam, 1, range(20, 22), state=plain)


def test_what_cannot_work_is_refused_in_words() -> None:
    task = regression()
    with pytest.raises(InvalidInput, match="servers: blocks has one, which schedules"):
        Blocks().check(task, 2, 2)
    with pytest.raises(InvalidInput, match="l1: a proximal step is one of plain SGD"):
        Blocks(l1=0.1).check(momentum(), 2, 1)
    with pytest.raises(InvalidInput, match="one that steps each element by itself"):
        Blocks().check(regression(optimizer=torch.optim.LBFGS), 2, 1)
    with pytest.raises(InvalidInput, match="size"):
        choose("blocks", {"size": 0})


def test_members_with_different_networks_are_told() -> None:
    with Town(1, 1, deadline_seconds=60.0) as town:
        tasks = {"server 0": regression(), "worker 0": regression(model=network(width=4))}
        running = {
            name: town.start(name, member, Blocks(), tasks, range(1), None, None)
            for name in town.seats
        }
        with pytest.raises(InvalidInput, match="worker 0 and server 0 have different parameters"):
            running["worker 0"].result(60)
        town.seats["server 0"].deadline_seconds = 0.2  # for which it waits for a worker again
        town.fell("worker 0")
        with pytest.raises(MemberLost):
            running["server 0"].result(60)
