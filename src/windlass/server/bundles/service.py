"""Code of jobs, by content: a manifest names blobs; a blob is a file named by its SHA-256.

Blobs are shared between bundles and projects (whoever can name a digest in a manifest must
still upload the bytes unless its own project has them already), written once, never changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import Connection, delete, insert, select, update

from windlass.core.errors import InvalidInput, NotFound, TooLarge
from windlass.core.reports import Digest
from windlass.core.strict import Count, Line, Strict
from windlass.server.bundles.tables import bundles
from windlass.server.jobs.tables import jobs

MAX_FILES = 20_000
MAX_BYTES = 2**30
MAX_BLOB = 64 * 2**20


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
        parts = file.path.split("/")
        if (
            file.path.startswith("/")
            or "\\" in file.path
            or any(part in ("", ".", "..") for part in parts)
            or re.match(r"^[A-Za-z]:", file.path)
            or not file.path.isprintable()
        ):
            raise InvalidInput(f"files: {file.path!r} is not a plain relative path")
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
    missing = tuple(
        sorted({file.digest for file in manifest.files if not blobs.has(file.digest, file.size)})
    )
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


def collect(conn: Connection, before_ms: int) -> set[str]:
    """Forget bundles that no job refers to and nobody used lately; returns every digest that is
    still wanted. Blobs outside it may go."""
    used = select(jobs.c.bundle).where(jobs.c.bundle.is_not(None))
    conn.execute(
        delete(bundles).where(bundles.c.used_ms < before_ms, bundles.c.digest.not_in(used))
    )
    wanted: set[str] = set()
    for files in conn.execute(select(bundles.c.files)).scalars():
        wanted |= {file["digest"] for file in files}
    return wanted


class Blobs:
    """Files named by their digest, in a folder of the server."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def path(self, digest: str) -> Path:
        assert re.fullmatch(r"[0-9a-f]{64}", digest), "a digest, never a user's path"
        return self._folder / digest[:2] / digest

    def has(self, digest: str, size: int) -> bool:
        try:
            return self.path(digest).stat().st_size == size
        except OSError:
            return False

    async def put(self, digest: str, chunks: AsyncIterator[bytes]) -> int:
        """Keep a blob if its bytes hash to its name."""
        final = self.path(digest)
        final.parent.mkdir(exist_ok=True, mode=0o700)
        draft = final.with_name(f".{secrets.token_hex(8)}")
        seen, size = hashlib.sha256(), 0
        try:
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                async for chunk in chunks:
                    size += len(chunk)
                    if size > MAX_BLOB:
                        raise TooLarge(f"a file may have {MAX_BLOB} bytes")
                    seen.update(chunk)
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            if seen.hexdigest() != digest:
                raise InvalidInput(f"the bytes hash to {seen.hexdigest()}, not to {digest}")
            os.replace(draft, final)
        finally:
            draft.unlink(missing_ok=True)
        return size

    def sweep(self, wanted: set[str], before_ms: int) -> int:
        """Remove old blobs that nothing refers to."""
        gone = 0
        for folder in self._folder.iterdir():
            for file in folder.iterdir() if folder.is_dir() else ():
                if file.name not in wanted and file.stat().st_mtime_ns // 1_000_000 < before_ms:
                    file.unlink(missing_ok=True)
                    gone += 1
        return gone
