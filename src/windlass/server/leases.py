"""Who leads: a row per office with its holder, an epoch and an end.

Leading is for speed, the epoch is for safety. A leader may be stopped for an hour and wake up
believing that it still leads; so every transaction that acts for the office calls `check`, which
compares the epoch in the same transaction. A session lock would not do: a stopped holder keeps
it, and one whose connection broke does not know that it lost it.

The table lives here, beside the only functions that may touch it. Time is the database's own
clock, so that servers need not agree on theirs; on SQLite, where one server holds the file, it
is that server's.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    String,
    Table,
    bindparam,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.exc import IntegrityError

from windlass.core.errors import Fenced
from windlass.server.store.base import Store
from windlass.server.store.metadata import Millis, metadata

leases = Table(
    "leases",
    metadata,
    Column("name", String(40), primary_key=True),
    Column("holder", String(200), nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("until_ms", Millis, nullable=False),
)


async def try_lead(
    store: Store, name: str, holder: str, ttl_ms: int, *, dead: str = ""
) -> int | None:
    """The epoch, if `holder` leads from now on; None while another's lease runs.

    `holder` must be unique to the process, not to the machine: a holder that asks again while
    it leads keeps its epoch. A holder whose name begins with `dead` is known to be dead: its lease
    is not waited for.
    """

    def take(conn: Connection) -> int | None:
        now = database_now_ms(conn)
        row = conn.execute(select(leases).where(leases.c.name == name).with_for_update()).first()
        values = {"holder": holder, "until_ms": now + ttl_ms}
        if row is None:
            conn.execute(insert(leases).values(name=name, epoch=1, **values))
            return 1
        ended = bool(dead) and row.holder.startswith(dead)
        if row.holder != holder and row.until_ms > now and not ended:
            return None
        mine = row.holder == holder and row.until_ms > now
        epoch: int = row.epoch if mine else row.epoch + 1
        conn.execute(update(leases).where(leases.c.name == name).values(epoch=epoch, **values))
        return epoch

    try:
        return await store.write(take)
    except IntegrityError:  # Another made the row between our look and our insert.
        return await store.write(take)


async def renew(store: Store, name: str, epoch: int, ttl_ms: int) -> bool:
    """Lead on for `ttl_ms` from now; False when another has taken over.

    A lease that ran out is still renewed while nobody wanted it: its epoch is the newest.
    """

    def extend(conn: Connection) -> bool:
        done = conn.execute(
            update(leases)
            .where(leases.c.name == name, leases.c.epoch == epoch)
            .values(until_ms=database_now_ms(conn) + ttl_ms)
        )
        return done.rowcount == 1

    return await store.write(extend)


async def release(store: Store, name: str, epoch: int) -> None:
    """Let the next one lead at once; for a clean end."""
    await store.write(
        lambda conn: (
            conn.execute(
                update(leases)
                .where(leases.c.name == name, leases.c.epoch == epoch)
                .values(until_ms=0, holder="")
            )
            and None
        )
    )


_NEWEST = (
    select(leases.c.epoch).where(leases.c.name == bindparam("lease")).with_for_update(read=True)
)
"""Asked in every transaction of who leads, so built once."""


def check(conn: Connection, name: str, epoch: int) -> None:
    """Raise `Fenced` unless `epoch` is the office's newest; nobody takes it over before this
    transaction ends (the row is share-locked: short transactions, please)."""
    found = conn.scalar(_NEWEST, {"lease": name})
    if found != epoch:
        raise Fenced(
            f"this server no longer leads {name!r}: its epoch is {epoch}, the newest {found}"
        )


def end_all(conn: Connection) -> None:
    """End every lease; only for who knows that no other process uses the database."""
    conn.execute(update(leases).values(until_ms=0))


def database_now_ms(conn: Connection) -> int:
    if conn.dialect.name == "postgresql":
        return int(
            conn.execute(
                text("SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint")
            ).scalar_one()
        )
    return int(conn.info["clock"].now_ms())
