"""1.3 and 1.5 on real sockets: logs replay to the same bits, rules hold, the synchronous ones are
SGD. Members are threads here; `test_train_server_faults.py` has processes and kills."""

from __future__ import annotations

import copy
import functools
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from windlass.core.errors import InvalidInput, MemberLost
from windlass.train.registry import choose
from windlass.train.runners.centre import ElasticRunner
from windlass.train.runners.server import ServerRunner
from windlass.train.runners.serverstrategies import (
    Async,
    BackupWorkers,
    ElasticAsync,
    ElasticServer,
    ScaledAsync,
    ServerStrategy,
    SoftSync,
    StaleSynchronous,
)
from windlass.train.runners.serving import ParameterServing
from windlass.train.runners.shard import Row
from windlass.train.seat import Seat
from windlass.train.task import Task
from windlass.train.testing.replay import replay
from windlass.train.testing.tasks import alone, flat, network, regression
from windlass.train.testing.town import Town

Make = Callable[[], Task]
Pace = Callable[[Seat, int], None]


def adam() -> Task:
    return regression(optimizer=lambda p: torch.optim.Adam(p, 0.01))


def momentum() -> Task:
    return regression(optimizer=lambda p: torch.optim.SGD(p, 0.02, momentum=0.9, nesterov=True))


def groups() -> Task:
    def make(parameters: Any) -> torch.optim.Optimizer:
        first, *rest = list(parameters)
        return torch.optim.SGD([{"params": [first], "lr": 0.01}, {"params": rest}], lr=0.05)

    return regression(optimizer=make)


def member(
    seat: Seat, strategy: ServerStrategy, make: Make, steps: int, pace: Pace | None = None
) -> Any:
    task = make()
    if seat.role == "server":
        with strategy.serving(task, seat) as serving:
            assert isinstance(serving, ParameterServing)
            serving.run()
            return serving.rows()
    runner = strategy.runner(task, seat)
    try:
        for step in range(steps):
            if pace is not None:
                pace(seat, step)
            runner.step(task.data.batch(task.data.at(step), seat.rank, seat.workers))
        runner.finish()
        runner.drain()
        return flat(task.model)
    finally:
        runner.close()


def train(
    strategy: ServerStrategy,
    make: Make,
    workers: int,
    servers: int,
    steps: int,
    pace: Pace | None = None,
) -> tuple[Tensor, list[Row], Town]:
    torch.set_num_threads(1)
    with Town(workers, servers) as town:
        answers = town.call(member, strategy, make, steps, pace)
    rows = [row for n in range(servers) for row in answers[f"server {n}"]]
    for n in range(workers):
        assert torch.equal(answers[f"worker {n}"], answers["worker 0"]), "all end with the same"
    return answers["worker 0"], rows, town


REPLAYED = [
    (Async(trace=True), momentum, 3, 1),
    (Async(trace=True), adam, 3, 3),
    (Async(trace=True, push_every=2), regression, 2, 2),
    (Async(trace=True, push_every=3, fetch_every=2), momentum, 3, 1),
    (ScaledAsync(trace=True), groups, 3, 2),
    (SoftSync(trace=True, s=2), adam, 3, 1),
    (SoftSync(trace=True, s=2, distinct=False), momentum, 3, 1),
    (StaleSynchronous(trace=True, staleness=2), adam, 3, 2),
    (StaleSynchronous(trace=True, staleness=0), momentum, 3, 1),
    (BackupWorkers(trace=True), momentum, 3, 1),
    (Async(trace=True, copies=2), adam, 2, 3),
    (ElasticServer(trace=True, tau=2, alpha=0.2), momentum, 3, 2),
    (ElasticAsync(trace=True, tau=3, alpha=0.3), adam, 3, 2),
]


@pytest.mark.parametrize(
    ("strategy", "make", "workers", "servers"), REPLAYED,
    ids=[f"{s.name}-{m.__name__}-{n}" for n, (s, m, _, _) in enumerate(REPLAYED)],
)  # fmt: skip
def test_the_log_replays_to_the_same_bits(
    strategy: ServerStrategy, make: Make, workers: int, servers: int
) -> None:
    """1.3 (1), (4), (5)."""
    found, rows, town = train(strategy, make, workers, servers, 9)
    assert torch.equal(replay(make, strategy, workers, servers, rows), found)
    mine = [row for row in rows if row.range == 0]
    reported: Counter[int] = Counter()
    events: Counter[str] = Counter()
    for n in range(servers):
        counters = town.seats[f"server {n}"].counters
        reported += counters.staleness
        events += counters.events
    assert reported == Counter(row.staleness for row in mine if row.applied)
    assert events["pushed"] == events["applied"] + events["dropped"] + events["pending"]
    assert events["pushed"] == len(mine) and not events["pending"]


