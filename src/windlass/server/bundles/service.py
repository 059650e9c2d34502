"""Code of jobs, by content: a manifest names blobs.

Each project has its own blobs, shared between its bundles: who can name a digest of another
project's must still have the bytes, and learns nothing by naming it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import Connection, delete, insert, select, tuple_, union_all, update

from windlass.core.errors import InvalidInput, NotFound, TooLarge
from windlass.core.paths import wrong_code_path
from windlass.core.reports import Digest
from windlass.core.strict import Count, Line, Strict
from windlass.server.bundles.blobs import MAX_BLOB, Blobs
from windlass.server.bundles.tables import bundles
from windlass.server.jobs.tables import jobs
from windlass.server.studies.tables import studies

FORGOTTEN = 500
MAX_FILES = 20_000
MAX_BYTES = 2**30


class BundleFile(Strict):
    path: Annotated[Line, Field(min_length=1, max_length=1024)]
    digest: Digest
    size: Count
    mode: Annotated[int, Field(ge=0, le=0o777)] = 0o644


class Manifest(Strict):
    files: Annotated[tuple[BundleFile, ...], Field(max_length=MAX_FILES)]


class BundleAnswer(Strict):
    digest: str
    missing: tuple[str, ...]


def digest_of(files: Sequence[BundleFile]) -> str:
    listed = sorted((file.model_dump() for file in files), key=lambda file: file["path"])
    text = json.dumps(listed, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def check(manifest: Manifest) -> int:
    """The bundle's size; InvalidInput for a path that leaves its folder or is there twice."""
    seen: set[str] = set()
    for file in manifest.files:
        if reason := wrong_code_path(file.path):
            raise InvalidInput(f"files: {file.path!a}: {reason}")
        if file.path in seen:
            raise InvalidInput(f"files: {file.path!r} is there twice")
        seen.add(file.path)
        if file.size > MAX_BLOB:
            raise TooLarge(f"{file.path} has {file.size} bytes, a file may have {MAX_BLOB}")
    for path in seen:
        parts = path.split("/")
        if any("/".join(parts[:depth]) in seen for depth in range(1, len(parts))):
            raise InvalidInput(f"files: {path!r} lies below another file")
    size = sum(file.size for file in manifest.files)
    if size > MAX_BYTES:
        raise TooLarge(f"the bundle has {size} bytes, {MAX_BYTES} are allowed")
    return size


def record(
    conn: Connection, project_id: str, manifest: Manifest, blobs: Blobs, now_ms: int
) -> BundleAnswer:
    """Note a manifest; the answer names the blobs that are not here yet."""
    size, digest = check(manifest), digest_of(manifest.files)
    wanted = {file.digest: file.size for file in manifest.files}
    missing = tuple(sorted(blobs.of(project_id).named(conn, wanted, now_ms)))
    known = conn.execute(
        select(bundles.c.complete).where(
            bundles.c.digest == digest, bundles.c.project_id == project_id
        )
    ).first()
    values = {"complete": int(not missing), "used_ms": now_ms}
    if known is None:
        conn.execute(
            insert(bundles).values(
                digest=digest, project_id=project_id, count=len(manifest.files), bytes=size,
                files=[file.model_dump() for file in manifest.files], created_ms=now_ms, **values,
            )
        )  # fmt: skip
    else:
        conn.execute(
            update(bundles)
            .where(bundles.c.digest == digest, bundles.c.project_id == project_id)
            .values(**values)
        )
    return BundleAnswer(digest=digest, missing=missing)


def files_of(conn: Connection, project_id: str, digest: str) -> list[dict[str, Any]]:
    row = conn.execute(
        select(bundles.c.files).where(
            bundles.c.digest == digest, bundles.c.project_id == project_id
        )
    ).first()
    if row is None:
        raise NotFound(f"no bundle {digest[:12]}")
    return list(row[0])


def forget(conn: Connection, before_ms: int) -> int:
    """Bundles that no job and no study refers to and nobody used lately, at most `FORGOTTEN` at
    once; how many they were."""
    used = union_all(
        select(jobs.c.bundle).where(jobs.c.bundle.is_not(None)),
        select(studies.c.bundle).where(studies.c.bundle.is_not(None)),
    )
    old = (
        select(bundles.c.project_id, bundles.c.digest)
        .where(bundles.c.used_ms < before_ms, bundles.c.digest.not_in(used))
        .limit(FORGOTTEN)
    )
    return conn.execute(
        delete(bundles).where(tuple_(bundles.c.project_id, bundles.c.digest).in_(old))
    ).rowcount
