"""/api/v1/health, /status, /openapi.json: the server about itself."""

from __future__ import annotations

import os
from collections.abc import Sequence
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
from windlass.server.jobs.sharing import several_users
from windlass.server.nodes.routes import NodeView, every_node
from windlass.server.parts import Wired

router = APIRouter(prefix="/api/v1", tags=["status"])


class Health(Strict):
    ok: bool
    version: str


class IsolationView(Strict):
    wish: str
    """The server's setting: auto | 0 | 1."""
    shared: bool
    """Several users have jobs run here."""
    level: int
    """What a job gets that asks for nothing, when it starts now."""


class Status(Strict):
    version: str
    pid: int
    url: str
    home: str | None
    """The server's folder; told to its administrators alone."""
    database: str
    started: str
    leader: bool
    isolation: IsolationView
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
    who, settings = call.principal, parts.settings
    counts = await parts.store.read(lambda conn: jobs.counts(conn, who))
    shared = await parts.store.read(several_users)
    nodes = await every_node(parts, who)
    return Status(
        version=__version__,
        pid=os.getpid(),
        url=settings.url,
        home=str(settings.home) if who.may(Right.SERVER_WRITE) else None,
        database=parts.store.dialect,
        started=stamp(parts.started_ms),
        leader=settings.loops,
        isolation=_isolation(settings.isolation, shared, nodes),
        user=who.user_name,
        project=who.project_name,
        nodes=nodes,
        jobs=counts,
    )


def _isolation(wish: str, shared: bool, nodes: Sequence[NodeView]) -> IsolationView:
    """The lowest of the nodes: what one can count on."""
    able = min((int(node.isolation.get("level", "0")) for node in nodes), default=0)
    apart = wish == "1" or (wish == "auto" and shared)
    return IsolationView(wish=wish, shared=shared, level=min(1, able) if apart else 0)


@router.get("/openapi.json", response_class=JSONResponse)
async def openapi(
    request: Request, call: Annotated[Call, Depends(require(Right.PUBLIC))]
) -> JSONResponse:
    """This document; needs no key."""
    return JSONResponse(request.app.openapi())
