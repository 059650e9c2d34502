"""/api/v1/worker and /api/v1/run: what an attempt's worker and user code may call.

Both come with a token of one attempt; what they may touch is that attempt and nothing else.
Retries of a worker are safe by its `seq`, by offsets and by first-record-stands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path as Folder
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi.responses import FileResponse
from pydantic import ValidationError
from sqlalchemy import Connection, select

from windlass.core.access import Right
from windlass.core.errors import Fenced, InvalidInput, NotFound
from windlass.core.reports import (
    Beat,
    CheckpointNote,
    Ended,
    Fetched,
    OrderAnswer,
    Register,
    SpoolLines,
    Started,
)
from windlass.core.strict import Strict
from windlass.server.access.calls import Call
from windlass.server.access.tables import users
from windlass.server.bundles import service as bundle_service
from windlass.server.checkpoints import files as files_on_disk
from windlass.server.checkpoints import starting
from windlass.server.http.body import json_body
from windlass.server.http.download import download
from windlass.server.http.marks import require
from windlass.server.http.openapi import OCTETS, answers
from windlass.server.http.query import QueryLine, WholeNumber
from windlass.server.jobs import orders, reports
from windlass.server.parts import Parts, Wired
from windlass.server.runs import jobs as runs_of_jobs
from windlass.server.runs import service as runs
from windlass.server.runs import system
from windlass.server.secrets import service as secrets
from windlass.server.storage.reading import OpenFile, Source

router = APIRouter(prefix="/api/v1", tags=["worker"])
Worker = Annotated[Call, Depends(require(Right.WORKER))]
Run = Annotated[Call, Depends(require(Right.RUN))]
MAX_WAIT_SECONDS = 60


class Whole(Strict):
    whole: bool
    rendezvous: dict[str, Any] | None = None


class Orders(Strict):
    orders: tuple[dict[str, Any], ...] = ()


class Done(Strict):
    pass


class Taken(Strict):
    managed: bool = True
    """Old ones are removed by the server, not by the writer."""


class Agreed(Strict):
    commit: str
    """The one that the job runs: what was reported first."""


class Offset(Strict):
    offset: int


class BundleFiles(Strict):
    digest: str | None
    files: tuple[dict[str, Any], ...]


@router.get("/worker/bundle", response_model=BundleFiles)
async def bundle(call: Worker, parts: Wired) -> BundleFiles:
    """The files of this attempt's code."""

    def look(conn: Connection) -> BundleFiles:
        job, _ = orders.current(conn, call.principal.attempt_id or "")
        digest = job["bundle"]
        files = (
            bundle_service.files_of(conn, job["project_id"], digest) if digest is not None else []
        )
        return BundleFiles(digest=digest, files=tuple(files))

    return await parts.store.read(look)


@router.get("/worker/blobs/{digest}", response_class=FileResponse, responses=answers(OCTETS))
async def blob(
    call: Worker,
    parts: Wired,
    request: Request,
    digest: Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")],
) -> Response:
    """A blob of this attempt's own bundle, or a file of what its job starts from."""

    def look(conn: Connection) -> tuple[str | None, str] | None:
        job, _ = orders.current(conn, call.principal.attempt_id or "")
        if job["bundle"] is not None:
            files = bundle_service.files_of(conn, job["project_id"], job["bundle"])
            if any(file["digest"] == digest for file in files):
                return None, ""
        return starting.file_of(conn, job["id"], digest)

    found = await parts.store.read(look)
    root, inner = found or (None, "")
    source: Source
    if root is not None:
        name = inner.rpartition("/")[2]
        try:
            parted = inner.split("/")
            opened = await asyncio.to_thread(files_on_disk.open_inside, Folder(root), parted)
            source = OpenFile(opened)
        except NotFound:
            source = await _from_storage(parts, call.principal.job_id or "", digest)
        return download(request, source, digest, source.size, name)
    blobs = parts.blobs.of(call.principal.project_id)
    path = blobs.path(digest)
    if found is not None and path.is_file():
        return FileResponse(path, media_type="application/octet-stream")
    if found is None or not parts.shelf.used:
        raise NotFound(f"neither this job's code nor what it starts from has {digest[:12]}")
    source = await blobs.open(digest)
    return download(request, source, digest, source.size, digest)


async def _from_storage(parts: Parts, job_id: str, digest: str) -> Source:
    """A file of the job that this one starts from."""
    source_id = await parts.store.read(lambda conn: starting.source_of(conn, job_id))
    if source_id is None:
        raise NotFound(f"what this job starts from is not here: {digest[:12]}")
    return await parts.shelf.of_job(source_id, digest)


