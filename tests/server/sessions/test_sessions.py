"""The rows behind cookies and links: when they live, when they are dead, and for how many."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from sqlalchemy import Connection, insert, select, update

from windlass.core.errors import Unauthenticated, Unavailable
from windlass.core.signing import SignedParts
from windlass.server.access.sealing import load
from windlass.server.access.service import Access
from windlass.server.access.tables import users
from windlass.server.sessions import cookies, links, passwords, service
from windlass.server.sessions.passwords import Passwords
from windlass.server.sessions.service import Ages, Sessions
from windlass.server.sessions.tables import sessions as table
from windlass.server.store.base import Store

T = TypeVar("T")
CHEAP = {"time_cost": 1, "memory_cost": 64, "parallelism": 1}
AGES = Ages(idle_ms=10_000, whole_ms=100_000)


class World:
    """A store with one person, and a clock."""

    def __init__(self, store: Store, home: Any) -> None:
        self.store = store
        self.now = 1_000_000
        self.access = Access(store, load(home / "kek"), _no_token, now_ms=lambda: self.now)
        asyncio.run(self.access.first_start())
        self.sessions = Sessions(
            store, self.access, Passwords(**CHEAP), AGES, now_ms=lambda: self.now
        )
        self.user = self.write(lambda conn: service.person(conn, name="owner"))

    def write(self, fn: Callable[[Connection], T]) -> T:
        return asyncio.run(self.store.write(fn))

    def begin(self, **given: Any) -> service.Begun:
        usual = {
            "how": "password", "address": "127.0.0.1", "browser": "b", "ages": AGES,
            "now_ms": self.now,
        }  # fmt: skip
        return self.write(
            lambda conn: service.begin(
                conn, service.person(conn, name="owner"), **{**usual, **given}
            )
        )

    def lives(self, begun: service.Begun) -> bool:
        line = f"{cookies.SESSION}={begun.token}".encode()
        self.access.forget()
        parts = SignedParts("GET", b"/", b"", [(b"cookie", line)])
        try:
            found = asyncio.run(self.sessions.find(parts, None))
        except Unauthenticated:
            return False
        assert found is not None and found.credential == begun.id
        return True


async def _no_token(digest: str) -> None:
    return None


@pytest.fixture
def world(store: Store, tmp_path: Any) -> World:
    return World(store, tmp_path)


def test_a_session_dies_when_it_is_idle_and_when_it_is_old(world: World):
    used, idle = world.begin(), world.begin()
    for _ in range(11):
        world.now += 9_000
        assert world.lives(used)
    assert not world.lives(idle)
    world.now += 900
    assert world.lives(used)
    world.now += 200
    assert not world.lives(used), "old, though it was never idle"


def test_tending_forgets_what_is_over(world: World):
    world.begin()
    world.write(lambda conn: links.make(conn, links.BROWSER, world.user.id, seconds=60,
                                        now_ms=world.now))  # fmt: skip
    world.now += 100_000
    asyncio.run(world.sessions.tend())
    left = asyncio.run(world.store.read(lambda conn: conn.execute(select(table.c.id)).all()))
    assert left == []


@pytest.mark.parametrize("change", ["password", "disabled", "epoch", "service"])
def test_a_session_dies_with_what_it_stands_for(world: World, change: str):
    begun = world.begin()
    assert world.lives(begun)
    values: dict[str, Any] = {
        "disabled": {"disabled": True}, "epoch": {"epoch": users.c.epoch + 1},
        "service": {"kind": "service"},
    }.get(change, {})  # fmt: skip
    if change == "password":
        world.write(lambda conn: service.set_password(conn, world.user.id, "x"))
    else:
        world.write(lambda conn: conn.execute(update(users).values(**values)).rowcount)
    assert not world.lives(begun)


def test_only_the_hash_of_a_session_is_kept(world: World):
    begun = world.begin()
    rows = asyncio.run(world.store.read(lambda conn: conn.execute(select(table)).all()))
    assert begun.token not in repr(rows)


def test_a_user_has_a_bounded_number_of_sessions(world: World):
    first = world.begin()
    for _ in range(service.MOST):
        world.now += 1
        last = world.begin()
    assert not world.lives(first) and world.lives(last)


def test_a_link_is_good_once_however_many_try(world: World):
    token = world.write(
        lambda conn: links.make(conn, links.BROWSER, world.user.id, seconds=60, now_ms=world.now)
    )

    async def race() -> list[Any]:
        return await asyncio.gather(
            *(
                world.store.write(lambda conn: links.take(conn, links.BROWSER, token, world.now))
                for _ in range(20)
            )
        )

    assert sum(found is not None for found in asyncio.run(race())) == 1


def test_a_link_dies_of_age_and_is_for_its_purpose_alone(world: World):
    def make(seconds: float) -> str:
        return world.write(
            lambda conn: links.make(
                conn, links.BROWSER, world.user.id, seconds=seconds, now_ms=world.now
            )
        )

    def take(purpose: str, token: str) -> bool:
        return world.write(lambda conn: links.take(conn, purpose, token, world.now)) is not None

    token = make(60)
    assert not take(links.PASSWORD, token)
    world.now += 59_999
    assert take(links.BROWSER, token)
    token = make(60)
    world.now += 60_000
    assert not take(links.BROWSER, token)


def test_links_of_a_user_are_bounded(world: World):
    def make() -> str:
        world.now += 1
        return world.write(
            lambda conn: links.make(
                conn, links.BROWSER, world.user.id, seconds=60, now_ms=world.now
            )
        )

    first = make()
    for _ in range(links.MOST[links.BROWSER]):
        last = make()
    for token, lives in ((first, False), (last, True)):
        found = world.write(
            lambda conn, token=token: links.look(conn, links.BROWSER, token, world.now)
        )
        assert (found is not None) == lives


def test_the_way_back_from_an_issuer_is_good_once_however_many_try(world: World):
    async def race() -> list[bool]:
        return await asyncio.gather(
            *(
                world.store.write(
                    lambda conn: links.once(conn, "oidc", "s", seconds=60, now_ms=world.now)
                )
                for _ in range(20)
            )
        )

    assert asyncio.run(race()).count(True) == 1


def test_a_new_password_ends_links_too(world: World):
    token = world.write(
        lambda conn: links.make(conn, links.BROWSER, world.user.id, seconds=60, now_ms=world.now)
    )
    world.write(lambda conn: service.set_password(conn, world.user.id, "x"))
    assert world.write(lambda conn: links.look(conn, links.BROWSER, token, world.now)) is None


def test_a_service_account_is_nobody_who_logs_in(world: World):
    world.write(
        lambda conn: (
            conn.execute(
                insert(users).values(id="s" * 32, name="robot", created_ms=0, kind="service")
            ).rowcount
        )
    )
    assert world.write(lambda conn: service.person(conn, name="robot")) is None


def test_a_page_that_only_listens_is_idle(world: World):
    begun = world.begin()
    line = f"{cookies.SESSION}={begun.token}".encode()
    listening = SignedParts("GET", b"/api/v1/feed", b"", [(b"cookie", line)])
    for _ in range(3):
        world.now += 4_000
        try:
            asyncio.run(world.sessions.find(listening, None))
        except Unauthenticated:
            break
    else:
        raise AssertionError("it was never idle")


def test_a_hash_of_a_lower_cost_is_made_again_and_ends_nothing(world: World):
    async def go() -> tuple[str, str]:
        cheap, dear = Passwords(**CHEAP), Passwords(time_cost=2, memory_cost=128, parallelism=1)
        old, new = await cheap.hash("a good password"), await dear.hash("a good password")
        assert dear.outdated(old) and not dear.outdated(new)
        return old, new

    old, new = asyncio.run(go())
    world.write(lambda conn: conn.execute(update(users).values(password=old)).rowcount)
    begun = world.begin()
    world.write(lambda conn: service.rehash(conn, world.user.id, "another", "x"))
    assert world.write(lambda conn: service.person(conn, name="owner")).password == old
    world.write(lambda conn: service.rehash(conn, world.user.id, old, new))
    assert world.write(lambda conn: service.person(conn, name="owner")).password == new
    assert world.lives(begun)


def test_a_name_that_nobody_has_costs_as_much_as_a_wrong_password():
    async def go() -> None:
        found = Passwords(**CHEAP)
        known = await found.hash("a good password")
        checked: list[str] = []
        real = found._hasher

        class Counting:
            def verify(self, hash: str, password: str) -> bool:
                checked.append(hash)
                return bool(real.verify(hash, password))

        found._hasher = Counting()
        assert not await found.verify("wrong", known)
        assert not await found.verify("wrong", None)
        assert [each.rpartition("$")[0].rpartition("$")[0] for each in checked] == [
            known.rpartition("$")[0].rpartition("$")[0]
        ] * 2, "the same function at the same cost"

    asyncio.run(go())


def test_what_looks_the_same_is_the_same_password():
    async def go() -> None:
        found = Passwords(**CHEAP)
        known = await found.hash("Stra\u00dfe nach S\u00fcden")
        assert known.startswith("$argon2id$")
        assert await found.verify("Stra\u00dfe nach Su\u0308den", known)
        assert not await found.verify("Strasse nach Sueden", known)
        assert not await found.verify("anything", None)
        assert not await found.verify("anything", "broken hash")
        assert not found.outdated(known)
        assert Passwords().outdated(known) is False, "before it is loaded it knows nothing"

    asyncio.run(go())


def test_hashing_is_bounded_and_the_loop_stays_free(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(passwords, "MAX_WAITING", 6)

    async def go() -> None:
        found = Passwords(time_cost=2, memory_cost=8192, parallelism=1)
        at_once = most = 0
        inner = found._verify

        def watched(password: str, known: str | None) -> bool:
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            result = inner(password, known)
            at_once -= 1
            return result

        monkeypatch.setattr(found, "_verify", watched)
        done = await asyncio.gather(
            *(found.verify("guess", None) for _ in range(20)), return_exceptions=True
        )
        assert done.count(False) == 6
        assert sum(isinstance(each, Unavailable) for each in done) == 14
        assert most <= passwords.AT_ONCE

    asyncio.run(go())
