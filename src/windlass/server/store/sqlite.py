"""The store in one SQLite file, for one server.

    write(fn) ─┐              ┌─ BEGIN IMMEDIATE
    write(fn) ─┼─► queue ────►│  fn, fn, fn …   (one fails: ROLLBACK, BEGIN, and for each
    write(fn) ─┘  one thread  │                  SAVEPOINT, fn, RELEASE or ROLLBACK TO)
                              └─ COMMIT (one fsync) ─► all answers, in one call to the loop

A commit costs one fsync whatever it holds, so while one is under way the next batch gathers by
itself: throughput grows with the load and a lone write waits for nobody. There is one writer, so
nothing is ever "locked". Readers are a bounded pool of threads, each with a snapshot of its own
that may not last longer than `read_seconds`: an endless reader would keep the write-ahead log
from being folded back, and the log would grow without bound.

Transactions are spelled out on the driver's connection (`isolation_level=None`); SQLAlchemy's
own begin and commit are never used here.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import StaticPool

from windlass.core.errors import Internal, StorageFull, Unavailable, WindlassError
from windlass.server.clock import Clock, SystemClock
from windlass.server.store.base import deliverable
from windlass.server.store.claim import Claim, refuse_network_file_system
from windlass.server.store.hints import Callback, Hints, touched

T = TypeVar("T")
Ask = tuple[Callable[[Connection], Any], "asyncio.Future[Any]", asyncio.AbstractEventLoop]
Answer = tuple["asyncio.Future[Any]", Any, BaseException | None]

log = logging.getLogger(__name__)


@dataclass
class Counters:
    """What the writer has done: `writes` per `commits` says how well commits are shared."""

    writes: int = 0
    commits: int = 0
    largest_batch: int = 0
    checkpoints: int = 0


class SqliteStore:
    """Open with `await SqliteStore.open(path)`. Holds the file's claim until `close`."""

    dialect = "sqlite"

    def __init__(
        self,
        path: Path,
        claim: Claim,
        *,
        synchronous: str = "FULL",
        readers: int = 4,
        read_seconds: float = 30.0,
        batch: int = 256,
        wal_bytes: int = 16 << 20,
        clock: Clock | None = None,
    ) -> None:
        self.path = path
        self.counters = Counters()
        self._claim = claim
        self._synchronous = synchronous
        self._read_seconds = read_seconds
        self._batch = batch
        self._wal_bytes = wal_bytes
        self._clock = clock or SystemClock()
        self._hints = Hints()
        self._asks: SimpleQueue[Ask | None] = SimpleQueue()
        self._asked = 0.0
        self._closed = False
        self._opened: asyncio.Future[None] | None = None
        self._folding: threading.Thread | None = None
        self._writer = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._readers = ThreadPoolExecutor(readers, thread_name_prefix="store-reader")
        self._reader = threading.local()
        self._reading: list[tuple[Connection, sqlite3.Connection]] = []

    @classmethod
    async def open(
        cls, path: Path | str, claim: Claim | None = None, **options: Any
    ) -> SqliteStore:
        """Raises `Conflict` when another process has the file, `Internal` when it is damaged."""
        path = Path(path).absolute()
        refuse_network_file_system(path.parent)
        claim = claim or Claim(path)
        try:
            store = cls(path, claim, **options)
            store._opened = asyncio.get_running_loop().create_future()
            store._writer.start()
            await store._opened
        except BaseException:
            claim.release(clean=not claim.unclean)
            raise
        return store

    async def write(self, fn: Callable[[Connection], T]) -> T:
        if self._closed:
            raise Unavailable("the database is closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._asked = time.monotonic()
        self._asks.put((fn, future, loop))
        return await future

    async def read(self, fn: Callable[[Connection], T]) -> T:
        if self._closed:
            raise Unavailable("the database is closed")
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, fn)

    def listen(self, topic: str, callback: Callback) -> Callback:
        return self._hints.listen(topic, callback)

    def quiet_seconds(self) -> float:
        return time.monotonic() - self._asked

    async def close(self) -> None:
        """What was asked before is done first."""
        if self._closed:
            return
        self._closed = True
        self._asks.put(None)
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        self._readers.shutdown(wait=True)
        for conn, raw in self._reading:
            conn.invalidate()
            raw.close()
        self._writer.join()
        self._claim.release()

    # The writer's thread

    def _run(self) -> None:
        opened = self._opened
        assert opened is not None
        loop = opened.get_loop()
        try:
            raw = connect(self.path, self._synchronous)
            # Not in every fiftieth commit, which would wait for pages all over a large file: the
            # log is folded back in a quiet moment, or when it has grown to `wal_bytes`.
            raw.execute("PRAGMA wal_autocheckpoint=0").fetchall()
            if self._claim.unclean:
                check(raw, self.path)
            conn = adopt(raw, self._clock)
        except BaseException as error:
            deliver(loop, [(opened, None, self._explain(error))])
            return
        deliver(loop, [(opened, None, None)])
        try:
            self._serve(conn, raw)
        finally:
            if self._folding is not None:
                self._folding.join()
            self._checkpoint(raw)
            conn.invalidate()
            raw.close()

    def _serve(self, conn: Connection, raw: sqlite3.Connection) -> None:
        idle_seconds: float | None = None
        while True:
            try:
                ask = self._asks.get(timeout=idle_seconds)
            except Empty:
                # Quiet after some work: fold the log back once, then wait without a timer.
                self._checkpoint(raw)
                idle_seconds = None
                continue
            batch: list[Ask] = []
            while ask is not None:
                batch.append(ask)
                if len(batch) >= self._batch:
                    break
                try:
                    ask = self._asks.get_nowait()
                except Empty:
                    break
            if batch:
                self._answer(batch, self._write(conn, raw, batch))
                self._bound_log(raw)
                idle_seconds = 5.0
            if ask is None:
                return

    def _write(self, conn: Connection, raw: sqlite3.Connection, batch: list[Ask]) -> list[Answer]:
        """Run a batch in one transaction; what each gets is decided when COMMIT is through.

        All in a row first, which spares each its savepoint; if one fails, everything is undone
        and run again with them, so that only that one is lost."""
        answers: list[Answer] = []
        try:
            begin(raw)
            try:
                for fn, future, _ in batch:
                    if not future.cancelled():
                        answers.append((future, fn(conn), None))
                        if not raw.in_transaction:
                            raise Internal(f"{fn} ended the transaction of its neighbours")
            except BaseException:
                if not raw.in_transaction:  # SQLite gave it up, or somebody ended it
                    raise
                touched(conn)
                answers = []
                begin(raw)
                self._write_apart(conn, raw, batch, answers)
            raw.execute("COMMIT")
        except BaseException as error:
            reason = self._explain(error)
            touched(conn)
            with suppress(sqlite3.Error):
                raw.rollback()
            kept = {id(future): problem for future, _, problem in answers if problem}
            return [(f, None, kept.get(id(f)) or copy_of(reason)) for _, f, _ in batch]
        self.counters.commits += 1
        self.counters.writes += len(answers)
        self.counters.largest_batch = max(self.counters.largest_batch, len(answers))
        self._hints.fire(touched(conn))
        return answers

    def _write_apart(
        self, conn: Connection, raw: sqlite3.Connection, batch: list[Ask], answers: list[Answer]
    ) -> None:
        for fn, future, _ in batch:
            if future.cancelled():
                continue
            raw.execute("SAVEPOINT one")
            try:
                answers.append((future, fn(conn), None))
            except BaseException as error:
                if not raw.in_transaction:  # SQLite gave the whole transaction up
                    raise
                raw.execute("ROLLBACK TO one")
                answers.append((future, None, self._explain(error)))
            raw.execute("RELEASE one")

    def _answer(self, batch: list[Ask], answers: list[Answer]) -> None:
        loops = {id(loop): loop for _, _, loop in batch}
        if len(loops) == 1:
            deliver(batch[0][2], answers)
            return
        for loop in loops.values():
            deliver(loop, [answer for answer in answers if answer[0].get_loop() is loop])

    def _bound_log(self, raw: sqlite3.Connection) -> None:
        """Past `wal_bytes` another thread folds the log back while writes go on; then, or past
        four times as much, what is left is done here and the file begins anew."""
        try:
            size = os.stat(f"{self.path}-wal").st_size
        except OSError:
            return
        if size <= self._wal_bytes:
            return
        if self._folding is None:
            self._folding = threading.Thread(target=self._fold, name="store-fold", daemon=True)
            self._folding.start()
        elif not self._folding.is_alive() or size > 4 * self._wal_bytes:
            self._folding.join()
            self._folding = None
            self._checkpoint(raw)

    def _fold(self) -> None:
        """Most of a checkpoint, without a lock that a writer or a reader would wait for."""
        try:
            with closing(connect(self.path, self._synchronous)) as raw:
                raw.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except sqlite3.Error as error:
            log.warning("the write-ahead log of %s was not folded back: %s", self.path, error)

    def _checkpoint(self, raw: sqlite3.Connection) -> None:
        try:
            # Waits only shortly for readers to leave: writers wait behind this.
            raw.execute("PRAGMA busy_timeout=100")
            raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self.counters.checkpoints += 1
        except sqlite3.Error as error:
            log.warning("the write-ahead log of %s was not folded back: %s", self.path, error)
        finally:
            with suppress(sqlite3.Error):
                raw.execute("PRAGMA busy_timeout=5000")

    # The readers' threads

    def _read(self, fn: Callable[[Connection], T]) -> T:
        reader = self._reader
        try:
            if not hasattr(reader, "conn"):
                self._open_reader()
            reader.deadline = time.monotonic() + self._read_seconds
            reader.raw.execute("BEGIN")
            try:
                return fn(reader.conn)
            finally:
                if reader.raw.in_transaction:
                    reader.raw.execute("ROLLBACK")
        except (DBAPIError, sqlite3.Error, StopIteration) as error:
            explained = deliverable(self._explain(error))
            if explained is error:
                raise
            raise explained from error

    def _open_reader(self) -> None:
        reader = self._reader
        raw = connect(self.path, self._synchronous)
        raw.execute("PRAGMA query_only=ON")
        raw.set_progress_handler(lambda: time.monotonic() > reader.deadline, 100_000)
        reader.raw, reader.conn = raw, adopt(raw, self._clock)
        self._reading.append((reader.conn, raw))

    def _explain(self, error: BaseException) -> BaseException:
        return explain(error, self.path)


