"""The parts of one server, wired once in `app.py`; routes find them in `app.state.parts`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from windlass.engines.base import Engine
from windlass.server.access.service import Access
from windlass.server.bundles.service import Blobs
from windlass.server.clock import Clock
from windlass.server.feed import Feed
from windlass.server.hub import Hub
from windlass.server.jobs.admit import Admit
from windlass.server.jobs.fitting import Fits
from windlass.server.jobs.reconcile import Reconcile
from windlass.server.jobs.tokens import AttemptTokens
from windlass.server.settings import Settings
from windlass.server.store.base import Store


@dataclass(frozen=True)
class Parts:
    settings: Settings
    store: Store
    tracking: Store
    clock: Clock
    hub: Hub
    feed: Feed
    access: Access
    tokens: AttemptTokens
    blobs: Blobs
    engines: Mapping[str, Engine]
    fits: Fits
    admit: Admit
    reconcile: Reconcile
    started_ms: int


async def _parts(request: Request) -> Parts:
    # Async though it waits for nothing: FastAPI sends a plain function to a thread, which costs
    # every call more than all else that is done for it.
    found: Parts = request.app.state.parts
    return found


Wired = Annotated[Parts, Depends(_parts)]
