"""Addresses of files, as MLflow's clients write them, and what they mean here.

    mlflow-artifacts:/<experiment>/<run>/artifacts/<path>
    mlflow-artifacts:/<experiment>/models/<logged model>/artifacts/<path>
    mlflow-artifacts:/registry/<model>/<version>/<path>     read only: what a version holds
    runs:/<run>/<path>      models:/<logged model>      models:/<name>/<version>

An address is taken apart by these patterns alone. Whose the files are, the rows of the run, the
logged model or the version say; nothing else in it counts, the experiment neither. Any other
address (of another server, of a file) is refused: it would be read with our rights.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import Connection, select

from windlass.core.errors import InvalidInput, NotFound
from windlass.core.paths import plain_path
from windlass.server.artifacts.owners import owner
from windlass.server.artifacts.service import File
from windlass.server.mlflow.asked import Asked
from windlass.server.mlflow.errors import MlflowError, absent, invalid
from windlass.server.models import service
from windlass.server.models import sources as registering
from windlass.server.models.versions import Origin
from windlass.server.runs.tables import logged_model_notes
from windlass.server.store.upsert import insert_of

_STORED = re.compile(
    r"(?P<experiment>[0-9]{1,32})/(?:(?P<run>[0-9a-f]{32})|models/(?P<logged>m-[0-9a-f]{32}))"
    r"/artifacts(?:/(?P<path>.*))?",
    re.DOTALL,
)
_REGISTRY = re.compile(
    r"registry/(?P<model>[0-9a-f]{32})/(?P<version>[1-9][0-9]{0,8})(?:/(?P<path>.*))?", re.DOTALL
)
_SCHEME = "mlflow-artifacts:/"
_RUNS = re.compile(r"runs:/(?P<run>[0-9a-f]{32})(?:/(?P<path>.*))?", re.DOTALL)
_LOGGED = re.compile(r"models:/(?P<logged>m-[0-9a-f]{32})")
_NAMED = re.compile(r"models:/(?P<name>[^/]+)/(?P<version>[^/]+)|models:/(?P<ref>[^/@]+@[^/@]+)")
_VERSIONS_TAG = "mlflow.modelVersions"


@dataclass(frozen=True)
class Place:
    """A folder or file below a run, a logged model, or a version."""

    owner: str = ""
    """The id of the run or of the logged model; "": it is a version's."""
    model_id: str = ""
    version: int = 0
    path: str = ""


@dataclass(frozen=True)
class Found:
    """What a version is to be made of."""

    files: tuple[File, ...]
    source: str
    run_id: str | None = None
    job_id: str | None = None
    logged_id: str | None = None
    lineage: Mapping[str, Any] = field(default_factory=dict)

    def origin(self, run_link: str) -> Origin:
        return Origin(
            self.run_id, self.job_id, self.logged_id, self.source, run_link, self.lineage
        )


def registry_uri(model_id: str, version: int) -> str:
    return f"{_SCHEME}registry/{model_id}/{version}"


def place(path: str) -> Place:
    """What a path below the root of all artifacts means. Raises MlflowError."""
    if found := _STORED.fullmatch(path):
        owner_id = found["run"] or found["logged"]
        return Place(owner_id, path=_below(found["path"]))
    if found := _REGISTRY.fullmatch(path):
        return Place(
            model_id=found["model"], version=int(found["version"]), path=_below(found["path"])
        )
    raise invalid("Invalid path")


def _below(path: str | None) -> str:
    if not path:
        return ""
    try:
        return plain_path(path.removesuffix("/"))
    except InvalidInput:
        raise invalid("Invalid path") from None


async def find(asked: Asked, source: str, run_id: str, logged_id: str) -> Found:
    """The files of a model version's source. Raises MlflowError for whatever is not of this
    project, or not of the run or logged model that is named beside it."""
    if found := _NAMED.fullmatch(source):
        if not _LOGGED.fullmatch(source):
            which = found["ref"] or f"{found['name']}@{found['version']}"
            return await _of_version(asked, source, which, run_id)
    where = _taken_apart(source, run_id)
    if where.model_id:
        return await _of_stored(asked, source, where, run_id)
    said = logged_id or (where.owner if where.owner.startswith("m-") else run_id)
    if said and where.owner != said and not (logged_id == "" and where.owner.startswith("m-")):
        raise _outside(source, "model_id" if logged_id else "run_id")
    if not said:
        raise _outside(source, "run_id")
    try:
        whose = await owner(asked.parts, asked.who, where.owner)
        files = await asked.parts.store.read(
            lambda conn: registering.of_run(conn, asked.project_id, whose, where.path)
        )
    except NotFound as error:
        raise _unreadable(source, error) from None
    origin = await registering.origin(asked.parts, asked.who, whose, source)
    return Found(
        files, source, run_id or origin.run_id, origin.job_id, origin.logged_id, origin.lineage
    )


