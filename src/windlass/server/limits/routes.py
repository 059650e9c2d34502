"""/api/v1/limits: how many live jobs a project may have."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Response
from sqlalchemy import Connection

from windlass.core.access import Principal, Right
from windlass.core.limits import LimitsBody, LimitsPage
from windlass.server.access.calls import Call, spend
from windlass.server.http.body import json_body
from windlass.server.http.marks import require
from windlass.server.limits import service
from windlass.server.parts import Wired

router = APIRouter(prefix="/api/v1/limits", tags=["limits"])

Read = Annotated[Call, Depends(require(Right.LIMIT_READ))]
Write = Annotated[Call, Depends(require(Right.LIMIT_WRITE))]
ProjectName = Annotated[
    str,
    Path(
        pattern=r"^(\*|[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?)$",
        description="a project's name, or `*` for each that has none of its own",
    ),
]


@router.get("", response_model=LimitsPage)
async def listing(call: Read, parts: Wired) -> Any:
    """The limits that hold for the caller's project; of every project for an administrator
    or auditor."""
    only = _only(call.principal)
    return _answer(await parts.store.read(lambda conn: service.page(conn, only)))


@router.put("/{project}", response_model=LimitsPage)
async def put(
    call: Write,
    parts: Wired,
    project: ProjectName,
    body: Annotated[LimitsBody, Depends(json_body(LimitsBody))],
) -> Any:
    """Make all limits of one project so; effective at once. Ends nothing that runs."""
    now = parts.clock.now_ms()

    def write(conn: Connection) -> LimitsPage:
        spend(conn, call)
        service.put(conn, project, body, now)
        return service.page(conn, project)

    return _answer(await parts.store.write(write))


@router.delete("/{project}", status_code=204)
async def remove(call: Write, parts: Wired, project: ProjectName) -> Response:
    """Remove the limits of one project."""

    def write(conn: Connection) -> None:
        spend(conn, call)
        service.remove(conn, project)

    await parts.store.write(write)
    return Response(status_code=204)


def _only(who: Principal) -> str | None:
    every = who.may(Right.LIMIT_WRITE) or who.may(Right.AUDIT_READ_ALL)
    return None if every else who.project_name


def _answer(found: LimitsPage) -> Response:
    return Response(found.model_dump_json(), media_type="application/json")
