"""/api/v1/feed: what happens in a project, live and resumable."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, Depends, Header
from fastapi.responses import StreamingResponse
from sqlalchemy import Connection, select

from windlass.core.access import Right
from windlass.core.errors import InvalidInput
from windlass.server import sse
from windlass.server.access.calls import Call
from windlass.server.access.lasting import while_allowed
from windlass.server.feed import SERVER
from windlass.server.http.marks import require
from windlass.server.http.openapi import EVENT_STREAM
from windlass.server.http.query import QueryLine
from windlass.server.jobs import service, views
from windlass.server.jobs.tables import jobs
from windlass.server.parts import Parts, Wired

router = APIRouter(prefix="/api/v1", tags=["feed"])
_LIVE = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


@router.get("/feed", response_class=StreamingResponse, responses=EVENT_STREAM)
async def follow(
    call: Annotated[Call, Depends(require(Right.FEED_READ))],
    parts: Wired,
    cursor: QueryLine | None = None,
    job: QueryLine | None = None,
    last_event_id: Annotated[str | None, Header(alias="Last-Event-ID", max_length=64)] = None,
) -> StreamingResponse:
    """Events of the project as server-sent events, each once and in order. Without a cursor only
    what happens from now on; `cursor=0` tells all that is known.

    Between them, without an `id`, what is worth to look at again: `metrics` (`job`, `run`, the
    last `values` by key; at most four times a second for a run) and `system` (`job`: its ranks
    were sampled). Those are told once and not kept."""
    given = last_event_id or cursor
    if given is not None and not (given.isdigit() and len(given) < 19):
        raise InvalidInput(f"cursor: a number that the feed gave as `id` (found {given[:80]!r})")
    job_id = None
    if job is not None:
        found = await parts.store.read(lambda conn: service.find(conn, call.principal, job))
        job_id = found["id"]
    start = int(given) if given is not None else await parts.feed.last()
    events = _events(parts, start, call.principal.project_id, job_id)
    source = while_allowed(call, Right.FEED_READ, events)
    return StreamingResponse(source, media_type="text/event-stream", headers=_LIVE)


async def _events(
    parts: Parts, cursor: int, project_id: str, job_id: str | None
) -> AsyncGenerator[bytes, None]:
    names: dict[str, str] = {}
    async with (
        aclosing(parts.feed.follow(cursor, project_id, job_id)) as rows,
        aclosing(parts.pulse.follow(project_id, job_id)) as notices,
    ):
        happened = asyncio.ensure_future(anext(rows))
        noticed = asyncio.ensure_future(anext(notices))
        await asyncio.sleep(0)  # it follows, before the answer's head says so
        try:
            yield sse.PING
            while True:
                done, _ = await asyncio.wait(
                    (happened, noticed), timeout=sse.PING_SECONDS,
                    return_when=asyncio.FIRST_COMPLETED,
                )  # fmt: skip
                if not done:
                    yield sse.PING
                if happened in done:
                    row = happened.result()
                    happened = asyncio.ensure_future(anext(rows))
                    if row.job_id and row.job_id not in names:
                        names[row.job_id] = await _name(parts, row.job_id)
                    told = dict(row._mapping)
                    if row.project_id == SERVER:
                        # Names of other projects and people stand in it. That something changed
                        # is enough to look again, at what one may see.
                        told |= {"reason": "", "data": {"of": row.data.get("of", row.kind)}}
                    view = views.event_view(told, names).model_dump(mode="json")
                    yield sse.message("event", view, str(row.position))
                if noticed in done:
                    kind, data = noticed.result()
                    noticed = asyncio.ensure_future(anext(notices))
                    yield sse.message(kind, data)
        finally:
            for waiting in (happened, noticed):
                waiting.cancel()
            await asyncio.gather(happened, noticed, return_exceptions=True)


async def _name(parts: Parts, job_id: str) -> str:
    def look(conn: Connection) -> str:
        found = conn.execute(select(jobs.c.name).where(jobs.c.id == job_id)).scalar()
        return str(found or "")

    return await parts.store.read(look)
