"""Databases for tests: both kinds, real ones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import make_url

from windlass.server.store.base import Store
from windlass.server.store.migrate import migrate
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


@pytest.fixture(scope="session")
def _template(_postgres: PostgresServer | None) -> str:
    """A migrated database to copy: migrating anew for each test would take longer than it."""
    assert _postgres is not None
    url = _postgres.fresh()
    migrate(url)
    return make_url(url).database or ""


@pytest.fixture
def migrated_url(dialect: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a database of either kind with all tables and no rows."""
    if dialect == "sqlite":
        yield f"sqlite:///{tmp_path}/windlass.db"
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    url = server.fresh(request.getfixturevalue("_template"))
    yield url
    server.drop(url)


@pytest.fixture
def store(migrated_url: str) -> Iterator[Store]:
    """A migrated, open store of either kind; it belongs to no event loop."""
    store = asyncio.run(open_store(migrated_url))
    yield store
    asyncio.run(store.close())
