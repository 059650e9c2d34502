"""1.19: replicas that are pipelines or tensor groups around parameter servers: they are what one
process would be where the rule is synchronous, and their logs replay where it is not."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest
import torch
from hybrids import chosen, replayed, trained
from pipelines import task_of

from windlass.core.errors import InvalidInput
from windlass.train.registry import choose
from windlass.train.runners.serverstrategies import StaleSynchronous
from windlass.train.seat import Seat
from windlass.train.task import Task
from windlass.train.testing.tasks import alone, flat, regression
from windlass.train.testing.town import Town


def straight() -> Task:
    return task_of("straight")


def skipping() -> Task:
    return task_of("skipping")


def tied() -> Task:
    return task_of("tied")


def adam() -> Task:
    return task_of("straight", optimizer=lambda p: torch.optim.Adam(p, 0.01))


def plain() -> Task:
    return task_of("straight", optimizer=lambda p: torch.optim.SGD(p, 0.05))


def groups() -> Task:
    def make(parameters: Any) -> torch.optim.Optimizer:
        first, *rest = list(parameters)
        return torch.optim.SGD([{"params": [first], "lr": 0.01}, {"params": rest}], lr=0.05)

    return task_of("straight", optimizer=make)


SYNCHRONOUS = {"rule": "ssp", "staleness": 0}
ONE_REPLICA = [
    ("ps:pipeline", {"size": 2}, straight),
    ("ps:pipeline", {"size": 3, "schedule": "gpipe"}, adam),
    ("ps:pipeline", {"size": 3, "micro_batches": 2}, tied),
    ("ps:pipeline", {"size": 2, "schedule": "zbv"}, skipping),
    ("ps:pipeline", {"size": 2, "recompute": True}, groups),
    ("ps:tensor", {"size": 2}, adam),
    ("ps:pipeline", {"size": 4, "tensor": 2}, straight),
]


@pytest.mark.parametrize(
    ("name", "options", "make"), ONE_REPLICA,
    ids=[f"{name}-{make.__name__}-{n}" for n, (name, _, make) in enumerate(ONE_REPLICA)],
)  # fmt: skip
def test_one_replica_under_ssp_0_is_synchronous_sgd_of_the_whole_model(
    name: str, options: dict[str, Any], make: Any
) -> None:
    strategy = chosen(name, **options, **SYNCHRONOUS)
    found, _, members, _ = trained(strategy, make, strategy.size, 2, 4)
    assert float((found - flat(alone(make(), 4).model)).abs().max()) < 1e-13
    whole = sum(each.numel() for each in make().model.parameters())
    held = [members[f"worker {n}"].held for n in range(1, strategy.size)]
    assert all(each < whole for each in held), "each holds a part"


SEVERAL = [
    ("ps:pipeline", {"rule": "softsync"}, 4, tied),
    ("ps:pipeline", {"rule": "softsync", "copies": 2, "schedule": "zb1p"}, 6, adam),
    ("ps:pipeline", SYNCHRONOUS, 4, skipping),
    ("ps:tensor", SYNCHRONOUS, 4, straight),
]


@pytest.mark.parametrize(
    ("name", "options", "workers", "make"), SEVERAL,
    ids=[f"{name}-{make.__name__}" for name, _, _, make in SEVERAL],
)  # fmt: skip
def test_replicas_that_all_wait_for_each_other_are_one_process_on_the_whole_batch(
    name: str, options: dict[str, Any], workers: int, make: Any
) -> None:
    """Shares of 7 and 4 samples over 2 or 3 replicas are uneven."""
    found, _, _, _ = trained(chosen(name, **options), make, workers, 2, 4)
    assert float((found - flat(alone(make(), 4).model)).abs().max()) < 1e-13


def test_one_replica_is_the_plain_parameter_server_to_the_bit() -> None:
    """Where a batch is not cut into micro-batches: the same sums in the same order."""

    def worker(seat: Seat, strategy: StaleSynchronous, tasks: dict[str, Task]) -> Any:
        task = tasks[seat.name]
        if seat.role == "server":
            with strategy.serving(task, seat) as serving:
                return serving.run()
        runner = strategy.runner(task, seat)
        try:
            for step in range(5):
                runner.step(task.data.batch(task.data.at(step)))
            runner.finish()
            runner.drain()
            return flat(task.model)
        finally:
            runner.close()

    torch.set_num_threads(1)
    with Town(1, 1) as town:
        tasks = {name: adam() for name in town.seats}
        usual = town.call(worker, StaleSynchronous(staleness=0), tasks)["worker 0"]
    strategy = chosen("ps:pipeline", size=3, micro_batches=1, **SYNCHRONOUS)
    found, _, _, _ = trained(strategy, adam, 3, 1, 5)
    assert torch.equal(found, usual)


REPLAYED: list[tuple[dict[str, Any], Any]] = [
    ({"rule": "async"}, straight),
    ({"rule": "async"}, adam),
    ({"rule": "scaled"}, groups),
    ({"rule": "ssp", "staleness": 1}, adam),
    ({"rule": "softsync", "s": 1}, plain),
]


@pytest.mark.parametrize(
    ("options", "make"), REPLAYED, ids=[f"{o['rule']}-{m.__name__}" for o, m in REPLAYED]
)
def test_the_log_of_pipelines_replays_to_the_same_bits(options: dict[str, Any], make: Any) -> None:
    """1.3 (1), (4), (5), of replicas: each part at the versions that its member had read."""
    strategy = chosen("ps:pipeline", trace=True, micro_batches=2, **options)
    found, rows, members, town = trained(strategy, make, 4, 2, 6)
    table = members["worker 0"].table
    assert torch.equal(replayed(make, strategy, table, 2, 2, rows, 2), found)
    reported: Counter[int] = Counter()
    events: Counter[str] = Counter()
    for n in range(2):
        reported += town.seats[f"server {n}"].counters.staleness
        events += town.seats[f"server {n}"].counters.events
    mine = [row for row in rows if row.range == 0]
    assert reported == Counter(row.staleness for row in mine if row.applied)
    assert events["pushed"] == events["applied"] + events["dropped"] + events["pending"]
    assert events["pushed"] == len(mine) == 12 and not events["pending"]
    for index in {row.range for row in rows}:
        pushed = [(row.worker, row.number) for row in rows if row.range == index]
        assert sorted(pushed) == [(w, n) for w in range(2) for n in range(1, 7)], "each once"


def test_the_log_of_tensor_groups_replays() -> None:
    """To rounding: a sum over slices has another order than a whole layer's."""
    strategy = chosen("ps:tensor", trace=True, rule="scaled")
    found, rows, members, _ = trained(strategy, adam, 4, 2, 6)
    again = replayed(adam, strategy, members["worker 0"].table, 2, 2, rows, 1)
    assert float((again - found).abs().max()) < 1e-12


