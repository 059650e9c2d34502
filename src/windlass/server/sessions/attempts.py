"""How often a password may be guessed: per account and per address, counted in the database, so
that several servers count together.

An attempt is counted before its password is looked at, and taken back when it was right: many at
once cannot pass the count while the first is still being checked. Who has used up the free ones
waits 1 s, 2 s, 4 s …; an attempt within that time is refused unseen, and does not prolong it.
Names that nobody has are counted like others.
"""

from __future__ import annotations

import hashlib
import ipaddress
from dataclasses import dataclass

from sqlalchemy import Connection, delete, func, select, text, update

from windlass.core.errors import LimitExceeded
from windlass.server.sessions.tables import login_attempts as table

FORGET_MS = 3_600_000
MAX_ROWS = 20_000


@dataclass(frozen=True, slots=True)
class Rule:
    free: int
    """So many wrong ones without a wait."""
    longest_ms: int


ACCOUNT = Rule(free=5, longest_ms=5 * 60_000)
ADDRESS = Rule(free=30, longest_ms=15 * 60_000)


_APPEAR = text(
    "INSERT INTO login_attempts (key, count, last_ms, until_ms) VALUES (:key, 0, :now, 0)"
    " ON CONFLICT (key) DO NOTHING"
)


def begin(conn: Connection, user: str, address: str, now_ms: int) -> None:
    """Count an attempt, or `LimitExceeded` when it comes too soon."""
    for key, rule in ((account_key(user), ACCOUNT), (address_key(address), ADDRESS)):
        conn.execute(_APPEAR, {"key": key, "now": now_ms})
        row = conn.execute(
            select(table.c["count"], table.c.last_ms, table.c.until_ms)
            .where(table.c.key == key)
            .with_for_update()
        ).one()
        known, last_ms, until_ms = row
        if until_ms > now_ms:
            seconds = -(-(until_ms - now_ms) // 1000)
            raise LimitExceeded(
                f"too many wrong passwords: try again in {seconds} s",
                retry_after_seconds=seconds,
            )
        count = 1 if now_ms - last_ms > FORGET_MS else known + 1
        over = count - rule.free
        wait = min(rule.longest_ms, 1000 << min(over - 1, 30)) if over > 0 else 0
        conn.execute(
            update(table)
            .where(table.c.key == key)
            .values(count=count, last_ms=now_ms, until_ms=now_ms + wait)
        )
    _bound(conn)


def right(conn: Connection, user: str, address: str) -> None:
    """The password was right: forget the account's, and take back the one of the address (only
    that: an account of one's own must not clear the way to those of others)."""
    conn.execute(delete(table).where(table.c.key == account_key(user)))
    conn.execute(
        update(table)
        .where(table.c.key == address_key(address), table.c.count > 0)
        .values(count=table.c.count - 1, until_ms=0)
    )


def sweep(conn: Connection, now_ms: int) -> int:
    old = now_ms - FORGET_MS
    return conn.execute(delete(table).where(table.c.last_ms < old)).rowcount


def account_key(user: str) -> str:
    return "user:" + hashlib.sha256(user.casefold().encode()).hexdigest()[:48]


def address_key(address: str) -> str:
    """One address; of IPv6 the /64, which is what one subscriber gets."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return "from:" + hashlib.sha256(address.encode()).hexdigest()[:48]
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return f"from:{found.ipv4_mapped}"
        found = ipaddress.ip_network((found, 64), strict=False).network_address
    return f"from:{found}"


def _bound(conn: Connection) -> None:
    """Names that are made up must not fill the disk: the oldest go."""
    count = conn.execute(select(func.count()).select_from(table)).scalar_one()
    if count > MAX_ROWS:
        oldest = select(table.c.key).order_by(table.c.last_ms).limit(MAX_ROWS // 10)
        conn.execute(delete(table).where(table.c.key.in_(oldest.scalar_subquery())))
