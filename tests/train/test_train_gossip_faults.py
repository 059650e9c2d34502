"""Gossip while members die, stop, hang, come back, are slow, or fall apart (spec 1.4)."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from windlass.core.errors import MemberLost
from windlass.train.counters import Counters
from windlass.train.group import Group
from windlass.train.runners.gossip import AdPsgd, DPsgd, Gossip, Sgp
from windlass.train.runners.pairs import Pairs
from windlass.train.runners.swarm import Swarm
from windlass.train.seat import Seat
from windlass.train.testing import tasks
from windlass.train.testing.stopped import silent

WORKERS = 3
VICTIM = "worker 2"


def runner_of(seat: Seat, strategy: Gossip, **changes: Any) -> Swarm:
    seat = replace(seat, counters=Counters(), **changes)
    found = strategy.runner(tasks.regression(23, 7), seat)
    assert isinstance(found, Swarm)
    return found


def take(runner: Swarm, count: int) -> None:
    data, seat = runner.task.data, runner.seat
    for _ in range(count):
        runner.step(data.batch(data.at(runner.at), seat.rank, seat.workers))


def pause(seconds: float) -> None:
    """A device that computes: nobody else's time."""
    threading.Event().wait(seconds)


def end(runner: Swarm) -> dict[str, Any]:
    runner.finish()
    runner.drain()
    runner.close()
    return {
        "final": tasks.flat(runner.task.model), "counters": runner.counters.to_json(),
        "at": runner.at, "joined": runner.joined_at, "trace": runner.trace,
    }  # fmt: skip


def train_with_a_victim(
    seat: Seat, strategy: Gossip, how: signal.Signals, comes_back: bool = False
) -> dict[str, Any]:
    """After ten steps the victim gets that signal, between two lines of anything. The others go
    on for 50 steps, or until it is back and 50 more."""
    runner = runner_of(seat, strategy)
    take(runner, 10)
    if seat.name == VICTIM and runner.joined_at is None:
        threading.Timer(0.005, os.kill, (os.getpid(), how)).start()
        take(runner, 100_000)
    while comes_back and seat.name != VICTIM and not runner.counters.events["joined"]:
        take(runner, 1)
        pause(0.005)
    for _ in range(50):
        take(runner, 1)
        pause(0.005)
    return end(runner)


def with_one_slow(seat: Seat, strategy: Gossip, slow: str) -> tuple[int, int, dict[str, Any]]:
    """The slow one takes a step each time the others have taken eight; they go on until it has
    finished. Were they held up by it, all would wait for ever."""
    runner = runner_of(seat, strategy)
    rank = int(slow.removeprefix("worker "))
    take(runner, 3)
    runner.mean_of_all("all begin")
    before = runner.at
    others = [f"worker {n}" for n in range(WORKERS) if n != rank]
    if seat.name == slow:
        for turn in range(5):
            take(runner, 1)
            for name in others:
                seat.meeting.get(
                    f"{slow} at {turn}/{name}", owner=name, operation="being slow",
                    deadline_seconds=60,
                )  # fmt: skip
    else:
        while not runner.members[rank].finished:
            take(runner, 1)
            pause(0.002)
            turn, rest = divmod(runner.at - before, 8)
            if not rest:
                seat.meeting.put(f"{slow} at {turn - 1}/{seat.name}", b"")
    taken = runner.at - before
    events = dict(runner.counters.events)
    end(runner)
    return taken, events.get("exchanges", 0), events


def with_one_that_hangs(seat: Seat, strategy: Gossip) -> None:
    """The victim beats but takes no more steps. The deadline is short from there on only: all
    have met, and are at the same step."""
    runner = runner_of(seat, strategy)
    take(runner, 3)
    try:
        runner.mean_of_all("all are here")
        runner.seat.deadline_seconds = 5.0
        if seat.name == VICTIM:
            for other in range(WORKERS - 1):
                seat.meeting.get(
                    f"gave up/worker {other}", operation="hanging", deadline_seconds=60
                )
        else:
            take(runner, 2)
    finally:
        seat.meeting.put(f"gave up/{seat.name}", b"")
        runner.close()


def in_two_parts(seat: Seat) -> dict[str, Any]:
    """Workers 0 and 1 speak, worker 2 speaks to nobody."""
    runner = runner_of(seat, AdPsgd())
    assert isinstance(runner, Pairs)
    known = runner._core.choices
    reached = {0: {1}, 1: {0}, 2: set()}[seat.rank]
    runner._core.choices = lambda all_of_them: [  # type: ignore[method-assign]
        rank for rank in known(all_of_them) if rank in reached
    ]
    runner.mean_of_all("all begin")
    for _ in range(20):
        take(runner, 1)
        pause(0.005)
    return end(runner)


@pytest.fixture(scope="module")
def group() -> Iterator[Group]:
    with Group(WORKERS, silent_seconds=60.0, deadline_seconds=120) as found:
        yield found


