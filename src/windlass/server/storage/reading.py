"""A file wherever it lies: on this disk, else in the storage."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection

from windlass.core.errors import NotFound, Unavailable
from windlass.server.storage import catalogue
from windlass.server.storage.base import Storage
from windlass.server.storage.catalogue import Object
from windlass.server.store.base import Store

T = TypeVar("T")
_AHEAD = 4 * 2**20
_READERS = 8
READ = ".read"
"""In a folder that was brought back: when somebody last wanted it."""


class Source(Protocol):
    """Bytes of a known number that can be read from any place."""

    size: int

    async def read(self, size: int, at: int) -> bytes: ...

    def close(self) -> None: ...


class OpenFile:
    """Takes over an open file of this disk."""

    def __init__(self, opened: int) -> None:
        self.size = os.fstat(opened).st_size
        self._opened = opened

    async def read(self, size: int, at: int) -> bytes:
        return await asyncio.to_thread(os.pread, self._opened, size, at)

    def close(self) -> None:
        os.close(self._opened)


class StoredFile:
    """One of the storage, read ahead: a question for each piece would take longer than it. For
    one reader."""

    def __init__(self, shelf: Shelf, key: str, size: int) -> None:
        self.size = size
        self._shelf, self._key = shelf, key
        self._window, self._start = b"", 0

    async def read(self, size: int, at: int) -> bytes:
        if not self._start <= at < self._start + len(self._window):
            # A reader who goes on from the last window wants much; a first one perhaps not.
            ahead = _AHEAD if at == self._start + len(self._window) else size
            end = min(self.size, at + max(size, ahead))
            self._window = await self._shelf.run(self._shelf.there.read, self._key, at, end)
            self._start = at
        place = at - self._start
        return self._window[place : place + size]

    def close(self) -> None:
        self._window = b""


class Shelf:
    """What lies in the storage, for those who read. Without a storage nothing does."""

    def __init__(self, store: Store, storage: Storage | None) -> None:
        self._store = store
        self._storage = storage
        # Its own threads: a storage that hangs must not take those of everything else.
        self._threads = ThreadPoolExecutor(_READERS, "storage") if storage else None
        self.brought: set[str] = set()
        """Jobs whose files came back to this disk: for who takes them away again."""

    async def run(self, call: Callable[..., T], *args: Any) -> T:
        """A plain call that waits for the storage, in a thread kept for such."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, *args)

    @property
    def there(self) -> Storage:
        """Raises Unavailable."""
        if self._storage is None:
            raise Unavailable(
                "these bytes lie in a storage, and this server was started without --storage"
            )
        return self._storage

    @property
    def used(self) -> bool:
        return self._storage is not None

    async def found(self, owner: str, paths: Iterable[str] | None = None) -> Mapping[str, Object]:
        if self._storage is None:
            return {}
        return await self._store.read(lambda conn: catalogue.found(conn, owner, paths))

    async def open(self, owner: str, path: str) -> Source:
        """Raises NotFound, and Unavailable while the storage does not answer."""
        found = await self.found(owner, [path])
        if path not in found:
            raise NotFound(f"the bytes of {path} are not here")
        return await self.open_object(found[path])

    async def open_object(self, found: Object) -> Source:
        size = await self.run(self.there.size, found.key)
        if size != found.size:
            raise NotFound(f"the bytes of {found.path} are not in the storage as they were kept")
        return StoredFile(self, found.key, found.size)

    async def of_job(self, job_id: str, digest: str) -> Source:
        """Any file of a job with these bytes. Raises NotFound, Unavailable."""

        def look(conn: Connection) -> Object | None:
            return catalogue.by_digest(conn, job_id, digest)

        found = None if self._storage is None else await self._store.read(look)
        if found is None:
            raise NotFound(f"no file with the digest {digest[:12]} is here")
        return await self.open_object(found)

    def read(self, found: Object, most: int | None = None) -> bytes:
        """The beginning of a small file. A plain call, for threads."""
        return self.there.read(found.key, 0, min(found.size, most or found.size))

    def fetch(self, found: Object, target: Path) -> None:
        """A copy on this disk, whole or not at all. A plain call, for threads."""
        draft = target.with_name(f".{target.name}.{os.getpid()}-{threading.get_ident()}")
        try:
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
                at = 0
                while at < found.size:
                    end = min(found.size, at + _AHEAD)
                    at += out.write(self.there.read(found.key, at, end))
                out.flush()
                os.fsync(out.fileno())
            os.replace(draft, target)
        finally:
            draft.unlink(missing_ok=True)

    async def bring(self, owner: str, folder: Path) -> None:
        """All files of an owner to this disk, for those who read many in turn: where they are
        not. They stay for a while. Raises Unavailable."""
        stored = await self.found(owner)
        if stored:
            self.brought.update(each.job_id for each in stored.values() if each.job_id)
            await self.run(self._bring, stored, folder)

    def _bring(self, stored: Mapping[str, Object], folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (folder / READ).touch()  # first: from here on nobody takes them away
        for name, each in stored.items():
            if not (folder / name).exists():
                self.fetch(each, folder / name)
