"""Bytes by content: a blob is a file named by its SHA-256, in a folder for each project.

Written once, never changed. One that is being written has another name until all its bytes are on
the disk, so whoever is killed in the middle leaves nothing that can be reached; the sweep takes it
away later.

Where the server has a storage they go on from here to there (`server/storage/moving.py`), and one
that is not on this disk is looked for in it.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path

from sqlalchemy import Connection

from windlass.core.errors import InvalidInput, NotFound, TooLarge
from windlass.server.storage import catalogue
from windlass.server.storage.catalogue import Object
from windlass.server.storage.reading import OpenFile, Shelf, Source

MAX_BLOB = 64 * 2**20
"""Of a file of code. Files of runs and models have the server's own bound."""
_BLOCK = 2**20
_DRAFTS = "drafts"


class Blobs:
    """The blobs of all projects: a folder of the server with one for each."""

    def __init__(
        self, folder: Path, shelf: Shelf | None = None, came: Callable[[], None] = lambda: None
    ) -> None:
        self._folder, self._shelf, self._came = folder, shelf, came
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def of(self, project_id: str) -> ProjectBlobs:
        assert re.fullmatch(r"[0-9a-f]{1,32}", project_id), "an id, never a user's path"
        return ProjectBlobs(self._folder / project_id, self._shelf, self._came)

    def sweep(self, wanted: Mapping[str, set[str]], before_ms: int) -> int:
        """Remove old blobs that nothing refers to."""
        return sum(
            self.of(project.name).sweep(wanted.get(project.name, set()), before_ms)
            for project in self._folder.iterdir()
            if project.is_dir()
        )


class ProjectBlobs:
    """Files of one project, named by their digest."""

    def __init__(
        self, folder: Path, shelf: Shelf | None = None, came: Callable[[], None] = lambda: None
    ) -> None:
        self._folder, self._shelf, self._came = folder, shelf, came
        self._owner = catalogue.blobs_of(folder.name)

    def path(self, digest: str) -> Path:
        assert re.fullmatch(r"[0-9a-f]{64}", digest), "a digest, never a user's path"
        return self._folder / digest[:2] / digest

    def has(self, digest: str, size: int) -> bool:
        """If so it is not old any more: whoever asks is about to name it in a bundle."""
        try:
            path = self.path(digest)
            if path.stat().st_size != size:
                return False
            os.utime(path)
        except OSError:
            return False
        return True

    async def open(self, digest: str) -> Source:
        """Wherever it lies. Raises NotFound, and Unavailable while the storage is away."""
        try:
            return OpenFile(os.open(self.path(digest), os.O_RDONLY))
        except OSError:
            if self._shelf is None:
                raise NotFound(f"the bytes of {digest[:12]} are not here") from None
        return await self._shelf.open(self._owner, digest)

    async def stored(self, digests: Iterable[str]) -> Mapping[str, Object]:
        """Which of these lie in the storage, for `read`."""
        return {} if self._shelf is None else await self._shelf.found(self._owner, digests)

    def read(self, digest: str, stored: Mapping[str, Object], most: int | None = None) -> bytes:
        """Its bytes, or the first of them, from this disk or of what is stored. A plain call, for
        threads. Raises OSError, NotFound, Unavailable."""
        try:
            with open(self.path(digest), "rb") as file:
                return file.read(-1 if most is None else most)
        except FileNotFoundError:
            if self._shelf is None or digest not in stored:
                raise
            return self._shelf.read(stored[digest], most)

    def lacking(self, wanted: Mapping[str, int]) -> set[str]:
        """Of these digests with their sizes, those that are not on this disk."""
        return {digest for digest, size in wanted.items() if not self.has(digest, size)}

    def named(self, conn: Connection, wanted: Mapping[str, int], now_ms: int) -> set[str]:
        """Of these digests with their sizes, those that are not here; the others are not old any
        more: whoever asks is about to name them."""
        lacking = self.lacking(wanted)
        if self._shelf is None or not self._shelf.used:
            return lacking
        catalogue.touch(conn, self._owner, wanted, now_ms)
        stored = catalogue.found(conn, self._owner, lacking) if lacking else {}
        return {digest for digest in lacking if _size(stored.get(digest)) != wanted[digest]}

    async def put(
        self, digest: str, chunks: AsyncIterator[bytes], max_bytes: int = MAX_BLOB
    ) -> int:
        """Keep a blob if its bytes hash to its name; how many they were."""
        return (await self._write(chunks, max_bytes, digest))[1]

    async def keep(self, chunks: AsyncIterator[bytes], max_bytes: int) -> tuple[str, int]:
        """Keep bytes under the name that they hash to; that name, and how many they were."""
        return await self._write(chunks, max_bytes, None)

    async def _write(
        self, chunks: AsyncIterator[bytes], max_bytes: int, name: str | None
    ) -> tuple[str, int]:
        folder = self._folder / _DRAFTS
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = folder / secrets.token_hex(16)
        seen, size = hashlib.sha256(), 0
        block = bytearray()
        try:
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb", 0) as out:

                def flush() -> None:
                    seen.update(block)
                    rest = memoryview(block)
                    while rest:
                        rest = rest[out.write(rest) :]

                async for chunk in chunks:
                    size += len(chunk)
                    if size > max_bytes:
                        raise TooLarge(f"a file may have {max_bytes} bytes", max_bytes=max_bytes)
                    block += chunk
                    if len(block) >= _BLOCK:  # a disk that is slow must not stop the others
                        await asyncio.to_thread(flush)
                        block = bytearray()
                if len(block) < _BLOCK // 8:
                    flush()
                else:
                    await asyncio.to_thread(flush)
                digest = seen.hexdigest()
                if name is not None and digest != name:
                    raise InvalidInput(f"the bytes hash to {digest}, not to {name}")
                if self.has(digest, size):
                    return digest, size
                await asyncio.to_thread(os.fsync, out.fileno())
            self._settle(draft, digest)
            self._came()
        finally:
            draft.unlink(missing_ok=True)
        return digest, size

    def _settle(self, draft: Path, digest: str) -> None:
        final = self.path(digest)
        made = not final.parent.exists()
        final.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.replace(draft, final)
        # Its name is on the disk too before anything refers to it, and its folder's.
        above = (self._folder, self._folder.parent) if made else ()
        for folder in (final.parent, *above):
            _sync(folder)

    def sweep(self, wanted: set[str], before_ms: int) -> int:
        """Remove old blobs that nothing refers to, and what was never finished."""
        gone = 0
        for folder in self._folder.iterdir():
            for file in folder.iterdir() if folder.is_dir() else ():
                try:
                    old = file.stat().st_mtime_ns // 1_000_000 < before_ms
                except FileNotFoundError:
                    continue  # a draft that has just got its name
                if file.name not in wanted and old:
                    file.unlink(missing_ok=True)
                    gone += 1
        return gone


def _sync(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _size(found: Object | None) -> int | None:
    return None if found is None else found.size
