"""The store of the simulation: no threads, and points where the world may end."""

from __future__ import annotations

import asyncio
import threading

import pytest
from sqlalchemy import Column, Connection, MetaData, String, Table, insert, select
from sqlalchemy.exc import OperationalError

from windlass.server.store.hints import touch
from windlass.server.store.inline import InlineStore

tables = MetaData()
items = Table("items", tables, Column("name", String(20), primary_key=True))


class Crash(BaseException):
    pass


def names(conn: Connection) -> list[str]:
    return list(conn.scalars(select(items.c.name).order_by(items.c.name)))


def add(name: str, conn: Connection) -> str:
    conn.execute(insert(items).values(name=name))
    return name


@pytest.mark.parametrize(
    ("at", "kept"), [("before-commit", ["old"]), ("after-commit", ["new", "old"])]
)
def test_a_crash_at_each_point_leaves_all_or_nothing(at: str, kept: list[str]) -> None:
    async def crash(kind: str) -> None:
        if kind == at:
            raise Crash

    async def main() -> None:
        store = InlineStore()
        await store.write(tables.create_all)
        await store.write(lambda conn: add("old", conn))
        doomed = store.reopen(point=crash)
        with pytest.raises(Crash):
            await doomed.write(lambda conn: add("new", conn))
        after = doomed.reopen()
        assert await after.read(names) == kept
        await after.close()

    asyncio.run(main())


def test_points_come_in_order_and_functions_run_in_the_callers_thread() -> None:
    points: list[str] = []

    async def note(kind: str) -> None:
        points.append(kind)

    async def main() -> None:
        store = InlineStore(point=note)
        await store.write(tables.create_all)
        assert await store.write(lambda conn: threading.get_ident()) == threading.get_ident()
        with pytest.raises(ValueError):
            await store.write(lambda conn: int(add("undone", conn)))
        assert await store.read(names) == []
        with pytest.raises(OperationalError, match="readonly"):
            await store.read(lambda conn: add("x", conn))
        await store.close()
        assert points == [
            *("before-commit", "after-commit", "before-commit", "after-commit"),
            *("before-commit", "read", "read"),
        ]

    asyncio.run(main())


def test_hints_of_a_dead_process_do_not_reach_the_next() -> None:
    heard: list[str] = []

    async def main() -> None:
        store = InlineStore()
        store.listen("jobs", lambda: heard.append("first"))
        await store.write(lambda conn: touch(conn, "jobs"))
        await asyncio.sleep(0)
        after = store.reopen()
        await after.write(lambda conn: touch(conn, "jobs"))
        await asyncio.sleep(0)
        assert heard == ["first"]
        await after.close()

    asyncio.run(main())
