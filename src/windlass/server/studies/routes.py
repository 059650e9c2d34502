"""/api/v1/studies: searches over parameters. Thin: check, one transaction, answer."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Response
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from sqlalchemy import Connection

from windlass.core.access import Right
from windlass.core.errors import InvalidInput
from windlass.core.jobs import JobSpec
from windlass.core.spaces import first_of
from windlass.core.studies import (
    AddTrialsBody,
    SamplerSpec,
    StopStudyBody,
    StudyBody,
    StudyDetail,
    StudyPage,
    StudySpec,
    StudyView,
    TrialPage,
    trial_job,
)
from windlass.server import failpoints
from windlass.server.access.calls import Call, tell, use
from windlass.server.audit import record
from windlass.server.http.body import json_body
from windlass.server.http.marks import require
from windlass.server.http.query import Ref, WholeNumber
from windlass.server.jobs import service as jobs
from windlass.server.jobs.routes import Key
from windlass.server.parts import Parts, Wired
from windlass.server.reading import as_model
from windlass.server.studies import reports, service, views
from windlass.tune.draw import grid
from windlass.tune.samplers import installed

router = APIRouter(prefix="/api/v1/studies", tags=["studies"])

Read = Annotated[Call, Depends(require(Right.JOB_READ))]
Write = Annotated[Call, Depends(require(Right.JOB_WRITE))]
Change = Annotated[Call, Depends(require(Right.JOB_WRITE, others=Right.JOB_WRITE_ANY))]
StudyRef = Annotated[Ref, Path(max_length=64, description="name, id, or unique prefix of it")]


@router.post("", status_code=201, response_model=StudyView)
async def create(
    call: Write,
    parts: Wired,
    body: Annotated[StudyBody, Depends(json_body(StudyBody))],
    key: Key = None,
) -> Any:
    """Accept a study; durable when answered. The same key with the same body gives the study that
    the first call made."""
    spec, job = _checked(call, body.spec)
    framework = jobs.check(job, await parts.fits.now())
    if body.dry_run:
        call.changed_nothing()
        found = {"spec": spec.model_dump(mode="json"), "framework": framework}
        return JSONResponse({**found, "job": job.model_dump(mode="json")})
    digest = jobs.digest_of(call.asked)
    now = parts.clock.now_ms()

    def write(conn: Connection) -> tuple[dict[str, Any], bool]:
        use(conn, call)
        row, new = service.create(
            conn, call.principal, spec, framework, key=key, digest=digest, now_ms=now
        )
        call.about = row["id"]
        tell(conn, call, outcome=record.OK if new else record.REPLAYED, name=row["name"])
        return row, new

    row, new = await parts.store.write(write)
    failpoints.passing("after-submit-commit")
    parts.studies.wake()
    headers = None if new else {"Idempotent-Replay": "true"}
    answer = views.study_view(row, {}).model_dump_json()
    return Response(answer, 201, headers, "application/json")


@router.get("", response_model=StudyPage)
async def listing(
    call: Read, parts: Wired, before: WholeNumber | None = None, limit: WholeNumber = 50
) -> Any:
    """The project's studies, newest first, each with its best trial. Of several objectives there
    is no single best: `/studies/{ref}` tells which trials no other beats."""
    if not 1 <= limit <= 1000:
        raise InvalidInput(f"limit: from 1 to 1000 (found {limit})")

    def look(conn: Connection) -> StudyPage:
        rows, following = service.listing(conn, call.principal, before=before, limit=limit)
        counts = service.counts(conn, [row["id"] for row in rows])
        found = views.best_of(rows, service.results(conn, views.with_one_objective(rows)))
        return StudyPage.model_construct(
            items=tuple(
                views.study_view(row, counts[row["id"]], found.get(row["id"], ())) for row in rows
            ),
            next=None if following is None else str(following),
        )

    page = await parts.store.read(look)
    return Response(page.model_dump_json(), media_type="application/json")


@router.get("/{ref}", response_model=StudyDetail)
async def show(call: Read, parts: Wired, ref: StudyRef) -> Any:
    """A study with its spec, its best, the way there, and what each parameter explains."""

    def look(conn: Connection) -> StudyDetail:
        row = service.find(conn, call.principal, ref)
        return views.study_detail(row, service.trials_of(conn, row["id"]))

    found = await parts.store.read(look)
    return Response(found.model_dump_json(), media_type="application/json")


@router.get("/{ref}/trials", response_model=TrialPage)
async def trials(call: Read, parts: Wired, ref: StudyRef) -> Any:
    """Every trial of a study, with its parameters and values."""

    def look(conn: Connection) -> tuple[StudySpec, list[dict[str, Any]]]:
        row = service.find(conn, call.principal, ref)
        return as_model(StudySpec, row["spec"], "spec"), service.trials_of(conn, row["id"])

    spec, rows = await parts.store.read(look)
    open_ = [row["job_id"] for row in rows if row["ended_ms"] is None]
    rows = await _filled(parts, spec, rows, open_) if open_ else rows
    page = TrialPage.model_construct(items=tuple(views.trial_view(row) for row in rows))
    return Response(page.model_dump_json(), media_type="application/json")


@router.post("/{ref}/stop", response_model=StudyView)
async def stop(
    call: Change,
    parts: Wired,
    ref: StudyRef,
    body: Annotated[StopStudyBody, Depends(json_body(StopStudyBody))],
) -> Any:
    """Make no more trials, and stop those that run; what was found stays."""
    who = call.principal
    reason = f"stopped by {who.user_name}" + (f": {body.reason}" if body.reason else "")
    now = parts.clock.now_ms()
    return await _changed(call, parts, lambda conn: service.stop(conn, who, ref, reason, now))


@router.post("/{ref}/trials", response_model=StudyView)
async def add_trials(
    call: Change,
    parts: Wired,
    ref: StudyRef,
    body: Annotated[AddTrialsBody, Depends(json_body(AddTrialsBody))],
) -> Any:
    """So many more trials; a study that is over goes on."""
    who, now = call.principal, parts.clock.now_ms()
    return await _changed(
        call, parts, lambda conn: service.add_trials(conn, who, ref, body.trials, now)
    )


@router.delete("/{ref}", status_code=204)
async def remove(call: Change, parts: Wired, ref: StudyRef) -> Response:
    """Remove a study; one that runs is stopped first. Its jobs stay."""
    who, now = call.principal, parts.clock.now_ms()
    await _changed(call, parts, lambda conn: service.remove(conn, who, ref, now))
    return Response(status_code=204)


async def _changed(call: Call, parts: Parts, fn: Any) -> Response:
    def write(conn: Connection) -> tuple[dict[str, Any], dict[str, int]]:
        use(conn, call)
        row = fn(conn)
        call.about = row["id"]
        tell(conn, call, name=row["name"])
        return row, service.counts(conn, [row["id"]])[row["id"]]

    row, counts = await parts.store.write(write)
    parts.studies.wake()
    answer = views.study_view(row, counts).model_dump_json()
    return Response(answer, media_type="application/json")


async def _filled(
    parts: Parts, spec: StudySpec, rows: list[dict[str, Any]], open_: list[str]
) -> list[dict[str, Any]]:
    """The rows with what live trials have reported so far."""
    found = await parts.tracking.read(lambda conn: reports.latest_of(conn, spec, open_))
    return [{**row, **found.get(row["job_id"], {})} for row in rows]


def _checked(call: Call, spec: StudySpec) -> tuple[StudySpec, JobSpec]:
    """The spec with its sampler chosen, and the job of its first trial."""
    if spec.project not in (None, call.principal.project_name):
        raise InvalidInput(
            f"project: this key is of {call.principal.project_name} (found {spec.project!r})"
        )
    kind = spec.sampler.kind
    if kind is None:
        chosen = "tpe" if installed() and spec.pruner.kind != "pbt" else "random"
        sampler = {**spec.sampler.model_dump(), "kind": chosen}
        spec = spec.model_copy(update={"sampler": SamplerSpec.model_validate(sampler)})
    elif kind not in ("random", "grid") and not installed():
        raise InvalidInput(
            f"sampler: {kind} needs Optuna, which this server does not have",
            hint="pip install 'windlass[tune]' for the server, or random or grid",
        )
    if kind == "grid":
        try:
            grid(spec.space, spec.sampler.points)
        except ValueError as err:
            raise InvalidInput(f"sampler: {err}", hint="fewer values, or random") from err
    always = {name: each for name, each in spec.space.items() if not each.when}
    try:
        job = trial_job(spec, spec.name or "study", 0, first_of(always))
    except ValidationError as err:  # the spec was checked: only what the project adds can be
        raise InvalidInput(f"job: {err.errors()[0]['msg']}") from err
    if job.project not in (None, call.principal.project_name):
        raise InvalidInput(
            f"job.project: this key is of {call.principal.project_name} (found {job.project!r})"
        )
    return spec, job
