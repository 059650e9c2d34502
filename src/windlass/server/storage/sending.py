"""From this disk to the storage: put, read back, compare, write down. In this order, so that a row
says that the bytes are there."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import secrets
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Connection

from windlass.core.errors import NotFound, Unavailable
from windlass.server import failpoints
from windlass.server.clock import Clock
from windlass.server.storage import catalogue
from windlass.server.storage.base import BLOCK, Storage
from windlass.server.storage.catalogue import Object
from windlass.server.store.base import Store

log = logging.getLogger("windlass.storage")

T = TypeVar("T")

AT_ONCE = 8
_TOGETHER = 64
"""So many files are written down in one transaction."""


@dataclass(frozen=True)
class Pending:
    """A file of this disk that is to go to the storage."""

    owner: str
    path: str
    project_id: str
    job_id: str | None
    open: Callable[[], int]
    digest: str | None = None
    """What its bytes should hash to, where that is known."""


class Sending:
    def __init__(
        self, store: Store, clock: Clock, storage: Storage, guard: Callable[[Connection], None]
    ) -> None:
        self._store, self._clock, self._storage, self._guard = store, clock, storage, guard
        # Not those of who reads, nor those of everything else: the storage may hang.
        self._threads = ThreadPoolExecutor(AT_ONCE, "sending")

    async def run(self, call: Callable[..., T], *args: Any) -> T:
        """A plain call that waits for the storage."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, *args)

    async def send(self, files: Iterable[Pending]) -> list[Object]:
        """Those that are in the storage now, and written down."""
        done: list[Object] = []
        left = list(files)
        while some := left[:_TOGETHER]:
            left = left[_TOGETHER:]
            room = asyncio.Semaphore(AT_ONCE)

            async def one(each: Pending, room: asyncio.Semaphore = room) -> Object | None:
                async with room:
                    return await self.run(self._put, each)

            found = await asyncio.gather(*map(one, some), return_exceptions=True)
            made = [each for each in found if isinstance(each, Object)]
            failpoints.passing("before-object-row")
            await self._register(made)
            failpoints.passing("after-object-row")
            done += made
            for error in found:
                if isinstance(error, BaseException):
                    raise error
        return done

    def _put(self, each: Pending) -> Object | None:
        """None: it is not here any more, or not as it should be."""
        try:
            opened = each.open()
        except (OSError, NotFound):
            return None
        try:
            size = os.fstat(opened).st_size
            digest = _digest(lambda at: os.pread(opened, BLOCK, at), size)
            if each.digest not in (None, digest):
                log.warning("%s of %s is damaged: it stays here", each.path, each.owner)
                return None
            key = f"{each.owner}/{digest[:32]}-{secrets.token_hex(4)}"
            self._storage.put(key, opened, size)
        finally:
            os.close(opened)
        self._check(key, size, digest)
        return Object(key, each.owner, each.path, each.project_id, each.job_id, digest, size)

    def _check(self, key: str, size: int, digest: str) -> None:
        def piece(at: int) -> bytes:
            return self._storage.read(key, at, min(size, at + BLOCK))

        if self._storage.size(key) != size or _digest(piece, size) != digest:
            self._storage.remove(key)
            raise Unavailable(f"{self._storage.url} gave back other bytes than it was given")

    async def _register(self, made: Sequence[Object]) -> None:
        def write(conn: Connection) -> None:
            self._guard(conn)
            catalogue.register(conn, made, self._clock.now_ms())

        await self._store.write(write)


def _digest(piece: Callable[[int], bytes], size: int) -> str:
    found, at = hashlib.sha256(), 0
    while at < size and (block := piece(at)):
        found.update(block)
        at += len(block)
    return found.hexdigest()
