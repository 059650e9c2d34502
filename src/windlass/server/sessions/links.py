"""Links that are good once, for a short time: into the browser and to a new password. Only the
SHA-256 of what makes one good is kept. The way back from another issuer is good once too, but made
elsewhere: of it is kept that it was used."""

from __future__ import annotations

import hashlib
import secrets
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, text

from windlass.server.sessions.tables import login_links as table

BROWSER, PASSWORD, OIDC = "browser", "password", "oidc"
MOST = {BROWSER: 10, PASSWORD: 3}
"""So many of one user may wait at once."""


def make(
    conn: Connection,
    purpose: str,
    user_id: str,
    *,
    seconds: float,
    now_ms: int,
) -> str:
    """A new one; of a user's too many the oldest dies."""
    sweep(conn, now_ms)
    same = (table.c.purpose == purpose) & (table.c.user_id == user_id)
    count = conn.execute(select(func.count()).select_from(table).where(same)).scalar_one()
    if count >= MOST[purpose]:
        oldest = select(table.c.hash).where(same).order_by(table.c.expires_ms).limit(1)
        conn.execute(delete(table).where(table.c.hash.in_(oldest.scalar_subquery())))
    token = secrets.token_urlsafe(32)
    conn.execute(
        insert(table).values(
            hash=digest(token), purpose=purpose, user_id=user_id,
            expires_ms=now_ms + round(seconds * 1000),
        )
    )  # fmt: skip
    return token


def look(conn: Connection, purpose: str, token: str, now_ms: int) -> Row[Any] | None:
    """What the link is for, without using it."""
    return conn.execute(
        select(table)
        .where(table.c.hash == digest(token), table.c.purpose == purpose)
        .where(table.c.expires_ms > now_ms)
    ).first()


def take(conn: Connection, purpose: str, token: str, now_ms: int) -> Row[Any] | None:
    """What the link is for, and its end: of many who try, one gets it."""
    found = look(conn, purpose, token, now_ms)
    if found is None:
        return None
    gone = conn.execute(delete(table).where(table.c.hash == found.hash)).rowcount
    return found if gone == 1 else None


def once(conn: Connection, purpose: str, token: str, *, seconds: float, now_ms: int) -> bool:
    """Whether this is its first use, of many who try at once too. Remembered for so long."""
    sweep(conn, now_ms)
    values = {
        "hash": digest(token), "purpose": purpose, "until": now_ms + round(seconds * 1000)
    }  # fmt: skip
    return conn.execute(_ONCE, values).rowcount == 1


_ONCE = text(
    "INSERT INTO login_links (hash, purpose, expires_ms) VALUES (:hash, :purpose, :until)"
    " ON CONFLICT (hash) DO NOTHING"
)


def drop(conn: Connection, user_id: str) -> None:
    """All of a user."""
    conn.execute(delete(table).where(table.c.user_id == user_id))


def sweep(conn: Connection, now_ms: int) -> None:
    conn.execute(delete(table).where(table.c.expires_ms <= now_ms))


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
