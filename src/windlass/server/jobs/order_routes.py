"""/api/v1/jobs/{ref}/priority and /move: where a job stands among those that wait."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path
from sqlalchemy import Connection

from windlass.core.access import Right
from windlass.core.jobs import JobView
from windlass.core.queues import MoveBody, PriorityBody
from windlass.server.access.calls import Call, spend
from windlass.server.http.body import json_body
from windlass.server.http.marks import require
from windlass.server.http.query import Ref
from windlass.server.jobs import order, views
from windlass.server.parts import Wired

router = APIRouter(prefix="/api/v1/jobs", tags=["jobs"])

JobRef = Annotated[Ref, Path(max_length=64, description="id, unique prefix of it, or name")]


@router.post("/{ref}/priority", response_model=JobView)
async def priority(
    call: Annotated[Call, Depends(require(Right.JOB_WRITE, others=Right.JOB_WRITE_ANY))],
    parts: Wired,
    ref: JobRef,
    body: Annotated[PriorityBody, Depends(json_body(PriorityBody))],
) -> JobView:
    """Give an unfinished job another priority; higher goes first."""
    now = parts.clock.now_ms()

    def write(conn: Connection) -> JobView:
        spend(conn, call)
        row = order.prioritise(conn, call.principal, ref, body.priority, now_ms=now)
        return views.job_view(row)

    return await parts.store.write(write)


@router.post("/{ref}/move", response_model=JobView)
async def move(
    # It passes jobs of others: not for everyone who may submit.
    call: Annotated[Call, Depends(require(Right.QUEUE_WRITE))],
    parts: Wired,
    ref: JobRef,
    body: Annotated[MoveBody, Depends(json_body(MoveBody))],
) -> JobView:
    """Put a waiting job before another of its queue, first, or last. It takes the priority of
    its new neighbour."""
    now = parts.clock.now_ms()

    def write(conn: Connection) -> JobView:
        spend(conn, call)
        row = order.place(conn, call.principal, ref, body, now_ms=now)
        return views.job_view(row)

    return await parts.store.write(write)
