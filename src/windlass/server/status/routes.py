"""/api/v1/health, /status, /openapi.json: the server about itself."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse

from windlass import __version__
from windlass.core.access import Principal, Right
from windlass.core.strict import Strict
from windlass.server.access.calls import Call
from windlass.server.clock import stamp
from windlass.server.http.marks import require
from windlass.server.jobs import service as jobs
from windlass.server.jobs.sharing import several_users
from windlass.server.nodes.routes import NodeView, every_node
from windlass.server.parts import Parts, Wired
from windlass.server.status import readiness

router = APIRouter(prefix="/api/v1", tags=["status"])
MOST_TROUBLES = 100


class Health(Strict):
    ok: bool
    """As `ready`."""
    version: str
    alive: bool = True
    """It answers."""
    ready: bool
    """Its loops turn, if it leads, and its database answers."""
    why: tuple[str, ...] = ()
    """Why it is not ready."""
    troubles: int = 0
    """How many objects its loops fail on, each by itself; `windlass status` names them."""


class IsolationView(Strict):
    wish: str
    """The server's setting: auto | 0 | 1."""
    shared: bool
    """Several users have jobs run here."""
    level: int
    """What a job gets that asks for nothing, when it starts now."""


class TroubleView(Strict):
    """An object that a loop cannot handle: it is put off and tried again, the others go on."""

    loop: str
    object: str
    """A job's or study's id, `node NAME` and so on; empty: the whole turn."""
    times: int
    since: str
    error: str


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
    ready: bool
    why: tuple[str, ...] = ()
    """Why it is not ready."""
    troubles: tuple[TroubleView, ...] = ()
    """What this server's loops fail on; who does not administer it sees those of its project's
    jobs and of the loops themselves."""


@router.get("/health", response_model=Health)
async def health(call: Annotated[Call, Depends(require(Right.PUBLIC))], parts: Wired) -> Health:
    """Whether the server is alive (it answers at all), and ready; needs no key."""
    return await _health(parts)


@router.get("/health/ready", response_model=Health, responses={503: {"model": Health}})
async def ready(
    call: Annotated[Call, Depends(require(Right.PUBLIC))], parts: Wired
) -> JSONResponse:
    """The same, with status 503 while it is not ready: for a load balancer; needs no key."""
    found = await _health(parts)
    return JSONResponse(found.model_dump(mode="json"), 200 if found.ready else 503)


async def _health(parts: Parts) -> Health:
    why = await readiness.why_not(parts)
    return Health(
        ok=not why, version=__version__, ready=not why, why=tuple(why),
        troubles=len(parts.troubles.all()),
    )  # fmt: skip


@router.get("/status", response_model=Status)
async def status(
    call: Annotated[Call, Depends(require(Right.SERVER_READ))], parts: Wired
) -> Status:
    """The server about itself: where it is, what it holds, how many jobs in which state."""
    who, settings = call.principal, parts.settings
    counts = await parts.store.read(lambda conn: jobs.counts(conn, who))
    shared = await parts.store.read(several_users)
    nodes = await every_node(parts, who)
    why = await readiness.why_not(parts)
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
        ready=not why,
        why=tuple(why),
        troubles=await _troubles(parts, who),
    )


async def _troubles(parts: Parts, who: Principal) -> tuple[TroubleView, ...]:
    found = parts.troubles.all()
    if found and not who.may(Right.SERVER_WRITE):
        ids = [each.object for each in found if each.object]
        mine = await parts.store.read(lambda conn: jobs.those_of(conn, who, ids))
        found = [each for each in found if not each.object or each.object in mine]
    return tuple(
        TroubleView(
            loop=each.loop, object=each.object, times=each.times, since=stamp(each.since_ms),
            error=each.error,
        )
        for each in found[:MOST_TROUBLES]
    )  # fmt: skip


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