@router.post("/worker/code", response_model=Agreed)
async def fetched(
    call: Worker, parts: Wired, body: Annotated[Fetched, Depends(json_body(Fetched))]
) -> Agreed:
    """A worker has fetched the code from its repository; answers with the job's commit."""
    now = parts.clock.now_ms()
    commit = await parts.store.write(lambda conn: reports.fetched(conn, call.principal, body, now))
    parts.hub.poke("feed", "job:" + (call.principal.job_id or ""))
    return Agreed(commit=commit)


@router.post("/worker/register", response_model=Whole)
async def register(
    call: Worker, parts: Wired, body: Annotated[Register, Depends(json_body(Register))]
) -> Whole:
    """A worker is there, with its ports; answers with its rendezvous when the gang is whole."""
    now = parts.clock.now_ms()

    def write(conn: Connection) -> Any:
        reports.register(conn, call.principal, body, now)
        return reports.rendezvous(conn, call.principal, body.node, now)

    found = await parts.store.write(write)
    parts.reconcile.hint(call.principal.job_id or "")
    if found is not None:
        await _begin_run(parts, found[0])
        parts.hub.poke("whole:" + (call.principal.attempt_id or ""))
    return _whole(parts, found)


@router.get("/worker/rendezvous", response_model=Whole)
async def rendezvous(call: Worker, parts: Wired, node: QueryLine, wait: WholeNumber = 0) -> Whole:
    """Long poll: answers when the gang is whole."""
    _check_wait(wait)
    found = await parts.hub.until(
        "whole:" + (call.principal.attempt_id or ""),
        lambda: parts.store.read(
            lambda conn: reports.rendezvous(conn, call.principal, node, parts.clock.now_ms())
        ),
        wait_seconds=wait,
    )
    return _whole(parts, found)


@router.post("/worker/started", response_model=Done)
async def started(
    call: Worker, parts: Wired, body: Annotated[Started, Depends(json_body(Started))]
) -> Done:
    """The ranks of a node were started."""
    now = parts.clock.now_ms()
    await parts.store.write(
        lambda conn: reports.started(conn, call.principal, body, body.ranks, now)
    )
    parts.reconcile.hint(call.principal.job_id or "")
    return Done()


@router.post("/worker/beat", response_model=Orders)
async def beat(
    call: Worker, parts: Wired, body: Annotated[Beat, Depends(json_body(Beat))]
) -> Orders:
    """A sign of life, with what the ranks use and what the worker noticed."""
    now = parts.clock.now_ms()
    look = await parts.store.write(lambda conn: reports.beat(conn, call.principal, body, now))
    minutes = body.usage.get("minutes")
    if isinstance(minutes, list) and minutes:
        job_id = call.principal.job_id or ""
        await parts.tracking.write(
            lambda conn: system.keep(conn, job_id, body.attempt, minutes[:1000])
        )
        parts.pulse.used(call.principal.project_id, job_id)
    if look:
        parts.reconcile.hint(call.principal.job_id or "")
    if any(note.kind == "checkpoint" for note in body.notes):
        parts.cleaning.hint(call.principal.job_id or "")
    return Orders()


@router.get("/worker/orders", response_model=Orders)
async def wait_for_orders(
    call: Worker, parts: Wired, node: QueryLine, after: WholeNumber = 0, wait: WholeNumber = 0
) -> Orders:
    """Long poll: answers when there is an order newer than `after`."""
    _check_wait(wait)
    attempt_id = call.principal.attempt_id or ""

    def read(conn: Connection) -> list[dict[str, Any]] | None:
        orders.current(conn, attempt_id)
        return orders.pending(conn, attempt_id, node, after) or None

    found = await parts.hub.until(
        "orders:" + attempt_id,
        lambda: parts.store.read(read),
        wait_seconds=wait,
        recheck_seconds=5,
    )
    return Orders(orders=tuple(found or ()))


@router.post("/worker/orders/{order}", response_model=Done)
async def answer_order(
    call: Worker,
    parts: Wired,
    order: WholeNumber,
    body: Annotated[OrderAnswer, Depends(json_body(OrderAnswer))],
) -> Done:
    """What became of an order: stacks, flame graphs, a debugger's port."""
    now = parts.clock.now_ms()
    await parts.store.write(
        lambda conn: reports.order_answer(conn, call.principal, order, body, now)
    )
    parts.hub.poke(f"answer:{call.principal.attempt_id}:{order}")
    return Done()


