"""API tokens: for people and tools that cannot sign.

    wl_ <43 letters and digits: 256 random bits> <6: CRC-32 of what is before>

The prefix and the checksum let scanners of code and logs find a leaked one without asking a
server. The database keeps the SHA-256 alone: a random token needs no slow hash. A token is of one
user in one project, narrowed to its scopes, and dies at its time, with its user's epoch (a new
password, a disabled user), or when it is revoked.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import string
import zlib
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, insert, select, update

from windlass.core.access import SCOPES, Principal
from windlass.core.errors import InvalidInput, NotFound
from windlass.server.access.principals import principal_of
from windlass.server.access.tables import projects, tokens, users

PREFIX = "wl_"
DAY_MS = 86_400_000
DEFAULT_MS = 30 * DAY_MS
LONGEST_MS = 366 * DAY_MS
MOST = 100
"""So many live tokens a user may have."""

_LETTERS = string.digits + string.ascii_letters
_FORM = re.compile(rb"wl_[0-9A-Za-z]{49}")
_RANDOM = 43
_CHECKED = 6


def new_token() -> str:
    body = PREFIX + "".join(secrets.choice(_LETTERS) for _ in range(_RANDOM))
    return body + _checksum(body)


def well_formed(token: bytes) -> bool:
    """Whether it can be one of ours: of the form, and its checksum right."""
    if _FORM.fullmatch(token) is None:
        return False
    text = token.decode()
    return _checksum(text[:-_CHECKED]) == text[-_CHECKED:]


def hash_of(token: str | bytes) -> str:
    return hashlib.sha256(token.encode() if isinstance(token, str) else token).hexdigest()


def make(
    conn: Connection,
    who: Principal,
    user_id: str,
    *,
    name: str,
    scopes: Sequence[str],
    lives_ms: int,
    now_ms: int,
) -> tuple[dict[str, Any], str]:
    """A token of that user in the project of the call; its row, and the token to show once."""
    if not scopes:
        raise InvalidInput("scopes: name at least one", hint=f"known: {', '.join(SCOPES)}")
    if wrong := [scope for scope in scopes if scope not in SCOPES]:
        raise InvalidInput(
            f"scopes: no scope {wrong[0]!r}; known: {', '.join(SCOPES)}",
            fields=[{"field": "scopes", "found": wrong[0], "allowed": ", ".join(SCOPES)}],
        )
    if not 60_000 <= lives_ms <= LONGEST_MS:
        raise InvalidInput("expires: from a minute to 366 days", hint="30 days when left out")
    if not who.project_id:
        raise InvalidInput("a token is of a project: name one", hint="--project NAME")
    of_user = conn.execute(select(users.c.epoch).where(users.c.id == user_id)).scalar_one()
    live = [row for row in listing(conn, user_id) if row["expires_ms"] > now_ms]
    if len(live) >= MOST:
        raise InvalidInput(f"a user has at most {MOST} live tokens", hint="revoke one first")
    token = new_token()
    row = {
        "id": uuid4().hex,
        "hash": hash_of(token),
        "name": name,
        "user_id": user_id,
        "project_id": who.project_id,
        "scopes": list(dict.fromkeys(scopes)),
        "epoch": of_user,
        "created_ms": now_ms,
        "expires_ms": now_ms + lives_ms,
        "last_used_ms": None,
        "disabled": False,
    }
    conn.execute(insert(tokens).values(row))
    return {**row, "project": who.project_name}, token


def listing(conn: Connection, user_id: str) -> list[dict[str, Any]]:
    """The tokens of a user that can still be used, newest first, those of an old epoch apart."""
    rows = conn.execute(
        select(tokens, projects.c.name.label("project"))
        .join(projects, projects.c.id == tokens.c.project_id)
        .join(users, users.c.id == tokens.c.user_id)
        .where(tokens.c.user_id == user_id)
        .where(tokens.c.disabled.is_(False), tokens.c.epoch == users.c.epoch)
        .order_by(tokens.c.created_ms.desc(), tokens.c.id)
    )
    return [dict(row) for row in rows.mappings()]


def revoke(conn: Connection, user_id: str, ref: str) -> str:
    """By id, its beginning, or the name of exactly one. Raises NotFound; a second time is no
    error."""
    every = conn.execute(
        select(tokens.c.id, tokens.c.name, tokens.c.disabled).where(tokens.c.user_id == user_id)
    ).all()
    named = [row for row in every if row.id == ref] or [
        row for row in every if row.name == ref and not row.disabled
    ]
    if not named and len(ref) >= 4:
        named = [row for row in every if row.id.startswith(ref)]
    if not named:
        raise NotFound(f"no token {ref!r}", hint="`windlass token ls` lists those there are")
    if len(named) > 1:
        ids = ", ".join(row.id for row in named)
        raise InvalidInput(f"{ref!r} names several tokens: {ids}", hint="revoke by its id")
    conn.execute(update(tokens).where(tokens.c.id == named[0].id).values(disabled=True))
    return str(named[0].id)


def holder(
    conn: Connection, token_hash: str, project: str | None, now_ms: int
) -> tuple[Principal, int] | None:
    """Whom a token stands for, and until when; None when for nobody. Raises NotFound for a
    project that it is not of."""
    row = conn.execute(
        select(tokens, users.c.epoch.label("now_epoch"))
        .join(users, users.c.id == tokens.c.user_id)
        .where(tokens.c.hash == token_hash)
        .where(tokens.c.disabled.is_(False), tokens.c.expires_ms > now_ms)
    ).first()
    if row is None or row.epoch != row.now_epoch:
        return None
    principal = principal_of(
        conn, row.user_id, project, home=row.project_id, credential=row.id, scopes=row.scopes,
        bound=True,
    )  # fmt: skip
    return None if principal is None else (principal, row.expires_ms)


def _checksum(body: str) -> str:
    number, letters = zlib.crc32(body.encode()), ""
    for _ in range(_CHECKED):
        number, digit = divmod(number, len(_LETTERS))
        letters = _LETTERS[digit] + letters
    return letters
