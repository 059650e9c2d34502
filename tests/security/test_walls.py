"""R-S2, the second wall: with the tenant's filter gone from every query, PostgreSQL still shows a
call nothing of another project's."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, select, text
from sqlalchemy.exc import DBAPIError

from windlass.core.access import Right
from windlass.server.access import walls
from windlass.server.access.tables import projects, users
from windlass.server.events.tables import events
from windlass.server.secrets.tables import secrets
from windlass.server.store.base import Store
from windlass.server.store.open import open_store
from windlass.testing.people import Caller, People
from windlass.testing.platform import Platform
from windlass.testing.postgres import PostgresServer

RED, BLUE = "a" * 32, "b" * 32
TORN = """
import sqlalchemy
from windlass.server.access import tenant
tenant.of_tenant = lambda column, who: sqlalchemy.true()
"""
"""The first wall as if somebody had forgotten it everywhere."""


@pytest.fixture
def postgres_store(postgres: PostgresServer, _template: str) -> Iterator[Store]:
    url = postgres.fresh(_template)
    store = asyncio.run(open_store(url))
    asyncio.run(store.write(_fill))
    yield store
    asyncio.run(store.close())
    postgres.drop(url)


def _fill(conn: Any) -> None:
    conn.execute(insert(users).values(id="u" * 32, name="ann", created_ms=0))
    for project in (RED, BLUE):
        conn.execute(insert(projects).values(id=project, name=project[:5], created_ms=0))
        conn.execute(insert(secrets).values(_secret(project)))
        conn.execute(insert(events).values(_event(project)))


def _secret(project: str) -> dict[str, Any]:
    return {
        "project_id": project, "owner_id": "", "name": "TOKEN", "version": 1, "sealed": b"x",
        "kek": "", "changed_ms": 0, "changed_by": "ann",
    }  # fmt: skip


def _event(project: str) -> dict[str, Any]:
    return {"project_id": project, "seq": 0, "kind": "rules", "at_ms": 0, "data": {}}


def whose(store: Store, table: Any) -> set[str]:
    """Of which projects a query sees rows that asks for all."""
    every = select(table.c.project_id)
    return set(asyncio.run(store.read(lambda conn: conn.scalars(every).all())))


@pytest.mark.parametrize("table", [secrets, events], ids=lambda table: table.name)
def test_a_query_without_a_tenant_sees_nothing_of_anothers(
    postgres_store: Store, table: Any
) -> None:
    red = walls.around(postgres_store, RED)
    assert whose(red, table) == {RED}
    assert whose(postgres_store, table) == {RED, BLUE}, "loops name no project"
    assert whose(walls.around(postgres_store, "c" * 32), table) == set()
    assert whose(red, table) == {RED}, "and on a connection that another used before"


def test_a_row_of_anothers_is_not_written_changed_or_removed(postgres_store: Store) -> None:
    red = walls.around(postgres_store, RED)
    with pytest.raises(DBAPIError, match="row-level security"):
        asyncio.run(red.write(lambda conn: conn.execute(insert(events).values(_event(BLUE)))))
    for_loops = insert(events).values(_event("")).inline()  # without RETURNING, as `feed` does it
    asyncio.run(red.write(lambda conn: conn.execute(for_loops) and None))
    assert whose(red, events) == {RED} and "" in whose(postgres_store, events)
    with pytest.raises(DBAPIError, match="row-level security"):
        stolen = text("UPDATE secrets SET project_id = :blue").bindparams(blue=BLUE)
        asyncio.run(red.write(lambda conn: conn.execute(stolen).rowcount))
    for statement in ("UPDATE secrets SET version = 7", "DELETE FROM secrets"):
        gone = asyncio.run(red.write(lambda conn, s=statement: conn.execute(text(s)).rowcount))
        assert gone == 1, "its own"
    left = asyncio.run(
        postgres_store.read(
            lambda c: c.execute(select(secrets.c.project_id, secrets.c.version)).all()
        )
    )
    assert [tuple(row) for row in left] == [(BLUE, 1)]


def test_every_table_of_a_projects_things_has_its_policy(postgres_store: Store) -> None:
    found = asyncio.run(
        postgres_store.read(
            lambda conn: (
                conn.execute(
                    text(
                        "SELECT tablename FROM pg_policies JOIN pg_class ON relname = tablename"
                        " WHERE relrowsecurity AND relforcerowsecurity"
                    )
                )
                .scalars()
                .all()
            )
        )
    )
    assert sorted(found) == sorted(walls.TABLES)
    assert {Right.JOB_READ, Right.SECRET_WRITE, Right.WORKER} <= walls.WALLED


def test_a_server_that_policies_do_not_hold_says_so(
    postgres: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def stands(url: str) -> bool:
        store = await open_store(url, migrate=False)
        try:
            return await walls.check(store)
        finally:
            await store.close()

    with caplog.at_level(logging.WARNING, "windlass.access"):
        assert asyncio.run(stands(postgres.url()))
        assert not caplog.messages
        assert not asyncio.run(stands(postgres.url(user=postgres.administrator)))
    assert "superuser" in caplog.text


@pytest.fixture
def torn(tmp_path: Path, dialect: str, database_url: str) -> Iterator[tuple[str, Caller, Caller]]:
    """A server without its first wall, and a maintainer in each of two projects."""
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "sitecustomize.py").write_text(TORN)
    url = "" if dialect == "sqlite" else database_url
    paths = [str(tmp_path / "torn"), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {"PYTHONPATH": os.pathsep.join(paths)}
    with Platform(tmp_path / "home", database=url, env=env) as platform:
        people = People(platform)
        callers = []
        for name in ("red", "blue"):
            people.project(name)
            callers.append(people.user(f"of-{name}", project=name, role="maintainer"))
        yield dialect, callers[0], callers[1]


def test_where_the_first_wall_is_gone_the_second_stands(torn: tuple[str, Caller, Caller]) -> None:
    dialect, red, blue = torn
    spec = {"run": ["echo", "zebra"], "name": "zebra", "hold": True}
    job = str(red.ok("POST", "/jobs", {"spec": spec})["id"])
    assert red.ok("GET", f"/jobs/{job}")["name"] == "zebra"
    ways: list[tuple[str, str, Any]] = [
        ("GET", f"/jobs/{job}", None), ("GET", "/jobs/zebra", None),
        ("GET", f"/jobs/{job}/events", None), ("GET", f"/jobs/{job}/why", None),
        ("GET", f"/jobs/{job}/stream", None), ("GET", f"/feed?job={job}", None),
        ("POST", f"/jobs/{job}/priority", {"priority": 1}), ("POST", f"/jobs/{job}/stop", {}),
        ("POST", f"/jobs/{job}/rerun", {}), ("DELETE", f"/jobs/{job}", None),
    ]  # fmt: skip
    if dialect == "sqlite":
        assert blue.code("GET", f"/jobs/{job}") == 200, "it is gone indeed: here is no other"
        return
    for method, path, body in ways:
        assert blue.code(method, path, body) == 404, path
    assert "zebra" not in blue.call("GET", "/jobs").text
    own = blue.ok("POST", "/jobs", {"spec": {"run": ["true"], "hold": True}})
    assert [each["id"] for each in blue.ok("GET", "/jobs")["items"]] == [own["id"]]
    assert red.ok("GET", f"/jobs/{job}")["state"] == "held"


def test_behind_the_wall_all_of_a_jobs_life_goes_on(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    url = postgres.fresh()
    with Platform(tmp_path / "home", database=url) as platform:
        client = platform.client
        first = client.jobs.submit(run=["true"], name="first")
        after = client.jobs.submit({"run": "true", "name": "after", "after": ["first"]})
        for job in (first, after):
            assert platform.wait(job).state == "succeeded"
        again = client.jobs.rerun(first.id)
        assert platform.wait(again).state == "succeeded"
        for job in (after, again, first):
            client.jobs.delete(job.id)
        assert client.jobs.list() == []
        assert "row-level security" not in platform.log()
    postgres.drop(url)
