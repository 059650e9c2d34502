"""/api/v1/runs/…/artifacts: files of a run or a job, streamed in and out."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request, Response
from sqlalchemy import Connection

from windlass.core.access import Right
from windlass.core.artifacts import ArtifactPage
from windlass.core.errors import NotFound
from windlass.core.paths import plain_path
from windlass.server.access.calls import Call, spend
from windlass.server.artifacts import service
from windlass.server.artifacts.outputs import gather
from windlass.server.artifacts.owners import owner
from windlass.server.http.body import byte_stream
from windlass.server.http.download import download
from windlass.server.http.marks import require
from windlass.server.http.openapi import OCTETS, answers
from windlass.server.http.query import QueryLine, Ref
from windlass.server.parts import Wired

router = APIRouter(prefix="/api/v1", tags=["artifacts"])

Read = Annotated[Call, Depends(require(Right.TRACK_READ))]
RunRef = Annotated[Ref, Path(max_length=64, description="a run's id, or a job's id or name")]
FilePath = Annotated[str, Path(description="the file's path, as it was given")]


@router.get("/runs/{ref}/artifacts", response_model=ArtifactPage)
async def listing(call: Read, parts: Wired, ref: RunRef, path: QueryLine = "") -> ArtifactPage:
    """What lies in a folder of a run's files: files and folders, by path."""
    folder = plain_path(path) if path else ""
    found = await owner(parts, call.principal, ref)
    project = call.principal.project_id
    await gather(parts, project, found)
    items = await parts.store.read(lambda conn: service.listing(conn, project, found.id, folder))
    return ArtifactPage(run=found.id, items=items)


@router.get(
    "/runs/{ref}/artifacts/{path:path}", response_class=Response, responses=answers(OCTETS)
)
async def get(call: Read, parts: Wired, request: Request, ref: RunRef, path: FilePath) -> Response:
    """The bytes of one file; `Range` and `If-Range` (its digest) let a download go on."""
    project = call.principal.project_id
    found = await owner(parts, call.principal, ref)
    await gather(parts, project, found)
    file = await parts.store.read(lambda conn: service.find(conn, project, found.id, path))
    blob = await parts.blobs.of(project).open(file.digest)
    return download(request, blob, file.digest, file.size, path.rpartition("/")[2])


@router.put(
    "/runs/{ref}/artifacts/{path:path}",
    status_code=204,
    openapi_extra={"requestBody": {"required": True, "content": {OCTETS: {}}}},
)
async def put(
    call: Annotated[
        Call, Depends(require(Right.TRACK_WRITE, stream=True, others=Right.JOB_WRITE_ANY))
    ],
    parts: Wired,
    request: Request,
    ref: RunRef,
    path: FilePath,
) -> Response:
    """A file of a run, in place of one that had its path. Nothing of it is seen before all of it
    is there."""
    plain_path(path)
    found = await owner(parts, call.principal, ref, write=True)
    project = call.principal.project_id
    digest, size = await parts.blobs.of(project).keep(
        byte_stream(request), parts.settings.artifact_bytes
    )
    now = parts.clock.now_ms()

    def write(conn: Connection) -> None:
        spend(conn, call, digest=digest)
        file = service.File(path, digest, size)
        service.record(conn, project, found.id, file, now, found.job_id)

    await parts.store.write(write)
    return Response(status_code=204, headers={"etag": f'"{digest}"'})


@router.delete("/runs/{ref}/artifacts/{path:path}", status_code=204)
async def remove(
    call: Annotated[Call, Depends(require(Right.TRACK_WRITE, others=Right.JOB_WRITE_ANY))],
    parts: Wired,
    ref: RunRef,
    path: FilePath,
) -> Response:
    """Take a file away, or a folder with all in it. Versions of models keep what they hold."""
    plain_path(path)
    found = await owner(parts, call.principal, ref, write=True)
    project = call.principal.project_id

    def write(conn: Connection) -> None:
        spend(conn, call)
        if not service.remove(conn, project, found.id, path):
            raise NotFound(f"no file {path} of {found.id}")

    await parts.store.write(write)
    return Response(status_code=204)
