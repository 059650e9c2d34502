"""Databases for tests: both kinds, real ones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from windlass.server.store.base import Store
from windlass.server.store.open import open_store
from windlass.testing.postgres import PostgresServer, postgres_server


@pytest.fixture(scope="session")
def _postgres() -> Iterator[PostgresServer | None]:
    with postgres_server() as server:
        yield server


@pytest.fixture
def postgres(_postgres: PostgresServer | None) -> PostgresServer:
    """A running PostgreSQL; a test that stops it starts it again."""
    if _postgres is None:
        pytest.skip("PostgreSQL is not installed")
    return _postgres


@pytest.fixture(params=["sqlite", "postgresql"])
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def database_url(dialect: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of an empty database of either kind."""
    if dialect == "sqlite":
        yield f"sqlite:///{tmp_path}/windlass.db"
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    url = server.fresh()
    yield url
    server.drop(url)


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    """A migrated, open store of either kind; it belongs to no event loop."""
    store = asyncio.run(open_store(database_url))
    yield store
    asyncio.run(store.close())
