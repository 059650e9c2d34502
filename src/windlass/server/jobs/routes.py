"""/api/v1/jobs: what users ask of jobs. Thin: check, one transaction, answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Depends, Header, Path, Response
from fastapi.responses import JSONResponse
from pydantic import Field
from sqlalchemy import Connection, select

from windlass.core.access import Right
from windlass.core.errors import Conflict, InvalidInput, Unavailable
from windlass.core.events import EventView
from windlass.core.jobs import JobDetail, JobSpec, JobState, JobView
from windlass.core.strict import Line, Strict
from windlass.engines.base import Engine
from windlass.server import failpoints
from windlass.server.access.calls import Call, tell, use
from windlass.server.audit import record
from windlass.server.checkpoints import starting
from windlass.server.clock import iso
from windlass.server.engines import words
from windlass.server.http.body import json_body
from windlass.server.http.marks import require
from windlass.server.http.query import QueryLine, QueryWords, Ref, WholeNumber
from windlass.server.jobs import orders, removal, service, table, views
from windlass.server.jobs.shrinking import Smaller, smaller
from windlass.server.jobs.spelling import Spellings, spellings
from windlass.server.jobs.tables import workers
from windlass.server.jobs.why import WORTH_TELLING, Why, waits, why
from windlass.server.nodes import service as node_service
from windlass.server.parts import Parts, Wired
from windlass.server.queues import service as queues
from windlass.server.reading import spec_of
from windlass.server.runs import service as runs

T = TypeVar("T")
router = APIRouter(prefix="/api/v1/jobs", tags=["jobs"])

Read = Annotated[Call, Depends(require(Right.JOB_READ))]
Write = Annotated[Call, Depends(require(Right.JOB_WRITE))]
Change = Annotated[Call, Depends(require(Right.JOB_WRITE, others=Right.JOB_WRITE_ANY))]
Debug = Annotated[Call, Depends(require(Right.JOB_DEBUG, others=Right.JOB_DEBUG_ANY))]
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
    """`now`, or `waits for other jobs`."""
    sentence: str
    """Why it would wait; empty: it would not."""
    smaller: tuple[Smaller, ...]
    """What would start now in its place."""
    spellings: Spellings


class StopBody(Strict):
    reason: Line = ""
    now: bool = False


class ReasonBody(Strict):
    reason: Line = ""


class RerunBody(Strict):
    params: dict[Line, bool | int | float | Line] = {}
    changes: dict[Line, Any] = {}


class DebugBody(Strict):
    kind: Literal["stack", "profile", "trace", "attach"]
    rank: Annotated[int, Field(ge=0)] | None = None
    seconds: Annotated[int, Field(ge=1, le=300)] = 10


class JobRow(JobView):
    params: dict[str, Any] = {}
    """As `/runs` tells them, where `columns` names them."""
    metrics: dict[str, Any] = {}


WAITING_TOLD = 50
"""Of so many jobs of a page it is said why they wait: each is a look at the scheduler's books."""


class JobPage(Strict):
    items: tuple[JobRow, ...]
    next: str | None
    total: int | None = None
    """Of all pages; said on the first."""
    states: dict[str, int] | None = None
    """How many are in each state, whatever `state` asks for; said on the first page."""


class EventPage(Strict):
    items: tuple[EventView, ...]


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
        await _start(call, parts, body.spec)
        call.changed_nothing()
        found = _would(call, parts, body.spec, framework)
        return JSONResponse(found.model_dump(mode="json"))
    digest = service.digest_of(call.asked)
    now = parts.clock.now_ms()
    start = await _start(call, parts, body.spec)
    accepted = await parts.store.write(
        _spending(
            call,
            lambda conn: service.submit(
                conn, call.principal, body.spec, framework, key=key, digest=digest, now_ms=now,
                start=start,
            ),
        )
    )  # fmt: skip
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
    filter: QueryWords = "",
    sort: QueryLine = "",
    columns: QueryWords = "",
    before: QueryLine | None = None,
    limit: WholeNumber = 50,
) -> Any:
    """Newest first; `state` may name several, with commas; `before` is what a page gave as `next`.

    `filter`: `state in (failed, cancelled) and metrics.loss < 0.3 and params.lr = 0.1 and user =
    ann and duration > 2h`. Kinds are `metrics` (the latest value), `min`, `max`, `params`, `tags`,
    and none for the job's own facts. `sort`: `-metrics.loss`, `params.lr`, `-duration`, `name`.
    `columns`: `params.lr,metrics.loss`: rows have them in `params` and `metrics`."""
    if not 1 <= limit <= 1000:
        raise InvalidInput(f"limit: from 1 to 1000 (found {limit})")
    states = tuple(_state(word) for word in state.split(",")) if state else ()
    if project not in (None, call.principal.project_name):
        return JobPage(items=(), next=None, total=0, states={})
    shown = tuple(word.strip() for word in columns.split(",") if word.strip())
    asked = table.Asked(filter, sort, shown, states, name, user, before, limit)
    found = await table.page(
        parts.store, parts.tracking, call.principal, asked, parts.clock.now_ms()
    )
    queued = [row["id"] for row in found.rows if row["state"] == JobState.QUEUED]
    told = frozenset(queued[:WAITING_TOLD])
    page = JobPage.model_construct(
        items=tuple(
            JobRow.model_construct(
                **(views.job_fields(row) | (why_waits(parts, row) if row["id"] in told else {})),
                params=found.params.get(row["id"], {}),
                metrics=found.metrics.get(row["id"], {}),
            )
            for row in found.rows
        ),
        next=found.following,
        total=found.total,
        states=found.states,
    )
    # Written here: FastAPI would check each of our own rows once more, which takes longer than
    # everything before.
    return Response(page.model_dump_json(), media_type="application/json")


