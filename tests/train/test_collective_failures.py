"""A worker that dies, stops or gives up in the middle of a step is named within seconds."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from windlass.core.errors import MemberLost, TrainingFailed
from windlass.train.comm.torchdist import form
from windlass.train.comm.torchdist.forming import backend_for
from windlass.train.group import Group
from windlass.train.runners.collective import AllReduce
from windlass.train.seat import Seat
from windlass.train.testing.stopped import strike
from windlass.train.testing.tasks import flat, regression

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


def train_until_lost(seat: Seat, options: dict[str, Any]) -> dict[str, Any]:
    """Steps for ever; worker 2 says when it is in the middle of it. Gives the error, and whether
    the state is that of before the step."""
    task = regression(600, 6, optimizer=lambda p: torch.optim.SGD(p, 0.01, momentum=0.9))
    runner = AllReduce(**options).runner(task, seat)
    states = []
    try:
        while True:
            cursor = task.data.at(len(states))
            states.append(flat(task.model))
            if cursor.steps == 20 and seat.rank == 2:
                seat.meeting.tell({"at": "the middle"})
            runner.step(task.data.batch(cursor, seat.rank, seat.workers))
    except MemberLost as err:
        started = time.monotonic()
        runner.close()
        return {
            "details": err.details,
            "text": str(err),
            "untouched": torch.equal(states[-1], flat(task.model)),
            "step": len(states) - 1,
            "closing": time.monotonic() - started,
            "before": dict(list(enumerate(states))[-2:]),
        }


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("ring", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_worker_that_dies_or_stops_in_a_step_is_named_and_the_state_is_before_the_step(
    group: Group, how: signal.Signals, ring: bool
) -> None:
    number = group.begin(train_until_lost, {"ring": ring})
    if not middle.wait(120):
        group.finish(number, timeout_seconds=1)  # raises what went wrong
    started = time.monotonic()
    strike(group, "worker 2", how)
    answers = group.finish(number, only=["worker 0", "worker 1"])
    assert time.monotonic() - started < 120, "long before its deadline"
    for answer in answers.values():
        assert answer["details"]["missing"] == ["worker 2"]
        assert answer["details"]["step"] == answer["step"] >= 20
        assert "all-reduce" in answer["details"]["operation"]
        assert answer["untouched"]
        assert answer["closing"] < 30, "it waits for nobody"
    # A sum may have reached one of them and not the other: they are then a whole step apart.
    first, second = answers["worker 0"], answers["worker 1"]
    common = min(first["step"], second["step"])
    assert max(first["step"], second["step"]) <= common + 1
    assert torch.equal(first["before"][common], second["before"][common])


SHORT = 3.0
"""The deadline of what never comes, once all have come as far as that: how long they take to meet
on a busy machine is no part of it."""


def give_up(seat: Seat) -> None:
    task = regression()
    runner = AllReduce().runner(task, seat)
    try:
        for step in range(3):
            if seat.rank == 1 and step == 2:
                raise ArithmeticError("enough")
            runner.step(task.data.batch(task.data.at(step), seat.rank, seat.workers))
    finally:
        runner.close()


def stay_away(seat: Seat) -> str:
    group = form(seat)
    group.step = 4
    numbers = torch.ones(3)
    try:
        group.all_reduce(numbers).wait()
        group._deadline = SHORT
        if seat.rank == 1:
            seat.meeting.get("seen", operation="staying away", deadline_seconds=60)
            return ""
        group.all_reduce(numbers).wait()
    except MemberLost as err:
        return str(err)
    finally:
        seat.meeting.put("seen", b"1")
        group.close()
    return "nobody was missed"


def never_form(seat: Seat) -> str:
    everybody = [f"worker {n}" for n in range(seat.workers)]
    seat.meeting.gather("here", b"", everybody, operation="coming", deadline_seconds=60)
    seat.deadline_seconds = SHORT
    if seat.rank == 1:
        return ""
    try:
        form(seat)
    except MemberLost as err:
        return str(err)
    return "formed"


def test_a_worker_that_gives_up_or_stays_away_is_named_and_its_own_error_is_what_is_raised() -> (
    None
):
    group = Group(3, silent_seconds=60.0, deadline_seconds=60.0)
    try:
        started = time.monotonic()
        with pytest.raises(TrainingFailed, match="worker 1: ArithmeticError: enough"):
            group.call(give_up)
        assert time.monotonic() - started < 60
        answers = group.call(stay_away)
        for name in ("worker 0", "worker 2"):
            assert answers[name].startswith("worker 1 lost in all-reduce at step 4"), answers
        answers = group.call(never_form)
        assert answers["worker 0"].startswith("worker 1 lost in forming the group")
    finally:
        group.close(patience_seconds=0)  # gloo waits to the end for what never came


def test_nccl_is_for_workers_with_a_cuda_device_each() -> None:
    def at(device: str, nccl: bool = True) -> dict[str, Any]:
        return {"device": device, "nccl": nccl}

    assert backend_for([at("a"), at("b")]) == "nccl"
    assert backend_for([at("a"), at("a")]) == "gloo", "two workers share one device"
    assert backend_for([at("a"), at("b", nccl=False)]) == "gloo"
