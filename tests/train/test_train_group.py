"""Members are processes: they meet, answer calls, and are missed within seconds."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from windlass.core.errors import InvalidInput, MemberLost, TrainingFailed
from windlass.train.group import Group
from windlass.train.seat import Seat


@pytest.fixture(scope="module")
def group() -> Iterator[Group]:
    with Group(2, 1) as found:
        yield found


def who(seat: Seat, more: int) -> tuple[str, int, int]:
    return seat.name, os.getpid(), more


def meet(seat: Seat, key: str) -> dict[str, bytes]:
    names = ["worker 0", "worker 1", "server 0"]
    return seat.meeting.gather(
        key, seat.name.encode(), names, operation="meeting", deadline_seconds=60
    )


def break_down(seat: Seat) -> None:
    if seat.name == "worker 1":
        raise ZeroDivisionError("nothing to divide by")


def wait_long(seat: Seat) -> None:
    if seat.role == "worker" and seat.rank == 0:
        seat.meeting.get(
            "never", owner="worker 1", operation="all-reduce", step=7, deadline_seconds=120
        )
    else:
        threading.Event().wait(120)


def test_a_call_runs_in_each_member_and_only_answers_come_back(group: Group) -> None:
    answers = group.call(who, 5)
    assert set(answers) == {"worker 0", "worker 1", "server 0"}
    assert len({pid for _, pid, _ in answers.values()}) == 3
    assert all(name == said and more == 5 for name, (said, _, more) in answers.items())


def test_members_meet_and_share_values(group: Group) -> None:
    for each in group.call(meet, "first").values():
        assert each == {name: name.encode() for name in ("worker 0", "worker 1", "server 0")}


def test_an_exception_of_a_member_comes_back_with_its_name_and_trace(group: Group) -> None:
    with pytest.raises(TrainingFailed, match="worker 1: ZeroDivisionError") as caught:
        group.call(break_down)
    assert "in break_down" in str(caught.value)
    assert group.call(who, 1)["worker 1"][2] == 1, "and it can be called again"


def test_what_cannot_be_sent_is_refused_with_the_way_out(group: Group) -> None:
    with pytest.raises(InvalidInput) as caught:
        group.call(lambda seat: 1)
    assert "top level" in caught.value.hint


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_member_that_dies_or_stops_is_missed_within_seconds(how: signal.Signals) -> None:
    with Group(2, silent_seconds=10.0) as group:
        group.call(who, 1)
        number = group.begin(wait_long)
        group.kill("worker 1", how)
        started = time.monotonic()
        with pytest.raises(MemberLost) as caught:
            group.finish(number, only=["worker 0"])
        assert time.monotonic() - started < 40
        assert caught.value.details["missing"] == ["worker 1"]
        assert "all-reduce at step 7" in str(caught.value)