def test_a_log_with_two_lines_exchanged_does_not_replay() -> None:
    """The replay is no tautology."""
    strategy = Async(trace=True)
    found, rows, _ = train(strategy, adam, 2, 1, 6)
    changed = list(rows)
    at = next(n for n in range(1, len(rows)) if rows[n].worker != rows[n - 1].worker)
    first, second = rows[at - 1], rows[at]
    changed[at - 1] = Row.from_json([*first.to_json()[:5], second.version, *first.to_json()[6:]])
    changed[at] = Row.from_json([*second.to_json()[:5], first.version, *second.to_json()[6:]])
    try:
        other = replay(adam, strategy, 2, 1, changed)
    except AssertionError:
        return
    assert not torch.equal(other, found)


@pytest.mark.parametrize(
    "strategy",
    [SoftSync(), SoftSync(s=3), StaleSynchronous(staleness=0), SoftSync(copies=2)],
    ids=["softsync", "softsync-3", "ssp-0", "softsync-copies"],
)
@pytest.mark.parametrize("make", [regression, momentum, adam, groups])
def test_all_workers_or_no_staleness_is_synchronous_sgd(
    strategy: ServerStrategy, make: Make
) -> None:
    """1.3 (2), also with uneven shares and an optimiser with a memory."""
    found, _, _ = train(strategy, make, 3, 2, 10)
    assert float((found - flat(alone(make(), 10).model)).abs().max()) < 1e-13


def test_scaled_rates_times_staleness_are_the_rate() -> None:
    """1.3 (6), on lines that were stale: worker 1 reads, and pushes when worker 0 has thrice."""
    has_read, far = threading.Event(), threading.Event()

    def make() -> Task:
        task = regression()
        plain = task.loss

        def loss(model: torch.nn.Module, batch: Any) -> tuple[Tensor, float]:
            if threading.current_thread().name == "town worker 1":
                has_read.set()
                assert far.wait(60)
            else:
                assert has_read.wait(60)
            return plain(model, batch)

        task.loss = loss
        return task

    def pace(seat: Seat, step: int) -> None:
        if seat.rank == 0 and step == 3:
            far.set()

    _, rows, _ = train(ScaledAsync(trace=True), make, 2, 1, 8, pace)
    assert max(row.staleness for row in rows) >= 3
    for row in rows:
        assert row.factor * row.rates[0] * max(1, row.staleness) == pytest.approx(0.05, abs=1e-16)


def test_ssp_bounds_what_any_step_has_read() -> None:
    """1.3 (3), from the log of a real run with one worker that is slow."""
    gate = threading.Semaphore(0)

    def pace(seat: Seat, step: int) -> None:
        if seat.rank == 1:
            gate.acquire(timeout=0.05)

    _, rows, _ = train(StaleSynchronous(trace=True, staleness=2), regression, 2, 1, 12, pace)
    for row in rows:
        clock = row.number - 1
        seen = [r for r in rows if r.version < row.read]
        for other in {r.worker for r in rows}:
            assert sum(r.worker == other for r in seen) >= min(clock - 2, 12)


def test_a_spare_worker_is_not_waited_for_and_its_late_gradient_is_dropped() -> None:
    late = threading.Event()

    def pace(seat: Seat, step: int) -> None:
        if seat.rank == 2 and step == 1:
            assert late.wait(60)
        if seat.rank == 0 and step == 6:
            late.set()

    _, rows, town = train(BackupWorkers(trace=True), regression, 3, 1, 8, pace)
    assert town.seats["server 0"].counters.events["dropped"] == sum(not r.applied for r in rows)
    steps = Counter(row.version for row in rows if row.applied)
    assert max(steps.values()) <= 2


class Still(torch.nn.Module):
    """No gradient: only the exchange moves it."""

    def __init__(self, start: float) -> None:
        super().__init__()
        self.x = torch.nn.Parameter(torch.full((5,), start, dtype=torch.float64))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs[:, :2] + 0 * self.x.sum()


