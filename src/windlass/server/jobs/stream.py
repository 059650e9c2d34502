"""One job as it happens: its events and its output in one stream, resumable by cursor.

    cursor = <event seq> [ ; <attempt> ; <stream>=<offset> , … ]

Two sources feed one bounded queue: the feed (events of this job) and the tail of the newest
attempt's output. A slow reader slows only itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from sqlalchemy import Connection, select

from windlass.core.access import CallerKind, Principal
from windlass.core.errors import InvalidInput, NotFound
from windlass.core.jobs import TERMINAL, JobState
from windlass.core.strict import MAX_INT
from windlass.server import sse
from windlass.server.clock import iso, stamp
from windlass.server.jobs import service, views
from windlass.server.jobs.tables import attempts, jobs
from windlass.server.jobs.why import waits
from windlass.server.logs import reader
from windlass.server.logs.reader import Chunk, Tail
from windlass.server.logs.watch import FolderWatch
from windlass.server.parts import Parts
from windlass.server.storage import catalogue as storage

_ROOM = 8
_BATCH = 8
"""Blocks of at most 64 KiB: this much of the output is held for a reader who does not read."""
_LOOK_SECONDS = 1.0
_LONGEST_CURSOR = 5000


async def follow_job(
    parts: Parts,
    job: Mapping[str, Any],
    cursor: str | None,
    *,
    since_ms: int | None = None,
    last: int | None = None,
) -> AsyncGenerator[bytes, None]:
    """Bytes of the event stream, until the job is over and all its output was sent. Without a
    cursor it begins at the beginning, or, of the newest attempt's output, with what was written
    since or with the last lines of each rank; then what happened before is not told."""
    seq, attempt, offsets = parse_cursor(cursor)
    queue: asyncio.Queue[bytes | None] = asyncio.Queue(_ROOM)
    source = _Pump(parts, job, seq, attempt, offsets, queue)
    if cursor is None and (since_ms is not None or last is not None):
        await source.skip(since_ms, last)
    pump = asyncio.create_task(source.run())
    try:
        while True:
            try:
                block = await asyncio.wait_for(queue.get(), sse.PING_SECONDS)
            except TimeoutError:
                yield sse.PING
                continue
            if block is None:
                break
            yield block
        await pump
    finally:
        pump.cancel()
        await asyncio.gather(pump, return_exceptions=True)


def parse_cursor(cursor: str | None) -> tuple[int, int, dict[str, int]]:
    """Raises InvalidInput; call it before the answer begins."""
    if not cursor:
        return 0, 0, {}
    try:
        seq, _, rest = cursor.partition(";")
        attempt, _, offsets = rest.partition(";")
        places = dict(pair.rsplit("=", 1) for pair in offsets.split(",") if pair)
        numbers = [int(seq), int(attempt or 0), *map(int, places.values())]
        if not all(0 <= number <= MAX_INT for number in numbers):
            raise ValueError
        return numbers[0], numbers[1], dict(zip(places, numbers[2:], strict=True))
    except ValueError:
        raise InvalidInput(f"cursor: not one of ours (found {cursor[:80]!r})") from None


class _Pump:
    def __init__(
        self,
        parts: Parts,
        job: Mapping[str, Any],
        seq: int,
        attempt: int,
        offsets: dict[str, int],
        queue: asyncio.Queue[bytes | None],
    ) -> None:
        self._parts = parts
        self._job = job
        self._seq = seq
        self._attempt = attempt
        self._offsets = offsets
        self._queue = queue
        self._watch = FolderWatch()
        self._tail: Tail | None = None
        self._told: dict[str, int] = {}
        """By stream, how far it was put into the queue; the tail may have read on."""
        self._order = asyncio.Lock()
        """Held while one waits for room: a cursor never tells of what comes behind it."""
        self._reading = asyncio.Lock()
        """Held while one reads the tail and sends what it gave."""
        self._fresh = True  # an event may have named a new attempt
        self._over = False
        self._progress: dict[str, Any] = {}
        self._progress_at = 0.0
        self._waits, self._waits_at = "", asyncio.get_running_loop().time()

    async def skip(self, since_ms: int | None, last: int | None) -> None:
        """Leave out what was before."""
        self._seq = self._job["revision"]
        self._over = JobState(self._job["state"]) in TERMINAL
        await self._turn_to_newest()
        if self._tail is not None:
            found = reader.streams(self._tail.folders)
            self._tail.positions = await asyncio.to_thread(
                reader.starts, found, since_ms=since_ms, last=last
            )
            self._told = dict(self._tail.positions)

    async def run(self) -> None:
        events = asyncio.create_task(self._events())
        noticing = asyncio.create_task(self._notices())
        try:
            await self._output(events)
            await self._end()
        finally:
            events.cancel()
            noticing.cancel()
            await asyncio.gather(events, noticing, return_exceptions=True)
            self._watch.close()
            await self._queue.put(None)

    async def _events(self) -> None:
        """The job's events after `seq`, first from the table, then as they come."""
        job_id, names = self._job["id"], {self._job["id"]: self._job["name"]}
        start = await self._parts.feed.last()
        old = await self._parts.store.read(
            lambda conn: service.events_of(conn, job_id, self._seq, limit=100_000)
        )
        for known in old:
            await self._event(known, names)
        if JobState(self._job["state"]) in TERMINAL:  # the cursor may lie behind its last event
            self._over = True
            self._watch.poke()
        async with aclosing(self._parts.feed.follow(start, job_id=job_id)) as rows:
            async for row in rows:
                if row.seq > self._seq:
                    await self._event(dict(row._mapping), names)

    async def _event(self, row: Mapping[str, Any], names: dict[str, str]) -> None:
        if row["kind"] == "moved" and row["state"] not in (JobState.STARTING, JobState.RUNNING):
            # What an attempt wrote comes before the word that it is over.
            while await self._send_new(row["at_ms"]):
                pass
        view = views.event_view(row, names).model_dump(mode="json")
        async with self._order:
            self._seq = row["seq"]
            await self._queue.put(sse.message("event", view, self._cursor()))
        self._fresh = True
        if row["state"] in {state.value for state in TERMINAL}:
            self._over = True
        self._watch.poke()

    async def _notices(self) -> None:
        """That there are new points or samples to read: told once, and no cursor knows of it."""
        follow = self._parts.pulse.follow(self._job["project_id"], self._job["id"])
        async with aclosing(follow) as notices:
            async for kind, data in notices:
                async with self._order:
                    await self._queue.put(sse.message(kind, data))

    async def _output(self, events: asyncio.Task[None]) -> None:
        while True:
            over = self._over
            await self._turn_to_newest()
            sent = await self._send_new()
            if events.done():
                events.result()
            await self._send_progress()
            await self._send_waits()
            if over and not sent:
                return
            if not sent:
                await self._watch.wait(_LOOK_SECONDS)

    async def _send_progress(self) -> None:
        """How far it is, at most once a second and only when it has changed."""
        now = asyncio.get_running_loop().time()
        if now - self._progress_at < _LOOK_SECONDS and not self._over:
            return
        self._progress_at = now

        def look(conn: Connection) -> dict[str, Any]:
            found = conn.execute(
                select(attempts.c.step, jobs.c.done, jobs.c.total)
                .join(jobs, jobs.c.id == attempts.c.job_id)
                .where(attempts.c.job_id == self._job["id"], attempts.c.number == self._attempt)
            )
            row = found.mappings().first()
            return {} if row is None else dict(row)

        progress = await self._parts.store.read(look)
        if progress != self._progress and any(each is not None for each in progress.values()):
            self._progress = progress
            data = {"attempt": self._attempt, **progress}
            async with self._order:
                await self._queue.put(sse.message("progress", data, self._cursor()))

    async def _send_waits(self) -> None:
        """Why it waits, when that has changed; no cursor knows of it."""
        now = asyncio.get_running_loop().time()
        if now - self._waits_at < _LOOK_SECONDS or self._over:
            return
        self._waits_at = now
        job_id = self._job["id"]

        def look(conn: Connection) -> dict[str, Any] | None:
            wanted = (jobs.c.state, jobs.c.reason, jobs.c.not_before_ms)
            found = conn.execute(select(*wanted).where(jobs.c.id == job_id)).mappings().first()
            return None if found is None else dict(found)

        row = await self._parts.store.read(look)
        if row is None or row["state"] != JobState.QUEUED:
            self._waits = ""
            return
        admit = self._parts.admit
        words, starts = waits(
            row, admit.why(job_id), admit.promise(job_id), self._parts.clock.now_ms()
        )
        if words and words != self._waits:
            self._waits = words
            data = {"sentence": words, "expected_start": iso(starts)}
            async with self._order:
                await self._queue.put(sse.message("waits", data))

    async def _turn_to_newest(self) -> None:
        """Point the tail at the newest attempt, once all of the one before was sent."""

        def newest(conn: Connection) -> dict[str, Any] | None:
            last = conn.execute(
                select(attempts.c.id, attempts.c.number, attempts.c.placement)
                .where(attempts.c.job_id == self._job["id"])
                .order_by(attempts.c.number.desc())
                .limit(1)
            )
            found = last.mappings().first()
            return None if found is None else dict(found)

        if not self._fresh:
            return
        self._fresh = False
        attempt = await self._parts.store.read(newest)
        if attempt is None:
            return
        if self._tail is None or attempt["number"] != self._attempt:
            if self._tail is not None:
                while await self._send_new():
                    pass
            offsets = self._offsets if attempt["number"] == self._attempt else {}
            self._attempt = attempt["number"]
            nodes = views.nodes_of(attempt)
            folders = [self._parts.settings.logs_of(attempt["id"], node) for node in nodes]
            for node, folder in zip(nodes, folders, strict=True):
                await self._parts.shelf.bring(storage.logs_of(attempt["id"], node), folder)
            self._tail = Tail(folders, offsets)
            self._told = dict(self._tail.positions)

    async def _send_new(self, before_ms: int | None = None) -> bool:
        """Whether there may be more (of what was written before that time)."""
        async with self._reading:
            if self._tail is None:
                return False
            for folder in self._tail.folders:
                self._watch.add(folder)
            chunks = self._tail.read(_BATCH)
            for chunk in chunks:
                async with self._order:
                    self._told[f"{chunk.rank}.{chunk.stream}"] = chunk.end
                    await self._queue.put(sse.message("log", self._log(chunk), self._cursor()))
            return bool(chunks) and (before_ms is None or chunks[-1].at_ms <= before_ms)

    def _log(self, chunk: Chunk) -> dict[str, Any]:
        return {
            "rank": chunk.rank,
            "stream": chunk.stream,
            "attempt": self._attempt,
            "offset": chunk.offset,
            "end": chunk.end,
            "at": stamp(chunk.at_ms),
            "text": chunk.text,
        }

    def _cursor(self) -> str:
        places = self._told if self._tail is not None else self._offsets
        listed = ",".join(f"{name}={place}" for name, place in places.items())
        if len(listed) > _LONGEST_CURSOR:
            listed = ""  # a large gang: its output is told again, and the client knows what it has
        return f"{self._seq};{self._attempt};{listed}"

    async def _end(self) -> None:
        who = Principal(kind=CallerKind.USER, project_id=self._job["project_id"])
        try:
            row = await self._parts.store.read(
                lambda conn: service.find(conn, who, self._job["id"])
            )
        except NotFound:
            return
        assert JobState(row["state"]) in TERMINAL
        view = views.job_view(row).model_dump(mode="json")
        async with self._order:
            await self._queue.put(sse.message("end", view, self._cursor()))