@router.post("/worker/spool", response_model=Offset)
async def spool(
    call: Worker, parts: Wired, body: Annotated[SpoolLines, Depends(json_body(SpoolLines))]
) -> Offset:
    """New lines of one rank's spool. What is not newer than what is known is skipped."""
    who, job_id = call.principal, call.principal.job_id or ""
    known = await parts.tracking.read(
        lambda conn: runs.known_offset(conn, job_id, body.attempt, body.rank)
    )
    end = body.end if body.end is not None else body.offset + len(body.lines)
    if end <= known:
        return Offset(offset=known)
    batch = runs.sort(
        body.lines, job_id=job_id, attempt=body.attempt, rank=body.rank, offset=body.offset
    )
    now = parts.clock.now_ms()

    def control(conn: Connection) -> None:
        _, attempt = orders.current(conn, who.attempt_id or "")
        if attempt["number"] != body.attempt:
            raise Fenced(f"this token is of attempt {attempt['number']}")
        reports.progress(conn, who, step=batch.step, done=batch.done, total=batch.total)
        for line in batch.checkpoints:
            try:
                reports.keep_checkpoint(conn, who, CheckpointNote.model_validate(line), now)
            except (ValidationError, InvalidInput):
                continue  # user code wrote it: not ours to fail on

    await parts.store.write(control)
    if batch.checkpoints:
        parts.cleaning.hint(job_id)
    await parts.tracking.write(
        lambda conn: runs.keep(
            conn, batch, job_id=job_id, attempt=body.attempt, rank=body.rank, end=end
        )
    )
    parts.cleaning.measured(job_id)
    if batch.points:
        parts.pulse.logged(who.project_id, job_id)
    return Offset(offset=end)


@router.post("/worker/ended", response_model=Done)
async def ended(
    call: Worker, parts: Wired, body: Annotated[Ended, Depends(json_body(Ended))]
) -> Done:
    """The exit record of a node: nothing of the attempt runs there any more."""
    now = parts.clock.now_ms()
    await parts.store.write(lambda conn: reports.ended(conn, call.principal, body, now))
    parts.reconcile.hint(call.principal.job_id or "")
    return Done()


@router.post("/run/checkpoints", response_model=Taken)
async def checkpoint(
    call: Run, parts: Wired, body: Annotated[CheckpointNote, Depends(json_body(CheckpointNote))]
) -> Taken:
    """Register a checkpoint of this attempt: from here on a restart resumes from it. Its files
    are there already: one that is not would stand before those that are."""
    now, job_id = parts.clock.now_ms(), call.principal.job_id or ""

    def look(conn: Connection) -> int:
        return int(orders.current(conn, call.principal.attempt_id or "")[1]["number"])

    number = await parts.store.read(look)
    if body.attempt != number:
        raise Fenced(f"this token is of attempt {number}, the checkpoint of {body.attempt}")
    if not body.mirrored:
        folder = parts.settings.checkpoints_of(job_id)
        await asyncio.to_thread(files_on_disk.demand_files, folder, job_id, body)
    await parts.store.write(lambda conn: reports.keep_checkpoint(conn, call.principal, body, now))
    parts.cleaning.hint(job_id)
    return Taken()


async def _begin_run(parts: Parts, job: Mapping[str, Any]) -> None:
    """The job's run is there before its script asks for it. Who registers last does it; a repeat
    changes nothing."""
    user = await parts.store.read(
        lambda conn: conn.execute(
            select(users.c.name).where(users.c.id == job["user_id"])
        ).scalar()
    )
    given = (job["spec"].get("environment") or {}).get("vars") or {}
    experiment = str(given.get("MLFLOW_EXPERIMENT_NAME", ""))
    now = parts.clock.now_ms()
    await parts.tracking.write(
        lambda conn: runs_of_jobs.begin(
            conn, job, user=user or "", experiment=experiment, now_ms=now
        )
    )


def _whole(parts: Parts, found: Any) -> Whole:
    if found is None:
        return Whole(whole=False)
    _, attempt, answer = found
    values, closed = secrets.opened(parts.access.sealer, answer.pop("sealed"))
    answer["secrets"] = values
    if closed:
        answer["secrets_closed"] = closed
    answer["tracking_token"] = parts.tokens.run_token(attempt)
    answer["url"] = parts.settings.url
    answer["now_ms"] = parts.clock.now_ms()
    return Whole(whole=True, rendezvous=answer)


def _check_wait(wait: int) -> None:
    if not 0 <= wait <= MAX_WAIT_SECONDS:
        raise InvalidInput(f"wait: from 0 to {MAX_WAIT_SECONDS} seconds (found {wait})")
