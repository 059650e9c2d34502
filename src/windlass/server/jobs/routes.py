"""/api/v1/jobs: what users ask of jobs. Thin: check, one transaction, answer."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Depends, Header, Path, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import Field
from sqlalchemy import Connection, select

from windlass.core.access import Right
from windlass.core.errors import Conflict, InvalidInput, Unavailable
from windlass.core.events import EventView
from windlass.core.jobs import JobDetail, JobSpec, JobState, JobView
from windlass.core.strict import Line, Strict
from windlass.engines.base import Engine
from windlass.server import failpoints
from windlass.server.access.calls import Call, spend
from windlass.server.clock import stamp
from windlass.server.http.body import json_body
from windlass.server.http.marks import require
from windlass.server.http.openapi import EVENT_STREAM, answers
from windlass.server.http.query import QueryCursor, QueryLine, Ref, WholeNumber
from windlass.server.jobs import orders, service, views
from windlass.server.jobs.stream import follow_job, parse_cursor
from windlass.server.jobs.tables import workers
from windlass.server.jobs.why import Why, why
from windlass.server.logs import reader
from windlass.server.parts import Parts, Wired
from windlass.server.queues import service as queues
from windlass.server.runs import service as runs

T = TypeVar("T")
router = APIRouter(prefix="/api/v1/jobs", tags=["jobs"])

Read = Annotated[Call, Depends(require(Right.JOB_READ))]
Write = Annotated[Call, Depends(require(Right.JOB_WRITE))]
Debug = Annotated[Call, Depends(require(Right.JOB_DEBUG))]
JobRef = Annotated[Ref, Path(max_length=64, description="id, unique prefix of it, or name")]
Key = Annotated[str | None, Header(alias="Idempotency-Key", max_length=255, pattern=r"^[!-~]+$")]


class SubmitBody(Strict):
    spec: JobSpec
    dry_run: bool = False


class DryRun(Strict):
    spec: JobSpec
    framework: str
    fits: bool
    starts: str


class StopBody(Strict):
    reason: Line = ""
    now: bool = False


class ReasonBody(Strict):
    reason: Line = ""


class RerunBody(Strict):
    params: dict[Line, bool | int | float | Line] = {}
    changes: dict[Line, Any] = {}


class DebugBody(Strict):
    kind: Literal["stack", "profile", "attach"]
    rank: Annotated[int, Field(ge=0)] | None = None
    seconds: Annotated[int, Field(ge=1, le=300)] = 10


class JobPage(Strict):
    items: tuple[JobView, ...]
    next: str | None


class EventPage(Strict):
    items: tuple[EventView, ...]


class Checkpoint(Strict):
    step: int
    attempt: int
    path: str
    digest: str
    bytes: int
    registered: str
    bad: str | None


class CheckpointPage(Strict):
    items: tuple[Checkpoint, ...]


class Series(Strict):
    key: str
    rank: int
    points: tuple[tuple[int | None, int, float | None], ...]


class SeriesPage(Strict):
    series: tuple[Series, ...]


class DebugAnswer(Strict):
    ranks: tuple[dict[str, Any], ...]
    errors: tuple[str, ...]


@router.post(
    "",
    status_code=201,
    response_model=JobView,
    responses={200: {"model": DryRun, "description": "A dry run: nothing was made"}},
)
async def submit(
    call: Write,
    parts: Wired,
    body: Annotated[SubmitBody, Depends(json_body(SubmitBody))],
    key: Key = None,
) -> Any:
    """Accept a job; durable when answered. The same key with the same body gives the first
    answer again."""
    _own_project(call, body.spec)
    framework = service.check(body.spec, await parts.fits.now())
    if body.dry_run:
        await parts.store.read(lambda conn: queues.known(conn, body.spec.queue.name))
        call.changed_nothing()
        found = DryRun(
            spec=body.spec, framework=framework, fits=True, starts=_starts(call, parts, body.spec)
        )
        return JSONResponse(found.model_dump(mode="json"))
    digest = service.digest_of(call.asked)
    now = parts.clock.now_ms()
    accepted = await parts.store.write(
        _spending(
            call,
            lambda conn: service.submit(
                conn, call.principal, body.spec, framework, key=key, digest=digest, now_ms=now
            ),
        )
    )
    failpoints.passing("after-submit-commit")
    headers = None if accepted.new else {"Idempotent-Replay": "true"}
    return Response(accepted.answer, 201, headers, "application/json")


@router.get("", response_model=JobPage)
async def listing(
    call: Read,
    parts: Wired,
    state: QueryLine | None = None,
    name: QueryLine | None = None,
    user: QueryLine | None = None,
    project: QueryLine | None = None,
    before: WholeNumber | None = None,
    limit: WholeNumber = 50,
) -> Any:
    """Newest first; `state` may name several, with commas."""
    if not 1 <= limit <= 1000:
        raise InvalidInput(f"limit: from 1 to 1000 (found {limit})")
    states = [_state(word) for word in state.split(",")] if state else []
    if project not in (None, call.principal.project_name):
        return JobPage(items=(), next=None)
    rows, following = await parts.store.read(
        lambda conn: service.listing(
            conn, call.principal, states=states, name=name, user=user, before=before, limit=limit
        )
    )
    page = JobPage.model_construct(
        items=tuple(views.job_view(row) for row in rows),
        next=None if following is None else str(following),
    )
    # Written here: FastAPI would check each of our own rows once more, which takes longer than
    # everything before.
    return Response(page.model_dump_json(), media_type="application/json")


@router.get("/{ref}", response_model=JobDetail)
async def show(call: Read, parts: Wired, ref: JobRef) -> JobDetail:
    """A job with its spec and its attempts."""

    def look(conn: Connection) -> JobDetail:
        row = service.find(conn, call.principal, ref)
        return views.job_detail(row, service.attempts_of(conn, row["id"]))

    return await parts.store.read(look)


@router.get("/{ref}/why", response_model=Why)
async def explain_job(call: Read, parts: Wired, ref: JobRef) -> Why:
    """One sentence on why it is as it is, the evidence, the next step."""

    def look(conn: Connection) -> tuple[Any, ...]:
        job = service.find(conn, call.principal, ref)
        attempts = service.attempts_of(conn, job["id"])
        last = attempts[-1]["id"] if attempts else ""
        mine = conn.execute(select(workers).where(workers.c.attempt_id == last)).mappings()
        events = service.events_of(conn, job["id"], 0)
        hung = [e for e in events if e["kind"] == "hung" and e["attempt"] == job["fence"]]
        return job, attempts, [dict(row) for row in mine], hung

    job, attempts, mine, hung = await parts.store.read(look)
    waiting, promise = parts.admit.why(job["id"]), parts.admit.promise(job["id"])
    if waiting is not None and promise is not None:
        waiting = replace(waiting, expected_start_ms=promise.start_ms)
    return why(job, attempts, mine, hung, waiting, parts.clock.now_ms())


@router.get("/{ref}/events", response_model=EventPage)
async def events(call: Read, parts: Wired, ref: JobRef, after: WholeNumber = 0) -> EventPage:
    """What happened to a job, in order; `after` is the `seq` of the last event known."""

    def look(conn: Connection) -> EventPage:
        row = service.find(conn, call.principal, ref)
        names = {row["id"]: row["name"]}
        found = service.events_of(conn, row["id"], after)
        return EventPage.model_construct(items=tuple(views.event_view(e, names) for e in found))

    return await parts.store.read(look)


@router.post("/{ref}/stop", response_model=JobView)
async def stop(
    call: Write, parts: Wired, ref: JobRef, body: Annotated[StopBody, Depends(json_body(StopBody))]
) -> JobView:
    """Ask for the end: the job may save and leave within its grace, or `now` is killed."""
    who = call.principal.user_name
    reason = f"stopped by {who}" + (f": {body.reason}" if body.reason else "")
    return await _wish(call, parts, ref, "cancel", reason, body.now)


@router.post("/{ref}/release", response_model=JobView)
async def release(
    call: Write,
    parts: Wired,
    ref: JobRef,
    body: Annotated[ReasonBody, Depends(json_body(ReasonBody))],
) -> JobView:
    """Let a held job go on, or cut a backoff short."""
    return await _wish(
        call, parts, ref, "release", body.reason or f"released by {call.principal.user_name}"
    )


@router.post("/{ref}/restart", response_model=JobView)
async def restart(
    call: Write,
    parts: Wired,
    ref: JobRef,
    body: Annotated[ReasonBody, Depends(json_body(ReasonBody))],
) -> JobView:
    """End the running attempt with its grace and start the next from the newest checkpoint."""
    return await _wish(
        call, parts, ref, "restart", body.reason or f"restarted by {call.principal.user_name}"
    )


@router.post("/{ref}/rerun", status_code=201, response_model=JobView)
async def rerun(
    call: Write,
    parts: Wired,
    ref: JobRef,
    body: Annotated[RerunBody, Depends(json_body(RerunBody))],
    key: Key = None,
) -> Any:
    """A new job like this one, with changes."""
    found = await parts.store.read(lambda conn: service.find(conn, call.principal, ref))
    spec = service.changed(
        JobSpec.model_validate(found["spec"]), dict(body.params), dict(body.changes)
    )
    _own_project(call, spec)
    framework = service.check(spec, await parts.fits.now())
    digest = service.digest_of({"rerun": found["id"], **body.model_dump(mode="json")})
    now = parts.clock.now_ms()
    accepted = await parts.store.write(
        _spending(
            call,
            lambda conn: service.submit(
                conn, call.principal, spec, framework, key=key, digest=digest, now_ms=now,
                rerun_of=found["id"],
            ),
        )
    )  # fmt: skip
    return Response(accepted.answer, 201, media_type="application/json")


@router.delete("/{ref}", status_code=204)
async def remove(call: Write, parts: Wired, ref: JobRef) -> Response:
    """Remove a finished job with its files, logs and metrics."""

    def look(conn: Connection) -> tuple[str, list[str]]:
        job = service.find(conn, call.principal, ref)
        return job["id"], service.removable(conn, job["id"])

    job_id, attempts = await parts.store.read(look)
    for engine in parts.engines.values():
        for attempt in attempts:
            await _forget(engine, attempt)
    now = parts.clock.now_ms()
    await parts.store.write(_spending(call, lambda conn: service.remove(conn, job_id, now)))
    await parts.tracking.write(lambda conn: runs.forget(conn, [job_id]))
    return Response(status_code=204)


@router.get("/{ref}/metrics", response_model=SeriesPage)
async def metrics(
    call: Read, parts: Wired, ref: JobRef, key: QueryLine | None = None
) -> SeriesPage:
    """What the job logged: a series for each key and rank, points as [step, ms, value]."""
    job = await parts.store.read(lambda conn: service.find(conn, call.principal, ref))
    keys = key.split(",") if key else []
    found = await parts.tracking.read(lambda conn: runs.series(conn, job["id"], keys))
    return SeriesPage.model_construct(
        series=tuple(Series.model_construct(**each) for each in found)
    )


@router.get("/{ref}/checkpoints", response_model=CheckpointPage)
async def checkpoints(call: Read, parts: Wired, ref: JobRef) -> CheckpointPage:
    """The job's checkpoints, newest first; `bad` says why one is left aside."""

    def look(conn: Connection) -> list[dict[str, Any]]:
        job = service.find(conn, call.principal, ref)
        return service.checkpoints_of(conn, job["id"])

    rows = await parts.store.read(look)
    return CheckpointPage(
        items=tuple(
            Checkpoint(
                step=row["step"], attempt=row["attempt"], path=row["path"], digest=row["digest"],
                bytes=row["bytes"], registered=stamp(row["registered_ms"]), bad=row["bad"],
            )
            for row in rows
        )
    )  # fmt: skip


