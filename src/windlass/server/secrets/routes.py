"""/api/v1/secrets: secrets that jobs name. A value goes in; no answer ever holds one."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Response
from sqlalchemy import Connection

from windlass.core.access import Right
from windlass.core.secrets import SecretBody, SecretName, SecretPage, SecretView
from windlass.server.access.calls import Call, spend
from windlass.server.http.body import json_body
from windlass.server.http.marks import require
from windlass.server.parts import Parts, Wired
from windlass.server.secrets import service

router = APIRouter(prefix="/api/v1", tags=["secrets"])
Read = Annotated[Call, Depends(require(Right.SECRET_READ))]
Write = Annotated[Call, Depends(require(Right.SECRET_WRITE))]
# Who may submit jobs may keep secrets for them: nobody else sees or changes these.
Own = Annotated[Call, Depends(require(Right.JOB_WRITE))]
Named = Annotated[SecretName, Path(description="the variable's name in the job's environment")]
Body = Annotated[SecretBody, Depends(json_body(SecretBody))]


@router.get("/secrets", response_model=SecretPage)
async def listing(call: Read, parts: Wired) -> SecretPage:
    """Names, versions, who and when: of the project, and of the caller alone."""
    return await parts.store.read(lambda conn: service.page(conn, call.principal))


@router.put("/secrets/{name}", response_model=SecretView)
async def put(call: Write, parts: Wired, name: Named, body: Body) -> SecretView:
    """Make a secret of the project, or give it another value: the next attempt gets it."""
    return await _put(call, parts, name, body, own=False)


@router.delete("/secrets/{name}", status_code=204)
async def remove(call: Write, parts: Wired, name: Named) -> Response:
    """Remove a secret of the project. Jobs that run keep it; attempts to come fail without it."""
    return await _remove(call, parts, name, own=False)


@router.put("/me/secrets/{name}", response_model=SecretView)
async def put_own(call: Own, parts: Wired, name: Named, body: Body) -> SecretView:
    """Make or change a secret of the caller's own, for the caller's jobs in this project."""
    return await _put(call, parts, name, body, own=True)


@router.delete("/me/secrets/{name}", status_code=204)
async def remove_own(call: Own, parts: Wired, name: Named) -> Response:
    """Remove a secret of the caller's own."""
    return await _remove(call, parts, name, own=True)


async def _put(call: Call, parts: Parts, name: str, body: SecretBody, own: bool) -> SecretView:
    call.asked = None  # what was sent goes no further than the row
    now = parts.clock.now_ms()

    def write(conn: Connection) -> SecretView:
        spend(conn, call)
        return service.put(
            conn, parts.access.sealer, call.principal, name, body.value, own=own, now_ms=now
        )

    return await parts.store.write(write)


async def _remove(call: Call, parts: Parts, name: str, own: bool) -> Response:
    def write(conn: Connection) -> None:
        spend(conn, call)
        service.remove(conn, call.principal, name, own=own)

    await parts.store.write(write)
    return Response(status_code=204)
