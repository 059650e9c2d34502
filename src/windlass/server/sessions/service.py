"""Who is logged in: opaque sessions, whose rows are the truth.

The browser holds 256 random bits, the row their SHA-256. The row is read at every call and never
cached, so a session that was ended, or whose user was disabled or has a new password, is dead at
the next call on every server.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from windlass.core.access import Principal, UserKind
from windlass.core.errors import Forbidden, NotFound, Unauthenticated
from windlass.core.signing import SignedParts
from windlass.server.access.service import Access, changed
from windlass.server.access.tables import users
from windlass.server.sessions import attempts, cookies, links
from windlass.server.sessions.oidc import Issuer
from windlass.server.sessions.passwords import Passwords
from windlass.server.sessions.tables import sessions
from windlass.server.store.base import Store

MOST = 50
"""So many a user may have; of more the one that was idle longest ends."""

_LISTENING = (b"/feed", b"/stream")

WRONG = "the user or the password is wrong"


@dataclass(frozen=True, slots=True)
class Ages:
    idle_ms: int = 12 * 3_600_000
    """A session that was not used for so long is over."""
    whole_ms: int = 7 * 24 * 3_600_000
    """And in any case after this."""


class Sessions:
    """Finds the caller behind a cookie. One per server."""

    def __init__(
        self,
        store: Store,
        access: Access,
        passwords: Passwords,
        ages: Ages | None = None,
        issuer: Issuer | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.passwords = passwords
        self.ages = ages or Ages()
        self.issuer = issuer
        self.now_ms = now_ms
        self._store = store
        self._access = access

    async def find(self, parts: SignedParts, project: str | None) -> Principal | None:
        """For `Access.find_session`. None: there is no cookie; a dead one is `Unauthenticated`."""
        token = cookies.value_of(parts.headers, cookies.SESSION)
        if token is None:
            return None
        now = self.now_ms()
        row = await self._store.read(lambda conn: _live(conn, token, now, self.ages))
        if row is None:
            raise Unauthenticated("the session is over", hint="log in again")
        # Often enough for an idle one to be seen as such, seldom enough to cost nothing. A page
        # that was left open and only listens is idle.
        listens = parts.path.endswith(_LISTENING)
        if not listens and now - row.seen_ms > min(60_000, self.ages.idle_ms // 10):
            seen = update(sessions).where(sessions.c.id == row.id).values(seen_ms=now)
            await self._store.write(lambda conn: conn.execute(seen).rowcount)
        return await self._access.principal_of(row.user_id, project, credential=row.id)

    async def who(self, user_id: str, credential: str = "") -> Principal:
        """The user that is just logging in, in its own project; for the audit and the answer."""
        found = await self._access.principal_of(user_id, None, credential=credential)
        if found is None:
            raise Unauthenticated(WRONG)
        return found

    async def tend(self) -> None:
        """Once a minute, from a loop."""
        now = self.now_ms()

        def write(conn: Connection) -> None:
            over = (sessions.c.expires_ms <= now) | (sessions.c.seen_ms <= now - self.ages.idle_ms)
            conn.execute(delete(sessions).where(over))
            links.sweep(conn, now)
            attempts.sweep(conn, now)

        await self._store.write(write)


@dataclass(frozen=True, slots=True)
class Begun:
    """A session as it is told, once."""

    id: str
    token: str
    seconds: int


def begin(
    conn: Connection,
    user: Any,
    *,
    how: str,
    address: str,
    browser: str,
    ages: Ages,
    now_ms: int,
    instead_of: str | None = None,
) -> Begun:
    """A new session. `instead_of`: the cookie that the browser had before; that session ends, so
    that nobody knows the new one by having set the old."""
    if instead_of is not None:
        conn.execute(delete(sessions).where(sessions.c.hash == _digest(instead_of)))
    mine = sessions.c.user_id == user.id
    if conn.execute(select(func.count()).select_from(sessions).where(mine)).scalar_one() >= MOST:
        oldest = select(sessions.c.id).where(mine).order_by(sessions.c.seen_ms).limit(1)
        conn.execute(delete(sessions).where(sessions.c.id.in_(oldest.scalar_subquery())))
    begun = Begun(uuid4().hex, secrets.token_urlsafe(32), ages.whole_ms // 1000)
    conn.execute(
        insert(sessions).values(
            id=begun.id, hash=_digest(begun.token), user_id=user.id, epoch=user.epoch, how=how,
            address=address[:64], browser=_printable(browser)[:200], created_ms=now_ms,
            seen_ms=now_ms, expires_ms=now_ms + ages.whole_ms,
        )
    )  # fmt: skip
    return begun


def end(conn: Connection, user_id: str, session_id: str) -> None:
    """Raises NotFound for one that is not this user's."""
    gone = conn.execute(
        delete(sessions).where(sessions.c.id == session_id, sessions.c.user_id == user_id)
    )
    if gone.rowcount != 1:
        raise NotFound(f"no session {session_id}")


