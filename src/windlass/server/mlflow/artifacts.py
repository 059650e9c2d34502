"""MLflow's artifacts: files of runs, of logged models and of versions, through us."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection
from starlette.responses import Response

from windlass.core.artifacts import ArtifactView
from windlass.core.errors import NotFound
from windlass.server.artifacts import service
from windlass.server.artifacts.outputs import gather
from windlass.server.artifacts.owners import owner
from windlass.server.artifacts.service import File
from windlass.server.http.body import byte_stream
from windlass.server.http.download import download
from windlass.server.jobs import orders
from windlass.server.mlflow import sources
from windlass.server.mlflow.asked import Asked
from windlass.server.mlflow.errors import MlflowError, absent, invalid
from windlass.server.mlflow.registry_words import text, told
from windlass.server.mlflow.sources import Place
from windlass.server.models.service import files_of

Answer = dict[str, Any]


async def listing(asked: Asked) -> Answer:
    """What lies in a folder below the root of all artifacts, by their last names."""
    where = sources.place(text(await asked.fields(), "path", required=True))
    found = await _list(asked, where)
    return _files(found, len(where.path) + 1 if where.path else 0)


async def of_run(asked: Asked) -> Answer:
    """What lies in a folder of a run, by paths in the run."""
    fields = await asked.fields()
    run_id = text(fields, "run_id") or text(fields, "run_uuid")
    if not run_id:
        text(fields, "run_id", required=True)
    folder = text(fields, "path")
    where = sources.place(f"0/{run_id}/artifacts/{folder}".rstrip("/"))
    root, found = await _root(asked, run_id), await _list(asked, where)
    return {"root_uri": root, **_files(found, 0)}


async def get(asked: Asked) -> Response:
    where = sources.place(asked.params["file"])
    if not where.path:
        raise absent("No such file or directory")
    file = await _file(asked, where)
    blob = await asked.parts.blobs.of(asked.project_id).open(file.digest)
    name = where.path.rpartition("/")[2]
    return download(asked.request, blob, file.digest, file.size, name)


async def put(asked: Asked) -> Answer:
    where = sources.place(asked.params["file"])
    if not where.owner or not where.path:
        raise invalid("Invalid path")
    whose = await _owner(asked, where, write=True)
    parts, project = asked.parts, asked.project_id
    digest, size = await parts.blobs.of(project).keep(
        byte_stream(asked.request), parts.settings.artifact_bytes
    )
    file, now = File(where.path, digest, size), asked.now_ms

    def write(conn: Connection) -> Answer:
        if asked.attempt:
            orders.current(conn, asked.who.attempt_id or "")  # what came slowly may be too late
        service.record(conn, project, whose.id, file, now, whose.job_id)
        return {}

    return await parts.store.write(write)


async def delete(asked: Asked) -> Answer:
    where = sources.place(asked.params["file"])
    if not where.owner:
        raise invalid("Invalid path")
    whose = await _owner(asked, where, write=True)

    def write(conn: Connection) -> Answer:
        told(conn, asked, "artifacts.remove", f"{whose.id}/{where.path}"[:255])
        service.remove(conn, asked.project_id, whose.id, where.path)
        return {}

    return await asked.parts.store.write(write)


async def in_parts(asked: Asked) -> Answer:
    """Uploads in parts are for stores that clients write to by themselves. Here a file comes in
    one stream, of any size. Clients ask only where they were told to
    (`MLFLOW_ENABLE_PROXY_MULTIPART_UPLOAD`), and send it so when they hear these very words."""
    raise MlflowError(
        "NOT_IMPLEMENTED", "Multipart upload is not supported for the current artifact repository"
    )


async def _list(asked: Asked, where: Place) -> Sequence[ArtifactView]:
    if where.model_id:
        row = await sources.version_row(asked, where)
        return _in_folder(files_of(row), where.path)
    whose = await _owner(asked, where)
    await gather(asked.parts, asked.project_id, whose)

    def look(conn: Connection) -> Sequence[ArtifactView]:
        return service.listing(conn, asked.project_id, whose.id, where.path)

    return await asked.parts.store.read(look)


async def _file(asked: Asked, where: Place) -> File:
    if where.model_id:
        row = await sources.version_row(asked, where)
        for file in files_of(row):
            if file.path == where.path:
                return file
        raise absent("No such file or directory")
    whose = await _owner(asked, where)
    try:
        return await asked.parts.store.read(
            lambda conn: service.find(conn, asked.project_id, whose.id, where.path)
        )
    except NotFound:
        raise absent("No such file or directory") from None


async def _owner(asked: Asked, where: Place, *, write: bool = False) -> Any:
    try:
        return await owner(asked.parts, asked.who, where.owner, write=write)
    except NotFound:
        raise absent(f"Run with id={where.owner} not found") from None


async def _root(asked: Asked, run_id: str) -> str:
    from windlass.server.mlflow.rows import run_of  # of the tracking side: not needed for files

    def look(conn: Connection) -> str:
        row = run_of(conn, asked, run_id)
        return f"mlflow-artifacts:/{row['experiment_id']}/{run_id}/artifacts"

    return await asked.parts.tracking.read(look)


def _in_folder(files: Sequence[File], folder: str) -> list[ArtifactView]:
    within = folder + "/" if folder else ""
    found: dict[str, ArtifactView] = {}
    for file in files:
        if not file.path.startswith(within):
            continue
        name, deeper, _ = file.path[len(within) :].partition("/")
        path = within + name
        found[path] = ArtifactView(path=path, folder=bool(deeper), size=file.size)
    return [found[path] for path in sorted(found)]


def _files(found: Sequence[ArtifactView], cut: int) -> Answer:
    files = [
        {"path": each.path[cut:], "is_dir": True}
        if each.folder
        else {"path": each.path[cut:], "is_dir": False, "file_size": each.size}
        for each in found
    ]
    return {"files": files} if files else {}
