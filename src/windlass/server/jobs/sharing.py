"""Whether more than one user has jobs run here: then they are kept apart, where that can be."""

from __future__ import annotations

from sqlalchemy import Connection, false, select, union

from windlass.server.access.tables import users
from windlass.server.jobs.tables import UNFINISHED, jobs


def several_users(conn: Connection) -> bool:
    """Service accounts count: whoever holds their key is somebody else. So does who was disabled
    or removed, as long as its jobs go on: they start anew without it."""
    active = select(users.c.id).where(users.c.disabled == false()).limit(2)
    if len(conn.execute(active).all()) > 1:
        return True
    either = union(
        select(users.c.id).where(users.c.disabled == false()),
        select(jobs.c.user_id).where(UNFINISHED),
    )
    return len(conn.execute(select(either.subquery().c.id).limit(2)).all()) > 1
