"""/api/v1/jobs/…/system: what a job's ranks used while it ran."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse

from windlass.core.errors import InvalidInput
from windlass.server.http.query import QueryLine, WholeNumber, moment
from windlass.server.jobs import service as jobs
from windlass.server.jobs.routes import JobRef, Read
from windlass.server.parts import Wired
from windlass.server.runs import system

router = APIRouter(prefix="/api/v1", tags=["runs"])

MAX_POINTS = 100_000


@router.get("/jobs/{ref}/system", response_class=JSONResponse)
async def system_series(
    call: Read,
    parts: Wired,
    ref: JobRef,
    key: QueryLine | None = None,
    rank: WholeNumber | None = None,
    low: Annotated[QueryLine | None, Query(alias="from")] = None,
    high: Annotated[QueryLine | None, Query(alias="to")] = None,
    points: WholeNumber = 1000,
) -> JSONResponse:
    """What the ranks used, each second: CPU, memory, disk, GPUs, and of each node its CPU, memory
    and network (`{"series": [{"key", "rank", "points": [[ms, value], …]}]}`). `key` may name
    several, with commas; `from` and `to` are times (ISO-8601). A series with more than `points`
    is averaged over equal spans; of more than a week of minutes, all ranks together, the first are
    told, and `left_out` says so."""
    if not 1 <= points <= MAX_POINTS:
        raise InvalidInput(f"points: from 1 to {MAX_POINTS} (found {points})")
    since_ms, until_ms = moment("from", low or None), moment("to", high or None)
    job = await parts.store.read(lambda conn: jobs.find(conn, call.principal, ref))
    names = tuple(word for word in (key or "").split(",") if word)
    found, left_out = await parts.tracking.read(
        lambda conn: system.series(
            conn, job["id"], names=names, rank=rank, since_ms=since_ms or 0, until_ms=until_ms,
            points=points,
        )
    )  # fmt: skip
    answer: dict[str, Any] = {"series": found}
    if left_out:
        answer["left_out"] = left_out
    return JSONResponse(answer)
