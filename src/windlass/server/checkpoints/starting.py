"""What a job starts from: a checkpoint of an earlier job, or a version of a model.

    prepare    at submit: the words of `start_from` become one checkpoint or version, and its files
    hold       in the submit's own transaction: from here on it does not go
    for_worker what the workers need to lay the files at $WINDLASS_START_FROM
    release    before the earlier job is removed: who still needs a checkpoint of it gets its own

Where it came from is written down with the job, so that it can be told when that is long gone.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import Connection, insert, select, update

from windlass.core.access import Principal
from windlass.core.errors import InvalidInput, NotFound
from windlass.core.jobs import TERMINAL, JobSpec, Origin, StartSpec
from windlass.server.checkpoints import catalogue, files
from windlass.server.checkpoints.rules import Scores
from windlass.server.jobs import moves
from windlass.server.jobs.tables import checkpoints, jobs, starts
from windlass.server.reading import spec_of
from windlass.server.storage import catalogue as storage
from windlass.server.storage.catalogue import Object
from windlass.server.storage.reading import Shelf
from windlass.server.store.base import Store

Row = Mapping[str, Any]
_JOB: Literal["job"] = "job"
_MODEL: Literal["model"] = "model"


@dataclass(frozen=True)
class Start:
    origin: Origin
    source_id: str | None
    path: str | None
    root: str | None
    name: str
    files: tuple[dict[str, Any], ...]
    lineage: tuple[Origin, ...]
    spec: StartSpec
    """As it was understood: a job by its id, a step by its number, a model by its version."""

    def in_spec(self, spec: JobSpec) -> JobSpec:
        return spec.model_copy(update={"start_from": self.spec})


def prepare(
    conn: Connection,
    who: Principal,
    asked: StartSpec,
    checkpoints_of: Callable[[str], Path],
    find: Callable[[Connection, Principal, str], Row],
    scores: Scores | None = None,
) -> Start:
    """Raises InvalidInput in words where there is no such thing, or nothing of it on disk."""
    try:
        if asked.model is not None:
            return _model(conn, who, asked)
        job = find(conn, who, asked.job or "")
        return _checkpoint(conn, dict(job), asked, checkpoints_of(job["id"]), scores)
    except NotFound as err:
        raise InvalidInput(f"start_from: {err}", hint=err.hint) from err


def _checkpoint(
    conn: Connection, job: dict[str, Any], asked: StartSpec, folder: Path, scores: Scores | None
) -> Start:
    rows = catalogue.listing(conn, job["id"])
    best = spec_of(job).outputs.keep_best
    word = "latest" if asked.step is None else str(asked.step)
    row = catalogue.find(rows, job["name"], word, best, scores or Scores({}))
    if row["bad"] is not None:
        raise NotFound(f"checkpoint {row['step']} of {job['name']} is damaged: {row['bad']}")
    root, entries = _files(conn, job["id"], folder, row)
    return Start(
        origin=Origin(
            kind=_JOB, name=job["name"], id=job["id"], step=row["step"], digest=row["digest"],
            resume=asked.resume,
        ),
        source_id=job["id"],
        path=row["path"],
        root=str(root),
        name=root.name if root != folder else Path(row["path"]).relative_to(root).as_posix(),
        files=tuple(dict(entry) for entry in entries),
        lineage=lineage(conn, job["id"]),
        spec=StartSpec(job=job["id"], step=row["step"], resume=asked.resume),
    )  # fmt: skip


def _files(
    conn: Connection, job_id: str, folder: Path, row: dict[str, Any]
) -> tuple[Path, Sequence[Mapping[str, Any]]]:
    """(the folder that its files' paths begin at, the files), on disk or in the storage."""
    try:
        return files.manifest(folder, row["path"])
    except NotFound:
        inner = files.inside(folder, row["path"])
        entries = catalogue.stored_files(conn, job_id, row)
        if inner is None or not entries:
            raise
        own = len(inner) == 1 and files.OWN.fullmatch(inner[0])
        return (folder / inner[0] if own else folder), entries


def _model(conn: Connection, who: Principal, asked: StartSpec) -> Start:
    # Here and not above: few submits need the registry.
    from windlass.server.models import service as models

    found = models.resolve(conn, who.project_id, asked.model or "")
    return Start(
        origin=Origin(
            kind=_MODEL, name=found.model, id=found.job_id, version=found.version,
            digest=found.digest,
        ),
        source_id=found.job_id,
        path=None,
        root=None,
        name="",
        files=tuple(
            {"path": file.path, "bytes": file.size, "digest": file.digest} for file in found.files
        ),
        lineage=lineage(conn, found.job_id) if found.job_id else (),
        spec=StartSpec(model=f"{found.model}@{found.version}"),
    )  # fmt: skip


def hold(conn: Connection, job_id: str, start: Start) -> None:
    """Write down what a new job starts from. Raises NotFound when it went meanwhile."""
    if start.path is not None and start.source_id is not None:
        moves.load(conn, start.source_id)
        there = conn.execute(
            select(checkpoints.c.path).where(
                checkpoints.c.job_id == start.source_id,
                checkpoints.c.path == start.path,
                checkpoints.c.removing_ms.is_(None),
            )
        ).first()
        if there is None:
            raise NotFound(
                f"start_from: checkpoint {start.origin.step} of {start.origin.name} is being "
                "removed"
            )
    origin = start.origin
    conn.execute(
        insert(starts).values(
            job_id=job_id, kind=origin.kind, resume=int(origin.resume), source_id=start.source_id,
            source_name=origin.name, step=origin.step, version=origin.version,
            digest=origin.digest, path=start.path, root=start.root, name=start.name,
            files=list(start.files),
            lineage=[each.model_dump(mode="json") for each in start.lineage],
        )
    )  # fmt: skip


def lineage(conn: Connection, job_id: str) -> tuple[Origin, ...]:
    """What a job started from, what that started from, and so on."""
    row = conn.execute(select(starts).where(starts.c.job_id == job_id)).mappings().first()
    if row is None:
        return ()
    own = Origin(
        kind=row["kind"], name=row["source_name"], id=row["source_id"], step=row["step"],
        version=row["version"], digest=row["digest"], resume=bool(row["resume"]),
    )  # fmt: skip
    return (own, *(Origin.model_validate(each) for each in row["lineage"]))


def for_worker(conn: Connection, job_id: str) -> dict[str, Any] | None:
    """What the job's workers lay out before its ranks start."""
    row = conn.execute(select(starts).where(starts.c.job_id == job_id)).mappings().first()
    if row is None:
        return None
    return {
        "resume": bool(row["resume"]), "name": row["name"], "root": row["root"],
        "step": row["step"], "digest": row["digest"], "files": list(row["files"]),
    }  # fmt: skip


def file_of(conn: Connection, job_id: str, digest: str) -> tuple[str | None, str] | None:
    """(the folder, the path in it) of a file that the job starts from; the folder is None for
    one of the project's blobs."""
    found = for_worker(conn, job_id)
    for entry in found["files"] if found else ():
        if entry["digest"] == digest:
            return found["root"] if found else None, entry["path"]
    return None


def source_of(conn: Connection, job_id: str) -> str | None:
    """The job whose checkpoint it starts from, while that one has it."""
    found: str | None = conn.execute(
        select(starts.c.source_id).where(starts.c.job_id == job_id, starts.c.path.is_not(None))
    ).scalar()
    return found


def wanted(conn: Connection) -> Iterator[tuple[str, str]]:
    """(project, digest) of the blobs that unfinished jobs start from."""
    rows = conn.execute(
        select(jobs.c.project_id, starts.c.files)
        .join(jobs, jobs.c.id == starts.c.job_id)
        .where(starts.c.root.is_(None), jobs.c.state.not_in(sorted(TERMINAL)))
    )
    for project_id, listed in rows:
        for entry in listed:
            yield project_id, entry["digest"]


async def release(
    store: Store, folder_of: Callable[[str], Path], job_id: str, now_ms: int, shelf: Shelf
) -> None:
    """Before a finished job's folder goes: each unfinished job that starts from a checkpoint in
    it gets the files under its own folder. Nobody else can start from it from here on."""

    def has_any(conn: Connection) -> bool:
        return (
            conn.execute(
                select(checkpoints.c.path).where(checkpoints.c.job_id == job_id).limit(1)
            ).first()
            is not None
        )

    def mark(conn: Connection) -> list[dict[str, Any]]:
        catalogue.mark_all(conn, job_id, now_ms)
        found = conn.execute(
            select(starts)
            .join(jobs, jobs.c.id == starts.c.job_id)
            .where(
                starts.c.source_id == job_id,
                starts.c.path.is_not(None),
                jobs.c.state.not_in(sorted(TERMINAL)),
            )
        )
        return [dict(row) for row in found.mappings()]

    if not await store.read(has_any):
        return
    for row in await store.write(mark):
        target = folder_of(row["job_id"]) / "start" / "files"
        try:
            await asyncio.to_thread(files.link, Path(row["root"]), row["files"], target)
        except NotFound:
            await _fetch(store, shelf, job_id, row["files"], target)
        await store.write(_moved(row["job_id"], target))


async def _fetch(
    store: Store, shelf: Shelf, job_id: str, entries: Sequence[Row], target: Path
) -> None:
    """The files from the storage, whole or not at all."""

    def look(conn: Connection) -> list[Object]:
        found = [storage.by_digest(conn, job_id, entry["digest"]) for entry in entries]
        return [each for each in found if each is not None]

    stored = await store.read(look)
    if len(stored) != len(entries):
        raise NotFound(f"what starts from job {job_id} lacks a file of it")
    draft = target.with_name(f".{target.name}-{secrets.token_hex(4)}")
    try:
        for entry, found in zip(entries, stored, strict=True):
            place = draft.joinpath(*str(entry["path"]).split("/"))
            place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            await shelf.run(shelf.fetch, found, place)
        draft.rename(target)
    finally:
        await asyncio.to_thread(shutil.rmtree, draft, ignore_errors=True)


def _moved(holder: str, target: Path) -> Callable[[Connection], None]:
    def write(conn: Connection) -> None:
        conn.execute(
            update(starts).where(starts.c.job_id == holder).values(root=str(target), path=None)
        )

    return write