def elastic_member(
    seat: Seat, strategy: ServerStrategy, exchanges: int
) -> tuple[Tensor, Tensor] | None:
    """Exchanges only, from a start of one's own."""
    task = regression(model=Still(0.0))
    if seat.role == "server":
        with strategy.serving(task, seat) as serving:
            serving.run()
        return None
    runner = strategy.runner(task, seat)
    assert isinstance(runner, ElasticRunner)
    try:
        with torch.no_grad():
            runner.layout.parameters[0].fill_(1.0 + seat.rank)
        for step in range(exchanges):
            runner.exchange(step)
        mine = runner.layout.parameters[0].detach().clone()
        runner.finish()
        runner.drain()
        return mine, runner.layout.parameters[0].detach().clone()
    finally:
        runner.close()


@pytest.mark.parametrize("workers", [2, 3])
def test_elastic_exchange_is_the_formula_and_contracts_as_it_says(workers: int) -> None:
    """1.5: server form; mean(x)-c shrinks by 1-alpha(p+1); sum(x)+c stays."""
    strategy = ElasticServer(tau=1, alpha=0.2)
    with Town(workers, 2) as town:
        answers = town.call(elastic_member, strategy, 20)
    xs = [answers[f"worker {n}"][0] for n in range(workers)]
    centre = answers["worker 0"][1]
    starts = [torch.full((5,), 1.0 + n, dtype=torch.float64) for n in range(workers)]
    # the centre begins where worker 0's model was made: at zero
    expected, theirs = elastic_alone_from(torch.zeros(5, dtype=torch.float64), 0.2, starts, 20)
    assert float((centre - expected).abs().max()) < 1e-15
    assert max(float((a - b).abs().max()) for a, b in zip(xs, theirs, strict=True)) < 1e-15
    total = sum(starts, torch.zeros(5, dtype=torch.float64))
    assert float((sum(xs, centre.clone()) - total).abs().max()) < 1e-14
    gap = float((sum(xs[1:], xs[0].clone()) / workers - centre)[0])
    first = sum(1.0 + n for n in range(workers)) / workers
    assert gap == pytest.approx(first * (1 - 0.2 * (workers + 1)) ** 20, abs=1e-13)


def elastic_alone_from(
    centre: Tensor, alpha: float, starts: list[Tensor], exchanges: int
) -> tuple[Tensor, list[Tensor]]:
    """The plain equations: d_i = alpha (x_i - c); x_i -= d_i; c += sum d_i."""
    xs = [each.clone() for each in starts]
    for _ in range(exchanges):
        ds = [alpha * (x - centre) for x in xs]
        xs = [x - d for x, d in zip(xs, ds, strict=True)]
        for d in ds:
            centre = centre + d
    return centre, xs


def test_elastic_async_conserves_the_sum() -> None:
    with Town(3, 1) as town:
        answers = town.call(elastic_member, ElasticAsync(tau=1, alpha=0.3), 15)
    xs = [answers[f"worker {n}"][0] for n in range(3)]
    assert float((sum(xs, answers["worker 0"][1].clone()) - 6.0).abs().max()) < 1e-13


# -- checkpoints, options -----------------------------------------------------------------------


def saving(seat: Seat, strategy: ServerStrategy, make: Make, state: Any, steps: range) -> Any:
    task = make()
    if seat.role == "server":
        with strategy.serving(task, seat) as serving:
            serving.run()
        return None
    runner = strategy.runner(task, seat)
    assert isinstance(runner, ServerRunner)
    try:
        if state is not None:
            state = copy.deepcopy(state)  # each reads its own, as from a disk
            runner.load_shared_state(state["shared"])
            mine = state["local"].get(seat.rank)
            if mine:
                runner.load_local_state(mine)
        for step in steps:
            runner.step(task.data.batch(task.data.at(step), seat.rank, seat.workers))
        seat.meeting.gather(
            "saved", b"", [f"worker {n}" for n in range(seat.workers)], operation="saving",
            deadline_seconds=20,
        )  # fmt: skip
        shared, local = runner.shared_state(), runner.local_state()
        runner.finish()
        runner.drain()
        return flat(task.model), shared, local
    finally:
        runner.close()


def tied() -> Task:
    torch.manual_seed(4)
    first, second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    second.weight = first.weight
    layers = [first, torch.nn.Tanh(), second, torch.nn.Linear(4, 2)]
    return regression(model=torch.nn.Sequential(*layers).double())


