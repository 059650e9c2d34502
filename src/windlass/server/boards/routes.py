"""/tb/…: the boards that run as jobs, and /api/v1/…: their addresses, and what they draw.

GET /tb/JOB                a browser that is logged in is sent to an address made for it
…   /tb/JOB/SECRET/…       the board itself; the secret says who looks, see `capability`
"""

from __future__ import annotations

import pathlib
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, Path, Response
from sqlalchemy import Connection, select
from starlette.requests import HTTPConnection, Request
from starlette.responses import RedirectResponse

from windlass.core.access import Right
from windlass.core.errors import Conflict, Forbidden, InvalidInput, NotFound
from windlass.core.jobs import LIVE, TERMINAL, AttemptState, JobState
from windlass.core.strict import Strict
from windlass.server.access.calls import Call
from windlass.server.artifacts.owners import owner
from windlass.server.artifacts.routes import RunRef
from windlass.server.boards import capability, door, passing
from windlass.server.clock import stamp
from windlass.server.http.marks import MARK_ATTRIBUTE, require
from windlass.server.http.openapi import OCTETS, answers
from windlass.server.http.query import WholeNumber
from windlass.server.jobs import service as jobs
from windlass.server.jobs.routes import JobRef
from windlass.server.jobs.service import Row
from windlass.server.jobs.tables import attempts
from windlass.server.parts import Parts, Wired
from windlass.server.runs import series
from windlass.server.runs.routes import MAX_POINTS, SeriesPage, as_json

router = APIRouter(tags=["boards"])
Read = Annotated[Call, Depends(require(Right.JOB_READ))]
Track = Annotated[Call, Depends(require(Right.TRACK_READ))]


class BoardView(Strict):
    job: str
    state: JobState
    ready: bool
    """Whether it answers."""
    url: str
    """For whoever has it, as long as the credential lives that asked for it."""
    expires: str


@router.get("/api/v1/jobs/{ref}/board", response_model=BoardView)
async def board(call: Read, parts: Wired, ref: JobRef) -> BoardView:
    """The address of a job's board (`windlass tb`), made for the caller. Keep it to yourself."""
    job, secret, until = await _address(call, parts, ref)
    run = await _run_of(parts, job)
    return BoardView(
        job=job["id"],
        state=JobState(job["state"]),
        ready=run is not None and await passing.answers(run),
        url=f"{parts.settings.address}/tb/{job['id']}/{secret}/",
        expires=stamp(until),
    )


@router.get("/api/v1/runs/{ref}/series", response_model=SeriesPage)
async def told(
    call: Track,
    parts: Wired,
    ref: RunRef,
    points: WholeNumber = 5000,
    since: WholeNumber = 0,
) -> Response:
    """What a run logged: as `/jobs/{ref}/metrics` tells it, by time, from the millisecond `since`
    on; for the tokens of attempts too."""
    if not 4 <= points <= MAX_POINTS:
        raise InvalidInput(f"points: from 4 to {MAX_POINTS} (found {points})")
    found = await owner(parts, call.principal, ref)
    wanted = series.Wanted(axis="time", low=since or None, limit=points)
    read = await series.read(parts.tracking, found.run_id or found.id, wanted)
    return Response(as_json(read), media_type="application/json")


@router.get(
    "/tb/{ref}",
    response_class=Response,
    status_code=303,
    name="open",
    responses=answers("text/html", status=303),
)
async def open_(call: Read, parts: Wired, request: Request, ref: JobRef) -> Response:
    """To a board's address, made for who is logged in."""
    job, secret, _ = await _address(call, parts, ref)
    if (words := _not_there(request, job)) is not None:
        return words
    headers = {"referrer-policy": "no-referrer", "cache-control": "no-store"}
    return RedirectResponse(_below(parts, job["id"], secret), 303, headers)


async def _marked(connection: HTTPConnection) -> None:
    """Stands where other routes have their mark; who may look is asked by `door.enter`, which
    knows callers by their address, too."""