def _taken_apart(source: str, run_id: str) -> Place:
    try:
        if source.startswith(_SCHEME):
            return place(source[len(_SCHEME) :])
        if found := _RUNS.fullmatch(source):
            return Place(found["run"], path=_below(found["path"]))
        if found := _LOGGED.fullmatch(source):
            return Place(found["logged"])
    except MlflowError:
        raise invalid(
            f"Invalid model version source: '{source}'. If supplying a source as an http, https, "
            "local file path, ftp, objectstore, or mlflow-artifacts uri, an absolute path must be "
            "provided without relative path references present. "
            "Please provide an absolute path."
        ) from None
    if re.match(r"[A-Za-z][\w+.-]*:", source) and not source.lower().startswith("file:"):
        raise invalid(
            f"Invalid model version source: '{source}'. A version is made of artifacts of this "
            "project's runs and logged models."
        )
    shown = urlsplit(source).path if run_id and source.startswith("file:") else source
    raise invalid(
        f"Invalid model version source: '{shown}'. To use a local path as a model version "
        "source, the run_id request parameter has to be specified and the local path has to be "
        "contained within the artifact directory of the run specified by the run_id."
    )


async def _of_version(asked: Asked, source: str, ref: str, run_id: str) -> Found:
    def look(conn: Connection) -> dict[str, Any]:
        name, _, which = ref.rpartition("@")
        return service.find_version(conn, service.find(conn, asked.project_id, name), which)

    try:
        row = await asked.parts.store.read(look)
    except NotFound as error:
        raise absent(f"Invalid model version source: '{source}'. {error.message}") from None
    return _copy(row, source, run_id)


async def _of_stored(asked: Asked, source: str, where: Place, run_id: str) -> Found:
    if where.path:
        raise _outside(source, "run_id")
    row = await version_row(asked, where)
    return _copy(row, source, run_id)


def _copy(row: Mapping[str, Any], source: str, run_id: str) -> Found:
    if run_id and run_id != (row["run_id"] or ""):
        raise invalid(
            f"Invalid model version source: '{source}'. The run_id and model_id request "
            "parameters must match the referenced model version."
        )
    lineage = {**row["lineage"], "copy_of": {"model": row["model_id"], "version": row["number"]}}
    return Found(
        service.files_of(row), source, row["run_id"], row["job_id"], row["logged_id"], lineage
    )


async def version_row(asked: Asked, where: Place) -> dict[str, Any]:
    """The version that a place is in."""

    def look(conn: Connection) -> dict[str, Any]:
        from windlass.server.models.tables import model_versions as table

        row = conn.execute(
            select(table).where(
                table.c.project_id == asked.project_id,
                table.c.model_id == where.model_id,
                table.c.number == where.version,
            )
        ).mappings().first()  # fmt: skip
        if row is None:
            raise absent("No such file or directory")
        return dict(row)

    return await asked.parts.store.read(look)


async def note_version(asked: Asked, logged_id: str, name: str, version: int) -> None:
    """Tell a logged model which versions were made of it, in the tag where clients look."""

    def write(conn: Connection) -> None:
        notes = logged_model_notes
        mine = (
            (notes.c.model_id == logged_id)
            & (notes.c.kind == "tag")
            & (notes.c.key == _VERSIONS_TAG)
        )
        old = conn.execute(select(notes.c.value).where(mine)).scalar()
        listed = json.loads(old) if old else []
        fresh = {"name": name, "version": version}
        value = json.dumps(listed if fresh in listed else [*listed, fresh])
        upsert = insert_of(conn)(notes)
        row = {"model_id": logged_id, "kind": "tag", "key": _VERSIONS_TAG, "value": value}
        conn.execute(
            upsert.values(row).on_conflict_do_update(
                index_elements=["model_id", "kind", "key"], set_={"value": value}
            )
        )

    await asked.parts.tracking.write(write)


def _outside(source: str, field: str) -> MlflowError:
    return invalid(
        f"Invalid model version source: '{source}'. The {field} request parameter must "
        "identify the resource that contains the source."
    )


def _unreadable(source: str, error: NotFound) -> MlflowError:
    return invalid(f"Invalid model version source: '{source}'. {error.message}")