def test_a_weight_that_is_tied_is_saved_alike_under_all_its_names() -> None:
    """A worker's own copy is older than what the servers have."""
    strategy = Async(fetch_every=3)
    with Town(2, 1) as town:
        shared = town.call(saving, strategy, tied, None, range(4))["worker 0"][1]
    model = shared["model"]
    assert torch.equal(model["0.weight"], model["2.weight"])


@pytest.mark.parametrize(
    ("strategy", "later"),
    [(SoftSync(), 3), (StaleSynchronous(staleness=0), 1), (ElasticServer(tau=2, alpha=0.1), 1)],
)
@pytest.mark.parametrize("make", [momentum, adam])
def test_saving_and_loading_in_mid_run_changes_nothing(
    strategy: ServerStrategy, later: int, make: Make
) -> None:
    """Also on another number of servers: the checkpoint is a state_dict like any other."""
    torch.set_num_threads(1)
    with Town(2, 2) as town:
        whole = town.call(saving, strategy, make, None, range(8))["worker 0"][0]
    with Town(2, 2) as town:
        first = town.call(saving, strategy, make, None, range(4))
    state = {
        "shared": first["worker 0"][1],
        "local": {n: first[f"worker {n}"][2] for n in range(2)},
    }
    assert first["worker 1"][1] is None
    task = make()
    task.model.load_state_dict(state["shared"]["model"])
    task.optimizer.load_state_dict(state["shared"]["optimizer"])
    with Town(2, later) as town:
        resumed = town.call(saving, strategy, make, state, range(4, 8))["worker 0"][0]
    assert float((resumed - whole).abs().max()) < 1e-14


def test_options_that_cannot_work_are_refused_in_words() -> None:
    task = regression()
    with pytest.raises(InvalidInput, match=r"alpha < 2/\(p\+1\), 0.5 for 3 workers \(found 0.5\)"):
        ElasticServer(alpha=0.5).check(task, 3, 1)
    with pytest.raises(InvalidInput, match="s: from 1 to the number of workers, 3"):
        SoftSync(s=4).check(task, 3, 1)
    with pytest.raises(InvalidInput, match="servers: 1, where s is below the number of workers"):
        SoftSync(s=2).check(task, 3, 2)
    for fine in (SoftSync(), SoftSync(s=1), SoftSync(s=2, distinct=False)):
        assert not fine.check(task, 3, 2)
    with pytest.raises(InvalidInput, match="backups: fewer than the workers, 2"):
        BackupWorkers(backups=2).check(task, 2, 1)
    with pytest.raises(InvalidInput, match="wait for each other|spares"):
        BackupWorkers().check(task, 3, 2)
    with pytest.raises(InvalidInput, match="copies: at most the number of servers, 1"):
        Async(copies=2).check(task, 2, 1)
    with pytest.raises(InvalidInput, match="snapshots, snapshot_every: both or neither"):
        Async(snapshot_every=5).check(task, 2, 1)
    with pytest.raises(InvalidInput, match="cannot call a closure"):
        Async().check(regression(optimizer=torch.optim.LBFGS), 2, 1)
    with pytest.raises(InvalidInput, match="staleness"):
        choose("ps:ssp", {"staleness": -1})


def test_what_makes_stale_gradients_diverge_is_warned_of() -> None:
    assert any("not scaled" in line for line in Async().check(regression(), 3, 1))
    for strategy in (Async(), ScaledAsync(), StaleSynchronous(staleness=2)):
        assert any("momentum" in line for line in strategy.check(momentum(), 3, 1))
    assert not ScaledAsync().check(regression(), 3, 1)
    assert not StaleSynchronous(staleness=0).check(momentum(), 3, 1)
    assert not Async().check(momentum(), 1, 1)


def test_members_with_different_networks_are_told() -> None:
    def make(seat_rank: list[int]) -> Task:
        seat_rank.append(1)
        return regression(model=network(width=4 if len(seat_rank) == 1 else 8))

    with Town(1, 1) as town:
        futures = [
            town.start("server 0", member, Async(), functools.partial(make, [1]), 2),
            town.start("worker 0", member, Async(), functools.partial(make, []), 2),
        ]
        with pytest.raises(InvalidInput, match="worker 0 and server 0 have different parameters"):
            futures[1].result(60)
        town.seats["server 0"].deadline_seconds = 1.0  # of whom it waits for nobody comes back
        town.fell("worker 0")
        with pytest.raises(MemberLost):
            futures[0].result(60)
