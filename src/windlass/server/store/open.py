"""One door to every kind of store."""

from __future__ import annotations

import asyncio
from typing import Any

from sqlalchemy import MetaData

from windlass.server import leases
from windlass.server.store.base import Store
from windlass.server.store.claim import Claim, refuse_network_file_system
from windlass.server.store.migrate import migrate as upgrade
from windlass.server.store.postgres import PostgresStore
from windlass.server.store.sqlite import SqliteStore
from windlass.server.store.urls import is_sqlite, sqlite_path


async def open_store(
    url: str, *, migrate: bool = True, create: MetaData | None = None, **options: Any
) -> Store:
    """A store by its address: `sqlite:///path` or `postgresql://…`.

    `migrate` brings the control schema up to date first. `create` makes the tables of another
    schema where they are missing (with `migrate=False`: the file of metrics). Options go to the
    store: `synchronous`, `readers`; `connections`, `statement_seconds` …
    """
    store = await (_sqlite if is_sqlite(url) else _postgres)(url, migrate, options)
    if create is not None:
        await store.write(lambda conn: create.create_all(conn))
    return store


async def _sqlite(url: str, migrate: bool, options: dict[str, Any]) -> Store:
    path = sqlite_path(url)
    path.parent.mkdir(parents=True, exist_ok=True)
    refuse_network_file_system(path.parent)
    claim = Claim(path)
    try:
        if migrate:
            await asyncio.to_thread(upgrade, url, claim=claim)
        store = await SqliteStore.open(path, claim, **options)
    except BaseException:
        claim.release(clean=not claim.unclean)
        raise
    if migrate:
        # The claim proves that whoever held a lease in this file is dead.
        await store.write(leases.end_all)
    return store


async def _postgres(url: str, migrate: bool, options: dict[str, Any]) -> Store:
    if migrate:
        await asyncio.to_thread(upgrade, url)
    return await PostgresStore.open(url, **options)