def test_clocks_are_of_replicas_and_bound_what_any_part_has_read() -> None:
    """1.3 (3): a member waits for its own range's slowest replica, whichever member is slow."""
    gate = threading.Semaphore(0)

    def pace(seat: Seat, step: int) -> None:
        if seat.rank == 3:
            gate.acquire(timeout=0.02)

    strategy = chosen("ps:pipeline", trace=True, rule="ssp", staleness=1, micro_batches=2)
    _, rows, _, _ = trained(strategy, plain, 4, 1, 8, pace=pace)
    assert {row.worker for row in rows} == {0, 1}
    for row in rows:
        seen = [r for r in rows if r.range == row.range and r.version < row.read]
        for other in (0, 1):
            assert sum(r.worker == other for r in seen) >= row.number - 1 - 1


def test_what_cannot_work_is_refused_in_words() -> None:
    task = regression()
    with pytest.raises(InvalidInput, match="size: 3 workers make no replicas of 2"):
        chosen("ps:pipeline").check(task, 3, 1)
    with pytest.raises(InvalidInput, match="staleness: only the rule ssp has it"):
        chosen("ps:pipeline", staleness=2).check(task, 2, 1)
    with pytest.raises(InvalidInput, match="s: from 1 to the number of replicas, 2"):
        chosen("ps:tensor", rule="softsync", s=3).check(task, 4, 1)
    with pytest.raises(InvalidInput, match="tensor: 3 does not divide the 2 workers"):
        chosen("ps:pipeline", tensor=3).check(task, 4, 1)
    with pytest.raises(InvalidInput, match="copies: at most the number of servers, 1"):
        chosen("ps:tensor", copies=2).check(task, 4, 1)
    with pytest.raises(InvalidInput, match="rule"):
        choose("ps:pipeline", {"rule": "never"})
