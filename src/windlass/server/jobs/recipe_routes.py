"""/api/v1/jobs/…/code and /spellings: what a job is made of, to read, compare and copy."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from sqlalchemy import Connection

from windlass.core.errors import InvalidInput, NotFound
from windlass.core.strict import Strict
from windlass.server.bundles import difference
from windlass.server.bundles import service as bundles
from windlass.server.bundles.difference import FileChange
from windlass.server.http.download import download
from windlass.server.http.openapi import OCTETS, answers
from windlass.server.http.query import QueryLine
from windlass.server.jobs import service
from windlass.server.jobs.routes import JobRef, Read
from windlass.server.jobs.spelling import Spellings, spellings
from windlass.server.parts import Wired
from windlass.server.reading import spec_of

router = APIRouter(prefix="/api/v1/jobs", tags=["jobs"])


class CodeFile(Strict):
    path: str
    size: int
    digest: str
    mode: int


class CodePage(Strict):
    bundle: str | None
    """None: no code was sent with it."""
    files: tuple[CodeFile, ...]


class CodeDiff(Strict):
    job: str
    against: str
    files: tuple[FileChange, ...]


@router.get("/{ref}/code", response_model=CodePage)
async def code(call: Read, parts: Wired, ref: JobRef) -> CodePage:
    """The files that were sent with a job, by path."""

    def look(conn: Connection) -> CodePage:
        job = service.find(conn, call.principal, ref)
        files = sorted(_files(conn, job), key=lambda file: str(file["path"]))
        return CodePage(bundle=job["bundle"], files=tuple(CodeFile(**file) for file in files))

    return await parts.store.read(look)


@router.get("/{ref}/code/{path:path}", response_class=Response, responses=answers(OCTETS))
async def code_file(
    call: Read,
    parts: Wired,
    request: Request,
    ref: JobRef,
    path: Annotated[str, Path(description="the file's path, as `/code` names it")],
) -> Response:
    """The bytes of one of them."""

    def look(conn: Connection) -> dict[str, Any]:
        job = service.find(conn, call.principal, ref)
        for file in _files(conn, job):
            if file["path"] == path:
                return file
        raise NotFound(f"no file {path!r} in the code of {job['name']}")

    file = await parts.store.read(look)
    blob = await parts.blobs.of(call.principal.project_id).open(file["digest"])
    return download(request, blob, file["digest"], file["size"], path.rpartition("/")[2])


@router.get("/{ref}/code-diff", response_model=CodeDiff)
async def code_diff(call: Read, parts: Wired, ref: JobRef, against: QueryLine = "") -> CodeDiff:
    """What differs in the code of this job from that of another (`against`), file by file."""

    def look(conn: Connection) -> tuple[Any, Any, list[Any], list[Any]]:
        job = service.find(conn, call.principal, ref)
        if not against:
            raise InvalidInput("against: the job to compare with (found nothing)")
        other = service.find(conn, call.principal, against)
        return job, other, _files(conn, job), _files(conn, other)

    job, other, after, before = await parts.store.read(look)
    blobs = parts.blobs.of(call.principal.project_id)
    stored = await blobs.stored({file["digest"] for file in (*before, *after)})
    found = await parts.shelf.run(
        difference.changes, before, after, lambda digest: blobs.read(digest, stored)
    )
    return CodeDiff(job=job["id"], against=other["id"], files=tuple(found))


@router.get("/{ref}/spellings", response_model=Spellings)
async def spelled(call: Read, parts: Wired, ref: JobRef) -> Spellings:
    """How to make the same job elsewhere: on the command line, in a job file, in Python."""
    job = await parts.store.read(lambda conn: service.find(conn, call.principal, ref))
    return spellings(spec_of(job))


def _files(conn: Connection, job: dict[str, Any]) -> list[dict[str, Any]]:
    if job["bundle"] is None:
        return []
    return bundles.files_of(conn, job["project_id"], job["bundle"])
