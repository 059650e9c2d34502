"""The store in PostgreSQL, for one server or many: psycopg 3 on a pool of threads.

Each `write` is one READ COMMITTED transaction; functions lock the rows they decide by. Each
`read` is one REPEATABLE READ, READ ONLY transaction: a snapshot.

What a failure means depends on when it came:

    connecting, or before COMMIT was sent   nothing happened: try once more on a new connection
                                            (an idle socket may have died), then Unavailable
    serialisation failure, deadlock         nothing happened: run the function again
    COMMIT sent, connection broken          nobody knows: Unavailable(outcome="unknown")
    COMMIT refused by the server            nothing happened: the server's own error

So there is no ping before each use: the first statement is the ping.
"""

from __future__ import annotations

import asyncio
import functools
import math
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import QueuePool

from windlass.core.errors import InvalidInput, StorageFull, Unavailable, WindlassError
from windlass.server.store.base import deliverable
from windlass.server.store.hints import Callback, Hints, touched

T = TypeVar("T")

AGAIN = ("40001", "40P01")
"""Serialisation failure, deadlock: the transaction is undone and may be run again."""

READ_ONLY = "25006"

AWAY = ("08", "57P", "53", "55P03", "57014", READ_ONLY, "25P03", "25P04", "58", "XX001", "F0")
"""Beginnings of the SQLSTATEs that say something about the server, not about the statement:
connection, shutdown, resources, lock and statement timeouts, read-only (a demoted primary)."""


class PostgresStore:
    dialect = "postgresql"

    def __init__(
        self,
        url: str,
        *,
        connections: int = 8,
        connect_seconds: int = 5,
        statement_seconds: float = 30.0,
        lock_seconds: float = 10.0,
        idle_seconds: float = 10.0,
        tries: int = 6,
    ) -> None:
        self._tries = tries
        self._hints = Hints()
        self._closed = False
        self._engine = engine_for(
            url,
            connections=connections,
            connect_seconds=connect_seconds,
            settings={
                "statement_timeout": f"{statement_seconds:g}s",
                "lock_timeout": f"{lock_seconds:g}s",
                # A stopped process must not hold its row locks for longer than this.
                "idle_in_transaction_session_timeout": f"{idle_seconds:g}s",
                "synchronous_commit": "on",
            },
        )
        self._snapshots = self._engine.execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        )
        self._threads = ThreadPoolExecutor(connections, thread_name_prefix="store")

    @classmethod
    async def open(cls, url: str, **options: Any) -> PostgresStore:
        """Raises `Unavailable` when no server answers."""
        store = cls(url, **options)
        try:
            await store.read(lambda conn: conn.exec_driver_sql("SELECT 1").scalar())
        except BaseException:
            await store.close()
            raise
        return store

    async def write(self, fn: Callable[[Connection], T]) -> T:
        return await self._call(self._engine, fn)

    async def read(self, fn: Callable[[Connection], T]) -> T:
        return await self._call(self._snapshots, fn)

    def listen(self, topic: str, callback: Callback) -> Callback:
        return self._hints.listen(topic, callback)

    def quiet_seconds(self) -> float:
        return math.inf

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await asyncio.to_thread(self._threads.shutdown)
        self._engine.dispose()

    async def _call(self, engine: Engine, fn: Callable[[Connection], T]) -> T:
        if self._closed:
            raise Unavailable("the database is closed")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._run, engine, fn)

    def _run(self, engine: Engine, fn: Callable[[Connection], T]) -> T:
        reconnected = False
        for left in range(self._tries - 1, -1, -1):
            try:
                return self._once(engine, fn)
            except DBAPIError as error:
                if sqlstate(error) in AGAIN and left:
                    time.sleep(random.uniform(0, 0.01 * 2 ** (self._tries - left)))
                    continue
                if error.connection_invalidated and not reconnected:
                    reconnected = True
                    continue
                explained = explain(error)
                if sqlstate(error) == READ_ONLY:
                    if engine is self._snapshots:
                        raise  # a read that writes is our own mistake
                    self._engine.dispose()  # the primary was demoted: find the new one
                if explained is None:
                    raise
                raise explained from error
            except StopIteration as error:
                raise deliverable(error) from error
            except PoolTimeout as error:
                raise Unavailable(str(error), retry_after_seconds=1) from error
        raise AssertionError("the last try returns or raises")

    def _once(self, engine: Engine, fn: Callable[[Connection], T]) -> T:
        with engine.connect() as conn:
            conn.info.pop("touched", None)
            result = fn(conn)
            if engine is self._snapshots:
                with suppress(DBAPIError):  # there is nothing to keep or to lose
                    conn.rollback()
                return result
            try:
                conn.commit()
            except DBAPIError as error:
                if outcome_unknown(error):
                    raise Unavailable(
                        "the connection to the database broke while it committed",
                        hint="ask again with the same idempotency key: it settles what happened",
                        outcome="unknown",
                        retry_after_seconds=1,
                    ) from error
                raise
            topics = touched(conn)
        self._hints.fire(topics)
        return result


