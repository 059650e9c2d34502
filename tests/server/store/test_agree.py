"""The same functions in the same order leave the same rows and answers on both databases.

SQLite gets each list at once, so that it is one commit of many savepoints; PostgreSQL gets it
one by one. If a savepoint leaked into its neighbour, the two would differ.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    MetaData,
    String,
    Table,
    delete,
    insert,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from windlass.server.store.base import Store
from windlass.server.store.metadata import AutoNumber, Json
from windlass.server.store.open import open_store
from windlass.testing.postgres import PostgresServer

tables = MetaData()
items = Table(
    "items",
    tables,
    Column("id", AutoNumber, primary_key=True),
    Column("name", String(40), unique=True, nullable=False),
    Column("value", BigInteger, nullable=False),
    Column("data", Json),
)
Fn = Callable[[Connection], Any]

names = st.sampled_from(["a", "b", "c", "d", "Ä", "ä", "漢字", "'", '"; --', " a"])
integers = st.integers(-(2**62), 2**62)
words = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=20)
values = st.recursive(
    st.none()
    | st.booleans()
    | integers
    | st.floats(allow_nan=False, allow_infinity=False)
    | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)


def put(name: str, value: int, data: Any) -> Fn:
    def fn(conn: Connection) -> None:
        conn.execute(insert(items).values(name=name, value=value, data=data))

    return fn


def bump(name: str, by: int) -> Fn:
    def fn(conn: Connection) -> int:
        row = conn.execute(select(items).where(items.c.name == name).with_for_update()).first()
        if row is None:
            raise KeyError(name)
        new: int = (row.value + by) % 2**62
        conn.execute(update(items).where(items.c.name == name).values(value=new))
        return new

    return fn


def drop(name: str) -> Fn:
    return lambda conn: conn.execute(delete(items).where(items.c.name == name)).rowcount


def put_and_fail(name: str, value: int) -> Fn:
    def fn(conn: Connection) -> None:
        conn.execute(delete(items))
        conn.execute(insert(items).values(name=name, value=value))
        raise LookupError(name)

    return fn


def put_or_bump(name: str, value: int) -> Fn:
    def fn(conn: Connection) -> str:
        try:
            with conn.begin_nested():
                conn.execute(insert(items).values(name=name, value=value))
            return "put"
        except IntegrityError:
            conn.execute(update(items).where(items.c.name == name).values(value=value))
            return "bumped"

    return fn


functions = st.one_of(
    st.builds(put, names, integers, values),
    st.builds(bump, names, integers),
    st.builds(drop, names),
    st.builds(put_and_fail, names, integers),
    st.builds(put_or_bump, names, integers),
)


def rows(conn: Connection) -> list[tuple[Any, ...]]:
    found = conn.execute(select(items.c.name, items.c.value, items.c.data))
    return sorted((tuple(row) for row in found), key=lambda row: row[0])


async def answer(store: Store, fn: Fn) -> str:
    try:
        return repr(await store.write(fn))
    except Exception as error:
        return type(error).__name__


def test_both_databases_agree(postgres: PostgresServer, tmp_path: Path) -> None:
    address = postgres.fresh()
    with asyncio.Runner() as runner:
        lite = runner.run(
            open_store(
                f"sqlite:///{tmp_path}/a.db", migrate=False, create=tables, synchronous="OFF"
            )
        )
        post = runner.run(open_store(address, migrate=False, create=tables))

        class Agreement(RuleBasedStateMachine):
            def __init__(self) -> None:
                super().__init__()
                for store in (lite, post):
                    runner.run(store.write(lambda conn: conn.execute(delete(items)) and None))

            @rule(some=st.lists(functions, min_size=1, max_size=6))
            def write(self, some: list[Fn]) -> None:
                async def both() -> tuple[list[str], list[str]]:
                    at_once = await asyncio.gather(*(answer(lite, fn) for fn in some))
                    return at_once, [await answer(post, fn) for fn in some]

                at_once, one_by_one = runner.run(both())
                assert at_once == one_by_one

            @invariant()
            def same_rows(self) -> None:
                assert runner.run(lite.read(rows)) == runner.run(post.read(rows))

        run_state_machine_as_test(
            Agreement,
            settings=settings(
                max_examples=40,
                stateful_step_count=12,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
        runner.run(lite.close())
        runner.run(post.close())
    postgres.drop(address)
