"""/api/v1/worker and /api/v1/run: what an attempt's worker and user code may call.

Both come with a token of one attempt; what they may touch is that attempt and nothing else.
Retries of a worker are safe by its `seq`, by offsets and by first-record-stands.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path
from fastapi.responses import FileResponse
from pydantic import ValidationError
from sqlalchemy import Connection

from windlass.core.access import Right
from windlass.core.errors import Fenced, InvalidInput, NotFound
from windlass.core.reports import (
    Beat,
    CheckpointNote,
    Ended,
    OrderAnswer,
    Register,
    SpoolLines,
    Started,
)
from windlass.core.strict import Strict
from windlass.server.access.calls import Call
from windlass.server.bundles import service as bundle_service
from windlass.server.http.body import json_body
from windlass.server.http.marks import require
from windlass.server.http.openapi import OCTETS, answers
from windlass.server.http.query import QueryLine, WholeNumber
from windlass.server.jobs import orders, reports
from windlass.server.parts import Parts, Wired
from windlass.server.runs import service as runs

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
    call: Worker, parts: Wired, digest: Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")]
) -> FileResponse:
    """A blob of this attempt's own bundle."""

    def look(conn: Connection) -> bool:
        job, _ = orders.current(conn, call.principal.attempt_id or "")
        files = bundle_service.files_of(conn, job["project_id"], job["bundle"] or "")
        return any(file["digest"] == digest for file in files)

    path = parts.blobs.path(digest)
    if not await parts.store.read(look) or not path.is_file():
        raise NotFound(f"this job's bundle has no blob {digest[:12]}")
    return FileResponse(path, media_type="application/octet-stream")


@router.post("/worker/register", response_model=Whole)
async def register(
    call: Worker, parts: Wired, body: Annotated[Register, Depends(json_body(Register))]
) -> Whole:
    """A worker is there, with its ports; answers with its rendezvous when the gang is whole."""
    now = parts.clock.now_ms()

    def write(conn: Connection) -> Any:
        reports.register(conn, call.principal, body, now)
        return reports.rendezvous(conn, call.principal, body.node)

    found = await parts.store.write(write)
    parts.reconcile.hint(call.principal.job_id or "")
    if found is not None:
        parts.hub.poke("whole:" + (call.principal.attempt_id or ""))
    return _whole(parts, found)


@router.get("/worker/rendezvous", response_model=Whole)
async def rendezvous(call: Worker, parts: Wired, node: QueryLine, wait: WholeNumber = 0) -> Whole:
    """Long poll: answers when the gang is whole."""
    _check_wait(wait)
    found = await parts.hub.until(
        "whole:" + (call.principal.attempt_id or ""),
        lambda: parts.store.read(lambda conn: reports.rendezvous(conn, call.principal, node)),
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
    if look:
        parts.reconcile.hint(call.principal.job_id or "")
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
            except ValidationError:
                continue  # user code wrote it: not ours to fail on

    await parts.store.write(control)
    await parts.tracking.write(
        lambda conn: runs.keep(
            conn, batch, job_id=job_id, attempt=body.attempt, rank=body.rank, end=end
        )
    )
    return Offset(offset=end)


@router.post("/worker/ended", response_model=Done)
async def ended(
    call: Worker, parts: Wired, body: Annotated[Ended, Depends(json_body(Ended))]
) -> Done:
    """The exit record of a node: nothing of the attempt runs there any more."""
    await parts.store.write(lambda conn: reports.ended(conn, call.principal, body))
    parts.reconcile.hint(call.principal.job_id or "")
    return Done()


@router.post("/run/checkpoints", response_model=Done)
async def checkpoint(
    call: Run, parts: Wired, body: Annotated[CheckpointNote, Depends(json_body(CheckpointNote))]
) -> Done:
    """Register a checkpoint of this attempt: from here on a restart resumes from it."""
    now = parts.clock.now_ms()
    await parts.store.write(lambda conn: reports.keep_checkpoint(conn, call.principal, body, now))
    return Done()


def _whole(parts: Parts, found: Any) -> Whole:
    if found is None:
        return Whole(whole=False)
    _, attempt, answer = found
    answer["tracking_token"] = parts.tokens.run_token(attempt)
    answer["url"] = parts.settings.url
    return Whole(whole=True, rendezvous=answer)


def _check_wait(wait: int) -> None:
    if not 0 <= wait <= MAX_WAIT_SECONDS:
        raise InvalidInput(f"wait: from 0 to {MAX_WAIT_SECONDS} seconds (found {wait})")