def end_all(conn: Connection, user_id: str, *, but: str = "") -> int:
    """All of a user; how many there were."""
    mine = (sessions.c.user_id == user_id) & (sessions.c.id != but)
    return conn.execute(delete(sessions).where(mine)).rowcount


def listing(conn: Connection, user_id: str, now_ms: int, ages: Ages) -> Sequence[Row[Any]]:
    """Those that live, the one used last first."""
    return conn.execute(
        select(sessions)
        .where(sessions.c.user_id == user_id, sessions.c.expires_ms > now_ms)
        .where(sessions.c.seen_ms > now_ms - ages.idle_ms)
        .order_by(sessions.c.seen_ms.desc(), sessions.c.id)
    ).all()


def set_password(conn: Connection, user_id: str, hashed: str) -> None:
    """A new password, and the end of all that the old one opened: sessions, links, tokens."""
    conn.execute(
        update(users).where(users.c.id == user_id).values(password=hashed, epoch=users.c.epoch + 1)
    )
    end_all(conn, user_id)
    links.drop(conn, user_id)
    changed(conn)


def rehash(conn: Connection, user_id: str, old: str, new: str) -> None:
    """The same password at today's cost; nothing ends by it."""
    same = (users.c.id == user_id) & (users.c.password == old)
    conn.execute(update(users).where(same).values(password=new))


def person(conn: Connection, *, name: str = "", user_id: str = "") -> Any:
    """The row of somebody who may log in (a person, not disabled), or None."""
    which = users.c.name == name if name else users.c.id == user_id
    return conn.execute(
        select(users.c.id, users.c.name, users.c.password, users.c.epoch, users.c.role)
        .where(which)
        .where(users.c.disabled.is_(False), users.c.kind == UserKind.PERSON.value)
    ).first()


def same_person(conn: Connection, user_id: str, epoch: int) -> Any:
    """Whose password was just found right, if nothing has changed since. Raises
    Unauthenticated."""
    found = person(conn, user_id=user_id)
    if found is None or found.epoch != epoch:
        raise Unauthenticated(WRONG)
    return found


def only_people(principal: Principal) -> str:
    """The user's id. Raises Forbidden for a service account, which has keys and tokens alone."""
    if principal.user_id is None or principal.user_kind is not UserKind.PERSON:
        raise Forbidden("a service account has no password and no session")
    return principal.user_id


def _live(conn: Connection, token: str, now_ms: int, ages: Ages) -> Any:
    row = conn.execute(
        select(sessions.c.id, sessions.c.user_id, sessions.c.seen_ms, sessions.c.expires_ms)
        .join(users, (users.c.id == sessions.c.user_id) & (users.c.epoch == sessions.c.epoch))
        .where(sessions.c.hash == _digest(token))
        .where(users.c.disabled.is_(False), users.c.kind == UserKind.PERSON.value)
    ).first()
    if row is None or row.expires_ms <= now_ms or row.seen_ms <= now_ms - ages.idle_ms:
        return None
    return row


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)
