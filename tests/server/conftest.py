"""A project with a user and jobs in a real database, for tests of what the API writes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from sqlalchemy import Connection, insert, select

from windlass.core.access import CallerKind, OrgRole, Principal, ProjectRole, rights_in
from windlass.core.jobs import JobSpec
from windlass.server.access.tables import projects, users
from windlass.server.events.tables import events
from windlass.server.jobs import service
from windlass.server.store.base import Store

T = TypeVar("T")


class Tenancy:
    """One user's way into a store: what the routes do, without HTTP."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.now_ms = 1_000_000
        self.write(_people)
        self.who = principal("default")

    def write(self, fn: Callable[[Connection], T]) -> T:
        return asyncio.run(self.store.write(fn))

    def read(self, fn: Callable[[Connection], T]) -> T:
        return asyncio.run(self.store.read(fn))

    def submit(self, name: str, *, at_ms: int | None = None, **spec: Any) -> str:
        """A job that waits; its id."""
        whole = JobSpec.model_validate({"run": "true", "name": name, **spec})
        when = self.now_ms if at_ms is None else at_ms
        accepted = self.write(
            lambda conn: service.submit(
                conn, self.who, whole, "python", key=None, digest="", now_ms=when
            )
        )
        return accepted.job_id

    def told(self, kind: str) -> list[dict[str, Any]]:
        """The events of one kind, in order."""
        rows = self.read(
            lambda conn: conn.execute(
                select(events).where(events.c.kind == kind).order_by(events.c.id)
            ).mappings().all()
        )  # fmt: skip
        return [dict(row) for row in rows]


def principal(project: str, user: str = "owner") -> Principal:
    return Principal(
        kind=CallerKind.USER, project_id=_id(project), project_name=project, user_id=_id(user),
        user_name=user, rights=rights_in(OrgRole.OWNER, ProjectRole.MAINTAINER),
    )  # fmt: skip


def _id(name: str) -> str:
    return name.encode().hex().ljust(32, "0")[:32]


def _people(conn: Connection) -> None:
    for name in ("default", "other"):
        conn.execute(insert(projects).values(id=_id(name), name=name, created_ms=0))
    conn.execute(insert(users).values(id=_id("owner"), name="owner", created_ms=0))


@pytest.fixture
def tenancy(store: Store) -> Tenancy:
    return Tenancy(store)