@router.post("/{ref}/debug", response_model=DebugAnswer)
async def debug(
    call: Debug,
    parts: Wired,
    ref: JobRef,
    body: Annotated[DebugBody, Depends(json_body(DebugBody))],
) -> DebugAnswer:
    """Look into a running job: stacks of its ranks, a flame graph, a port for a debugger."""

    def ask(conn: Connection) -> tuple[str, int]:
        job = service.find(conn, call.principal, ref)
        attempts = service.attempts_of(conn, job["id"])
        if JobState(job["state"]) is not JobState.RUNNING:
            raise Conflict(
                f"job {job['name']} is {job['state']}: only a running one can be looked into"
            )
        attempt = attempts[-1]
        nodes = sorted({placed["node"] for placed in attempt["placement"]})
        now = parts.clock.now_ms()
        order = orders.give(
            conn, attempt, nodes, body.kind, body.model_dump(exclude={"kind"}), now_ms=now
        )
        return attempt["id"], order

    attempt_id, order = await parts.store.write(_spending(call, ask))
    parts.hub.poke("orders:" + attempt_id)

    async def look() -> list[dict[str, Any]] | None:
        rows = await parts.store.read(lambda conn: orders.answers(conn, attempt_id, order))
        return rows if all(row["done_ms"] is not None for row in rows) else None

    rows = await parts.hub.until(
        f"answer:{attempt_id}:{order}", look, wait_seconds=body.seconds + 30
    )
    if rows is None:
        raise Unavailable(
            "the workers did not answer in time", hint="is the job's node reachable?"
        )
    return DebugAnswer(
        ranks=tuple(rank for row in rows for rank in (row["result"] or {}).get("ranks", ())),
        errors=tuple(
            f"{row['node']}: {(row['result'] or {}).get('error', 'failed')}"
            for row in rows
            if not row["ok"]
        ),
    )


