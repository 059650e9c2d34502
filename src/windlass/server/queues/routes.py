"""/api/v1/queues: where jobs wait, and the line as it stands."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Response
from sqlalchemy import Connection

from windlass.core.access import Right
from windlass.core.errors import InvalidInput
from windlass.core.queues import QueueBody, QueueLine, QueuePage, QueueView
from windlass.server.access.calls import Call, spend
from windlass.server.http.body import json_body
from windlass.server.http.marks import require
from windlass.server.http.query import ObjectName, WholeNumber
from windlass.server.parts import Wired
from windlass.server.queues import service, view

router = APIRouter(prefix="/api/v1/queues", tags=["queues"])

Read = Annotated[Call, Depends(require(Right.QUEUE_READ))]
Write = Annotated[Call, Depends(require(Right.QUEUE_WRITE))]
QueueName = Annotated[ObjectName, Path(description="the queue's name")]


@router.get("", response_model=QueuePage)
async def listing(call: Read, parts: Wired) -> QueuePage:
    """The queues, with how many jobs wait and run in each."""
    return QueuePage(items=tuple(await parts.store.read(service.every)))


@router.get("/{name}", response_model=QueueView)
async def show(call: Read, parts: Wired, name: QueueName) -> QueueView:
    """One queue."""
    return await parts.store.read(lambda conn: service.one(conn, name))


@router.put("/{name}", response_model=QueueView)
async def put(
    call: Write,
    parts: Wired,
    name: QueueName,
    body: Annotated[QueueBody, Depends(json_body(QueueBody))],
) -> QueueView:
    """Make or change a queue; effective at once. With `revision` only when it is as it was
    seen."""
    now = parts.clock.now_ms()

    def write(conn: Connection) -> QueueView:
        spend(conn, call)
        service.put(conn, name, body, by=call.principal.user_name, now_ms=now)
        return service.one(conn, name)

    return await parts.store.write(write)


@router.delete("/{name}", status_code=204)
async def remove(call: Write, parts: Wired, name: QueueName) -> Response:
    """Remove a queue that has no unfinished job."""
    now = parts.clock.now_ms()

    def write(conn: Connection) -> None:
        spend(conn, call)
        service.remove(conn, name, by=call.principal.user_name, now_ms=now)

    await parts.store.write(write)
    return Response(status_code=204)


@router.get("/{name}/jobs", response_model=QueueLine)
async def line(call: Read, parts: Wired, name: QueueName, limit: WholeNumber = 100) -> Any:
    """The line in the order in which the scheduler looks at it, what runs, and what is free."""
    if not 1 <= limit <= 1000:
        raise InvalidInput(f"limit: from 1 to 1000 (found {limit})")
    ids = parts.admit.line(name)
    free = parts.admit.free()
    who, now = call.principal, parts.clock.now_ms()

    def look(conn: Connection) -> tuple[Any, ...]:
        return (
            service.one(conn, name), view.supply(conn, free),
            view.waiting(conn, name, ids, limit), view.running(conn, name, limit),
        )  # fmt: skip

    queue, supply, waiting, running = await parts.store.read(look)
    found = QueueLine.model_construct(
        queue=queue,
        supply=supply,
        waiting=tuple(
            view.shown(row, at, who, parts.admit, now) for at, row in enumerate(waiting, start=1)
        ),
        running=tuple(view.shown(row, 0, who, parts.admit, now) for row in running),
        order="rows" if ids is None else "scheduler",
    )
    return Response(found.model_dump_json(), media_type="application/json")
