"""Somebody leaves for good. Every function runs inside the caller's transaction.

What proves the user is dead from that moment, and nothing brings it back: the row stays, disabled,
because its jobs and the books are of it. So does what another issuer knows it by, so that the
account does not walk in again as somebody new. Its name is free once its last job has ended; who
gets it is another user, who owns nothing of the first.
"""

from __future__ import annotations

from sqlalchemy import Connection, delete, select, update

from windlass.core.access import OrgRole, Principal
from windlass.core.errors import Conflict
from windlass.server.access.service import OWNER, changed
from windlass.server.access.tables import keys, memberships, tokens, users
from windlass.server.jobs import ending
from windlass.server.jobs.tables import UNFINISHED, jobs
from windlass.server.saved.tables import saved_views
from windlass.server.secrets.tables import secrets
from windlass.server.sessions import links
from windlass.server.sessions.service import end_all
from windlass.server.users.service import (
    Row,
    find,
    not_the_last,
    owner_lock,
    owners_only,
    set_disabled,
    unfinished,
)


def check(conn: Connection, who: Principal, name: str) -> Row:
    """The user, if the caller may remove it. Raises NotFound, Forbidden, Conflict for the last
    owner and for the one whose key every start of the server needs."""
    owner_lock(conn)
    found = find(conn, name)
    if found["role"] == OrgRole.OWNER:
        owners_only(who, "remove an owner")
        not_the_last(conn, found)
    if name == OWNER:
        raise Conflict(
            f"the user {OWNER} stays: the first key is of it",
            hint=f"it can be closed: windlass user disable {OWNER}",
        )
    return found


def begin(conn: Connection, who: Principal, name: str) -> str:
    """Nothing proves it from here on, and it is still there: for who stops its jobs first. Its
    id."""
    found = check(conn, who, name)
    set_disabled(conn, who, name, True)
    return str(found["id"])


def stop_jobs(conn: Connection, user_id: str, name: str, now_ms: int) -> list[str]:
    """Wish the end of its jobs, some at a time; whose it was. Until it gives none."""
    found = ending.next_ones(conn, jobs.c.user_id == user_id)
    ending.wish(conn, found, f"user {name} was removed", now_ms)
    return found


def remove(conn: Connection, who: Principal, name: str, now_ms: int) -> int:
    """It is gone, with all that proved it; how many of its jobs have not ended. Raises as
    `check`."""
    found = check(conn, who, name)
    user_id = found["id"]
    for table in (keys, tokens):
        conn.execute(update(table).where(table.c.user_id == user_id).values(disabled=True))
    end_all(conn, user_id)
    links.drop(conn, user_id)
    conn.execute(delete(memberships).where(memberships.c.user_id == user_id))
    conn.execute(delete(saved_views).where(saved_views.c.user_id == user_id))
    conn.execute(
        update(users)
        .where(users.c.id == user_id)
        .values(
            disabled=True, removed_ms=now_ms, role=None, password=None, epoch=users.c.epoch + 1
        )
    )  # fmt: skip
    changed(conn)
    forget_secrets(conn)
    return unfinished(conn, user_id)


def forget_secrets(conn: Connection) -> int:
    """Delete the own secrets of those who are gone, once no job of theirs can want them any more.
    Asked again by and by: a job that goes on starts anew with them."""
    gone = select(users.c.id).where(users.c.removed_ms.is_not(None))
    wanted = select(jobs.c.user_id).where(UNFINISHED)
    theirs = secrets.c.owner_id.in_(gone) & secrets.c.owner_id.not_in(wanted)
    return conn.execute(delete(secrets).where(theirs)).rowcount