@router.get("/{ref}/stream", response_class=StreamingResponse, responses=EVENT_STREAM)
async def stream(
    call: Read,
    parts: Wired,
    ref: JobRef,
    cursor: QueryCursor | None = None,
    since: QueryLine | None = None,
    tail: WholeNumber | None = None,
    last_event_id: Annotated[str | None, Header(alias="Last-Event-ID", max_length=8192)] = None,
) -> StreamingResponse:
    """Everything about one job as it happens (server-sent events): `event`, `log`, and `end` when
    it is over. `id` is a cursor to go on from. With `since` (ISO-8601) or `tail` (lines of each
    rank) it begins there instead of at the beginning."""
    since_ms = _moment(since) if since else None
    _check_tail(tail)
    given = last_event_id or cursor
    parse_cursor(given)  # a wrong one is an answer, not a stream that breaks
    job = await parts.store.read(lambda conn: service.find(conn, call.principal, ref))
    source = follow_job(parts, job, given, since_ms=since_ms, last=tail)
    return StreamingResponse(source, media_type="text/event-stream", headers=_LIVE)


@router.get(
    "/{ref}/logs",
    response_class=StreamingResponse,
    responses=answers("text/plain", "application/x-ndjson"),
)
async def logs(
    call: Read,
    parts: Wired,
    ref: JobRef,
    rank: QueryLine | None = None,
    stream: QueryLine | None = None,
    since: QueryLine | None = None,
    grep: QueryLine | None = None,
    tail: WholeNumber | None = None,
    attempt: WholeNumber | None = None,
    format: QueryLine = "text",
) -> StreamingResponse:
    """Output of the ranks in order of time. `since` is an ISO-8601 time; `rank` a number or a
    name such as worker-0-1; `attempt` defaults to the newest."""
    since_ms = _moment(since) if since else 0
    if stream not in (None, "out", "err"):
        raise InvalidInput(f"stream: out or err (found {stream!r})")
    if format not in ("text", "json"):
        raise InvalidInput(f"format: text or json (found {format!r})")
    _check_tail(tail)
    try:
        pattern = re.compile(grep) if grep else None
    except re.error as err:
        raise InvalidInput(f"grep: not a regular expression: {err} (found {grep!r})") from err

    def look(conn: Connection) -> list[dict[str, Any]]:
        job = service.find(conn, call.principal, ref)
        return service.attempts_of(conn, job["id"])

    attempts = await parts.store.read(look)
    chosen = [each for each in attempts if attempt in (None, each["number"])][-1:]
    if attempt is not None and not chosen:
        raise InvalidInput(f"attempt: there is no attempt {attempt}; there are {len(attempts)}")
    folders = [
        parts.settings.logs_of(each["id"], node)
        for each in chosen
        for node in sorted({placed["node"] for placed in each["placement"]})
    ]

    def produce() -> Iterator[bytes]:
        found = reader.streams(folders)
        wanted = [
            each
            for number, each in _numbered(found)
            if (stream is None or each.stream == stream)
            and (
                rank is None
                or rank in (str(number), each.rank)
                or each.rank.rsplit("-", 1)[0] == rank
            )
        ]
        for line in reader.lines(wanted, since_ms=since_ms, pattern=pattern, last=tail):
            if format == "json":
                yield json.dumps(_line(line)).encode() + b"\n"
            else:
                yield line.text.encode() + b"\n"

    kind = "application/x-ndjson" if format == "json" else "text/plain; charset=utf-8"
    return StreamingResponse(_in_pages(produce), media_type=kind)


