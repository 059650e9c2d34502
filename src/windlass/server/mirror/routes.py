"""/api/v1/worker/mirror and /api/v1/worker/checkpoints: files of a worker that shares no file
system with the server.

Every call may be repeated: bytes are named by where they begin, files of checkpoints by what they
hold. A worker whose attempt is over is refused (409), like with its reports.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request, Response
from pydantic import ValidationError
from sqlalchemy import Connection, select

from windlass.core.access import Right
from windlass.core.errors import Fenced, InvalidInput, NotFound, TooLarge
from windlass.core.explain import explain
from windlass.core.reports import CheckpointNote, NodeName, Report
from windlass.core.strict import Line, Strict
from windlass.server.access.calls import Call
from windlass.server.checkpoints import catalogue, files
from windlass.server.http.body import byte_stream, json_body
from windlass.server.http.download import Download
from windlass.server.http.limits import PIECE_BYTES
from windlass.server.http.marks import require
from windlass.server.http.openapi import OCTETS, answers
from windlass.server.http.query import Flag, WholeNumber
from windlass.server.jobs import orders, reports
from windlass.server.jobs.tables import workers
from windlass.server.mirror import drafts, landing, names
from windlass.server.parts import Parts, Wired
from windlass.server.storage.reading import OpenFile

router = APIRouter(prefix="/api/v1/worker", tags=["worker"])
Worker = Annotated[Call, Depends(require(Right.WORKER))]
Sender = Annotated[Call, Depends(require(Right.WORKER, stream=True, repeatable=True))]
Hash = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")]
RAW = {"requestBody": {"required": True, "content": {OCTETS: {}}}}
MAX_OWN_BYTES = 64 * 2**20
"""Of one of the worker's own files: a segment of a log is sealed at 8 MiB."""
LISTED = 16


class Size(Strict):
    bytes: int
    """What the server has of the file: go on from there."""


class Announced(Report):
    manifest: dict[Line, Any]


class MissingFile(Strict):
    digest: str
    bytes: int
    offset: int


class Standing(Strict):
    kept: bool
    missing: tuple[MissingFile, ...] = ()


class Found(Strict):
    path: str
    """Below the job's folder of checkpoints."""
    step: int
    attempt: int
    digest: str
    bytes: int
    source: str


class FoundList(Strict):
    items: tuple[Found, ...]


class FoundFile(Strict):
    path: str
    bytes: int
    digest: str


class FoundDetail(Found):
    files: tuple[FoundFile, ...]


@router.put("/mirror/{path:path}", response_model=Size, openapi_extra=RAW)
async def put_file(
    call: Sender,
    parts: Wired,
    request: Request,
    path: str,
    node: NodeName,
    offset: WholeNumber = 0,
    cut: Flag = False,
) -> Size:
    """Bytes of one of the worker's files, from `offset` on; `cut`: it was made anew from there.
    `worker.json` and `exit.json` come whole; the first `exit.json` stands and is on the disk, with
    all logs, when this answers."""
    parted = names.checked(path)
    _check_offset(offset)
    await _current(parts, call, node)
    data = await _whole_body(request)
    root = parts.settings.attempt_folder(call.principal.attempt_id or "", node)
    if path in names.WHOLE:
        if offset:
            raise InvalidInput(f"offset: {path} comes whole (found {offset})")
        if path == names.EXIT:
            await asyncio.to_thread(landing.settle, root, "logs")
        size = await asyncio.to_thread(landing.replace, root, path, data, once=path == names.EXIT)
        return Size(bytes=size)
    most = parts.settings.artifact_bytes if names.is_output(parted) else MAX_OWN_BYTES
    size = await asyncio.to_thread(landing.append, root, parted, offset, data, most=most, cut=cut)
    return Size(bytes=size)


@router.delete("/mirror/{path:path}", status_code=204)
async def remove_file(call: Sender, parts: Wired, path: str, node: NodeName) -> Response:
    """A file that the worker has removed: an old segment of a long log, an output."""
    parted = names.checked(path)
    if path in names.WHOLE:
        raise InvalidInput(f"path: {path} stays")
    await _current(parts, call, node)
    root = parts.settings.attempt_folder(call.principal.attempt_id or "", node)
    await asyncio.to_thread(landing.remove, root, parted)
    return Response(status_code=204)


@router.post("/checkpoints", response_model=Standing)
async def announce(
    call: Worker, parts: Wired, body: Annotated[Announced, Depends(json_body(Announced))]
) -> Standing:
    """A finished checkpoint by its manifest: which of its files must still come, and from where.
    Once none is missing and all digests hold it is kept and registered."""
    wanted = drafts.read(body.manifest)
    number = await _current(parts, call, body.node)
    if body.attempt != number or wanted.attempt != number:
        raise Fenced(f"this token is of attempt {number}")
    job_id = call.principal.job_id or ""
    folder = parts.settings.checkpoints_of(job_id)
    try:
        note = wanted.note(folder)
        files.demand_place(job_id, note)
    except ValidationError as err:
        raise explain(err.errors(include_url=False), CheckpointNote) from None
    left = await asyncio.to_thread(drafts.missing, folder, number, wanted)
    if left == []:
        wrong = await asyncio.to_thread(drafts.keep, folder, number, wanted)
        left = [(part, 0) for part in wrong] or None
    if left is not None:
        return Standing(
            kept=False,
            missing=tuple(
                MissingFile(digest=part.digest, bytes=part.bytes, offset=have)
                for part, have in left
            ),
        )
    now = parts.clock.now_ms()
    try:
        await parts.store.write(
            lambda conn: reports.keep_checkpoint(conn, call.principal, note, now)
        )
    except Fenced:  # it ended while the files were on their way: as if it had not been saved
        await asyncio.to_thread(files.remove, folder, note.path, note.attempt, note.step)
        raise
    parts.cleaning.hint(job_id)
    return Standing(kept=True)


