"""Users and projects of a fresh server, in a real database of either kind."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from windlass.core.access import Principal
from windlass.core.jobs import JobSpec
from windlass.core.users import UserBody
from windlass.server.access import tables
from windlass.server.access.principals import principal_of
from windlass.server.access.sealing import load
from windlass.server.access.service import Access
from windlass.server.jobs import service as jobs
from windlass.server.jobs.tables import jobs as job_rows
from windlass.server.projects import service as projects
from windlass.server.store.base import Store
from windlass.server.users import removal, service

NOW = 1_000


class Org:
    def __init__(self, store: Store, home: Path) -> None:
        self.store = store

        async def nobody(digest: str) -> None:
            return None

        self.access = Access(store, load(home / "kek"), nobody)
        asyncio.run(self.access.first_start())
        self.owner = self.who("owner")

    def write(self, fn: Any) -> Any:
        return asyncio.run(self.store.write(fn))

    def read(self, fn: Any) -> Any:
        return asyncio.run(self.store.read(fn))

    def who(self, name: str, project: str | None = None) -> Any:
        def look(conn: Any) -> Principal | None:
            return principal_of(conn, service.find(conn, name)["id"], project)

        return self.read(look)

    def user(self, name: str, by: str = "owner", **fields: Any) -> Any:
        body = UserBody(name=name, **fields)
        self.write(lambda conn: service.make(conn, self.who(by), body, NOW))
        return self.who(name)

    def remove(self, name: str, by: Principal | None = None) -> int:
        return int(self.write(lambda conn: removal.remove(conn, by or self.owner, name, NOW)))

    def project(self, name: str) -> str:
        self.write(lambda conn: projects.make(conn, self.owner, name, NOW))
        return name

    def owners(self) -> list[str]:
        found = select(tables.users.c.name).where(
            tables.users.c.role == "owner", tables.users.c.disabled.is_(False)
        )
        return list(self.read(lambda conn: conn.scalars(found).all()))

    def submit(self, who: Principal, name: str = "job") -> str:
        """A job that waits; its id."""
        spec = JobSpec.model_validate({"run": "true", "name": name})
        made = self.write(
            lambda conn: jobs.submit(conn, who, spec, "python", key=None, digest="", now_ms=NOW)
        )
        return str(made.job_id)

    def finish(self, job_id: str) -> None:
        over = update(job_rows).where(job_rows.c.id == job_id).values(state="succeeded")
        self.write(lambda conn: conn.execute(over).rowcount)

    def rows(self, table: Any, user_id: str | None) -> list[Any]:
        mine = select(table).where(table.c.user_id == user_id)
        return list(self.read(lambda conn: conn.execute(mine).all()))


@pytest.fixture
def org(store: Store, tmp_path: Path) -> Org:
    return Org(store, tmp_path)
