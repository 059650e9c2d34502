"""The parts of one server, wired once in `app.py`; routes find them in `app.state.parts`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from fastapi import Depends, Request

from windlass.server.access import walls
from windlass.server.access.service import Access
from windlass.server.audit.chain import Chain
from windlass.server.audit.refusals import Refusals
from windlass.server.bundles.blobs import Blobs
from windlass.server.checkpoints.cleaning import Cleaning
from windlass.server.clock import Clock
from windlass.server.engines.fleet import Fleet
from windlass.server.feed import Feed
from windlass.server.http import exchange
from windlass.server.hub import Hub
from windlass.server.jobs.admit import Admit
from windlass.server.jobs.fitting import Fits
from windlass.server.jobs.reconcile import Reconcile
from windlass.server.jobs.tokens import AttemptTokens
from windlass.server.loops import Leadership
from windlass.server.runs.pulse import Pulse
from windlass.server.sessions.service import Sessions
from windlass.server.settings import Settings
from windlass.server.storage.reading import Shelf
from windlass.server.store.base import Store
from windlass.server.studies.tuning import Tuning
from windlass.server.troubles import Troubles


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
    engines: Fleet
    fits: Fits
    admit: Admit
    reconcile: Reconcile
    started_ms: int
    chain: Chain
    refusals: Refusals
    cleaning: Cleaning
    sessions: Sessions
    studies: Tuning
    pulse: Pulse
    shelf: Shelf
    troubles: Troubles
    leadership: Leadership


async def _parts(request: Request) -> Parts:
    # Async though it waits for nothing: FastAPI sends a plain function to a thread, which costs
    # every call more than all else that is done for it.
    found: Parts = request.app.state.parts
    call = exchange.of(request.scope).call
    if call is not None and call.within:
        return replace(found, store=walls.around(found.store, call.within))
    return found


Wired = Annotated[Parts, Depends(_parts)]
