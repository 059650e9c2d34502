"""Guessing is slow: counted before the guess is looked at, by all servers, and bounded."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import func, select

from windlass.core.errors import LimitExceeded
from windlass.server.sessions import attempts
from windlass.server.sessions.tables import login_attempts
from windlass.server.store.base import Store

NOW = 10_000_000_000


class Guesser:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.now = NOW

    def guess(self, user: str = "anna", address: str = "192.0.2.7") -> int:
        """0 when it is let through, else the seconds to wait."""

        async def go() -> None:
            await self.store.write(lambda conn: attempts.begin(conn, user, address, self.now))

        try:
            asyncio.run(go())
        except LimitExceeded as error:
            return int(error.details["retry_after_seconds"])
        return 0

    def right(self, user: str = "anna", address: str = "192.0.2.7") -> None:
        asyncio.run(self.store.write(lambda conn: attempts.right(conn, user, address)))

    def rows(self) -> int:
        count = select(func.count()).select_from(login_attempts)
        return asyncio.run(self.store.read(lambda conn: conn.execute(count).scalar_one()))


@pytest.fixture
def guesser(store: Store) -> Guesser:
    return Guesser(store)


def test_after_the_free_ones_the_wait_doubles(guesser: Guesser):
    for _ in range(attempts.ACCOUNT.free):
        assert guesser.guess() == 0
    waits = []
    for turn in range(10):
        assert guesser.guess(address=f"198.51.100.{turn}") == 0
        wait = guesser.guess(address=f"203.0.113.{turn}")
        assert wait == guesser.guess(), "who comes too soon does not prolong it"
        waits.append(wait)
        guesser.now += wait * 1000
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]


def test_a_right_password_clears_the_account_but_not_the_address(guesser: Guesser):
    for turn in range(attempts.ADDRESS.free):
        assert guesser.guess(f"user-{turn}") == 0
        if turn % 3 == 0:
            assert guesser.guess("own") == 0
            guesser.right("own")
    assert guesser.guess("one-more") == 0
    assert guesser.guess("another") > 0
    assert guesser.guess("another", address="192.0.2.8") == 0


def test_an_account_is_counted_from_all_addresses_together(guesser: Guesser):
    for turn in range(attempts.ACCOUNT.free + 1):
        assert guesser.guess(address=f"198.51.100.{turn}") == 0
    assert guesser.guess(address="198.51.100.99") > 0
    assert guesser.guess("ANNA", "198.51.100.99") > 0, "however it is written"
    assert guesser.guess("berta", "198.51.100.99") == 0


def test_an_address_of_ipv6_is_its_subscribers_network(guesser: Guesser):
    for turn in range(attempts.ADDRESS.free + 1):
        assert guesser.guess(f"user-{turn}", f"2001:db8::{turn:x}") == 0
    assert guesser.guess("late", "2001:db8::ffff") > 0
    assert guesser.guess("late", "2001:db8:1::1") == 0
    assert attempts.address_key("::ffff:192.0.2.1") == attempts.address_key("192.0.2.1")


def test_many_at_once_get_no_more_than_one_by_one(store: Store):
    """A hundred guesses in the time that one takes must not be a hundred guesses."""

    async def go() -> list[object]:
        return list(
            await asyncio.gather(
                *(
                    store.write(lambda conn, n=n: attempts.begin(conn, "anna", f"10.0.0.{n}", NOW))
                    for n in range(100)
                ),
                return_exceptions=True,
            )
        )

    done = asyncio.run(go())
    assert done.count(None) == attempts.ACCOUNT.free + 1
    assert sum(isinstance(each, LimitExceeded) for each in done) == 99 - attempts.ACCOUNT.free


def test_made_up_names_do_not_fill_the_disk(guesser: Guesser, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(attempts, "MAX_ROWS", 100)
    for turn in range(150):
        guesser.guess(f"made-up-{turn}", f"10.1.{turn}.1")
        guesser.now += 1
    assert guesser.rows() <= 102
    guesser.now += attempts.FORGET_MS + 10
    now = guesser.now
    assert asyncio.run(guesser.store.write(lambda conn: attempts.sweep(conn, now))) > 0
    assert guesser.rows() == 0