@router.get("/{ref}", response_model=JobDetail)
async def show(call: Read, parts: Wired, ref: JobRef) -> JobDetail:
    """A job with its spec and its attempts."""

    def look(conn: Connection) -> JobDetail:
        row = service.find(conn, call.principal, ref)
        attempts = service.attempts_of(conn, row["id"])
        isolation = orders.isolation_of(conn, attempts)
        ended = orders.ended_ranks(conn, attempts[-1]["id"]) if attempts else []
        lineage = starting.lineage(conn, row["id"])
        found = views.job_detail(row, attempts, isolation, lineage, ended)
        return found.model_copy(update=why_waits(parts, row))

    return await parts.store.read(look)


def why_waits(parts: Parts, row: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a JobView that only the scheduler knows; none where another server leads."""
    if row["state"] != JobState.QUEUED:
        return {}
    reason, promise = parts.admit.why(row["id"]), parts.admit.promise(row["id"])
    words, starts = waits(row, reason, promise, parts.clock.now_ms())
    return {"waits": words or None, "expected_start": iso(starts)}


@router.get("/{ref}/why", response_model=Why)
async def explain_job(call: Read, parts: Wired, ref: JobRef) -> Why:
    """One sentence on why it is as it is, the evidence, the next step."""

    def look(conn: Connection) -> tuple[Any, ...]:
        job = service.find(conn, call.principal, ref)
        attempts = service.attempts_of(conn, job["id"])
        last = attempts[-1]["id"] if attempts else ""
        mine = conn.execute(select(workers).where(workers.c.attempt_id == last)).mappings()
        events = service.events_of(conn, job["id"], 0)
        told = [e for e in events if e["kind"] in WORTH_TELLING and e["attempt"] == job["fence"]]
        paused = node_service.paused(conn) if job["state"] == JobState.QUEUED else []
        return job, attempts, [dict(row) for row in mine], told, paused

    job, attempts, mine, told, paused = await parts.store.read(look)
    waiting, promise = parts.admit.why(job["id"]), parts.admit.promise(job["id"])
    if waiting is not None and promise is not None:
        waiting = replace(waiting, expected_start_ms=promise.start_ms)
    starts = job["state"] == JobState.STARTING
    said = await words.of_missing(parts.engines, attempts[-1], mine) if starts else {}
    return why(job, attempts, mine, told, waiting, parts.clock.now_ms(), said, paused)


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
    call: Change,
    parts: Wired,
    ref: JobRef,
    body: Annotated[StopBody, Depends(json_body(StopBody))],
) -> JobView:
    """Ask for the end: the job may save and leave within its grace, or `now` is killed."""
    who = call.principal.user_name
    reason = f"stopped by {who}" + (f": {body.reason}" if body.reason else "")
    return await _wish(call, parts, ref, "cancel", reason, body.now)


@router.post("/{ref}/release", response_model=JobView)
async def release(
    call: Change,
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
    call: Change,
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
    spec = service.changed(spec_of(found), dict(body.params), dict(body.changes))
    _own_project(call, spec)
    framework = service.check(spec, await parts.fits.now())
    digest = service.digest_of({"rerun": found["id"], **body.model_dump(mode="json")})
    now = parts.clock.now_ms()
    start = await _start(call, parts, spec)
    accepted = await parts.store.write(
        _spending(
            call,
            lambda conn: service.submit(
                conn, call.principal, spec, framework, key=key, digest=digest, now_ms=now,
                rerun_of=found["id"], start=start,
            ),
        )
    )  # fmt: skip
    return Response(accepted.answer, 201, media_type="application/json")


@router.delete("/{ref}", status_code=204)
async def remove(call: Change, parts: Wired, ref: JobRef) -> Response:
    """Remove a finished job with its files, logs and metrics."""

    def look(conn: Connection) -> tuple[str, list[str]]:
        job = service.find_to_change(conn, call.principal, ref)
        return job["id"], removal.removable(conn, job["id"])

    job_id, attempts = await parts.store.read(look)
    call.about = job_id
    for engine in parts.engines.values():
        for attempt in attempts:
            await _forget(engine, attempt)
    now = parts.clock.now_ms()
    await starting.release(parts.store, parts.settings.folder_of, job_id, now, parts.shelf)
    await asyncio.to_thread(removal.remove_folder, parts.settings.folder_of(job_id))
    # First here, as its files: who dies in between leaves a job that can be removed again, and no
    # run of a job that nobody knows any more.
    await parts.tracking.write(lambda conn: runs.forget(conn, [job_id]))
    await parts.store.write(_spending(call, lambda conn: removal.remove(conn, job_id, now)))
    return Response(status_code=204)


@router.post("/{ref}/debug", response_model=DebugAnswer)
async def debug(
    call: Debug,
    parts: Wired,
    ref: JobRef,
    body: Annotated[DebugBody, Depends(json_body(DebugBody))],
) -> DebugAnswer:
    """Look into a running job: stacks of its ranks, a flame graph, a trace of torch's or
    TensorFlow's profiler, a port for a debugger."""

    def ask(conn: Connection) -> tuple[str, int]:
        job = service.find_to_change(conn, call.principal, ref, Right.JOB_DEBUG_ANY)
        attempts = service.attempts_of(conn, job["id"])
        call.about = job["id"]
        if JobState(job["state"]) is not JobState.RUNNING:
            raise Conflict(
                f"job {job['name']} is {job['state']}: only a running one can be looked into"
            )
        attempt = attempts[-1]
        nodes = views.nodes_of(attempt)
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
        f"answer:{attempt_id}:{order}",
        look,
        wait_seconds=body.seconds + (150 if body.kind == "trace" else 30),
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


_LEAVING_SECONDS = 15


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
    """`fn` in a transaction that uses up the signature and tells the audit log which job it was
    about, and whether there was a new one."""

    def write(conn: Connection) -> T:
        use(conn, call)
        result = fn(conn)
        outcome = record.OK
        if isinstance(result, service.Accepted):
            call.about = result.job_id
            outcome = record.OK if result.new else record.REPLAYED
        elif isinstance(result, dict):
            call.about = result["id"]
        tell(conn, call, outcome=outcome)
        return result

    return write


async def _start(call: Call, parts: Parts, spec: JobSpec) -> starting.Start | None:
    """What the job starts from, looked up. Raises InvalidInput."""
    asked = spec.start_from
    if asked is None:
        return None
    scores = None
    if asked.step == "best":
        source = await parts.store.read(
            lambda conn: service.find(conn, call.principal, asked.job or "")
        )
        scores = await parts.cleaning.scores(source["id"], spec_of(source))
    return await parts.store.read(
        lambda conn: starting.prepare(
            conn, call.principal, asked, parts.settings.checkpoints_of, service.find, scores
        )
    )


def _own_project(call: Call, spec: JobSpec) -> None:
    if spec.project not in (None, call.principal.project_name):
        raise InvalidInput(
            f"project: this key is of {call.principal.project_name} (found {spec.project!r})"
        )


def _state(word: str) -> JobState:
    try:
        return JobState(word)
    except ValueError:
        known = ", ".join(JobState)
        raise InvalidInput(f"state: no state {word!r}; known: {known}") from None


def _would(call: Call, parts: Parts, spec: JobSpec, framework: str) -> DryRun:
    who = call.principal

    def why(other: JobSpec) -> str:
        return parts.admit.would_wait(other, who.project_name, who.user_name)

    sentence = why(spec)
    return DryRun(
        spec=spec, framework=framework, fits=True, sentence=sentence,
        starts="waits for other jobs" if sentence else "now",
        smaller=tuple(smaller(spec, lambda other: not why(other))) if sentence else (),
        spellings=spellings(spec),
    )  # fmt: skip
