"""A real server per test, or one shared by a module for what only looks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from windlass.testing.platform import Platform


@pytest.fixture
def platform(tmp_path: Path, dialect: str, database_url: str) -> Iterator[Platform]:
    """A running server, on either database."""
    url = "" if dialect == "sqlite" else database_url
    with Platform(tmp_path / "home", database=url) as platform:
        yield platform


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """One server for the tests of a module (SQLite)."""
    with Platform(tmp_path_factory.mktemp("home")) as platform:
        yield platform
