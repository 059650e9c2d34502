"""The town raises what went wrong, not what followed from it: tests that look for a message rely
on it."""

from __future__ import annotations

import threading

import pytest

from windlass.core.errors import MemberLost
from windlass.train.failures import lost
from windlass.train.seat import Seat
from windlass.train.testing.town import Town


def test_the_cause_is_raised_though_it_comes_last_and_from_the_last_seat() -> None:
    missed = threading.Barrier(3)

    def fail(seat: Seat) -> None:
        missed.wait(60)
        if seat.rank < 2:
            raise lost(["worker 2"], "waiting", 3, why="it gave up")
        raise ArithmeticError(f"enough, says {seat.name}")

    with Town(3, 0) as town:
        with pytest.raises(ArithmeticError, match="enough, says worker 2"):
            town.call(fail)


def test_where_all_miss_somebody_the_first_seat_is_heard() -> None:
    def miss(seat: Seat) -> None:
        raise lost([f"worker {1 - seat.rank}"], "waiting", None)

    with Town(2, 0) as town:
        for _ in range(5):
            with pytest.raises(MemberLost, match="worker 1 lost in waiting"):
                town.call(miss)


def test_who_does_not_answer_is_named() -> None:
    go = threading.Event()

    def wait(seat: Seat) -> bool:
        return seat.rank == 0 or go.wait(60)

    with Town(2, 0) as town:
        try:
            with pytest.raises(TimeoutError, match="^worker 1: no answer for 0.2 s$"):
                town.call(wait, timeout_seconds=0.2)
        finally:
            go.set()
        assert town.call(wait) == {"worker 0": True, "worker 1": True}
