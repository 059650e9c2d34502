"""1.3 and 1.18 with real processes and real kills: who goes on, who is told, within seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from windlass.core.errors import MemberLost
from windlass.train.group import Group
from windlass.train.policies.compression import OneBit
from windlass.train.runners.server import GradientRunner
from windlass.train.runners.serverstrategies import (
    Async,
    ServerStrategy,
    SoftSync,
    StaleSynchronous,
)
from windlass.train.runners.serving import ParameterServing
from windlass.train.runners.shard import Row
from windlass.train.seat import Seat
from windlass.train.testing.replay import replay
from windlass.train.testing.stopped import stop
from windlass.train.testing.tasks import alone, flat, regression


class Told:
    """What the members say of themselves, by name."""

    def __init__(self) -> None:
        self._steps: dict[tuple[str, str], int] = {}
        self._changed = threading.Condition()

    def __call__(self, name: str, what: dict[str, Any], _: bytes) -> None:
        with self._changed:
            self._steps[what["run"], name] = what["step"]
            self._changed.notify_all()

    def wait(self, run: str, name: str, step: int) -> None:
        with self._changed:
            found = self._changed.wait_for(lambda: self._steps.get((run, name), -1) >= step, 60)
        assert found, f"{name} never came to step {step} of {run}"


told = Told()


@pytest.fixture(scope="module")
def everybody() -> Iterator[Group]:
    with Group(3, 3, silent_seconds=60.0, deadline_seconds=300.0, threads=1, told=told) as found:
        yield found


@pytest.fixture
def group(everybody: Group) -> Group:
    """All are well: whoever was ended by the test before is started again, however it went."""
    for name, process in list(everybody.processes.items()):
        if process.popen.poll() is not None or name in everybody.gathering.lost:
            everybody.start_again(name)
    return everybody


def train(seat: Seat, run: str, strategy: ServerStrategy, steps: int, slow: float) -> Any:
    """Each step takes `slow` seconds: a simulated device."""
    task = regression()
    if seat.role == "server":
        with strategy.serving(task, seat) as serving:
            assert isinstance(serving, ParameterServing)
            serving.run()
            return [row.to_json() for row in serving.rows()], seat.counters.to_json()
    runner = strategy.runner(task, seat)
    assert isinstance(runner, GradientRunner)
    try:
        for step in range(runner.joined_at, steps):
            seat.meeting.tell({"run": run, "step": step})
            time.sleep(slow)
            runner.step(task.data.batch(task.data.at(step), seat.rank, seat.workers))
        runner.finish()
        runner.drain()
        return flat(task.model), runner.number, runner.joined_at, seat.counters.to_json()
    finally:
        runner.close()


OTHERS = ["worker 0", "worker 1", "server 0", "server 1", "server 2"]


@pytest.mark.parametrize(
    "strategy",
    [StaleSynchronous(staleness=2), SoftSync()],
    ids=lambda strategy: strategy.name,
)
def test_a_killed_worker_is_not_waited_for(group: Group, strategy: ServerStrategy) -> None:
    run = f"kill {strategy.name}"
    number = group.begin(train, run, strategy, 24, 0.02)
    told.wait(run, "worker 2", 4)
    group.kill("worker 2")
    started = time.monotonic()
    answers = group.finish(number, only=OTHERS, timeout_seconds=200)
    assert torch.equal(answers["worker 0"][0], answers["worker 1"][0])
    assert answers["worker 0"][1] == 24, "all its pushes were taken"
    faults = [fault for n in range(3) for fault in answers[f"server {n}"][1]["faults"]]
    assert ["worker lost", "worker 2"] in [fault[:2] for fault in faults]
    assert time.monotonic() - started < 120, "long before its deadline"


def test_a_stopped_worker_is_not_waited_for(group: Group) -> None:
    """SIGSTOP: no connection breaks, only its signs of life end."""
    run = "stop"
    number = group.begin(train, run, StaleSynchronous(staleness=1), 30, 0.02)
    told.wait(run, "worker 2", 4)
    stop(group, "worker 2")
    answers = group.finish(number, only=OTHERS, timeout_seconds=200)
    assert answers["worker 0"][1] == answers["worker 1"][1] == 30


def test_a_worker_that_is_started_again_joins_at_the_slowest(group: Group) -> None:
    """Of what it had not sent yet it says that it is gone (1.6)."""
    run, strategy = "again", StaleSynchronous(staleness=2, trace=True, compress=OneBit())
    number = group.begin(train, run, strategy, 200, 0.05)
    told.wait(run, "worker 2", 3)
    group.kill("worker 2")
    group.start_again("worker 2")
    second = group.begin(train, run, strategy, 200, 0.05, only=["worker 2"], scope=number)
    answers = group.finish(number, only=OTHERS, timeout_seconds=120)
    answers |= group.finish(second, only=["worker 2"], timeout_seconds=200)
    final, _, joined, counters = answers["worker 2"]
    assert joined > 3, "the others had gone on"
    assert torch.equal(final, answers["worker 0"][0])
    assert ["loss of the residual", "worker 2"] in [each[:2] for each in counters["faults"]]
    assert counters["events"]["residuals lost"] == 1
    assert "residuals lost" not in answers["worker 0"][3]["events"]


@pytest.mark.parametrize("filter", [None, OneBit()], ids=["whole", "onebit"])
def test_a_killed_server_with_a_second_copy_changes_nothing(
    group: Group, filter: OneBit | None
) -> None:
    """1.18, synchronous: the result is that of one process; with residuals, that of the log."""
    run, strategy = f"server {filter}", SoftSync(copies=2, trace=True, compress=filter)
    number = group.begin(train, run, strategy, 24, 0.02)
    told.wait(run, "worker 0", 5)
    group.kill("server 1")
    left = ["worker 0", "worker 1", "worker 2", "server 0", "server 2"]
    answers = group.finish(number, only=left, timeout_seconds=200)
    found = answers["worker 0"][0]
    if filter is None:
        assert float((found - flat(alone(regression(), 24).model)).abs().max()) < 1e-12
    rows = [Row.from_json(row) for n in (0, 2) for row in answers[f"server {n}"][0]]
    torch.set_num_threads(1)
    assert torch.equal(replay(regression, strategy, 3, 3, rows), found)


def test_a_killed_server_without_a_copy_is_named_within_seconds(group: Group) -> None:
    run = "alone"
    number = group.begin(train, run, Async(), 4000, 0.01)
    told.wait(run, "worker 0", 5)
    group.kill("server 1")
    started = time.monotonic()
    with pytest.raises(MemberLost, match="server 1 lost in (push|pull) at step"):
        group.finish(number, only=["worker 0"], timeout_seconds=200)
    assert time.monotonic() - started < 120, "long before its deadline"
