"""Access keys: several for each user, each shown once, replaced without a gap.

A key's secret is sealed, not hashed: an HMAC needs it. A key that is rotated goes on for a stated
time beside the one that replaces it, so that whoever uses it can change over.
"""

from __future__ import annotations

import base64
import secrets
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, insert, select, update

from windlass.core.errors import Conflict, NotFound
from windlass.server.access.sealing import Sealer
from windlass.server.access.tables import keys, projects

MOST = 20
"""So many live keys a user may have."""


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key as it is shown, once."""

    access_key: str
    secret_key: str
    user: str
    project: str


def make(
    conn: Connection,
    sealer: Sealer,
    *,
    user_id: str,
    user: str,
    project_id: str,
    project: str,
    name: str = "",
    now_ms: int,
    bounded: bool = True,
) -> NewKey:
    """One more key for a user. Raises Conflict when it has too many (if `bounded`)."""
    live = [row for row in listing(conn, user_id) if not dead(row, now_ms)]
    if bounded and len(live) >= MOST:
        raise Conflict(f"{user} has {MOST} keys", hint="revoke one first: windlass key ls")
    new = NewKey(new_access_key(), new_secret(), user, project)
    conn.execute(
        insert(keys).values(
            access_key=new.access_key,
            name=name,
            user_id=user_id,
            project_id=project_id,
            secret=sealer.seal(new.secret_key, new.access_key, project_id, "1"),
            kek=sealer.kek,
            version=1,
            created_ms=now_ms,
            disabled=False,
        )
    )
    return new


def listing(conn: Connection, user_id: str) -> list[dict[str, Any]]:
    """Newest first, the revoked ones too; never a secret."""
    rows = conn.execute(
        select(
            keys.c.access_key, keys.c.name, keys.c.user_id, keys.c.project_id, keys.c.created_ms,
            keys.c.last_used_ms, keys.c.expires_ms, keys.c.disabled,
            projects.c.name.label("project"),
        )
        .join(projects, projects.c.id == keys.c.project_id)
        .where(keys.c.user_id == user_id)
        .order_by(keys.c.created_ms.desc(), keys.c.access_key)
    )  # fmt: skip
    return [dict(row) for row in rows.mappings()]


def find(conn: Connection, user_id: str, access_key: str) -> dict[str, Any]:
    """Raises NotFound for one that is not this user's."""
    for row in listing(conn, user_id):
        if row["access_key"] == access_key:
            return row
    raise NotFound(f"no key {access_key}", hint="`windlass key ls` lists those there are")


def revoke(conn: Connection, user_id: str, access_key: str) -> None:
    """Dead at once; a second time is no error. Raises NotFound."""
    find(conn, user_id, access_key)
    conn.execute(update(keys).where(keys.c.access_key == access_key).values(disabled=True))


def retire(conn: Connection, user_id: str, access_key: str, at_ms: int, now_ms: int) -> None:
    """It was replaced, and dies at that time. Raises NotFound, Conflict for a dead one."""
    row = find(conn, user_id, access_key)
    if dead(row, now_ms):
        raise Conflict(f"key {access_key} is revoked", hint="`windlass key create` makes one")
    if row["expires_ms"] is not None:
        raise Conflict(f"key {access_key} was replaced already", hint="rotate the newer one")
    conn.execute(update(keys).where(keys.c.access_key == access_key).values(expires_ms=at_ms))


def dead(row: dict[str, Any], now_ms: int) -> bool:
    return bool(row["disabled"]) or (row["expires_ms"] is not None and row["expires_ms"] <= now_ms)


def new_access_key() -> str:
    return "WL" + base64.b32encode(secrets.token_bytes(12)).decode()[:18]


def new_secret() -> str:
    return secrets.token_urlsafe(30)
