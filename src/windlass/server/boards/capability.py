"""The address of a board that works without a cookie: who it was made for is sealed in it.

The page of a board runs in a sandbox, so it has no origin and no cookie, and what it asks for can
be known by its address alone. That address says, sealed with the server's own key: this user, by
this credential, in this project, for this job, until then. It holds no right by itself: at every
call the credential must still be good, and the rights are worked out anew from the rows. So it
ends with the session, key or token that it was made with, at once and on every server.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from sqlalchemy import Connection, select

from windlass.core.access import CallerKind, Principal, UserKind
from windlass.core.errors import Forbidden, Internal, NotFound, Unauthenticated
from windlass.server.access.principals import principal_of
from windlass.server.access.sealing import Sealer
from windlass.server.access.tables import keys, tokens, users
from windlass.server.sessions.service import Ages
from windlass.server.sessions.tables import sessions

LIVES_MS = 8 * 3_600_000
LONGEST = 1024
"""Characters of one; what is longer is none."""

_PURPOSE = "board"
_DEAD = "this address of a board is not good, or no more"
_HINT = "open it anew: windlass tb JOB, or /tb/JOB in a browser that is logged in"


def make(sealer: Sealer, who: Principal, job_id: str, now_ms: int) -> tuple[str, int]:
    """An address's secret part for this caller and this job, and when it dies."""
    if who.kind is not CallerKind.USER or who.user_id is None:
        raise Forbidden("only a user opens a board")
    until = now_ms + LIVES_MS
    words = [who.user_id, who.credential, who.project_name, until]
    sealed = sealer.seal(json.dumps(words, separators=(",", ":")), _PURPOSE, job_id)
    return f"{sealer.kek}.{base64.urlsafe_b64encode(sealed).decode().rstrip('=')}", until


def opened(sealer: Sealer, secret: str, job_id: str, now_ms: int) -> tuple[str, str, str]:
    """The user, its credential and the project that it was made for. Raises Unauthenticated."""
    kek, _, body = secret.partition(".")
    if len(secret) > LONGEST or kek not in sealer.keks:
        raise dead()
    try:
        raw = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
        words = json.loads(sealer.unseal(raw, kek, _PURPOSE, job_id))
    except (binascii.Error, ValueError, Internal):
        raise dead() from None
    user_id, credential, project, until = words
    if until <= now_ms:
        raise dead()
    return user_id, credential, project


def holder(
    conn: Connection, user_id: str, credential: str, project: str, ages: Ages, now_ms: int
) -> Principal:
    """That user in that project as it is now, if the credential still lives. Raises
    Unauthenticated."""
    found = _narrowed(conn, user_id, credential, ages, now_ms)
    if found is None:
        raise dead()
    try:
        who = principal_of(conn, user_id, project, credential=credential, **found)
    except NotFound:
        raise dead() from None
    if who is None:
        raise dead()
    return who


def dead() -> Unauthenticated:
    return Unauthenticated(_DEAD, hint=_HINT)


def _narrowed(
    conn: Connection, user_id: str, credential: str, ages: Ages, now_ms: int
) -> dict[str, Any] | None:
    """What a credential that lives takes away from its user's rights; None: it is dead."""
    session = conn.execute(
        select(sessions.c.seen_ms, sessions.c.expires_ms)
        .join(users, (users.c.id == sessions.c.user_id) & (users.c.epoch == sessions.c.epoch))
        .where(sessions.c.id == credential, sessions.c.user_id == user_id)
        .where(users.c.kind == UserKind.PERSON.value)
    ).first()
    if session is not None:
        lives = session.expires_ms > now_ms and session.seen_ms > now_ms - ages.idle_ms
        return {} if lives else None
    key = conn.execute(
        select(keys.c.access_key)
        .where(keys.c.access_key == credential, keys.c.user_id == user_id)
        .where(keys.c.disabled.is_(False))
        .where(keys.c.expires_ms.is_(None) | (keys.c.expires_ms > now_ms))
    ).first()
    if key is not None:
        return {}
    token = conn.execute(
        select(tokens.c.scopes, tokens.c.project_id)
        .join(users, (users.c.id == tokens.c.user_id) & (users.c.epoch == tokens.c.epoch))
        .where(tokens.c.id == credential, tokens.c.user_id == user_id)
        .where(tokens.c.disabled.is_(False), tokens.c.expires_ms > now_ms)
    ).first()
    if token is None:
        return None
    return {"home": token.project_id, "scopes": token.scopes, "bound": True}
