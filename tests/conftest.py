"""Databases for tests: both kinds, real ones; a real Kubernetes. And what holds for all property
tests."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from sqlalchemy import make_url

from suites import FIXTURES, PLACES
from windlass.server.store.base import Store
from windlass.server.store.migrate import migrate
from windlass.server.store.open import open_store
from windlass.testing.kubernetes import Cluster, missing
from windlass.testing.platform import LIVE
from windlass.testing.postgres import PostgresServer, postgres_server

pytest_plugins = ["windlass.testing.contract_table"]

# A shell starts what it puts in the background with Ctrl-C ignored, and a program that starts so
# hands it on: those that tests press Ctrl-C in would not hear it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# xdist tells its lanes how wide they are. Commands that tests run would cut their tables to that.
os.environ.pop("COLUMNS", None)

# By the clock on the wall, which on a busy machine says nothing about what is tested.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        place = item.path.relative_to(HERE)
        for suite, places in PLACES.items():
            if any(place.is_relative_to(each) for each in places):
                item.add_marker(suite)
        for suite, fixtures in FIXTURES.items():
            if fixtures.intersection(getattr(item, "fixturenames", ())):
                item.add_marker(suite)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport]:
    """What failed beside a server says how that server stood."""
    report = yield
    if report.failed and report.when == "call":
        for platform in list(LIVE):
            report.sections.append((f"platform {platform.home}", platform.state()))
    return report


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


@pytest.fixture(scope="session")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two nodes of 4 GPUs each; who harms a node mends it."""
    if why := missing():
        pytest.skip(f"no Kubernetes here: {why}")
    with Cluster(tmp_path_factory.mktemp("kubernetes"), nodes=2, gpus=4) as cluster:
        yield cluster