def connect(path: Path | str, synchronous: str) -> sqlite3.Connection:
    """A connection with our settings, in autocommit: transactions are spelled out."""
    raw = sqlite3.connect(str(path), isolation_level=None, check_same_thread=False)
    try:
        raw.execute("PRAGMA busy_timeout=5000")
        raw.execute("PRAGMA journal_mode=WAL").fetchall()
        raw.execute(f"PRAGMA synchronous={synchronous}")
        raw.execute("PRAGMA foreign_keys=ON")
        raw.execute("PRAGMA temp_store=MEMORY")
    except BaseException:
        raw.close()
        raise
    return raw


def begin(raw: sqlite3.Connection) -> None:
    """A new transaction, whatever became of the one before."""
    if raw.in_transaction:
        raw.execute("ROLLBACK")
    raw.execute("BEGIN IMMEDIATE")


def adopt(raw: sqlite3.Connection, clock: Clock) -> Connection:
    """SQLAlchemy's face of a driver connection that stays open as long as we do."""
    engine = create_engine(
        "sqlite://", creator=lambda: raw, poolclass=StaticPool, pool_reset_on_return=None
    )
    conn = engine.connect()
    conn.info["clock"] = clock
    conn.info["raw"] = raw  # for `Prepared`
    return conn


def check(raw: sqlite3.Connection, path: Path) -> None:
    """After a kill or a power cut: is the file whole?"""
    found = [row[0] for row in raw.execute("PRAGMA quick_check(5)")]
    if found != ["ok"]:
        raise Internal(
            f"the database {path} is damaged: {'; '.join(found)}",
            hint="restore the last backup: windlass backup restore",
        )