def restore(group: Group) -> None:
    if group.processes[VICTIM].popen.poll() is not None:
        group.start_again(VICTIM)


SLOW = pytest.mark.slow
KILLED = [AdPsgd(), DPsgd(), Sgp(), pytest.param(Sgp(overlap=2), marks=SLOW)]
STOPPED = [AdPsgd(), DPsgd(), pytest.param(Sgp(), marks=SLOW)]


@pytest.mark.parametrize("strategy", KILLED, ids=["adpsgd", "dpsgd", "sgp", "sgp-overlap"])
def test_the_others_go_on_without_a_member_that_was_killed(group: Group, strategy: Gossip) -> None:
    """1.4: shrink; the survivors end with the same bits and name the dead."""
    number = group.begin(train_with_a_victim, strategy, signal.SIGKILL)
    answers = group.finish(number, tolerate=True, timeout_seconds=120)
    restore(group)
    assert sorted(answers) == ["worker 0", "worker 1"]
    assert torch.equal(answers["worker 0"]["final"], answers["worker 1"]["final"])
    for each in answers.values():
        assert each["at"] == 60
        assert [fault[:2] for fault in each["counters"]["faults"]] == [["lost", VICTIM]]


@pytest.mark.parametrize("strategy", [AdPsgd(), Sgp()], ids=lambda each: each.name)
def test_a_member_that_was_killed_comes_back_with_a_copy(group: Group, strategy: Gossip) -> None:
    """1.4: rejoin; all three end with the same bits."""
    number = group.begin(train_with_a_victim, strategy, signal.SIGKILL, True)

    def died(name: str) -> dict[str, int]:
        group.start_again(name)
        again = group.begin(
            train_with_a_victim, strategy, signal.SIGKILL, True, only=[name], scope=number
        )
        return {name: again}

    answers = group.finish(number, died=died, timeout_seconds=120)
    assert len(answers) == WORKERS
    first = answers["worker 0"]["final"]
    assert all(torch.equal(each["final"], first) for each in answers.values())
    assert answers[VICTIM]["joined"] > 0, "it came to a training that was under way"
    assert answers["worker 0"]["counters"]["events"]["joined"] == 1
    assert answers[VICTIM]["counters"]["events"].get("exchanges", 0) > 0


@pytest.mark.parametrize("strategy", STOPPED, ids=["adpsgd", "dpsgd", "sgp"])
def test_a_member_that_stopped_is_given_up_and_does_not_go_on_by_itself(
    group: Group, strategy: Gossip
) -> None:
    """1.4: stopped, not dead: missed within seconds, and told so when it wakes up."""
    number = group.begin(train_with_a_victim, strategy, signal.SIGSTOP)
    silent(group, VICTIM)
    answers = group.finish(number, only=["worker 0", "worker 1"], timeout_seconds=120)
    assert torch.equal(answers["worker 0"]["final"], answers["worker 1"]["final"])
    group.kill(VICTIM, signal.SIGCONT)
    with pytest.raises(MemberLost) as caught:
        group.finish(number, only=[VICTIM], timeout_seconds=120)
    assert "given this member up" in str(caught.value), "it says so itself"
    assert caught.value.details["missing"] == [VICTIM]
    group.kill(VICTIM)
    group.processes[VICTIM].popen.wait(60)
    restore(group)


@pytest.mark.parametrize("slow", ["worker 0", "worker 1"])
def test_a_slow_member_leaves_the_others_their_pace(group: Group, slow: str) -> None:
    """1.4: many times slower, one that initiates or one that answers; counted in updates."""
    answers = group.call(with_one_slow, AdPsgd(), slow, timeout_seconds=120)
    assert answers[slow][0] == 5
    for name, (taken, _, events) in answers.items():
        if name != slow:
            assert taken >= 40, f"{name} took {taken} steps: {events}"


def test_a_member_that_hangs_is_named_with_operation_and_step(group: Group) -> None:
    """The failure contract: who, in what, at which step, within the deadline."""
    with pytest.raises(MemberLost) as caught:
        group.call(with_one_that_hangs, DPsgd(), timeout_seconds=120)
    assert caught.value.details["missing"] == [VICTIM]
    assert "exchange with neighbours at step" in str(caught.value)


def test_members_that_fell_apart_are_told_with_the_distance_of_each_part(group: Group) -> None:
    """1.4: a partition is reported with the consensus distance per component."""
    answers = group.call(in_two_parts, timeout_seconds=120)
    faults = [f for each in answers.values() for f in each["counters"]["faults"]]
    [found] = [fault for fault in faults if fault[0] == "partition"]
    assert found[1] == "worker 0", "said once, by whoever took the mean"
    assert "2 parts" in found[3] and "of 0, 1: " in found[3] and "of 2: 0" in found[3]
    whole = answers["worker 0"]["counters"]["drift"][-1][1]
    assert whole > 0