@router.put("/checkpoints/{digest}/{file}", response_model=Size, openapi_extra=RAW)
async def put_part(
    call: Sender,
    parts: Wired,
    request: Request,
    digest: Hash,
    file: Hash,
    node: NodeName,
    bytes: WholeNumber,
    offset: WholeNumber = 0,
) -> Size:
    """Bytes of a file of an announced checkpoint, from `offset` on; `bytes` is its whole size."""
    _check_offset(offset)
    number = await _current(parts, call, node)
    data = await _whole_body(request)
    folder = parts.settings.checkpoints_of(call.principal.job_id or "")
    part = drafts.Part(file, bytes)
    size = await asyncio.to_thread(drafts.append, folder, number, digest, part, offset, data)
    return Size(bytes=size)


@router.get("/checkpoints", response_model=FoundList)
async def listing(call: Worker, parts: Wired) -> FoundList:
    """The job's good checkpoints that lie on the server, newest first."""
    rows = await _rows(parts, call)
    return FoundList(items=tuple(Found(**row) for row in rows[:LISTED]))


@router.get("/checkpoints/{digest}", response_model=FoundDetail)
async def show(call: Worker, parts: Wired, digest: Hash) -> FoundDetail:
    """One of them, with its files."""
    row, _, entries = await _found(parts, call, digest)
    return FoundDetail(**row, files=tuple(FoundFile(**entry) for entry in entries))


@router.get("/checkpoints/{digest}/{file}", response_class=Response, responses=answers(OCTETS))
async def get_part(
    call: Worker,
    parts: Wired,
    digest: Hash,
    file: Hash,
    offset: WholeNumber = 0,
    limit: WholeNumber = PIECE_BYTES,
) -> Response:
    """At most `limit` bytes of one file of a checkpoint, from `offset` on."""
    _check_offset(offset)
    if limit < 1:
        raise InvalidInput(f"limit: at least 1 (found {limit})")
    _, root, entries = await _found(parts, call, digest)
    entry = next((each for each in entries if each["digest"] == file), None)
    if entry is None:
        raise NotFound(f"checkpoint {digest[:12]} has no file {file[:12]}")
    opened = await asyncio.to_thread(files.open_inside, root, str(entry["path"]).split("/"))
    size = int(entry["bytes"])
    start = min(offset, size)
    headers = {"content-type": OCTETS}
    return Download(OpenFile(opened), start, min(size, start + limit), 200, headers)


async def _current(parts: Parts, call: Call, node: str) -> int:
    """The attempt's number, if it is alive and has a worker on this node."""

    def look(conn: Connection) -> int:
        _, attempt = orders.current(conn, call.principal.attempt_id or "")
        this = (workers.c.attempt_id == attempt["id"]) & (workers.c.node == node)
        if conn.execute(select(workers.c.node).where(this)).first() is None:
            raise NotFound(f"this attempt has no worker on node {node!r}")
        return int(attempt["number"])

    return await parts.store.read(look)


async def _rows(parts: Parts, call: Call) -> list[dict[str, Any]]:
    folder = parts.settings.checkpoints_of(call.principal.job_id or "")

    def look(conn: Connection) -> list[dict[str, Any]]:
        job, _ = orders.current(conn, call.principal.attempt_id or "")
        found = []
        for row in catalogue.listing(conn, job["id"]):
            inner = files.inside(folder, row["path"])
            if inner is not None and row["bad"] is None and row["removing_ms"] is None:
                words = ("step", "attempt", "digest", "bytes", "source")
                found.append({"path": "/".join(inner), **{name: row[name] for name in words}})
        return found

    return await parts.store.read(look)


async def _found(parts: Parts, call: Call, digest: str) -> tuple[dict[str, Any], Any, list[Any]]:
    row = next((row for row in await _rows(parts, call) if row["digest"] == digest), None)
    if row is None:
        raise NotFound(f"this job has no checkpoint {digest[:12]}")
    folder = parts.settings.checkpoints_of(call.principal.job_id or "")
    root, entries = await asyncio.to_thread(files.manifest, folder, str(folder / row["path"]))
    return row, root, entries


async def _whole_body(request: Request) -> bytes:
    """A piece is written when all of it is here: what is cut off leaves nothing."""
    data = bytearray()
    async for chunk in byte_stream(request):
        data += chunk
        if len(data) > PIECE_BYTES:
            raise TooLarge(f"a piece may have {PIECE_BYTES} bytes", max_bytes=PIECE_BYTES)
    return bytes(data)


def _check_offset(offset: int) -> None:
    if offset < 0:
        raise InvalidInput(f"offset: from 0 (found {offset})")
