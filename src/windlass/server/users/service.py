"""Users of the whole server. Every function runs inside the caller's transaction.

There is always an owner who can act: the last one is neither disabled nor made less. An
administrator changes everybody but owners, and makes none; so nobody below an owner can act as
one, by a role or by a key.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, func, insert, select, update

from windlass.core.access import OrgRole, Principal, ProjectRole, Right, UserKind
from windlass.core.errors import Conflict, Forbidden, InvalidInput, NotFound
from windlass.core.users import InProject, UserBody, UserView
from windlass.server.access.principals import no_project
from windlass.server.access.service import changed
from windlass.server.access.tables import keys, memberships, projects, users
from windlass.server.clock import stamp
from windlass.server.jobs.tables import UNFINISHED, jobs

Row = dict[str, Any]


def make(conn: Connection, who: Principal, body: UserBody, now_ms: int) -> Row:
    """A new user. Raises Conflict, Forbidden, NotFound."""
    if body.role is OrgRole.OWNER:
        owners_only(who, "make an owner")
    row = _insert(conn, body.name, body.kind, body.role, None, now_ms)
    if body.project is not None:
        project_id = conn.execute(
            select(projects.c.id).where(
                projects.c.name == body.project, projects.c.removed_ms.is_(None)
            )
        ).scalar()
        if project_id is None:
            raise no_project(body.project)
        _join(conn, project_id, row["id"], body.project_role, now_ms)
    return row


def make_service(
    conn: Connection, who: Principal, name: str, role: ProjectRole, now_ms: int
) -> Row:
    """A service account of the project of the call. Raises Conflict."""
    row = _insert(conn, name, UserKind.SERVICE, None, who.project_id, now_ms)
    _join(conn, who.project_id, row["id"], role, now_ms)
    return row


def find(conn: Connection, name: str) -> Row:
    there = (users.c.name == name) & users.c.removed_ms.is_(None)
    row = conn.execute(select(users).where(there)).mappings().first()
    if row is None:
        raise NotFound(f"no user {name}", hint="`windlass user ls` lists the users there are")
    return dict(row)


def find_to_act_for(conn: Connection, who: Principal, name: str | None) -> Row:
    """The user whose credentials the caller may make and end: itself, a service account of its
    project, or, for who may change users, anybody not above it. NotFound for all others."""
    if name is None or name == who.user_name:
        row = conn.execute(select(users).where(users.c.id == who.user_id)).mappings().one()
        return dict(row)
    try:
        found = find(conn, name)
    except NotFound:
        found = None
    if found is not None:
        if who.may(Right.USER_WRITE):
            if found["role"] == OrgRole.OWNER:
                owners_only(who, "act for an owner")
            return found
        if found["project_id"] == who.project_id and who.may(Right.PROJECT_WRITE):
            return found
    raise NotFound(f"no user {name} that you may act for")


def set_disabled(conn: Connection, who: Principal, name: str, disabled: bool) -> Row:
    """Its keys, tokens and sessions are dead at once; tokens and sessions stay so. Raises
    Conflict for the last owner, Forbidden."""
    owner_lock(conn)
    found = find(conn, name)
    if found["role"] == OrgRole.OWNER:
        owners_only(who, "disable or enable an owner")
        if disabled:
            not_the_last(conn, found)
    if not disabled and found["project_id"] is not None:
        removed = conn.execute(
            select(projects.c.removed_ms).where(projects.c.id == found["project_id"])
        ).scalar()
        if removed is not None:
            raise Conflict(f"{name} is of a project that was removed")
    if bool(found["disabled"]) != disabled:
        epoch = users.c.epoch + (1 if disabled else 0)
        conn.execute(
            update(users).where(users.c.id == found["id"]).values(disabled=disabled, epoch=epoch)
        )
        changed(conn)
    return find(conn, name)


def set_role(conn: Connection, who: Principal, name: str, role: OrgRole | None) -> Row:
    """Its role in the organisation. Raises Conflict for the last owner, Forbidden."""
    owner_lock(conn)
    found = find(conn, name)
    if OrgRole.OWNER in (role, found["role"]):
        owners_only(who, "make or unmake an owner")
    if found["project_id"] is not None and role is not None:
        raise InvalidInput(f"{name} is a service account of a project: it has no role above it")
    if found["role"] == OrgRole.OWNER and role is not OrgRole.OWNER:
        not_the_last(conn, found)
    conn.execute(
        update(users).where(users.c.id == found["id"]).values(role=role.value if role else None)
    )
    changed(conn)
    return find(conn, name)


def every(conn: Connection) -> list[UserView]:
    there = select(users).where(users.c.removed_ms.is_(None)).order_by(users.c.name)
    rows = conn.execute(there).mappings()
    return views(conn, [dict(row) for row in rows])


def one(conn: Connection, name: str) -> UserView:
    return views(conn, [find(conn, name)])[0]


def views(conn: Connection, rows: list[Row]) -> list[UserView]:
    ids = [row["id"] for row in rows]
    inside: dict[str, list[InProject]] = {}
    for user_id, project, role in conn.execute(
        select(memberships.c.user_id, projects.c.name, memberships.c.role)
        .join(projects, projects.c.id == memberships.c.project_id)
        .where(projects.c.removed_ms.is_(None), memberships.c.user_id.in_(ids))
        .order_by(projects.c.name)
    ):
        inside.setdefault(user_id, []).append(InProject(project=project, role=ProjectRole(role)))
    counted = (
        select(keys.c.user_id, func.count())
        .where(keys.c.user_id.in_(ids), keys.c.disabled.is_(False))
        .group_by(keys.c.user_id)
    )
    live = {user_id: int(count) for user_id, count in conn.execute(counted)}
    of = {id_: name for id_, name in conn.execute(select(projects.c.id, projects.c.name))}
    return [
        UserView(
            name=row["name"], kind=UserKind(row["kind"]),
            role=OrgRole(row["role"]) if row["role"] else None,
            project=of.get(row["project_id"]), disabled=bool(row["disabled"]),
            created=stamp(row["created_ms"]), projects=tuple(inside.get(row["id"], ())),
            keys=live.get(row["id"], 0),
        )
        for row in rows
    ]  # fmt: skip


def _insert(
    conn: Connection,
    name: str,
    kind: UserKind,
    role: OrgRole | None,
    project_id: str | None,
    now_ms: int,
) -> Row:
    owner_lock(conn)
    free_name(conn, name)
    row: Row = {
        "id": uuid4().hex, "name": name, "kind": kind.value,
        "role": role.value if role else None, "project_id": project_id, "created_ms": now_ms,
        "disabled": False, "epoch": 0,
    }  # fmt: skip
    conn.execute(insert(users).values(row))
    return row


def _join(conn: Connection, project_id: str, user_id: str, role: ProjectRole, now_ms: int) -> None:
    conn.execute(
        insert(memberships).values(
            project_id=project_id, user_id=user_id, role=role.value, added_ms=now_ms
        )
    )


def free_name(conn: Connection, name: str) -> None:
    """Raises Conflict for a name that somebody has, or had whose jobs have not all ended: until
    then two people would be one to quotas, and in the queue."""
    known = conn.execute(select(users.c.id, users.c.removed_ms).where(users.c.name == name)).all()
    if any(row.removed_ms is None for row in known):
        raise Conflict(f"there is a user {name} already")
    if left := sum(unfinished(conn, row.id) for row in known):
        raise Conflict(
            f"user {name} was removed, and {left} of its jobs have not ended",
            hint="try again when they are gone, or choose another name",
        )


def unfinished(conn: Connection, user_id: str) -> int:
    """How many jobs of a user have not ended, in all projects."""
    live = select(func.count()).select_from(jobs).where(jobs.c.user_id == user_id, UNFINISHED)
    return int(conn.execute(live).scalar_one())


def owner_lock(conn: Connection) -> None:
    """One such change at a time: two owners who drop each other must not both succeed."""
    conn.execute(
        select(users.c.id)
        .where(users.c.role == OrgRole.OWNER.value)
        .order_by(users.c.id)
        .with_for_update()
    ).all()


def not_the_last(conn: Connection, row: Row) -> None:
    others = conn.execute(
        select(func.count())
        .select_from(users)
        .where(users.c.role == OrgRole.OWNER.value, users.c.disabled.is_(False))
        .where(users.c.id != row["id"])
    ).scalar_one()
    if not others and not row["disabled"]:
        raise Conflict(
            f"{row['name']} is the last owner", hint="make another one first: windlass user role"
        )


def owners_only(who: Principal, what: str) -> None:
    if who.org_role is not OrgRole.OWNER:
        raise Forbidden(f"only an owner may {what}", right=str(Right.USER_WRITE))