_LEAVING_SECONDS = 15
_LIVE = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def _numbered(found: list[reader.Stream]) -> Iterator[tuple[int, reader.Stream]]:
    ranks = list(dict.fromkeys(each.rank for each in found))
    for each in found:
        yield ranks.index(each.rank), each


def _line(line: reader.Line) -> dict[str, Any]:
    return {
        "rank": line.rank, "stream": line.stream, "at": stamp(line.at_ms),
        "offset": line.offset, "text": line.text,
    }  # fmt: skip


async def _in_pages(produce: Callable[[], Iterator[bytes]]) -> AsyncIterator[bytes]:
    """Run a blocking generator in a thread, a page at a time."""
    source = produce()

    def page() -> bytes:
        parts: list[bytes] = []
        size = 0
        for piece in source:
            parts.append(piece)
            size += len(piece)
            if size > 256 * 1024:
                break
        return b"".join(parts)

    while block := await asyncio.to_thread(page):
        yield block


async def _wish(
    call: Call, parts: Parts, ref: str, what: str, reason: str, at_once: bool = False
) -> JobView:
    now = parts.clock.now_ms()
    row = await parts.store.write(
        _spending(
            call,
            lambda conn: service.wish(
                conn, call.principal, ref, what, reason=reason, now_ms=now, at_once=at_once
            ),
        )
    )
    parts.reconcile.hint(row["id"])
    return views.job_view(row)


