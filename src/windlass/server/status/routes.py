"""/api/v1/health, /status, /openapi.json: the server about itself."""

from __future__ import annotations

import os
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse

from windlass import __version__
from windlass.core.access import Right
from windlass.core.strict import Strict
from windlass.server.access.calls import Call
from windlass.server.clock import stamp
from windlass.server.http.marks import require
from windlass.server.jobs import service as jobs
from windlass.server.nodes.routes import NodeView, every_node
from windlass.server.parts import Wired

router = APIRouter(prefix="/api/v1", tags=["status"])


class Health(Strict):
    ok: bool
    version: str


class Status(Strict):
    version: str
    pid: int
    url: str
    home: str
    database: str
    started: str
    leader: bool
    user: str
    project: str
    nodes: tuple[NodeView, ...]
    jobs: dict[str, int]


@router.get("/health", response_model=Health)
async def health(call: Annotated[Call, Depends(require(Right.PUBLIC))]) -> Health:
    """Whether the server answers; needs no key."""
    return Health(ok=True, version=__version__)


@router.get("/status", response_model=Status)
async def status(
    call: Annotated[Call, Depends(require(Right.SERVER_READ))], parts: Wired
) -> Status:
    """The server about itself: where it is, what it holds, how many jobs in which state."""
    counts = await parts.store.read(lambda conn: jobs.counts(conn, call.principal))
    settings = parts.settings
    return Status(
        version=__version__,
        pid=os.getpid(),
        url=settings.url,
        home=str(settings.home),
        database=parts.store.dialect,
        started=stamp(parts.started_ms),
        leader=settings.loops,
        user=call.principal.user_name,
        project=call.principal.project_name,
        nodes=await every_node(parts),
        jobs=counts,
    )


@router.get("/openapi.json", response_class=JSONResponse)
async def openapi(
    request: Request, call: Annotated[Call, Depends(require(Right.PUBLIC))]
) -> JSONResponse:
    """This document; needs no key."""
    return JSONResponse(request.app.openapi())
