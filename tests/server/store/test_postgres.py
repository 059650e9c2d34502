"""The PostgreSQL store when the server, or the way to it, fails (R-F10, R-F12)."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import Column, Connection, Integer, MetaData, String, Table, insert, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from windlass.core.errors import StorageFull, Unavailable
from windlass.server.store.postgres import PostgresStore
from windlass.testing.postgres import PostgresServer
from windlass.testing.proxy import Proxy

tables = MetaData()
items = Table(
    "items",
    tables,
    Column("key", String(100), primary_key=True),
    Column("value", Integer, nullable=False, server_default="0"),
)


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    url = postgres.fresh()
    yield url
    postgres.drop(url)


def add(key: str) -> Callable[[Connection], str]:
    def fn(conn: Connection) -> str:
        conn.execute(insert(items).values(key=key))
        return key

    return fn


def keys(conn: Connection) -> set[str]:
    return set(conn.scalars(select(items.c.key)))


async def opened(url: str, **options: int) -> PostgresStore:
    store = await PostgresStore.open(url, **options)
    await store.write(tables.create_all)
    return store


def test_a_crash_of_the_server_under_load_is_unavailable_and_then_over(
    postgres: PostgresServer, url: str
) -> None:
    async def main() -> None:
        store = await opened(url)
        acked: set[str] = set()
        unknown: set[str] = set()
        refused = 0
        stop = False

        async def client(k: int) -> None:
            nonlocal refused
            i = 0
            while not stop:
                i += 1
                try:
                    acked.add(await store.write(add(f"{k}-{i}")))
                except Unavailable as error:  # and nothing else
                    refused += 1
                    assert error.details["retry_after_seconds"] >= 1
                    if error.details.get("outcome") == "unknown":
                        unknown.add(f"{k}-{i}")
                    await asyncio.sleep(0.01)

        async def until(condition: Callable[[], bool]) -> None:
            async with asyncio.timeout(60):
                while not condition():
                    await asyncio.sleep(0.01)

        clients = [asyncio.create_task(client(k)) for k in range(8)]
        await until(lambda: len(acked) > 100)
        await asyncio.to_thread(postgres.kill)
        refused = 0
        await until(lambda: refused > 20)
        await asyncio.to_thread(postgres.start)
        again, started = len(acked), time.monotonic()
        await until(lambda: len(acked) > again)
        assert time.monotonic() - started <= 20
        stop = True
        await asyncio.gather(*clients)
        found = await store.read(keys)
        assert acked <= found
        assert found - acked <= unknown
        await store.close()

    asyncio.run(main())


def test_a_server_that_is_not_there_is_unavailable_at_open(
    postgres: PostgresServer,
) -> None:
    with pytest.raises(Unavailable, match="cannot be used"):
        asyncio.run(PostgresStore.open(postgres.url(port=9)))


def test_stale_connections_are_replaced_without_an_error(
    postgres: PostgresServer, url: str
) -> None:
    async def main() -> None:
        store = await opened(url, connections=4)
        await asyncio.gather(*(store.write(add(f"a{i}")) for i in range(20)))
        for turn in range(3):
            ended = postgres.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                "WHERE application_name = 'windlass'"
            )
            assert ended
            await asyncio.gather(*(store.write(add(f"{turn}-{i}")) for i in range(8)))
        await store.close()

    asyncio.run(main())


@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_connection_cut_anywhere_in_a_write_is_settled_by_its_key(
    postgres: PostgresServer, url: str, direction: str
) -> None:
    """Cut after N bytes, N swept over the whole exchange: to the server, and from it."""

    async def main() -> None:
        direct = await opened(url, connections=1)
        with Proxy(postgres.socket) as proxy:
            through = url.replace(str(postgres.directory), "127.0.0.1")
            through = through.replace("port=5432", f"port={proxy.port}")
            store = await PostgresStore.open(through + "&sslmode=disable", connections=1)
            await store.write(add("warm"))
            seen: set[str] = set()
            for n in itertools.count(1, 2):
                cuts = proxy.cuts
                key = f"key-{n}"
                proxy.cut_after(n, direction)
                try:
                    await store.write(add(key))
                    outcome = "acked"
                except Unavailable as error:
                    outcome = error.details.get("outcome", "refused")
                proxy.heal()
                there = key in await direct.read(keys)
                seen.add(f"{outcome}, {'there' if there else 'not there'}")
                if outcome == "unknown":  # settle it: the same key again
                    await store.write(
                        lambda conn, key=key: (
                            conn.execute(  # type: ignore[misc]
                                upsert(items).values(key=key).on_conflict_do_nothing()
                            )
                            and None
                        )
                    )
                assert key in await direct.read(keys)
                if proxy.cuts == cuts:  # the whole exchange passed
                    break
            assert proxy.cuts > 20
            await store.close()
        assert "refused, there" not in seen
        assert "acked, not there" not in seen
        wanted = "unknown, not there" if direction == "up" else "unknown, there"
        assert wanted in seen, f"the sweep never cut in COMMIT: {seen}"
        await direct.close()

    asyncio.run(main())


def test_a_deadlock_runs_the_loser_again(url: str) -> None:
    both = threading.Barrier(2)
    runs: list[str] = []

    def crossing(first: str, second: str) -> Callable[[Connection], None]:
        def fn(conn: Connection) -> None:
            runs.append(first)
            for key in (first, second):
                conn.execute(
                    update(items).where(items.c.key == key).values(value=items.c.value + 1)
                )
                if len(runs) <= 2 and key == first:
                    both.wait(60)

        return fn

    async def main() -> None:
        store = await opened(url)
        await asyncio.gather(store.write(add("a")), store.write(add("b")))
        await asyncio.gather(store.write(crossing("a", "b")), store.write(crossing("b", "a")))
        assert len(runs) == 3
        assert await store.read(lambda c: c.scalars(select(items.c.value)).all()) == [2, 2]
        await store.close()

    asyncio.run(main())


def failing(code: str, times: int) -> Callable[[Connection], int]:
    """A function that the server refuses with an SQLSTATE, so many times."""
    runs = 0

    def fn(conn: Connection) -> int:
        nonlocal runs
        runs += 1
        if runs <= times:
            conn.exec_driver_sql(f"DO $$BEGIN RAISE EXCEPTION USING ERRCODE='{code}'; END$$")
        return runs

    return fn


def test_failures_are_told_apart(url: str) -> None:
    async def main() -> None:
        store = await opened(url, statement_seconds=1, lock_seconds=1)
        assert await store.write(failing("40001", 3)) == 4
        with pytest.raises(Unavailable, match="contended"):
            await store.write(failing("40001", 1000))
        with pytest.raises(StorageFull):
            await store.write(failing("53100", 1000))
        with pytest.raises(Unavailable):
            await store.write(failing("57P03", 1000))
        with pytest.raises(Unavailable, match="statement timeout"):
            await store.write(lambda c: c.exec_driver_sql("SELECT pg_sleep(30)") and None)
        await store.close()

    asyncio.run(main())


def test_sessions_carry_our_settings(url: str) -> None:
    async def main() -> None:
        store = await opened(url)

        def show(conn: Connection) -> list[str]:
            names = ("synchronous_commit", "transaction_isolation", "statement_timeout")
            return [str(conn.exec_driver_sql(f"SHOW {name}").scalar()) for name in names]

        assert await store.write(show) == ["on", "read committed", "30s"]
        assert await store.read(show) == ["on", "repeatable read", "30s"]
        assert await store.write(show) == ["on", "read committed", "30s"]
        await store.close()

    asyncio.run(main())


def test_the_test_server_leaves_nothing_behind() -> None:
    from windlass.testing.postgres import postgres_server

    with postgres_server() as server:
        if server is None:
            pytest.skip("PostgreSQL is not installed")
        directory, pid = server.directory, server.pid
        assert server.execute("SELECT 1") == [(1,)]
    assert not directory.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
