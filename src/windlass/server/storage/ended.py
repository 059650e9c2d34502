"""What a job leaves behind goes to the storage once it has ended: its outputs (as files of its
run, which are blobs), its checkpoints, its logs. Its local copies go when nobody has read them for
a while, and no checkpoint goes that another job is about to start from.

A job is looked at when it has ended, and once more when its local copies may go.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select

from windlass.core.errors import Fenced, NotFound, Unavailable
from windlass.core.jobs import TERMINAL
from windlass.server import failpoints
from windlass.server.artifacts import service as artifacts
from windlass.server.artifacts.service import File
from windlass.server.checkpoints import catalogue as checkpoints
from windlass.server.checkpoints import files
from windlass.server.clock import Clock
from windlass.server.jobs.tables import attempts, jobs
from windlass.server.reading import or_else
from windlass.server.settings import Settings
from windlass.server.storage import catalogue
from windlass.server.storage.catalogue import Object
from windlass.server.storage.reading import READ, Shelf
from windlass.server.storage.sending import Pending, Sending
from windlass.server.store.base import Store
from windlass.server.troubles import Troubles

_OVERLAP_MS = 60_000
"""Ends are written down in another order than they happen."""
_LOGS = (".log", ".idx")
_LEAST_READ_MS = 60_000
"""Logs that somebody reads stay so long, whatever was asked for: segments are opened in turn."""


@dataclass
class _Job:
    id: str
    project_id: str
    ended_ms: int
    due_ms: int = 0


class Ended:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        settings: Settings,
        sending: Sending,
        shelf: Shelf,
        gather: Callable[[str, str], Awaitable[None]],
        troubles: Troubles,
    ) -> None:
        self._store, self._clock, self._settings = store, clock, settings
        self._sending, self._shelf, self._gather = sending, shelf, gather
        self._handling = troubles.of("storage")
        self._keep_ms = settings.storage_cache_ms
        self._since = 0
        self._pending: dict[str, _Job] = {}
        self._done: dict[str, _Job] = {}

    async def turn(self) -> int | None:
        """The milliseconds until the next job is due; None: there is none."""
        while self._shelf.brought:
            job_id = self._shelf.brought.pop()
            if job_id in self._done:
                self._pending[job_id] = self._done.pop(job_id)
        for job in await self._store.read(partial(_over, since=self._since - _OVERLAP_MS)):
            self._since = max(self._since, job.ended_ms)
            if job.id not in self._done:
                self._pending.setdefault(job.id, job)
        for job in list(self._pending.values()):
            if job.due_ms > self._clock.now_ms():
                continue
            try:
                again = await self._move(job)
            except (Unavailable, Fenced):
                raise
            except Exception as err:  # of this job: the others need not wait for it
                wait_ms = max(_LEAST_READ_MS, self._handling.failed(job.id, err))
                again = self._clock.now_ms() + wait_ms
            else:
                self._handling.well(job.id)
            if again is None:
                del self._pending[job.id]
                self._done[job.id] = job
            else:
                job.due_ms = again
        if not self._pending:
            return None
        first = min(job.due_ms for job in self._pending.values())
        return max(0, first - self._clock.now_ms())

    async def _move(self, job: _Job) -> int | None:
        """When it must be looked at again."""
        await self._gather(job.project_id, job.id)
        again = [await self._outputs(job), await self._checkpoints(job)]
        for attempt_id, node in await self._store.read(partial(_places, job_id=job.id)):
            again.append(await self._logs(job, attempt_id, node))
        later = [due for due in again if due is not None]
        return min(later) if later else None

    async def _outputs(self, job: _Job) -> int | None:
        """They are blobs now, which go by themselves; what the job wrote goes when they are there.
        What was left out of them stays."""
        listed = await self._store.read(
            lambda conn: artifacts.files_below(conn, job.project_id, job.id)
        )
        owner = catalogue.blobs_of(job.project_id)
        digests = {file.digest for file in listed}
        stored = await self._store.read(partial(catalogue.found, owner=owner, paths=digests))
        folders = [
            folder
            for attempt_id, node in await self._store.read(partial(_places, job_id=job.id))
            if (folder := self._settings.attempt_folder(attempt_id, node) / "out").is_dir()
        ]
        if not folders or not listed:
            return None
        if digests - stored.keys():
            return self._clock.now_ms() + 1000
        if (due := job.ended_ms + self._keep_ms) > self._clock.now_ms():
            return due
        for file in listed:
            for folder in folders:
                await asyncio.to_thread(_take_away, folder, file)
        return None

    async def _checkpoints(self, job: _Job) -> int | None:
        folder = self._settings.checkpoints_of(job.id)
        again = None
        rows = await self._store.read(lambda conn: checkpoints.listing(conn, job.id))
        held = await self._store.read(lambda conn: checkpoints.held(conn, job.id))
        for row in rows:
            if row["bad"] is not None or row["removing_ms"] is not None:
                continue
            try:
                root, entries = await asyncio.to_thread(files.manifest, folder, row["path"])
            except NotFound:
                continue  # it went before
            owner = catalogue.checkpoint_of(job.id, row["attempt"], row["step"], row["digest"])
            known = await self._store.read(partial(catalogue.found, owner=owner))
            sent = await self._sending.send(
                Pending(
                    owner, entry["path"], job.project_id, job.id,
                    partial(files.open_inside, root, entry["path"].split("/")), entry["digest"],
                )
                for entry in entries
                if not _same(known.get(entry["path"]), entry)
            )  # fmt: skip
            stored = {**known, **{each.path: each for each in sent}}
            if not all(_same(stored.get(entry["path"]), entry) for entry in entries):
                continue  # it is damaged: it stays as it is
            now = self._clock.now_ms()
            if (due := job.ended_ms + self._keep_ms) > now or row["path"] in held:
                again = max(due, now + _LEAST_READ_MS) if row["path"] in held else due
                continue
            failpoints.passing("before-local-removal")
            await asyncio.to_thread(files.remove, folder, row["path"], row["attempt"], row["step"])
        return again

    async def _logs(self, job: _Job, attempt_id: str, node: str) -> int | None:
        folder = self._settings.logs_of(attempt_id, node)
        here = await asyncio.to_thread(_log_files, folder)
        if not here:
            return None
        owner = catalogue.logs_of(attempt_id, node)
        known = await self._store.read(partial(catalogue.found, owner=owner))
        longer = [
            name for name, size in here.items() if name in known and known[name].size != size
        ]
        for name in longer:  # its worker was thought to be dead, and wrote on
            await self._forget(owner, name)
        sent = await self._sending.send(
            Pending(
                owner, name, job.project_id, job.id, partial(files.open_inside, folder, [name])
            )
            for name in here
            if name not in known or name in longer
        )
        stored = {**known, **{each.path: each for each in sent}}
        now = self._clock.now_ms()
        due = max(
            job.ended_ms + self._keep_ms,
            await asyncio.to_thread(_read_until, folder, self._keep_ms),
        )
        if due > now:
            return due
        failpoints.passing("before-local-removal")
        await asyncio.to_thread(_remove_logs, folder, stored)
        return None

    async def _forget(self, owner: str, name: str) -> None:
        now = self._clock.now_ms()
        await self._store.write(lambda conn: catalogue.mark(conn, owner, now, name))


def _over(conn: Connection, since: int) -> list[_Job]:
    rows = conn.execute(
        select(jobs.c.id, jobs.c.project_id, jobs.c.ended_ms).where(
            jobs.c.state.in_(sorted(TERMINAL)), jobs.c.ended_ms >= since
        )
    )
    return [_Job(*row) for row in rows]


def _places(conn: Connection, job_id: str) -> list[tuple[str, str]]:
    """(attempt, node) of all that a job had."""
    rows = conn.execute(
        select(attempts.c.id, attempts.c.placement).where(attempts.c.job_id == job_id)
    )
    return [
        (row.id, node)
        for row in rows
        for node in {placed["node"] for placed in or_else(row.placement, ())}
    ]


def _same(found: Object | None, entry: Mapping[str, Any]) -> bool:
    return found is not None and found.digest == entry["digest"]


def _log_files(folder: Path) -> dict[str, int]:
    try:
        return {
            entry.name: entry.stat(follow_symlinks=False).st_size
            for entry in os.scandir(folder)
            if entry.name.endswith(_LOGS) and entry.is_file(follow_symlinks=False)
        }
    except OSError:
        return {}


def _read_until(folder: Path, keep_ms: int) -> int:
    try:
        last = (folder / READ).stat().st_mtime_ns // 1_000_000
    except OSError:
        return 0
    return last + max(keep_ms, _LEAST_READ_MS)


def _remove_logs(folder: Path, stored: Mapping[str, Object]) -> None:
    for name, size in _log_files(folder).items():
        if name in stored and stored[name].size == size:
            (folder / name).unlink(missing_ok=True)
    (folder / READ).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()


def _take_away(folder: Path, file: File) -> None:
    """A file of a folder that user code wrote, if it is what became a file of the run."""
    parts = file.path.split("/")
    try:
        opened = files.open_inside(folder, parts)
    except NotFound:
        return
    with open(opened, "rb") as ours:
        same = os.fstat(opened).st_size == file.size
        same = same and hashlib.file_digest(ours, "sha256").hexdigest() == file.digest
    if same:
        files.unlink(folder, parts)
