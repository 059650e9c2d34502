"""/api/v1/quotas: what projects own, lend and borrow."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Response
from sqlalchemy import Connection

from windlass.core.access import Principal, Right
from windlass.core.quotas import QuotaBody, QuotaFileBody, QuotaPage, QuotaView
from windlass.server.access.calls import Call, spend
from windlass.server.http.body import json_body
from windlass.server.http.marks import require
from windlass.server.http.query import ObjectName
from windlass.server.parts import Wired
from windlass.server.quotas import service

router = APIRouter(prefix="/api/v1/quotas", tags=["quotas"])

Read = Annotated[Call, Depends(require(Right.QUOTA_READ))]
Write = Annotated[Call, Depends(require(Right.QUOTA_WRITE))]
QuotaName = Annotated[ObjectName, Path(description="a project's or a cohort's name")]


@router.get("", response_model=QuotaPage)
async def listing(call: Read, parts: Wired) -> Any:
    """The quota of the project and the cohorts it is in, with what is in use; for who sees all
    projects every quota, cohorts first."""
    seen = _seen_by(call.principal)
    return _answer(await parts.store.read(lambda conn: service.page(conn, seen_by=seen)))


@router.get("/{name}", response_model=QuotaView)
async def show(call: Read, parts: Wired, name: QuotaName) -> Any:
    """One quota with what is in use."""
    seen = _seen_by(call.principal)
    page = await parts.store.read(lambda conn: service.page(conn, name, seen_by=seen))
    return _answer(page.items[0])


@router.put("", response_model=QuotaPage)
async def replace(
    call: Write, parts: Wired, body: Annotated[QuotaFileBody, Depends(json_body(QuotaFileBody))]
) -> Any:
    """Make all quotas as the file says, at once: what it does not name goes. With `revision`
    only when none has changed since."""
    now = parts.clock.now_ms()

    def write(conn: Connection) -> QuotaPage:
        spend(conn, call)
        service.replace(conn, body, by=call.principal.user_name, now_ms=now)
        return service.page(conn)

    return _answer(await parts.store.write(write))


@router.put("/{name}", response_model=QuotaView)
async def put(
    call: Write,
    parts: Wired,
    name: QuotaName,
    body: Annotated[QuotaBody, Depends(json_body(QuotaBody))],
) -> Any:
    """Make or change one quota; effective at once. It makes jobs wait, and ends none."""
    now = parts.clock.now_ms()

    def write(conn: Connection) -> QuotaPage:
        spend(conn, call)
        service.put(conn, name, body, by=call.principal.user_name, now_ms=now)
        return service.page(conn, name)

    return _answer((await parts.store.write(write)).items[0])


@router.delete("/{name}", status_code=204)
async def remove(call: Write, parts: Wired, name: QuotaName) -> Response:
    """Remove a project's quota, or a cohort that has no members."""
    now = parts.clock.now_ms()

    def write(conn: Connection) -> None:
        spend(conn, call)
        service.remove(conn, name, by=call.principal.user_name, now_ms=now)

    await parts.store.write(write)
    return Response(status_code=204)


def _seen_by(who: Principal) -> str | None:
    """The project whose quota, with what is above it, is all that this caller sees."""
    every = who.may(Right.QUOTA_WRITE) or who.may(Right.USAGE_READ_ALL)
    return None if every else who.project_name


def _answer(found: QuotaPage | QuotaView) -> Response:
    """Written here: these are our own rows, and FastAPI would check each once more."""
    return Response(found.model_dump_json(), media_type="application/json")
