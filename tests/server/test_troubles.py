"""What a loop cannot handle is told once, put off longer and longer, and gone when it is well."""

from __future__ import annotations

import asyncio
import logging

import pytest

from windlass.core.errors import Fenced, Unavailable
from windlass.server import loops
from windlass.server.loops import Bell
from windlass.server.troubles import MOST_MS, TURN, Troubles


class Still:
    ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> Still:
    return Still()


def test_an_object_backs_off_doubling_and_bounded(clock: Still) -> None:
    handling = Troubles(clock).of("admit")
    waits = [handling.failed("a", ValueError("broken")) for _ in range(12)]
    assert waits[:7] == [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000]
    assert waits[-1] == MOST_MS
    assert not handling.may("a") and handling.may("b")
    clock.ms += MOST_MS
    assert handling.may("a")
    handling.well("a")
    assert handling.failed("a", ValueError("broken")) == 1000


def test_a_trouble_says_which_object_how_often_since_when_and_why(clock: Still) -> None:
    troubles = Troubles(clock)
    for _ in range(3):
        with troubles.of("expire").of("job"):
            raise ValueError("no\x1b[31m such thing")
        clock.ms += 10
    [found] = troubles.all()
    assert (found.loop, found.object, found.times) == ("expire", "job", 3)
    assert (found.since_ms, found.last_ms) == (1_000_000, 1_000_020)
    assert found.error == "ValueError: no\\x1b[31m such thing"
    clock.ms += 3 * MOST_MS  # nobody tries it any more: it is gone
    assert troubles.all() == []


def test_the_log_has_a_line_at_the_beginning_at_a_change_and_at_the_end(clock, caplog) -> None:
    handling = Troubles(clock).of("meter")
    caplog.set_level(logging.INFO, "windlass.troubles")
    for words in ["one"] * 50 + ["two"] * 50:
        handling.failed("a", ValueError(words))
    handling.well("a")
    handling.well("a")
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "meter fails on a, and tries again: ValueError: one",
        "meter fails on a, and tries again: ValueError: two",
        "meter: a goes on, after 100 failures",
    ]


@pytest.mark.parametrize("error", [Fenced("another leads"), Unavailable("away")])
def test_what_concerns_all_goes_through(clock: Still, error: Exception) -> None:
    troubles = Troubles(clock)
    with pytest.raises(type(error)), troubles.of("admit").of("a"):
        raise error
    assert troubles.all() == []


def test_a_loop_whose_turns_fail_is_dead_until_one_is_well(clock: Still) -> None:
    troubles, bell = Troubles(clock), Bell()
    failing = [True]
    turns = asyncio.Event()

    async def turn() -> int | None:
        if failing[0]:
            if len(troubles.all()) and troubles.all()[0].times == 2:
                turns.set()
            raise ValueError("no turn")
        turns.set()
        return None

    async def story() -> None:
        task = asyncio.create_task(
            loops.run("admit", turn, bell, at_most_seconds=60, troubles=troubles)
        )
        await turns.wait()
        await asyncio.sleep(0)
        [words] = troubles.dead(["admit", "reconcile"])
        assert words.startswith("admit has failed ") and "since 1970-01-01T00:16:40" in words
        assert troubles.dead(["reconcile"]) == []
        failing[0] = False
        turns.clear()
        await turns.wait()
        await asyncio.sleep(0)
        assert troubles.dead(["admit"]) == []
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(story())
    assert [each.object for each in troubles.all()] == []


def test_a_turn_that_does_not_end_is_told(clock: Still) -> None:
    troubles = Troubles(clock)
    troubles.begins("reconcile")
    clock.ms += 119_000
    assert troubles.dead(["reconcile"]) == []
    clock.ms += 2_000
    [words] = troubles.dead(["reconcile"])
    assert words == "reconcile hangs in a turn since 1970-01-01T00:16:40.000Z"
    troubles.ends("reconcile")
    assert troubles.dead(["reconcile"]) == []
    troubles.failed("reconcile", TURN, ValueError("once"))
    assert troubles.dead(["reconcile"]) == []  # once is tried again at once
