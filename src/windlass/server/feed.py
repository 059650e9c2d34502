"""The feed: every event once, in one order, for whoever follows.

Serial ids commit out of order on PostgreSQL (the transaction that drew 7 may commit after the
one that drew 8), so a reader that keeps "the last id I saw" skips rows. Readers therefore follow
`position`, which a sequencer gives to rows it sees committed, one sequencer at a time:

    append        insert, position null       any number of transactions, in any order
    sequence      position = last + 1 …       one transaction at a time, in id order
    after         position > cursor           a reader that sees p sees all before p

SQLite has one writer: there the position is given at the insert.

A `Feed` tails the table for one server: woken by a hint at each commit of its own process and,
on PostgreSQL, where others write too, by a timer. It reads each new row once and puts it into
the buffers of those who follow. Who is too slow for its buffer loses the buffer, not the rows:
it reads on from the database at its own cursor, and the others never wait for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, TypeVar

from sqlalchemy import (
    Connection,
    Executable,
    Row,
    bindparam,
    func,
    insert,
    select,
    text,
    union_all,
)

from windlass.core.errors import Unavailable
from windlass.server.events.tables import events
from windlass.server.store.base import Store
from windlass.server.store.hints import touch
from windlass.server.store.prepared import Prepared
from windlass.server.troubles import TURN, Troubles

Event = Row[Any]
T = TypeVar("T")

TOPIC = "events"
SERVER = ""
"""In place of a project's id: nodes, queues, quotas, users. Who follows a project hears of them
too; what they say is for the route to hold back."""
ADVISORY_LOCK = 0x66656564  # "feed"
PAGE = 500

log = logging.getLogger(__name__)

_NEXT_ON_SQLITE = text(
    "(SELECT coalesce(max(seq), 0) + 1 FROM sqlite_sequence WHERE name='events')"
)
_INSERT = {
    "sqlite": insert(events).inline().values(position=_NEXT_ON_SQLITE),
    "postgresql": insert(events).inline(),
}
_APPEND = {dialect: Prepared(statement) for dialect, statement in _INSERT.items()}


def append(conn: Connection, **columns: Any) -> None:
    """Add an event. Without `seq` it is the next of its job; the caller has locked the job."""
    if "seq" not in columns:
        same = events.c.job_id.is_not_distinct_from(columns.get("job_id"))
        columns["seq"] = (
            select(func.coalesce(func.max(events.c.seq), 0) + 1).where(same).scalar_subquery()
        )
        conn.execute(_INSERT[conn.dialect.name].values(**columns))
    else:
        _APPEND[conn.dialect.name].run(conn, columns)
    touch(conn, TOPIC)


def sequence(conn: Connection) -> int:
    """Give positions to committed events that have none; how many got one.

    0 also when another sequencer is at work: it, or the next turn, takes what is left.
    """
    if conn.dialect.name == "sqlite":
        return 0
    if not conn.execute(_TRY_LOCK).scalar():
        return 0
    done = conn.execute(_SEQUENCE, {"limit": PAGE}).rowcount
    if done:
        touch(conn, TOPIC)
    return done


def after(
    conn: Connection,
    cursor: int,
    *,
    project_id: str | None = None,
    job_id: str | None = None,
    limit: int = PAGE,
) -> Sequence[Event]:
    """The next events after a position, in order."""
    wanted = {"cursor": cursor, "page": limit, "project": project_id, "job": job_id}
    query = _AFTER[project_id is not None, job_id is not None]
    return conn.execute(query, {k: v for k, v in wanted.items() if v is not None}).all()


def last_position(conn: Connection) -> int:
    """The cursor of who wants only what is new."""
    return int(conn.execute(_LAST).scalar_one())


def _page(of_project: bool, of_job: bool) -> Executable:
    query = select(events).where(events.c.position > bindparam("cursor"))
    if of_job:
        query = query.where(events.c.job_id == bindparam("job"))
    if not of_project:
        return query.order_by(events.c.position).limit(bindparam("page"))
    # A page of each, as the index has them, and the first of both: a search for either of two
    # projects would sort all that is left of them.
    projects: tuple[Any, ...] = (bindparam("project"), SERVER)
    pages = [
        query.where(events.c.project_id == of)
        .order_by(events.c.position)
        .limit(bindparam("page"))
        .subquery()
        for of in projects
    ]
    both = union_all(*(select(page) for page in pages))
    return both.order_by("position").limit(bindparam("page"))


# Made once: to build one costs more than to run it, and every commit is followed by one.
_AFTER = {
    (project, job): _page(project, job) for project in (False, True) for job in (False, True)
}
_LAST = select(func.coalesce(func.max(events.c.position), 0))
_TRY_LOCK = text(f"SELECT pg_try_advisory_xact_lock({ADVISORY_LOCK})")
_END = 2**63 - 1
_NEWS = text(
    "SELECT EXISTS (SELECT 1 FROM events WHERE position IS NULL), "
    "EXISTS (SELECT 1 FROM events WHERE position > :cursor)"
)
_SEQUENCE = text(
    """
    WITH waiting AS (
        SELECT id, row_number() OVER (ORDER BY id) AS place
        FROM (SELECT id FROM events WHERE position IS NULL ORDER BY id LIMIT :limit) AS page
    ), given AS (
        INSERT INTO event_positions (id, last)
        SELECT 1, count(*) FROM waiting HAVING count(*) > 0
        ON CONFLICT (id) DO UPDATE SET last = event_positions.last + excluded.last
        RETURNING last
    )
    UPDATE events
    SET position = (SELECT last FROM given) - (SELECT count(*) FROM waiting) + waiting.place
    FROM waiting WHERE events.id = waiting.id
    """
)


class Follower:
    """One who follows: its wishes and what it has not taken yet."""

    def __init__(self, project_id: str | None, job_id: str | None, room: int) -> None:
        self.project_id = project_id
        self.job_id = job_id
        self.room = room
        self.buffer: deque[Event] = deque()
        self.lagging = False
        self.ready = asyncio.Event()

    def offer(self, rows: Sequence[Event]) -> None:
        for row in rows:
            if self.project_id is not None and row.project_id not in (self.project_id, SERVER):
                continue
            if self.job_id not in (None, row.job_id):
                continue
            if len(self.buffer) >= self.room:
                self.buffer.clear()
                self.lagging = True
                break
            self.buffer.append(row)
        if self.buffer or self.lagging:
            self.ready.set()


class Feed:
    """The tail of one server. `start` it on the loop where it is followed."""

    def __init__(
        self,
        store: Store,
        *,
        poll_seconds: float = 0.25,
        buffer: int = 1000,
        troubles: Troubles | None = None,
    ) -> None:
        self._store = store
        self._handling = (troubles or Troubles()).of("feed")
        self._buffer = buffer
        # One process owns an SQLite file, so every commit comes with a hint: no timer there.
        self._poll_seconds = None if store.dialect == "sqlite" else poll_seconds
        self._followers: set[Follower] = set()
        self._position: int | None = None
        self._hinted = asyncio.Event()
        self._waking = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    @property
    def followers(self) -> int:
        return len(self._followers)

    def start(self) -> None:
        self._unlisten = self._store.listen(TOPIC, self.hint)
        self._task = asyncio.create_task(self._tail(), name="feed")

    async def close(self) -> None:
        if self._task is None:
            return
        self._unlisten()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None

    async def last(self) -> int:
        """The position of the newest event, whose ever it is: where one begins who wants what
        comes. Asked of the whole table: a quiet project's newest lies far back in it."""
        return await self._store.read(last_position)

    def hint(self) -> None:
        """Something may have been committed: look now."""
        self._hinted.set()

    async def follow(
        self, cursor: int, project_id: str | None = None, job_id: str | None = None
    ) -> AsyncGenerator[Event, None]:
        """Every event after `cursor`, once, in order, for ever; waits out a database that is
        away. Close it (`aclosing`) when done."""
        while True:
            follower = Follower(project_id, job_id, self._buffer)
            await self._attach(follower)
            try:
                # 1. From the database, up to at least where the tail was when we joined it.
                while True:
                    rows = await self._page(cursor, project_id, job_id)
                    for row in rows:
                        cursor = row.position
                        yield row
                    if len(rows) < PAGE:
                        break
                # 2. From the buffer, less what the pages had already.
                while not follower.lagging:
                    await follower.ready.wait()
                    follower.ready.clear()
                    while follower.buffer:
                        row = follower.buffer.popleft()
                        if row.position > cursor:
                            cursor = row.position
                            yield row
            finally:
                self._detach(follower)

    async def _attach(self, follower: Follower) -> None:
        async with self._waking:
            if self._position is None:  # Nobody followed, so the tail does not know where it is.
                self._position = await self._patiently(last_position)
            self._followers.add(follower)
        self.hint()

    def _detach(self, follower: Follower) -> None:
        self._followers.discard(follower)
        if not self._followers:
            self._position = None

    async def _page(
        self, cursor: int, project_id: str | None, job_id: str | None
    ) -> Sequence[Event]:
        return await self._patiently(
            lambda conn: after(conn, cursor, project_id=project_id, job_id=job_id)
        )

    async def _patiently(self, fn: Callable[[Connection], T]) -> T:
        delay = 0.1
        while True:
            try:
                return await self._store.read(fn)
            except Unavailable as error:
                log.info("the feed waits for the database: %s", error)
                await asyncio.sleep(delay)
                delay = min(2.0, delay * 2)

    async def _tail(self) -> None:
        delay = 0.1
        while True:
            try:
                while await self._turn():
                    pass
                delay = 0.1
                self._handling.well(TURN)
                await self._wait(self._poll_seconds)
            except Unavailable as error:
                log.info("the feed waits for the database: %s", error)
                await asyncio.sleep(delay)
                delay = min(2.0, delay * 2)
            except Exception as error:
                self._handling.waits(TURN, error)
                await asyncio.sleep(delay)
                delay = min(2.0, delay * 2)

    async def _wait(self, seconds: float | None) -> None:
        try:
            # Not `wait_for`: on Python 3.11 it swallows a cancel that meets a hint.
            async with asyncio.timeout(seconds):
                await self._hinted.wait()
        except TimeoutError:
            pass
        self._hinted.clear()

    async def _turn(self) -> bool:
        """Sequence and hand out one page; whether there may be more."""
        position = self._position
        if position is None and self._poll_seconds is None:
            return False  # SQLite, and nobody follows: there is nothing to do
        waiting, rows = await self._store.read(lambda conn: self._look(conn, position))
        if self._position != position:
            return True  # The last one left, or the first came, while we read: look again.
        if rows:
            for follower in [*self._followers]:
                follower.offer(rows)
                if follower.lagging:
                    self._followers.discard(follower)
            self._position = rows[-1].position
        if waiting:
            waiting = await self._store.write(sequence) > 0
        return waiting or len(rows) >= PAGE

    def _look(self, conn: Connection, position: int | None) -> tuple[bool, Sequence[Event]]:
        waiting, more = False, position is not None
        if conn.dialect.name == "postgresql":  # four times a second, so in one short question
            cursor = _END if position is None else position
            waiting, more = conn.execute(_NEWS, {"cursor": cursor}).one()
        return waiting, after(conn, position) if more and position is not None else []