async def _forget(engine: Engine, attempt_id: str) -> None:
    """Remove an attempt's files. Its worker may be on its way out still, for some seconds."""
    for _ in range(_LEAVING_SECONDS * 4):
        try:
            return await engine.forget(attempt_id)
        except Conflict:
            await asyncio.sleep(0.25)
    await engine.forget(attempt_id)


def _spending(call: Call, fn: Callable[[Connection], T]) -> Callable[[Connection], T]:
    def write(conn: Connection) -> T:
        spend(conn, call)
        return fn(conn)

    return write


def _own_project(call: Call, spec: JobSpec) -> None:
    if spec.project not in (None, call.principal.project_name):
        raise InvalidInput(
            f"project: this key is of {call.principal.project_name} (found {spec.project!r})"
        )


def _check_tail(tail: int | None) -> None:
    if tail is not None and not 0 <= tail <= 1_000_000:
        raise InvalidInput(f"tail: from 0 to 1000000 (found {tail})")


def _moment(text: str) -> int:
    try:
        at = datetime.fromisoformat(text)
        return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise InvalidInput(f"since: an ISO-8601 time (found {text!r})") from None


def _state(word: str) -> JobState:
    try:
        return JobState(word)
    except ValueError:
        known = ", ".join(JobState)
        raise InvalidInput(f"state: no state {word!r}; known: {known}") from None


def _starts(call: Call, parts: Parts, spec: JobSpec) -> str:
    who = call.principal
    now = parts.admit.could_start(spec, who.project_name, who.user_name)
    return "now" if now else "waits for other jobs"
