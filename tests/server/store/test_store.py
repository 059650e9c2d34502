"""What both kinds of store promise."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Column, Connection, MetaData, String, Table, func, insert, select
from sqlalchemy.exc import DBAPIError, IntegrityError

from windlass.core.errors import InvalidInput, Unavailable
from windlass.server.store.base import Store
from windlass.server.store.hints import touch
from windlass.server.store.metadata import AutoNumber, Json
from windlass.server.store.open import open_store

tables = MetaData()
items = Table(
    "items",
    tables,
    Column("id", AutoNumber, primary_key=True),
    Column("name", String(40), unique=True),
    Column("data", Json),
)


@pytest.fixture
def plain(database_url: str) -> Iterator[Store]:
    store = asyncio.run(open_store(database_url, migrate=False, create=tables))
    yield store
    asyncio.run(store.close())


def add(name: str) -> Callable[[Connection], str]:
    def fn(conn: Connection) -> str:
        conn.execute(insert(items).values(name=name))
        return name

    return fn


def names(conn: Connection) -> list[str]:
    return list(conn.scalars(select(items.c.name).order_by(items.c.name)))


def test_what_is_written_is_read_and_values_come_back_as_they_were(plain: Store) -> None:
    deep: list[Any] = []
    for _ in range(400):
        deep = [deep]
    values = [{"ä": [1, 2.5, None, True, "x\ny", 10**30, -1e-300], "b": {}}, deep, "", 0, [], {}]

    async def main() -> None:
        for value in values:
            await plain.write(lambda c, v=value: c.execute(insert(items).values(data=v)) and None)
        found = await plain.read(
            lambda c: c.scalars(select(items.c.data).order_by(items.c.id)).all()
        )
        assert found == values

    asyncio.run(main())


def test_a_function_that_raises_undoes_only_itself(plain: Store) -> None:
    def bad(conn: Connection) -> None:
        conn.execute(insert(items).values(name="bad"))
        raise KeyError("mine")

    async def main() -> None:
        asks = [plain.write(bad if i % 3 == 1 else add(f"{i:02}")) for i in range(30)]
        results = await asyncio.gather(*asks, return_exceptions=True)
        good = [f"{i:02}" for i in range(30) if i % 3 != 1]
        assert [r for r in results if isinstance(r, str)] == good
        assert [repr(r) for r in results if not isinstance(r, str)] == ["KeyError('mine')"] * 10
        assert await plain.read(names) == good

    asyncio.run(main())


def test_a_broken_constraint_comes_back_as_it_is_and_harms_no_neighbour(plain: Store) -> None:
    async def main() -> None:
        results = await asyncio.gather(
            *(plain.write(add(n)) for n in ["a", "b", "a", "c"]),
            return_exceptions=True,
        )
        assert sum(isinstance(r, IntegrityError) for r in results) == 1
        assert await plain.read(names) == ["a", "b", "c"]

    asyncio.run(main())


def test_a_nested_savepoint_of_the_function_works(plain: Store) -> None:
    def fn(conn: Connection) -> None:
        conn.execute(insert(items).values(name="a"))
        try:
            with conn.begin_nested():
                conn.execute(insert(items).values(name="b"))
                conn.execute(insert(items).values(name="a"))
        except IntegrityError:
            conn.execute(insert(items).values(name="c"))

    async def main() -> None:
        await plain.write(fn)
        assert await plain.read(names) == ["a", "c"]

    asyncio.run(main())


def test_a_read_cannot_write(plain: Store) -> None:
    async def main() -> None:
        with pytest.raises(DBAPIError, match="read-?only"):
            await plain.read(add("a"))
        assert await plain.read(names) == []
        await plain.write(add("a"))

    asyncio.run(main())


def test_a_read_sees_one_snapshot(plain: Store) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()

        def twice(conn: Connection) -> tuple[list[str], list[str]]:
            first = names(conn)
            asyncio.run_coroutine_threadsafe(plain.write(add("b")), loop).result(60)
            return first, names(conn)

        await plain.write(add("a"))
        assert await plain.read(twice) == (["a"], ["a"])
        assert await plain.read(names) == ["a", "b"]

    asyncio.run(main())


def test_listeners_hear_of_commits_and_of_nothing_else(plain: Store) -> None:
    heard: list[str] = []

    def touching(conn: Connection, fail: bool) -> None:
        touch(conn, "jobs")
        if fail:
            raise ValueError

    async def main() -> None:
        end = plain.listen("jobs", lambda: heard.append("jobs"))
        plain.listen("nodes", lambda: heard.append("nodes"))
        with pytest.raises(ValueError):
            await plain.write(lambda conn: touching(conn, True))
        await plain.write(lambda conn: None)
        await plain.read(names)
        if plain.dialect == "postgresql":
            assert heard == []
        heard.clear()
        await plain.write(lambda conn: touching(conn, False))
        await plain.read(names)
        assert heard == ["jobs"]
        end()
        await plain.write(lambda conn: touching(conn, False))
        await plain.read(names)
        assert heard == ["jobs"]

    asyncio.run(main())


def test_a_caller_that_goes_away_harms_nobody(plain: Store) -> None:
    async def main() -> None:
        tasks = [asyncio.create_task(plain.write(add(f"{i}"))) for i in range(20)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        acked = {t.result() for t in tasks if not t.cancelled()}
        assert len(acked) >= 10
        assert acked <= set(await plain.read(names))

    asyncio.run(main())


def test_a_stop_iteration_does_not_hang_the_caller(plain: Store) -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match="StopIteration"):
            await asyncio.wait_for(plain.write(lambda conn: next(iter(()))), 60)
        with pytest.raises(RuntimeError, match="StopIteration"):
            await asyncio.wait_for(plain.read(lambda conn: next(iter(()))), 60)

    asyncio.run(main())


def test_close_finishes_what_was_asked_and_then_refuses(plain: Store) -> None:
    async def main() -> None:
        asks = [asyncio.create_task(plain.write(add(f"{i}"))) for i in range(10)]
        await asyncio.sleep(0)
        await plain.close()
        assert len(await asyncio.gather(*asks)) == 10
        with pytest.raises(Unavailable):
            await plain.write(names)
        with pytest.raises(Unavailable):
            await plain.read(names)

    asyncio.run(main())


def test_a_store_opens_again_with_what_it_held(database_url: str) -> None:
    async def main() -> None:
        for count in range(3):
            store = await open_store(database_url, migrate=False, create=tables)
            assert await store.read(lambda c: c.scalar(select(func.count(items.c.id)))) == count
            await store.write(add(f"{count}"))
            await store.close()

    asyncio.run(main())


@pytest.mark.parametrize("url", ["mysql://x/y", "nonsense", "sqlite://", "redis:///1"])
def test_an_unknown_address_lists_the_known_ones(url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        asyncio.run(open_store(url))
    assert "sqlite:///" in caught.value.hint and "postgresql://" in caught.value.hint


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(InvalidInput) as caught:
        asyncio.run(open_store("postgresql://x@localhost/y"))
    assert "windlass[postgres]" in caught.value.hint
