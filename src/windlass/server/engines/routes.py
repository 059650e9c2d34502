"""/api/v1/engines: where gangs run, added and looked at."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Response
from sqlalchemy import Connection

from windlass.core.access import Right
from windlass.core.engines import LOCAL, EngineBody, EngineCheck, EnginePage, EngineView, Finding
from windlass.core.sessions import Nothing
from windlass.server.access.calls import Call, spend
from windlass.server.clock import stamp
from windlass.server.engines import service
from windlass.server.engines.fleet import make
from windlass.server.http.body import json_body
from windlass.server.http.marks import require
from windlass.server.http.query import ObjectName
from windlass.server.nodes import service as node_service
from windlass.server.parts import Parts, Wired

router = APIRouter(prefix="/api/v1/engines", tags=["engines"])

Read = Annotated[Call, Depends(require(Right.NODE_READ))]
Write = Annotated[Call, Depends(require(Right.SERVER_WRITE))]
Empty = Annotated[Nothing, Depends(json_body(Nothing))]
EngineName = Annotated[ObjectName, Path(description="the engine's name")]
CHECK_SECONDS = 60.0


@router.get("", response_model=EnginePage)
async def listing(call: Read, parts: Wired) -> EnginePage:
    """The engines, whether they answer, and how many nodes each offers."""
    return EnginePage(items=tuple(await _views(parts)))


@router.put("/{name}", response_model=EngineView)
async def add(
    call: Write,
    parts: Wired,
    name: EngineName,
    body: Annotated[EngineBody, Depends(json_body(EngineBody))],
) -> EngineView:
    """Add an engine; its nodes are offered as soon as it answers. The same again changes
    nothing."""
    settings = parts.settings
    make(
        body.kind, name, settings.home, [], dict(body.options), settings.url
    )  # tells what is wrong
    now = parts.clock.now_ms()

    def write(conn: Connection) -> None:
        spend(conn, call)
        service.add(conn, name, body, now)

    await parts.store.write(write)
    return next(each for each in await _views(parts) if each.name == name)


@router.delete("/{name}", status_code=204)
async def remove(call: Write, parts: Wired, name: EngineName) -> Response:
    """Take an engine away on which no job is at work."""
    now = parts.clock.now_ms()

    def write(conn: Connection) -> None:
        spend(conn, call)
        service.remove(conn, name, now)

    await parts.store.write(write)
    return Response(status_code=204)


@router.post("/{name}/check", response_model=EngineCheck)
async def check(call: Write, parts: Wired, name: EngineName, body: Empty) -> EngineCheck:
    """Try the engine: its commands and rights, a process on a node, the way back to this server,
    the shared files. Takes some seconds."""

    def known(conn: Connection) -> None:
        spend(conn, call)
        if name != LOCAL:
            service.find(conn, name)

    await parts.store.write(known)
    engine = parts.engines.get(name)
    if engine is None:
        why = parts.engines.reasons.get(name, "it is being started")
        findings = [Finding(what="start", ok=False, said=why)]
    else:
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                findings = [
                    Finding(what=what, ok=ok, said=said) for what, ok, said in await engine.check()
                ]
        except TimeoutError:
            said = f"the check did not end within {CHECK_SECONDS:g} s"
            findings = [Finding(what="time", ok=False, said=said)]
    return EngineCheck(name=name, ok=all(each.ok for each in findings), findings=tuple(findings))


async def _views(parts: Parts) -> list[EngineView]:
    rows, nodes = await parts.store.read(
        lambda conn: (service.every(conn), node_service.every(conn))
    )
    counts = Counter(row["engine"] for row in nodes if row["state"] == "ready")
    local: service.Row = {"name": LOCAL, "kind": LOCAL, "options": {}, "created_ms": None}
    found = []
    for row in [local, *rows]:
        reason = parts.engines.reasons.get(row["name"], "")
        created = row["created_ms"]
        found.append(
            EngineView(
                name=row["name"],
                kind=row["kind"],
                options=row["options"],
                state="unreachable" if reason else "ready",
                reason=reason,
                nodes=counts[row["name"]],
                created=None if created is None else stamp(created),
            )
        )
    return found
