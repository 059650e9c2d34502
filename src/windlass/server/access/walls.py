"""The second wall between projects: PostgreSQL itself hides the rows of others.

The first is `of_tenant`, in each query. Here a call about one project's jobs, secrets or code
names the project to the database, for each of its transactions; policies on the tables then let it
see and write rows of that project alone, whatever its queries forget to ask. Loops name none and
see all. SQLite has no such thing, and superusers pass every policy: a server that logs in as one
says so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection

from windlass.core.access import NEEDS_PROJECT, Right
from windlass.server.store.base import Store

T = TypeVar("T")
log = logging.getLogger("windlass.access")

TABLES = (
    "jobs", "events", "idempotency", "bundles", "secrets",
    "artifacts", "models", "model_versions", "model_aliases", "model_moves",
    "studies", "trials", "saved_views", "objects",
)  # fmt: skip
"""Those with a project's own things, each with its `project_id`."""

_COUNTING = {Right.PROJECT_WRITE, Right.USAGE_READ, Right.AUDIT_READ, Right.SERVER_READ}
"""About a project, but with a look at what others hold, or at rows of no project."""

WALLED = (NEEDS_PROJECT - _COUNTING) | {Right.WORKER, Right.RUN}
"""Calls that need one of these look at nothing but their project; one that is added to the rights
of a project is among them. Others (queues, quotas, nodes) stay with the first wall."""

_NAME_IT = "SELECT set_config('windlass.project', %s, true)"
_PASSES = "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"


class Walled:
    """A store whose every transaction is about one project."""

    def __init__(self, store: Store, project_id: str) -> None:
        self._store = store
        self._project_id = project_id
        self.dialect = store.dialect

    async def write(self, fn: Callable[[Connection], T]) -> T:
        return await self._store.write(self._inside(fn))

    async def read(self, fn: Callable[[Connection], T]) -> T:
        return await self._store.read(self._inside(fn))

    def listen(self, topic: str, callback: Callable[[], None]) -> Callable[[], None]:
        return self._store.listen(topic, callback)

    def quiet_seconds(self) -> float:
        return self._store.quiet_seconds()

    async def close(self) -> None:
        await self._store.close()

    def _inside(self, fn: Callable[[Connection], T]) -> Callable[[Connection], T]:
        def inside(conn: Connection) -> T:
            conn.exec_driver_sql(_NAME_IT, (self._project_id,))  # until this transaction ends
            return fn(conn)

        return inside


def around(store: Store, project_id: str) -> Store:
    """The store for a call about that project; where there are no policies, as it is."""
    return Walled(store, project_id) if store.dialect == "postgresql" else store


async def check(store: Store) -> bool:
    """Whether the wall stands; a line in the log where it does not."""
    if store.dialect != "postgresql":
        return False
    passes = await store.read(lambda conn: bool(conn.exec_driver_sql(_PASSES).scalar()))
    if passes:
        log.warning(
            "this server logs in to PostgreSQL as a superuser, whom row-level security does not "
            "hold: give it a role of its own"
        )
    return not passes
