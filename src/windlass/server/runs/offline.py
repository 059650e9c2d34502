"""/api/v1/runs/{id}/spool: a run that was made where no server was, brought in later.

Its folder has an id, and each of its spools is read from its beginning: what was brought so far is
known by offset, in the same transaction as the points themselves. So a folder that is brought
twice, or by two at once, is there once.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path
from pydantic import Field
from sqlalchemy import Connection, select, update

from windlass.core.access import Principal, Right
from windlass.core.errors import Forbidden, NotFound
from windlass.core.strict import Count, InstantMs, Line, Strict, Text
from windlass.server.access.calls import Call
from windlass.server.http.body import json_body
from windlass.server.http.marks import require
from windlass.server.jobs.tables import jobs
from windlass.server.parts import Wired
from windlass.server.runs import caps, service
from windlass.server.runs import jobs as rows
from windlass.server.runs.tables import params, runs

router = APIRouter(prefix="/api/v1", tags=["runs"])
ATTEMPT = 1


class OfflineLines(Strict):
    name: Annotated[Line, Field(min_length=1, max_length=250)]
    started_ms: InstantMs
    ended_ms: InstantMs | None = None
    """The run is over, and all of it was brought."""
    params: dict[Line, dict[Line, Text]] = {}
    """By where they were found: names and values."""
    rank: Annotated[int, Field(ge=0, lt=2**31)] = 0
    offset: Count = 0
    end: Count = 0
    """Where the lines begin and end in the spool of this rank."""
    lines: Annotated[tuple[Any, ...], Field(max_length=10_000)] = ()


class Known(Strict):
    offset: int
    """How much of this spool the server has: go on from there."""


@router.post("/runs/{run_id}/spool", response_model=Known)
async def bring(
    call: Annotated[Call, Depends(require(Right.JOB_WRITE, repeatable=True))],
    parts: Wired,
    run_id: Annotated[str, Path(pattern=r"^[0-9a-f]{32}$")],
    body: Annotated[OfflineLines, Depends(json_body(OfflineLines))],
) -> Known:
    """Lines of a run that was made offline. Only those that begin where the last ones ended are
    kept; the answer says where that is."""
    who = call.principal
    await parts.store.read(lambda conn: refuse_jobs(conn, run_id))
    known = await parts.tracking.write(lambda conn: keep(conn, who, run_id, body))
    parts.pulse.logged(who.project_id, run_id)
    return Known(offset=known)


def refuse_jobs(conn: Connection, run_id: str) -> None:
    """A job that waits has no run yet: nobody makes one in its place, which would be theirs."""
    if conn.execute(select(jobs.c.id).where(jobs.c.id == run_id)).first() is not None:
        raise NotFound(f"no offline run {run_id}")


def keep(conn: Connection, who: Principal, run_id: str, body: OfflineLines) -> int:
    made = rows.ensure(
        conn, run_id, project_id=who.project_id, name=body.name, user=who.user_name,
        started_ms=body.started_ms, source="offline",
    )  # fmt: skip
    if not made:
        found = conn.execute(
            select(runs.c.project_id, runs.c.source, runs.c.user).where(runs.c.id == run_id)
        ).first()
        if found is None or found.project_id != who.project_id or found.source != "offline":
            raise NotFound(f"no offline run {run_id}")
        if found.user != who.user_name and not who.may(Right.JOB_WRITE_ANY):
            raise Forbidden(
                f"run {run_id} was brought by {found.user}: a member adds to its own only",
                hint="ask its owner, or a maintainer of the project",
                right=str(Right.JOB_WRITE_ANY),
            )
    known = service.known_offset(conn, run_id, ATTEMPT, body.rank)
    if body.offset == known and body.end > known:
        batch = service.sort(
            body.lines, job_id=run_id, attempt=ATTEMPT, rank=body.rank, offset=body.offset
        )
        service.keep(conn, batch, job_id=run_id, attempt=ATTEMPT, rank=body.rank, end=body.end)
        known = body.end
    for source, values in body.params.items():
        given = {key[:250]: value[:6000] for key, value in values.items()}
        caps.cut(conn, run_id, params, given)
        service.note(conn, run_id, given, dict.fromkeys(given, source[:120]), {})
    if body.ended_ms is not None:
        conn.execute(
            update(runs)
            .where(runs.c.id == run_id)
            .values(status="FINISHED", ended_ms=body.ended_ms)
        )
    return known
