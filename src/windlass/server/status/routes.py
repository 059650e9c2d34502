"""/api/v1/health, /status, /openapi.json: the server about itself."""

from __future__ import annotations

import os
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse
from sqlalchemy import Connection

from windlass import __version__
from windlass.core.access import Right
from windlass.core.strict import Strict
from windlass.server.access.calls import Call
from windlass.server.clock import stamp
from windlass.server.http.marks import require
from windlass.server.jobs import service as jobs
from windlass.server.nodes import service as nodes
from windlass.server.parts import Wired

router = APIRouter(prefix="/api/v1", tags=["status"])


class Health(Strict):
    ok: bool
    version: str


class NodeBrief(Strict):
    name: str
    engine: str
    state: str
    cpus: float
    memory_bytes: int
    gpus: int


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
    nodes: tuple[NodeBrief, ...]
    jobs: dict[str, int]


@router.get("/health", response_model=Health)
async def health(call: Annotated[Call, Depends(require(Right.PUBLIC))]) -> Health:
    return Health(ok=True, version=__version__)


@router.get("/status", response_model=Status)
async def status(
    call: Annotated[Call, Depends(require(Right.SERVER_READ))], parts: Wired
) -> Status:
    def look(conn: Connection) -> tuple[list[dict[str, Any]], dict[str, int]]:
        return nodes.every(conn), jobs.counts(conn, call.principal)

    rows, counts = await parts.store.read(look)
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
        nodes=tuple(
            NodeBrief(
                name=row["name"],
                engine=row["engine"],
                state=row["state"],
                cpus=row["offer"]["capacity"]["cpus_milli"] / 1000,
                memory_bytes=row["offer"]["capacity"]["memory_bytes"],
                gpus=row["offer"]["capacity"]["gpus"],
            )
            for row in rows
        ),
        jobs=counts,
    )


@router.get("/openapi.json", include_in_schema=False)
async def openapi(
    request: Request, call: Annotated[Call, Depends(require(Right.PUBLIC))]
) -> JSONResponse:
    return JSONResponse(request.app.openapi())
