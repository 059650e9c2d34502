"""/api/v1/models: models, versions, aliases. Thin: check, one transaction, answer."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request, Response
from sqlalchemy import Connection

from windlass.core.access import Right
from windlass.core.errors import Conflict, InvalidInput, NotFound
from windlass.core.modelrefs import digest_of
from windlass.core.models import (
    AliasBody,
    AliasName,
    ModelDetail,
    ModelName,
    ModelPage,
    RegisterBody,
    Stage,
    VersionDetail,
)
from windlass.core.paths import plain_path
from windlass.server.access.calls import Call, spend
from windlass.server.artifacts.outputs import gather
from windlass.server.artifacts.owners import owner
from windlass.server.artifacts.service import File
from windlass.server.http.body import json_body
from windlass.server.http.download import download
from windlass.server.http.marks import require
from windlass.server.http.openapi import OCTETS, answers
from windlass.server.http.query import Ref
from windlass.server.models import aliases, service, sources, versions, views
from windlass.server.models.service import actor_of
from windlass.server.models.versions import Origin
from windlass.server.parts import Parts, Wired

router = APIRouter(prefix="/api/v1", tags=["models"])

Read = Annotated[Call, Depends(require(Right.MODEL_READ))]
Write = Annotated[Call, Depends(require(Right.MODEL_WRITE))]
Remove = Annotated[Call, Depends(require(Right.MODEL_REMOVE, others=Right.MODEL_REMOVE_ANY))]
Name = Annotated[ModelName, Path(description="the model's name")]
Which = Annotated[Ref, Path(max_length=255, description="a number, an alias, or latest")]
Alias = Annotated[AliasName, Path(description="an alias, or a stage: Staging, Production …")]


@router.get("/models", response_model=ModelPage)
async def listing(call: Read, parts: Wired) -> ModelPage:
    """All models of the project, by name."""

    def look(conn: Connection) -> ModelPage:
        rows = service.every(conn, call.principal.project_id)
        held = service.aliases_of(conn, [row["id"] for row in rows])
        items = tuple(views.model_view(row, held.get(row["id"], {})) for row in rows)
        return ModelPage(items=items)

    return await parts.store.read(look)


@router.get("/models/{name}", response_model=ModelDetail)
async def get(call: Read, parts: Wired, name: Name) -> ModelDetail:
    """One model: its versions, its aliases, and who moved which when."""

    def look(conn: Connection) -> ModelDetail:
        model = service.find(conn, call.principal.project_id, name)
        held = service.aliases_of(conn, [model["id"]]).get(model["id"], {})
        listed = versions.of_model(conn, model["id"])
        return views.model_detail(model, listed, held, aliases.history(conn, model["id"]))

    return await parts.store.read(look)


@router.delete("/models/{name}", status_code=204)
async def remove(call: Remove, parts: Wired, name: Name) -> Response:
    """Remove a model with all its versions."""
    now = parts.clock.now_ms()

    def write(conn: Connection) -> None:
        spend(conn, call)
        service.remove(conn, actor_of(conn, call.principal), name, now)

    await parts.store.write(write)
    return Response(status_code=204)


@router.post("/models/{name}/versions", response_model=VersionDetail)
async def register(
    call: Write,
    parts: Wired,
    name: Name,
    body: Annotated[RegisterBody, Depends(json_body(RegisterBody))],
) -> VersionDetail:
    """A new version, and the model if it is the first: of files whose blobs are here (409 names
    the `missing` ones), or of a run's. The very files of the newest version make no other."""
    files, origin = await _source(call, parts, body)
    described = await sources.describe(parts, call.principal.project_id, files)
    now = parts.clock.now_ms()

    def write(conn: Connection) -> VersionDetail:
        actor = actor_of(conn, call.principal)
        model = service.make(conn, actor, name, now, known=True)
        digest = digest_of((file.path, file.digest, file.size) for file in files)
        row = versions.same(conn, model, digest, origin.run_id)
        if row is None:
            row = versions.register(
                conn, actor, model, files, origin, described, now,
                description=body.description, tags=body.tags,
            )  # fmt: skip
        spend(conn, call, about=f"{name}@{row['number']}", digest=digest)
        for alias in body.aliases:
            _place(conn, actor, model, row, alias, now)
        held = service.aliases_of(conn, [model["id"]]).get(model["id"], {})
        return views.version_detail(
            name, service.find_version(conn, model, str(row["number"])), held
        )

    return await parts.store.write(write)