setattr(_marked, MARK_ATTRIBUTE, door.RIGHT)


Looker = Annotated[None, Depends(_marked)]
Part = Annotated[str, Path(max_length=capability.LONGEST)]
BOARD = "/tb/{ref}/{secret}/{path:path}"


@router.get(BOARD, response_class=Response, responses=answers("text/html", OCTETS))
async def look(
    mark: Looker, request: Request, parts: Wired, ref: Part, secret: Part, path: str
) -> Response:
    """A page of a board, or what its page asks for."""
    return await _look(request, parts, ref, secret)


@router.post(
    BOARD,
    response_class=Response,
    responses=answers("application/json", OCTETS),
    openapi_extra={"requestBody": {"required": False, "content": {OCTETS: {}}}},
)
async def ask(
    mark: Looker, request: Request, parts: Wired, ref: Part, secret: Part, path: str
) -> Response:
    """What a board's page asks for with a body; nothing of ours is changed by it."""
    return await _look(request, parts, ref, secret)


@router.options(BOARD, status_code=204, response_class=Response)
async def may(
    mark: Looker, request: Request, parts: Wired, ref: Part, secret: Part, path: str
) -> Response:
    """What the page of a board may ask for: it has no origin, so a browser wants to know."""
    await door.enter(request, parts, ref, secret)
    allowed = {
        **passing.sealed_off(request, _below(parts, ref, secret)),
        "access-control-allow-methods": "GET, POST",
        "access-control-allow-headers": ", ".join(passing.ASKED[3:]),
        "access-control-max-age": "600",
    }
    return Response(status_code=204, headers=allowed)


def _below(parts: Parts, ref: str, secret: str) -> str:
    """The board's own path, as it may stand in a header: who has a credential may have written
    anything in the secret's place."""
    return quote(f"{parts.settings.path}/tb/{ref}/{secret}/")


async def _look(request: Request, parts: Parts, ref: str, secret: str) -> Response:
    job = await door.enter(request, parts, ref, secret)
    target = passing.target_of(request.scope, ref, secret)
    mine = _below(parts, ref, secret)
    if (words := _not_there(request, job)) is not None:
        return words
    run = await _run_of(parts, job)
    if run is None:
        raise Conflict(f"{job['name']} is {job['state']}: its board does not run just now")
    return await passing.pass_on(request, run, target, mine)


async def _address(call: Call, parts: Parts, ref: str) -> tuple[Row, str, int]:
    if not call.principal.may(Right.TRACK_READ):
        raise Forbidden(
            f"this credential lacks the right {Right.TRACK_READ}", right=str(Right.TRACK_READ)
        )
    job = await parts.store.read(lambda conn: jobs.find(conn, call.principal, ref))
    now = parts.sessions.now_ms()
    return job, *capability.make(parts.access.sealer, call.principal, job["id"], now)


def _not_there(request: Request, job: Row) -> Response | None:
    """In words, when the job is over. Raises Conflict when it has not begun."""
    if job["state"] in TERMINAL:
        words = f"{job['name']} is over ({job['state']}): start another with windlass tb"
        return passing.no_answer(request, NotFound(words), 410)
    if job["state"] not in LIVE:
        raise Conflict(f"{job['name']} is {job['state']}: its board does not run yet")
    return None


async def _run_of(parts: Parts, job: Row) -> pathlib.Path | None:
    """Where the newest attempt of a job that lives would have its board."""

    def read(conn: Connection) -> tuple[str, str] | None:
        row = conn.execute(
            select(attempts.c.id, attempts.c.placement)
            .where(attempts.c.job_id == job["id"], attempts.c.number == job["fence"])
            .where(attempts.c.state != AttemptState.OVER)
        ).first()
        if row is None or not row.placement:
            return None
        return row.id, row.placement[0]["node"]

    found = None if job["state"] in TERMINAL else await parts.store.read(read)
    return None if found is None else parts.settings.attempt_folder(*found) / "run"
