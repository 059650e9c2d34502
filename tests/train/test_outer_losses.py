"""1.2: when a worker is lost, the others average over survivors and go on."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from windlass.core.errors import MemberLost
from windlass.train import registry
from windlass.train.group import Group
from windlass.train.runners.periods import PeriodRunner
from windlass.train.seat import Seat
from windlass.train.testing.stopped import stop, strike
from windlass.train.testing.tasks import flat, regression

LAST = 40

middle = threading.Event()
ended: list[str] = []


@pytest.fixture(scope="module")
def everybody() -> Iterator[Group]:
    with Group(
        3, silent_seconds=60.0, deadline_seconds=300.0, told=lambda *_: middle.set()
    ) as found:
        yield found


@pytest.fixture
def group(everybody: Group) -> Group:
    """All three are well: only who was ended by the test before is started again."""
    while ended:
        everybody.start_again(ended.pop())
    middle.clear()
    ended.append("worker 2")
    return everybody


def train(seat: Seat, name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Worker 2 waits at step 20 for its end; the others go on to step 40."""
    task = regression(600, 6, optimizer=lambda p: torch.optim.SGD(p, 0.01, momentum=0.9))
    known = len(seat.counters.faults)  # of the trainings before
    runner = registry.choose(name, options).runner(task, seat)
    assert isinstance(runner, PeriodRunner)
    for step in range(LAST):
        if step == 20 and seat.rank == 2:
            seat.meeting.tell({"at": step})
            threading.Event().wait(120)
        runner.step(task.data.batch(task.data.at(step), seat.rank, seat.workers))
    runner.finish()
    runner.drain()
    runner.close()
    faults = [(each.kind, each.who, each.text) for each in seat.counters.faults[known:]]
    return {"state": flat(task.model), "faults": faults, "rounds": runner._rounds}


@pytest.mark.parametrize(
    "how, name, options",
    [
        (signal.SIGKILL, "local_sgd", {"every": 4, "average_state": True}),
        (signal.SIGSTOP, "easgd", {"tau": 4}),
        pytest.param(signal.SIGSTOP, "bmuf", {"tau": 7}, marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, "local_sgd", {"post_local": 30}, marks=pytest.mark.slow),
    ],
)
def test_the_others_go_on_without_one_that_dies_or_stops(
    group: Group, how: signal.Signals, name: str, options: dict[str, Any]
) -> None:
    number = group.begin(train, name, options)
    if not middle.wait(120):
        group.finish(number, timeout_seconds=1)  # raises what went wrong
    started = time.monotonic()
    strike(group, "worker 2", how)
    answers = group.finish(number, only=["worker 0", "worker 1"])
    assert time.monotonic() - started < 120, "long before its deadline"
    first, second = answers["worker 0"], answers["worker 1"]
    assert torch.equal(first["state"], second["state"])
    assert first["rounds"] == second["rounds"]
    for each in (first, second):
        assert [fault[:2] for fault in each["faults"]] == [("lost", "worker 2")]
        assert "over 2 of 3 workers" in each["faults"][0][2]


def fall_behind(seat: Seat) -> dict[str, Any]:
    """Worker 1 could not finish an exchange that worker 0 finished: it died with worker 2."""
    task = regression(600, 6)
    runner = registry.choose("bmuf", {"tau": 4}).runner(task, seat)
    assert isinstance(runner, PeriodRunner)

    def go(first: int, last: int) -> None:
        for step in range(first, last):
            runner.step(task.data.batch(task.data.at(step), seat.rank, seat.workers))

    go(0, 3)
    before = (runner.parameters.read(), runner.outer, runner._rounds)
    go(3, 4)
    after = flat(task.model)
    if seat.rank == 1:  # as if the last part had not come: what it would have been
        share = task.data.batch(task.data.at(3), 1, 3)
        runner.parameters.write(before[0])
        task.optimizer.zero_grad()
        total, count = task.loss_of(share.content)
        (total / count).backward()  # type: ignore[no-untyped-call]
        task.optimizer.step()
        runner.outer, runner._rounds, runner._stepped = before[1], before[2], 4
    seat.meeting.tell({"at": seat.name})
    while not runner.survivors.missing():
        time.sleep(0.02)
    if seat.rank == 1:
        assert runner._shrink(finished=False), "it is brought into the others' round"
        assert torch.equal(flat(task.model), after)
    go(4, 12)
    runner.finish()
    runner.close()
    return {"state": flat(task.model), "rounds": runner._rounds}


def test_a_worker_that_missed_the_end_of_an_exchange_gets_it_from_one_that_did_not() -> None:
    here: set[str] = set()
    all_here = threading.Event()

    def told(name: str, *_: object) -> None:
        here.add(name)
        if len(here) == 3:
            all_here.set()

    with Group(3, silent_seconds=60.0, told=told) as group:
        number = group.begin(fall_behind)
        assert all_here.wait(120)
        group.kill("worker 2")
        answers = group.finish(number, only=["worker 0", "worker 1"])
    assert torch.equal(answers["worker 0"]["state"], answers["worker 1"]["state"])
    assert answers["worker 0"]["rounds"] == answers["worker 1"]["rounds"] == 3


def wake(seat: Seat) -> str:
    task = regression(600, 6)
    runner = registry.choose("local_sgd", {"every": 2}).runner(task, seat)
    try:
        for step in range(200):
            if step == 20 and seat.rank == 2:
                seat.meeting.tell({"at": step})
                threading.Event().wait(4)
            runner.step(task.data.batch(task.data.at(step), seat.rank, seat.workers))
            if step > 20:
                time.sleep(0.01)
        runner.finish()
    except MemberLost as err:
        return str(err)
    finally:
        runner.close()
    return "finished"


@pytest.mark.slow
def test_a_worker_that_wakes_after_it_was_given_up_does_not_go_on_alone(group: Group) -> None:
    number = group.begin(wake)
    if not middle.wait(120):
        group.finish(number, timeout_seconds=1)  # raises what went wrong
    stop(group, "worker 2")
    answers = group.finish(number, only=["worker 0", "worker 1"])
    group.kill("worker 2", signal.SIGCONT)
    late = group.finish(number, only=["worker 2"], timeout_seconds=60)
    assert set(answers.values()) == {"finished"}
    assert "lost in exchange of parameters" in late["worker 2"]
