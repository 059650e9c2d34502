"""Versions of models: registered once, then only described, staged and removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from windlass.core.errors import InvalidInput, TooLarge
from windlass.core.modelrefs import MAX_FILES, digest_of
from windlass.core.models import Stage
from windlass.core.paths import plain_path
from windlass.server.artifacts.service import File, total
from windlass.server.models import aliases, service
from windlass.server.models.service import Actor, Row
from windlass.server.models.tables import model_aliases, model_versions


@dataclass(frozen=True)
class Origin:
    """Where the files of a version came from."""

    run_id: str | None = None
    job_id: str | None = None
    logged_id: str | None = None
    source: str = ""
    run_link: str = ""
    lineage: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Described:
    """What the server found out about the files."""

    format: str
    unsafe: tuple[str, ...]


def check(files: Sequence[File]) -> None:
    """Raises InvalidInput unless the files can lie in one folder."""
    if not files:
        raise InvalidInput("files: a version has at least one file")
    if len(files) > MAX_FILES:
        raise TooLarge(f"a version has at most {MAX_FILES} files, these are {len(files)}")
    seen = set()
    for file in files:
        if plain_path(file.path, "files") in seen:
            raise InvalidInput(f"files: {file.path!r} is there twice")
        seen.add(file.path)
    for path in seen:
        parts = path.split("/")
        if any("/".join(parts[:depth]) in seen for depth in range(1, len(parts))):
            raise InvalidInput(f"files: {path!r} lies below another file")


def register(
    conn: Connection, actor: Actor, model: Mapping[str, Any], files: Sequence[File],
    origin: Origin, described: Described, now_ms: int, *,
    description: str = "", tags: Mapping[str, str] | None = None,
) -> Row:  # fmt: skip
    """A new version of a model that `find(…, change=True)` gave: the next number, these files,
    for ever. Whether their blobs are here the caller has seen."""
    check(files)
    number = model["last"] + 1
    ordered = sorted(files, key=lambda file: file.path)
    row: Row = {
        "model_id": model["id"], "number": number, "project_id": actor.project_id,
        "digest": digest_of((file.path, file.digest, file.size) for file in ordered),
        "files": [
            {"path": file.path, "digest": file.digest, "size": file.size} for file in ordered
        ],
        "bytes": total(ordered), "format": described.format, "unsafe": list(described.unsafe),
        "stage": Stage.NONE.value, "staged_ms": now_ms, "description": description,
        "tags": dict(tags or {}), "run_id": origin.run_id, "job_id": origin.job_id,
        "logged_id": origin.logged_id, "source": origin.source, "run_link": origin.run_link,
        "lineage": dict(origin.lineage), "user_id": actor.user_id, "user_name": actor.user_name,
        "created_ms": now_ms, "changed_ms": now_ms,
    }  # fmt: skip
    conn.execute(insert(model_versions).values(row))
    service.change(conn, model, now_ms, last=number)
    return row


def same(
    conn: Connection, model: Mapping[str, Any], digest: str, run_id: str | None
) -> Row | None:
    """The newest version, if it holds these very files of this run: a registration that is sent
    again makes no other."""
    row = (
        conn.execute(
            select(model_versions)
            .where(model_versions.c.model_id == model["id"])
            .order_by(model_versions.c.number.desc())
            .limit(1)
        )
        .mappings()
        .first()
    )
    if row is None or row["digest"] != digest or row["run_id"] != run_id:
        return None
    return dict(row)


def of_model(conn: Connection, model_id: str) -> list[Row]:
    """Newest first."""
    rows = conn.execute(
        select(model_versions)
        .where(model_versions.c.model_id == model_id)
        .order_by(model_versions.c.number.desc())
    ).mappings()
    return [dict(row) for row in rows]


def change(conn: Connection, version: Mapping[str, Any], now_ms: int, **values: Any) -> None:
    """Another description or other tags. Of what a version is, nothing changes."""
    assert not set(values) - {"description", "tags"}, "a version is written once"
    conn.execute(_this(version).values(**values, changed_ms=now_ms))


def stage(
    conn: Connection, actor: Actor, model: Mapping[str, Any], version: Mapping[str, Any],
    to: Stage, now_ms: int, *, archive: bool,
) -> None:  # fmt: skip
    """Put a version in a stage; `archive`: those that are in it go to Archived."""
    if archive:
        others = select(model_versions).where(
            model_versions.c.model_id == model["id"],
            model_versions.c.stage == to.value,
            model_versions.c.number != version["number"],
        )
        for other in conn.execute(others).mappings().all():
            _put(conn, actor, dict(other), Stage.ARCHIVED, now_ms)
    _put(conn, actor, version, to, now_ms)
    service.change(conn, model, now_ms)


def _put(
    conn: Connection, actor: Actor, version: Mapping[str, Any], to: Stage, now_ms: int
) -> None:
    number, model_id = version["number"], version["model_id"]
    conn.execute(_this(version).values(stage=to.value, staged_ms=now_ms, changed_ms=now_ms))
    before = Stage(version["stage"])
    if before is to:
        return
    if before is not Stage.NONE:
        service.note_move(conn, actor, model_id, before.value, number, None, now_ms)
    if to is not Stage.NONE:
        service.note_move(conn, actor, model_id, to.value, None, number, now_ms)


def remove(
    conn: Connection, actor: Actor, model: Mapping[str, Any], version: Mapping[str, Any],
    now_ms: int,
) -> None:  # fmt: skip
    """Take a version away, and its aliases with it; its number is not given again."""
    what = f"version {version['number']} of {model['name']}"
    service.check_owner(actor, version, what)
    held = service.aliases_of(conn, [model["id"]]).get(model["id"], {})
    for alias, number in held.items():
        if number == version["number"]:
            aliases.drop(conn, actor, model, alias, now_ms)
    if version["stage"] != Stage.NONE:
        service.note_move(
            conn, actor, model["id"], version["stage"], version["number"], None, now_ms
        )
    conn.execute(
        delete(model_versions).where(
            model_versions.c.model_id == model["id"],
            model_versions.c.number == version["number"],
        )
    )
    service.change(conn, model, now_ms)


def aliases_at(conn: Connection, version: Mapping[str, Any]) -> tuple[str, ...]:
    rows = conn.execute(
        select(model_aliases.c.alias)
        .where(
            model_aliases.c.model_id == version["model_id"],
            model_aliases.c.number == version["number"],
        )
        .order_by(model_aliases.c.alias)
    )
    return tuple(rows.scalars())


def _this(version: Mapping[str, Any]) -> Any:
    return update(model_versions).where(
        model_versions.c.model_id == version["model_id"],
        model_versions.c.number == version["number"],
    )
