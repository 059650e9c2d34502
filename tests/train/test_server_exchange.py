"""1.3 and 1.18: a push is answered with the parameters. Applied once however often it is sent, and
answered each time; what a worker reads contains what it has pushed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from windlass.train.policies.compression import OneBit
from windlass.train.runners.server import GradientRunner
from windlass.train.runners.serverstrategies import (
    Async,
    BackupWorkers,
    GradientStrategy,
    ScaledAsync,
    SoftSync,
    StaleSynchronous,
)
from windlass.train.runners.serving import ParameterServing
from windlass.train.runners.shard import Row
from windlass.train.seat import Seat
from windlass.train.state.flat import Layout
from windlass.train.task import Task
from windlass.train.testing.relay import Relay
from windlass.train.testing.replay import replay
from windlass.train.testing.tasks import flat, network, regression
from windlass.train.testing.town import Town

Make = Callable[[], Task]
STEPS = 6


def wide() -> Task:
    """Its parameters are lent, where the other's go through the socket: 112 kB."""
    return regression(model=network(width=2000))


class Watched:
    """One server, with what was asked of it."""

    def __init__(self, strategy: GradientStrategy, make: Make) -> None:
        self.strategy, self.make = strategy, make
        self.asked: list[str] = []
        self.rows: list[Row] = []
        self.counts: dict[str, int] = {}
        self.relay: Relay | None = None
        """Where the workers find it, if not where it is."""
        self.ready = threading.Event()
        self.may_serve = threading.Event()
        self.address = ("", 0)

    def __call__(self, seat: Seat) -> None:
        with self.strategy.serving(self.make(), seat) as serving:
            assert isinstance(serving, ParameterServing)
            endpoint = serving.endpoint
            for name, handler in list(endpoint.handlers.items()):
                endpoint.handlers[name] = self._noting(name, handler)
            self.address = endpoint.address
            self.ready.set()
            assert self.may_serve.wait(60)
            if self.relay is not None:
                endpoint.address = self.relay.address
            serving.run()
            self.rows = serving.rows()
            self.counts = dict(serving.copies.held[0].shard.counts)

    def _noting(self, name: str, handler: Callable[[Any], None]) -> Callable[[Any], None]:
        def handle(request: Any) -> None:
            self.asked.append(name)
            handler(request)

        return handle


def work(seat: Seat, strategy: GradientStrategy, make: Make, steps: int = STEPS) -> Tensor:
    task = make()
    runner = strategy.runner(task, seat)
    assert isinstance(runner, GradientRunner)
    try:
        for step in range(steps):
            runner.step(task.data.batch(task.data.at(step), seat.rank, seat.workers))
        runner.finish()
        runner.drain()
        return flat(task.model)
    finally:
        runner.close()


def train(
    strategy: GradientStrategy, make: Make, workers: int = 1, breaks: dict[str, int] | None = None
) -> tuple[Tensor, Watched, Town, Relay]:
    """With one server, perhaps on a wire that breaks."""
    torch.set_num_threads(1)
    server = Watched(strategy, make)
    with Town(workers, 1) as town:
        serving = town.start("server 0", server)
        assert server.ready.wait(60)
        relay = Relay(server.address)
        try:
            for name, value in (breaks or {}).items():
                setattr(relay, name, value)
            server.relay = relay
            server.may_serve.set()
            futures = [town.start(f"worker {n}", work, strategy, make) for n in range(workers)]
            found = [each.result(60) for each in futures]
            serving.result(60)
        finally:
            relay.close()
    for each in found:
        assert torch.equal(each, found[0])
    return found[0], server, town, relay


@pytest.mark.parametrize("make", [regression, wide])
def test_a_step_is_one_exchange(make: Make) -> None:
    """Pulled at the beginning; asked once more at the end, when there is nothing new."""
    _, server, town, _ = train(Async(), make)
    assert server.asked.count("push") == STEPS
    assert server.asked.count("pull") == 2
    size = 8 * Layout(make().optimizer).size
    assert town.seats["server 0"].counters.sent_bytes["parameters"] == (STEPS + 1) * size
    assert town.seats["worker 0"].counters.events["ranges unchanged"] == 1


