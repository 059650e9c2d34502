"""Projects and their members. Every function runs inside the caller's transaction.

A project that is removed is seen no more from that moment: its row stays for the books, its jobs
are stopped, and its name is free again once the last of them has ended.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, delete, func, insert, select, update

from windlass.core.access import Principal, ProjectRole, UserKind
from windlass.core.errors import Conflict, NotFound
from windlass.core.projects import MemberView, ProjectDetail, ProjectView
from windlass.server.access.service import DEFAULT_PROJECT, changed
from windlass.server.access.tables import memberships, projects, users
from windlass.server.clock import stamp
from windlass.server.jobs import ending
from windlass.server.jobs.tables import UNFINISHED, jobs
from windlass.server.secrets.service import forget_project as forget_secrets


def make(conn: Connection, who: Principal, name: str, now_ms: int) -> None:
    """A new project; who made it maintains it. Raises Conflict when the name is taken."""
    _name_lock(conn)
    known = conn.execute(
        select(projects.c.id, projects.c.removed_ms).where(projects.c.name == name)
    ).all()
    if any(row.removed_ms is None for row in known):
        raise Conflict(f"there is a project {name} already")
    for row in known:
        left = _unfinished(conn, row.id)
        if left:
            raise Conflict(
                f"project {name} was removed, and {left} of its jobs are still ending",
                hint="try again when they are gone",
            )
    project_id = uuid4().hex
    conn.execute(insert(projects).values(id=project_id, name=name, created_ms=now_ms))
    conn.execute(
        insert(memberships).values(
            project_id=project_id, user_id=who.user_id, role=ProjectRole.MAINTAINER.value,
            added_ms=now_ms,
        )
    )  # fmt: skip
    changed(conn)


def remove(conn: Connection, project_id: str, now_ms: int) -> None:
    """Nobody sees it any more. Raises Conflict for the first one, NotFound for a second time."""
    row = conn.execute(
        select(projects.c.name, projects.c.removed_ms)
        .where(projects.c.id == project_id)
        .with_for_update()
    ).first()
    if row is None or row.removed_ms is not None:
        raise NotFound("this project was removed already")
    if row.name == DEFAULT_PROJECT:
        raise Conflict(f"the project {DEFAULT_PROJECT} stays: the first key is of it")
    conn.execute(update(projects).where(projects.c.id == project_id).values(removed_ms=now_ms))
    conn.execute(
        update(users)
        .where(users.c.project_id == project_id)
        .values(disabled=True, epoch=users.c.epoch + 1)
    )
    forget_secrets(conn, project_id)
    changed(conn)


def stop_jobs(conn: Connection, now_ms: int, project_id: str | None = None) -> list[str]:
    """Wish the end of jobs of removed projects, so many at a time; whose it was. Until it gives
    none: a submit may have slipped in beside the removal, so this is asked again by and by."""
    removed = select(projects.c.id, projects.c.name).where(projects.c.removed_ms.is_not(None))
    if project_id is not None:
        removed = removed.where(projects.c.id == project_id)
    for found_id, name in conn.execute(removed).all():
        if found := ending.next_ones(conn, jobs.c.project_id == found_id):
            ending.wish(conn, found, f"project {name} was removed", now_ms)
            return found
    return []


def every(conn: Connection, who: Principal) -> list[ProjectView]:
    """Those the caller is in; all, for who has a role in the organisation."""
    mine = (
        select(projects, memberships.c.role)
        .outerjoin(
            memberships,
            (memberships.c.project_id == projects.c.id) & (memberships.c.user_id == who.user_id),
        )
        .where(projects.c.removed_ms.is_(None))
        .order_by(projects.c.name)
    )
    if who.org_role is None:
        mine = mine.where(memberships.c.role.is_not(None))
    rows = conn.execute(mine).all()
    ids = [row.id for row in rows]
    members = _counted(conn, memberships.c.project_id, ids)
    live = _counted(conn, jobs.c.project_id, ids, UNFINISHED)
    return [
        ProjectView(
            name=row.name, role=ProjectRole(row.role) if row.role else None,
            members=members.get(row.id, 0), jobs=live.get(row.id, 0),
            created=stamp(row.created_ms),
        )
        for row in rows
    ]  # fmt: skip


def one(conn: Connection, who: Principal) -> ProjectDetail:
    """The project that the call is about, with its people."""
    row = conn.execute(select(projects).where(projects.c.id == who.project_id)).one()
    people = conn.execute(
        select(users.c.name, users.c.kind, users.c.disabled, memberships.c.role,
               memberships.c.added_ms)
        .join(memberships, memberships.c.user_id == users.c.id)
        .where(memberships.c.project_id == row.id)
        .order_by(users.c.name)
    ).all()  # fmt: skip
    return ProjectDetail(
        name=row.name, role=who.role, members=len(people), jobs=_unfinished(conn, row.id),
        created=stamp(row.created_ms),
        people=tuple(
            MemberView(
                user=each.name, kind=UserKind(each.kind), role=ProjectRole(each.role),
                disabled=bool(each.disabled), added=stamp(each.added_ms),
            )
            for each in people
        ),
    )  # fmt: skip


def set_member(
    conn: Connection, who: Principal, user: str, role: ProjectRole, now_ms: int
) -> None:
    """Let a user in, or give it another role. Raises NotFound."""
    found = conn.execute(
        select(users.c.id, users.c.project_id).where(
            users.c.name == user, users.c.removed_ms.is_(None)
        )
    ).first()
    if found is None or found.project_id not in (None, who.project_id):
        raise no_user(user)  # a service account is of its own project, and of no other
    where = (memberships.c.project_id == who.project_id) & (memberships.c.user_id == found.id)
    if conn.execute(update(memberships).where(where).values(role=role.value)).rowcount == 0:
        conn.execute(
            insert(memberships).values(
                project_id=who.project_id, user_id=found.id, role=role.value, added_ms=now_ms
            )
        )
    changed(conn)


def remove_member(conn: Connection, who: Principal, user: str) -> None:
    """Raises NotFound for who is not in it."""
    there = (users.c.name == user) & users.c.removed_ms.is_(None)
    user_id = conn.execute(select(users.c.id).where(there)).scalar()
    gone = conn.execute(
        delete(memberships).where(
            memberships.c.project_id == who.project_id, memberships.c.user_id == user_id
        )
    ).rowcount
    if not gone:
        raise NotFound(f"{user} is not in project {who.project_name}")
    changed(conn)


def no_user(name: str) -> NotFound:
    return NotFound(f"no user {name}", hint="`windlass user create` makes one")


def _name_lock(conn: Connection) -> None:
    """One project is made at a time: two of one name would pass each other's look."""
    conn.execute(
        select(projects.c.id).where(projects.c.name == DEFAULT_PROJECT).with_for_update()
    ).all()


def _unfinished(conn: Connection, project_id: str) -> int:
    return int(
        conn.execute(
            select(func.count())
            .select_from(jobs)
            .where(jobs.c.project_id == project_id, UNFINISHED)
        ).scalar_one()
    )


def _counted(conn: Connection, column: Any, ids: list[str], *where: Any) -> dict[str, int]:
    rows = conn.execute(
        select(column, func.count()).where(column.in_(ids), *where).group_by(column)
    )
    return {project_id: int(count) for project_id, count in rows}
