"""Sends files to the storage, and takes away what lies there for nobody.

Files land on this disk as if there were no storage: a submit, a log line, a checkpoint never wait
for it. This loop follows behind:

    put the bytes under a new key → read them back, compare → write down the row
                                          → the local copy goes, once it was not used for a while

Whoever dies in between is followed by a turn that begins with what it sees: a file without a row
is put again, one with a row needs its local copy no more, and bytes without a row are swept after
a day. While the storage is away files stay here, and the turn is tried again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

from sqlalchemy import Connection

from windlass.server.bundles.references import wanted
from windlass.server.clock import Clock
from windlass.server.settings import DAY_MS, Settings
from windlass.server.storage import catalogue
from windlass.server.storage.base import Storage
from windlass.server.storage.ended import Ended
from windlass.server.storage.reading import Shelf
from windlass.server.storage.sending import AT_ONCE, Pending, Sending
from windlass.server.store.base import Store
from windlass.server.troubles import Troubles

_SWEEP_MS = 3_600_000
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class Moving:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        storage: Storage,
        settings: Settings,
        shelf: Shelf,
        *,
        guard: Callable[[Connection], None],
        gather: Callable[[str, str], Awaitable[None]],
        troubles: Troubles | None = None,
    ) -> None:
        self._store, self._clock, self._storage = store, clock, storage
        self._guard = guard
        self._blobs = settings.home / "blobs"
        self._keep_ms = settings.storage_cache_ms
        self._sending = Sending(store, clock, storage, guard)
        troubles = troubles or Troubles(clock)
        self._ended = Ended(store, clock, settings, self._sending, shelf, gather, troubles)
        self._handling = troubles.of("storage")
        self._swept_ms = clock.now_ms()

    async def turn(self) -> int | None:
        """The milliseconds until there is more to do."""
        await self.carry_out()
        for folder in await asyncio.to_thread(_folders, self._blobs):
            with self._handling.of(f"blobs of {folder.name}"):
                await self._move_blobs(folder)
        due = await self._ended.turn()
        now = self._clock.now_ms()
        if now - self._swept_ms > _SWEEP_MS:
            self._swept_ms = now
            await self.sweep(now - DAY_MS)
        return due

    async def _move_blobs(self, folder: Path) -> None:
        here = await asyncio.to_thread(_files, folder)
        owner = catalogue.blobs_of(folder.name)
        known = await self._store.read(partial(catalogue.found, owner=owner, paths=here))
        sent = await self._sending.send(
            Pending(owner, name, folder.name, None, _opener(path), name)
            for name, path in here.items()
            if name not in known
        )
        stored = {**known, **{each.path: each for each in sent}}
        old = self._now() - self._keep_ms
        await asyncio.to_thread(
            _evict, [(path, stored[name].size) for name, path in here.items() if name in stored],
            old,
        )  # fmt: skip

    async def carry_out(self) -> None:
        """Remove the bytes of what is marked, then the rows."""
        while keys := await self._store.read(catalogue.going):
            for at in range(0, len(keys), AT_ONCE):
                some = keys[at:][:AT_ONCE]
                run = self._sending.run
                await asyncio.gather(*(run(self._storage.remove, key) for key in some))
            await self._write(partial(catalogue.gone, keys=keys))

    async def sweep(self, before_ms: int) -> None:
        """Mark old blobs that nothing refers to; remove old bytes that nobody wrote down."""
        old = await self._store.read(lambda conn: catalogue.unnamed_blobs(conn, before_ms))
        named = await self._store.read(wanted)
        keys = [each.key for each in old if each.path not in named.get(each.project_id, ())]

        def mark(conn: Connection) -> None:
            catalogue.mark_old(conn, keys, before_ms, self._now())
            catalogue.mark_of_no_job(conn, self._now())

        await self._write(mark)
        await self.carry_out()
        listed = await self._sending.run(
            lambda: [e.key for e in self._storage.listing() if e.changed_ms < before_ms]
        )
        for some in catalogue.batched(listed):
            known = await self._store.read(partial(catalogue.known, keys=some))
            for key in sorted(set(some) - known):
                await self._sending.run(self._storage.remove, key)

    async def _write(self, fn: Callable[[Connection], None]) -> None:
        def guarded(conn: Connection) -> None:
            self._guard(conn)
            fn(conn)

        await self._store.write(guarded)

    def _now(self) -> int:
        return self._clock.now_ms()


def _folders(root: Path) -> list[Path]:
    return [folder for folder in root.iterdir() if folder.is_dir()]


def _files(folder: Path) -> dict[str, Path]:
    """Finished blobs by their digests."""
    return {path.name: path for path in folder.glob("[0-9a-f][0-9a-f]/*") if len(path.name) == 64}


def _opener(path: Path) -> Callable[[], int]:
    return lambda: os.open(path, _OPEN)


def _evict(files: Sequence[tuple[Path, int]], before_ms: int) -> None:
    for path, size in files:
        try:
            about = path.stat()
            if about.st_size == size and about.st_mtime_ns // 1_000_000 <= before_ms:
                path.unlink()
        except FileNotFoundError:
            continue
