"""/api/v1/jobs/{ref}/checkpoints: the catalogue of a job's checkpoints."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path as Folder
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from sqlalchemy import Connection

from windlass.core.errors import NotFound
from windlass.core.strict import Strict
from windlass.server.access.calls import tell, use
from windlass.server.checkpoints import catalogue, files, measured
from windlass.server.checkpoints.catalogue import stored_as, stored_files
from windlass.server.clock import iso, stamp
from windlass.server.http.download import download as send
from windlass.server.http.openapi import OCTETS, answers
from windlass.server.jobs import service
from windlass.server.jobs.routes import Change, JobRef, Read
from windlass.server.parts import Parts, Wired
from windlass.server.reading import spec_of
from windlass.server.storage.reading import OpenFile, Source

router = APIRouter(prefix="/api/v1/jobs", tags=["checkpoints"])
Which = Annotated[str, Path(max_length=40, description="a step, STEP.ATTEMPT, latest or best")]


class Checkpoint(Strict):
    step: int
    attempt: int
    path: str
    digest: str
    bytes: int
    registered: str
    bad: str | None
    source: str
    ranks: int
    verified: str | None
    metrics: dict[str, float | None]
    held_by: tuple[str, ...]


class CheckpointPage(Strict):
    items: tuple[Checkpoint, ...]


class CheckpointFile(Strict):
    path: str
    bytes: int
    digest: str


class CheckpointDetail(Checkpoint):
    files: tuple[CheckpointFile, ...]


@router.get("/{ref}/checkpoints", response_model=CheckpointPage)
async def listing(call: Read, parts: Wired, ref: JobRef) -> CheckpointPage:
    """The job's checkpoints, newest first, with the metrics it had at each; `bad` says why one is
    left aside, `held_by` who starts from it."""
    job, rows, held = await _rows(call, parts, ref)

    def measure(conn: Connection) -> dict[str, dict[str, float | None]]:
        return measured.values_at(conn, job["id"], rows, measured.keys_of(conn, job["id"]))

    values = await parts.tracking.read(measure) if rows else {}
    return CheckpointPage(items=tuple(Checkpoint(**_view(row, values, held)) for row in rows))


@router.get("/{ref}/checkpoints/{which}", response_model=CheckpointDetail)
async def show(call: Read, parts: Wired, ref: JobRef, which: Which) -> CheckpointDetail:
    """One of them, with its files; they must lie on this server's disk, or in its storage."""
    job, rows, held = await _rows(call, parts, ref)
    row = await _chosen(parts, job, rows, which)
    _, entries = await _files(parts, job["id"], row)
    values = await parts.tracking.read(
        lambda conn: measured.values_at(conn, job["id"], [row], measured.keys_of(conn, job["id"]))
    )
    listed = tuple(CheckpointFile(**entry) for entry in entries)
    return CheckpointDetail(**_view(row, values, held), files=listed)


@router.delete("/{ref}/checkpoints/{which}", status_code=204)
async def remove(call: Change, parts: Wired, ref: JobRef, which: Which) -> Response:
    """Remove one; 409 while the job or another one needs it."""
    await parts.store.read(lambda conn: service.find_to_change(conn, call.principal, ref))
    job, rows, _ = await _rows(call, parts, ref)
    row = await _chosen(parts, job, rows, which)
    now = parts.clock.now_ms()
    why = f"removed by {call.principal.user_name}"

    def write(conn: Connection) -> None:
        use(conn, call)
        found = service.find_to_change(conn, call.principal, job["id"])
        call.about = found["id"]
        catalogue.mark(conn, found["id"], row, why, now)
        tell(conn, call)

    await parts.store.write(write)
    await parts.cleaning.carry_out(job["id"])
    return Response(status_code=204)


@router.get(
    "/{ref}/checkpoints/{which}/files/{path:path}",
    response_class=Response,
    responses=answers(OCTETS),
)
async def download(
    call: Read, parts: Wired, request: Request, ref: JobRef, which: Which, path: str
) -> Response:
    """One of its files; its digest is the ETag, and a range of it can be asked for."""
    job, rows, _ = await _rows(call, parts, ref)
    row = await _chosen(parts, job, rows, which)
    root, entries = await _files(parts, job["id"], row)
    entry = next((each for each in entries if each["path"] == path), None)
    if entry is None:
        raise NotFound(f"checkpoint {row['step']} of {job['name']} has no file {path!r}")
    source: Source
    try:
        source = OpenFile(await asyncio.to_thread(files.open_inside, root, path.split("/")))
    except NotFound:
        source = await parts.shelf.open(stored_as(job["id"], row), path)
    size, name = int(entry["bytes"]), path.rpartition("/")[2]
    return send(request, source, entry["digest"], size, name)


async def _files(
    parts: Parts, job_id: str, row: dict[str, Any]
) -> tuple[Folder, Sequence[files.Entry]]:
    """(the folder that the paths begin at, the files), wherever they lie. Raises NotFound."""
    folder = parts.settings.checkpoints_of(job_id)
    try:
        return await asyncio.to_thread(files.manifest, folder, row["path"])
    except NotFound:
        entries = await parts.store.read(lambda conn: stored_files(conn, job_id, row))
        if not entries or not parts.shelf.used:
            raise
        return folder, entries


async def _rows(
    call: Any, parts: Parts, ref: str
) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, list[str]]]:
    def look(conn: Connection) -> tuple[Any, ...]:
        job = service.find(conn, call.principal, ref)
        return job, catalogue.listing(conn, job["id"]), catalogue.held(conn, job["id"])

    job, rows, held = await parts.store.read(look)
    return job, rows, held


async def _chosen(
    parts: Parts, job: dict[str, Any], rows: list[dict[str, Any]], which: str
) -> dict[str, Any]:
    spec = spec_of(job)
    scores = await parts.cleaning.scores(job["id"], spec)
    return catalogue.find(rows, job["name"], which, spec.outputs.keep_best, scores)


def _view(
    row: dict[str, Any],
    values: dict[str, dict[str, float | None]],
    held: dict[str, list[str]],
) -> dict[str, Any]:
    finite = {
        key: None if value is None or value in (float("inf"), float("-inf")) else value
        for key, value in values.get(row["path"], {}).items()
    }
    return {
        "step": row["step"], "attempt": row["attempt"], "path": row["path"],
        "digest": row["digest"], "bytes": row["bytes"], "registered": stamp(row["registered_ms"]),
        "bad": row["bad"], "source": row["source"], "ranks": row["ranks"],
        "verified": iso(row["verified_ms"]), "metrics": finite,
        "held_by": tuple(held.get(row["path"], ())),
    }  # fmt: skip