def deliver(loop: asyncio.AbstractEventLoop, answers: list[Answer]) -> None:
    try:
        loop.call_soon_threadsafe(settle, answers)
    except RuntimeError:
        pass  # The loop is closed: those who asked are gone.


def settle(answers: list[Answer]) -> None:
    for future, result, error in answers:
        if future.done():
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(deliverable(error))


def copy_of(error: BaseException) -> BaseException:
    """One failure for many callers: each gets its own, since a raise writes its traceback."""
    if isinstance(error, WindlassError):
        twin: BaseException = type(error)(error.message, hint=error.hint, **error.details)
        twin.__cause__ = error.__cause__
        return twin
    return error


def explain(error: BaseException, path: Path) -> BaseException:
    """Our word for what the database's own trouble is; anything else as it is."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    if not isinstance(cause, sqlite3.Error):
        return error
    primary = (getattr(cause, "sqlite_errorcode", None) or 0) & 0xFF
    ours: WindlassError | None = None
    if primary == sqlite3.SQLITE_FULL or (primary in _BY_DISK and is_full(path)):
        ours = StorageFull(
            f"the disk under {path} is full",
            hint="free some space there; the server goes on by itself",
            retry_after_seconds=5,
        )
    elif primary == sqlite3.SQLITE_INTERRUPT:
        ours = Unavailable("the database took too long to answer", retry_after_seconds=1)
    elif primary in _BY_DISK or primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        ours = Unavailable(f"the database {path} cannot be used: {cause}", retry_after_seconds=1)
    elif primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        ours = Internal(
            f"the database {path} is damaged: {cause}",
            hint="restore the last backup: windlass backup restore",
        )
    if ours is None:
        return error
    ours.__cause__ = error
    return ours


_BY_DISK = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)


def is_full(path: Path) -> bool:
    """No blocks or no inodes left: SQLite reports some of these as plain I/O errors."""
    try:
        room = os.statvfs(path.parent)
    except OSError:
        return False
    return room.f_bavail == 0 or (room.f_files > 0 and room.f_favail == 0)