def engine_for(
    url: str | URL, *, connections: int, connect_seconds: int, settings: dict[str, str]
) -> Engine:
    """An engine whose connections carry our settings.

    They are SET after the connect and not sent as startup options, which poolers refuse.
    """
    try:
        import psycopg  # noqa: F401  (an extra: a server on SQLite does not have it)
    except ImportError as error:
        raise InvalidInput(
            "PostgreSQL needs the driver psycopg", hint="pip install 'windlass[postgres]'"
        ) from error
    engine = create_engine(
        make_url(url).set(drivername="postgresql+psycopg"),
        poolclass=QueuePool,
        pool_size=connections,
        max_overflow=0,
        pool_timeout=30,
        connect_args={
            "connect_timeout": connect_seconds,
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 20_000,
            "application_name": "windlass",
        },
    )
    event.listen(engine, "connect", functools.partial(_settle, settings))
    event.listen(engine, "checkout", _neither)
    return engine


def _neither(raw: Any, record: Any, proxy: Any) -> None:
    """Who was used for a snapshot comes back to the pool as one for READ WRITE, which a standby
    refuses as something that it cannot do (0A000), not as a write (25006): ask for neither."""
    if raw.read_only is not None:
        raw.read_only = None


def _settle(settings: dict[str, str], raw: Any, record: Any) -> None:
    calls = ", ".join(
        f"set_config('{name}', '{value}', false)" for name, value in settings.items()
    )
    with raw.cursor() as cursor:
        cursor.execute(f"SELECT {calls}")
    raw.commit()


def sqlstate(error: DBAPIError) -> str:
    return getattr(error.orig, "sqlstate", None) or ""


def outcome_unknown(error: DBAPIError) -> bool:
    """Whether a failed COMMIT may have taken place.

    A server that ends a session in COMMIT (57P…) may have committed already; any other error
    it reports itself means that it has not.
    """
    code = sqlstate(error)
    return code.startswith(("57P", "08", "58")) if code else True


def explain(error: DBAPIError) -> WindlassError | None:
    """Our word for trouble of the server's; None for what is wrong with the statement."""
    code = sqlstate(error)
    if code == "53100":
        return StorageFull(
            "the disk under the database is full",
            hint="free some space there; the server goes on by itself",
            retry_after_seconds=5,
        )
    if code in AGAIN:
        return Unavailable("the database is too contended", retry_after_seconds=1)
    if error.connection_invalidated or code.startswith(AWAY) or unconnected(error):
        return Unavailable(
            f"the database cannot be used: {one_line(error.orig)}", retry_after_seconds=1
        )
    return None


def unconnected(error: DBAPIError) -> bool:
    """An OperationalError without an SQLSTATE comes from the client library: no connection."""
    return not sqlstate(error) and isinstance(error, OperationalError)


def one_line(error: BaseException | None) -> str:
    return " ".join(str(error).split())[:300]
