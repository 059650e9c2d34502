"""A real server per test, or one shared by a module for what only looks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from windlass.testing import invariants
from windlass.testing.platform import Platform
from windlass.testing.postgres import PostgresServer


@pytest.fixture
def platform(tmp_path: Path, dialect: str, database_url: str) -> Iterator[Platform]:
    """A running server, on either database."""
    url = "" if dialect == "sqlite" else database_url
    with Platform(tmp_path / "home", database=url) as platform:
        yield platform


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def either(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Platform]:
    """One server on each kind of database for the tests of a module; who stops it starts it."""
    home = tmp_path_factory.mktemp("either") / "home"
    if request.param == "sqlite":
        with Platform(home) as platform:
            yield platform
        return
    server: PostgresServer | None = request.getfixturevalue("_postgres")
    if server is None:
        pytest.skip("PostgreSQL is not installed")
    url = server.fresh()
    with Platform(home, database=url) as platform:
        yield platform
    server.drop(url)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """One server for the tests of a module (SQLite). What its jobs held is on the ledger."""
    with Platform(tmp_path_factory.mktemp("home")) as platform:
        yield platform
        invariants.metered(platform)