@router.get("/models/{name}/versions/{version}", response_model=VersionDetail)
async def version(call: Read, parts: Wired, name: Name, version: Which) -> VersionDetail:
    """One version: its files, where it came from, what to beware of."""

    def look(conn: Connection) -> VersionDetail:
        model = service.find(conn, call.principal.project_id, name)
        row = service.find_version(conn, model, version)
        held = service.aliases_of(conn, [model["id"]]).get(model["id"], {})
        return views.version_detail(name, row, held)

    return await parts.store.read(look)


@router.delete("/models/{name}/versions/{version}", status_code=204)
async def remove_version(call: Remove, parts: Wired, name: Name, version: Which) -> Response:
    """Remove one version with its aliases. Its number is not given again."""
    now = parts.clock.now_ms()

    def write(conn: Connection) -> None:
        spend(conn, call)
        actor = actor_of(conn, call.principal)
        model = service.find(conn, actor.project_id, name, change=True)
        row = service.find_version(conn, model, version)
        versions.remove(conn, actor, model, row, now)

    await parts.store.write(write)
    return Response(status_code=204)


@router.get(
    "/models/{name}/versions/{version}/files/{path:path}",
    response_class=Response,
    responses=answers(OCTETS),
)
async def file(
    call: Read, parts: Wired, request: Request, name: Name, version: Which, path: str
) -> Response:
    """The bytes of one file of a version; `Range` and `If-Range` let a download go on."""
    plain_path(path)
    project = call.principal.project_id

    def look(conn: Connection) -> File:
        model = service.find(conn, project, name)
        for each in service.files_of(service.find_version(conn, model, version)):
            if each.path == path:
                return each
        raise NotFound(f"no file {path} in {name}@{version}")

    found = await parts.store.read(look)
    blob = await parts.blobs.of(project).open(found.digest)
    return download(request, blob, found.digest, found.size, path.rpartition("/")[2])


@router.put("/models/{name}/aliases/{alias}", response_model=VersionDetail)
async def move(
    call: Write,
    parts: Wired,
    name: Name,
    alias: Alias,
    body: Annotated[AliasBody, Depends(json_body(AliasBody))],
) -> VersionDetail:
    """Put an alias at a version. A stage: who was in it is archived."""
    now = parts.clock.now_ms()

    def write(conn: Connection) -> VersionDetail:
        spend(conn, call, about=f"{name}@{alias}", version=body.version)
        actor = actor_of(conn, call.principal)
        model = service.find(conn, actor.project_id, name, change=True)
        row = service.find_version(conn, model, str(body.version))
        _place(conn, actor, model, row, alias, now)
        held = service.aliases_of(conn, [model["id"]]).get(model["id"], {})
        return views.version_detail(
            name, service.find_version(conn, model, str(body.version)), held
        )

    return await parts.store.write(write)


@router.delete("/models/{name}/aliases/{alias}", status_code=204)
async def drop(call: Write, parts: Wired, name: Name, alias: Alias) -> Response:
    """Take an alias away; the version that had it stays."""
    now = parts.clock.now_ms()

    def write(conn: Connection) -> None:
        spend(conn, call)
        actor = actor_of(conn, call.principal)
        model = service.find(conn, actor.project_id, name, change=True)
        if alias in service.STAGES:
            row = service.find_version(conn, model, alias)
            versions.stage(conn, actor, model, row, Stage.NONE, now, archive=False)
        else:
            aliases.drop(conn, actor, model, alias, now)

    await parts.store.write(write)
    return Response(status_code=204)


async def _source(call: Call, parts: Parts, body: RegisterBody) -> tuple[tuple[File, ...], Origin]:
    if bool(body.files) == bool(body.run):
        raise InvalidInput("files, run: one of both, with what the version is to hold")
    if body.run:
        found = await owner(parts, call.principal, body.run)
        project = call.principal.project_id
        await gather(parts, project, found)
        files = await parts.store.read(
            lambda conn: sources.of_run(conn, project, found, body.path)
        )
        source = f"runs:/{found.id}/{body.path}".rstrip("/")
        return files, await sources.origin(parts, call.principal, found, source)
    files = tuple(File(file.path, file.digest, file.size) for file in body.files)
    versions.check(files)
    lacking = await sources.missing(parts, call.principal.project_id, files)
    if lacking:
        raise Conflict(f"the bytes of {len(lacking)} files are not here", missing=lacking)
    return files, Origin(lineage={"uploaded": True})


def _place(
    conn: Connection, actor: service.Actor, model: service.Row, row: service.Row, alias: str,
    now: int,
) -> None:  # fmt: skip
    if alias in service.STAGES:
        to = Stage(alias)
        archive = to in (Stage.STAGING, Stage.PRODUCTION)
        versions.stage(conn, actor, model, row, to, now, archive=archive)
    else:
        aliases.move(conn, actor, model, alias, row["number"], now)
