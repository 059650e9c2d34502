"""What is to become a version: files of a run, or files that a client sent, and where they came
from. Looked up before the write, and looked at again in it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, select

from windlass.core.access import Principal
from windlass.core.errors import Conflict, NotFound
from windlass.core.paths import plain_path
from windlass.server.artifacts import service as artifacts
from windlass.server.artifacts.owners import Owner
from windlass.server.artifacts.service import File
from windlass.server.jobs import views
from windlass.server.jobs.tables import jobs
from windlass.server.models import formats
from windlass.server.models.versions import Described, Origin
from windlass.server.parts import Parts
from windlass.server.runs.tables import datasets

_MOST_DATA = 100


def of_run(conn: Connection, project_id: str, owner: Owner, path: str) -> tuple[File, ...]:
    """A run's files at a path: of a folder with their paths in it, of a file with its name.
    Raises NotFound when there are none."""
    found = artifacts.files_below(conn, project_id, owner.id, plain_path(path) if path else "")
    if not found:
        where = f"at {path} " if path else ""
        raise NotFound(
            f"run {owner.id} has no files {where}".strip(),
            hint="files that a job leaves in $WINDLASS_OUTPUT_DIR, or logs as artifacts",
        )
    if len(found) == 1 and found[0].path == path:
        return (replace(found[0], path=path.rpartition("/")[2]),)
    cut = len(path) + 1 if path else 0
    return tuple(replace(file, path=file.path[cut:]) for file in found)


async def missing(parts: Parts, project_id: str, files: Sequence[File]) -> list[str]:
    """The digests whose bytes are not here; the others are not old from now on."""
    wanted, now = {file.digest: file.size for file in files}, parts.clock.now_ms()
    blobs = parts.blobs.of(project_id)
    if parts.shelf.used:
        return sorted(await parts.store.write(lambda conn: blobs.named(conn, wanted, now)))
    return sorted(await asyncio.to_thread(blobs.lacking, wanted))


async def describe(parts: Parts, project_id: str, files: Sequence[File]) -> Described:
    """Formats, told from names and first bytes. Raises Conflict when bytes are gone."""
    lacking = set(await missing(parts, project_id, files))
    blobs = parts.blobs.of(project_id)
    stored = await blobs.stored({file.digest for file in files})

    def head(file: File) -> bytes:
        try:
            if file.digest in lacking:
                raise FileNotFoundError
            return blobs.read(file.digest, stored, formats.HEAD_BYTES)
        except (OSError, NotFound):
            raise Conflict(f"the bytes of {file.path} are not here: send them again") from None

    return Described(*await parts.shelf.run(formats.describe, files, head))


async def origin(parts: Parts, who: Principal, owner: Owner, source: str = "") -> Origin:
    """Where a run's files came from: its job, its code, the data that it read."""
    lineage: dict[str, Any] = {"run": owner.run_id} if owner.run_id else {}
    if owner.logged:
        lineage["logged_model"] = owner.id
    if owner.job_id:
        job = await parts.store.read(lambda conn: _job(conn, who.project_id, owner.job_id or ""))
        if job:
            lineage["job"] = job
    if owner.run_id:
        run_id = owner.run_id
        data = await parts.tracking.read(lambda conn: _data(conn, run_id))
        if data:
            lineage["data"] = data
    return Origin(
        run_id=owner.run_id, job_id=owner.job_id, logged_id=owner.id if owner.logged else None,
        source=source, lineage=lineage,
    )  # fmt: skip


def _job(conn: Connection, project_id: str, job_id: str) -> dict[str, Any] | None:
    row = conn.execute(
        select(jobs.c.name, jobs.c.spec, jobs.c.bundle, jobs.c.fence).where(
            jobs.c.id == job_id, jobs.c.project_id == project_id
        )
    ).first()
    if row is None:
        return None
    found = {"id": job_id, "name": row.name, "command": views.command_line(row.spec)}
    if row.bundle:
        found["code"] = row.bundle
    for name in ("start_from", "params"):
        if row.spec.get(name):
            found[name] = row.spec[name]
    return found


def _data(conn: Connection, run_id: str) -> list[dict[str, Any]]:
    rows = conn.execute(
        select(datasets.c.name, datasets.c.digest, datasets.c.source_type)
        .where(datasets.c.run_id == run_id)
        .order_by(datasets.c.place)
        .limit(_MOST_DATA)
    )
    return [dict(row._mapping) for row in rows]
