from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from runs_scene import Runs

from windlass.server.runs.tables import tracking
from windlass.server.store.open import open_store


@pytest.fixture
def runs(database_url: str) -> Iterator[Runs]:
    store = asyncio.run(open_store(database_url, migrate=False, create=tracking))
    yield Runs(store)
    asyncio.run(store.close())