def test_who_may_not_read_yet_is_not_held_up_by_its_push() -> None:
    """Collecting policies: only the push that completes a step can be answered with it."""
    _, server, _, _ = train(SoftSync(), regression, workers=3)
    assert server.asked.count("push") == 3 * STEPS
    # one worker of each step read with its push; all pull at the beginning and at the end
    assert server.asked.count("pull") >= 2 * (STEPS - 1) + 2 * 3


MIXED: list[GradientStrategy] = [
    Async(trace=True), ScaledAsync(trace=True), StaleSynchronous(trace=True, staleness=1),
    SoftSync(trace=True, s=2), BackupWorkers(trace=True), Async(trace=True, push_every=2),
    Async(trace=True, compress=OneBit()),
]  # fmt: skip


@pytest.mark.parametrize("strategy", MIXED, ids=lambda s: f"{s.name}-{s.push_every}")
def test_what_a_worker_reads_contains_what_it_has_pushed(strategy: GradientStrategy) -> None:
    found, server, _, _ = train(strategy, regression, workers=3)
    assert torch.equal(replay(regression, strategy, 3, 1, server.rows), found)
    applied = {(row.worker, row.number): row for row in server.rows if row.applied}
    for row in applied.values():
        before = applied.get((row.worker, row.number - 1))
        assert before is None or row.read > before.version, "read your writes"


@pytest.mark.parametrize("make", [regression, wide])
@pytest.mark.parametrize("way", ["budget", "back_budget"])
def test_a_push_on_a_wire_that_breaks_is_applied_once_and_answered(make: Make, way: str) -> None:
    """Before it is there, and after it was applied: the same bits as on a wire that holds."""
    strategy = Async(trace=True)
    whole, _, _, unbroken = train(strategy, make)
    for before_the_end in (700, 1000, 1500):  # among the last pushes
        after = unbroken.carried[way] - before_the_end
        found, server, _, relay = train(strategy, make, breaks={way: after})
        assert relay.connections >= 2, "the wire did break"
        assert torch.equal(found, whole)
        assert server.counts["pushed"] == server.counts["applied"] == STEPS
        assert [row.version for row in server.rows] == list(range(STEPS))


def test_a_push_that_comes_again_to_the_server_is_answered_with_the_parameters() -> None:
    """As from a worker whose server was lost before it answered: asked anew, the same number."""
    torch.set_num_threads(1)
    strategy = Async(trace=True)

    def again(seat: Seat) -> Any:
        task = regression()
        runner = strategy.runner(task, seat)
        assert isinstance(runner, GradientRunner)
        try:
            runner.step(task.data.batch(task.data.at(0), 0, 1))
            runner.install()
            before = flat(task.model)
            wrong: list[Tensor | None] = [torch.ones_like(p) for p in runner.layout.parameters]
            runner.number -= 1  # it has not heard of it
            runner._have.clear()
            with torch.no_grad():
                for each in runner.layout.parameters:
                    each.zero_()
            runner.push(wrong, 6.0, [0], 0, [None], fetch=True)
            assert runner._fetched
            runner.install()
            assert torch.equal(flat(task.model), before)
            runner.finish()
            runner.drain()
        finally:
            runner.close()

    server = Watched(strategy, regression)
    server.may_serve.set()
    with Town(1, 1) as town:
        futures = [town.start("server 0", server), town.start("worker 0", again)]
        for each in futures:
            each.result(60)
    assert server.counts == {"pushed": 1, "applied": 1}


def test_a_checkpoint_that_is_loaded_is_read_though_a_push_brought_others(tmp_path: Path) -> None:
    """What came with the push before is of another history."""
    torch.set_num_threads(1)
    strategy = Async()

    def load(seat: Seat) -> Any:
        task = regression()
        runner = strategy.runner(task, seat)
        assert isinstance(runner, GradientRunner)
        try:
            runner.step(task.data.batch(task.data.at(0), 0, 1))
            state = runner.shared_state()
            assert state is not None
            other = network(seed=5)
            runner.load_shared_state({**state, "model": other.state_dict()})
            runner.pull(1)
            runner.install()
            assert torch.equal(flat(task.model), flat(other))
            runner.finish()
            runner.drain()
        finally:
            runner.close()

    server = Watched(strategy, regression)
    server.may_serve.set()
    with Town(1, 1) as town:
        futures = [town.start("server 0", server), town.start("worker 0", load)]
        for each in futures:
            each.result(60)
