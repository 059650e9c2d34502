"""From a user and the project that a call is about to what it may do there.

The rights are worked out anew from the rows, at most a few seconds old: nothing about them is
kept in a credential, so a role that was dropped is gone from all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, select

from windlass.core.access import (
    NEEDS_PROJECT,
    CallerKind,
    OrgRole,
    Principal,
    ProjectRole,
    UserKind,
    rights_in,
    rights_in_scope,
)
from windlass.core.errors import NotFound
from windlass.server.access.tables import memberships, projects, users


def principal_of(
    conn: Connection,
    user_id: str,
    project: str | None,
    *,
    home: str | None = None,
    credential: str = "",
    scopes: Sequence[str] | None = None,
    bound: bool = False,
) -> Principal | None:
    """The user in that project; None when there is no such user, or it is disabled.

    `project` is a name that the call gave: NotFound when it is none that this user sees, the
    same for one that does not exist. Without it, it is the one with the id `home`, or the one
    that the user has been in for longest, or none at all. `bound`: no other than `home`.
    """
    user = conn.execute(
        select(users.c.name, users.c.role, users.c.kind)
        .where(users.c.id == user_id)
        .where(users.c.disabled.is_(False))
    ).first()
    if user is None:
        return None
    org_role = OrgRole(user.role) if user.role else None
    found = _project(conn, user_id, project, home, org_role)
    if found is not None and bound and found.id != home:
        found = None
    if found is None and project is not None:
        raise no_project(project)
    if found is None and bound:
        return None
    role = ProjectRole(found.role) if found is not None and found.role else None
    rights = rights_in(org_role, role)
    if found is None:
        rights -= NEEDS_PROJECT
    if scopes is not None:
        rights &= rights_in_scope(scopes)
    return Principal(
        kind=CallerKind.USER,
        project_id=found.id if found is not None else "",
        project_name=found.name if found is not None else "",
        user_id=user_id,
        user_name=user.name,
        rights=rights,
        role=role,
        org_role=org_role,
        credential=credential,
        user_kind=UserKind(user.kind),
    )


def no_project(name: str) -> NotFound:
    return NotFound(f"no project {name}", hint="`windlass project ls` lists those you are in")


def _project(
    conn: Connection,
    user_id: str,
    name: str | None,
    home: str | None,
    org_role: OrgRole | None,
) -> Any | None:
    seen = (
        select(projects.c.id, projects.c.name, memberships.c.role)
        .outerjoin(
            memberships,
            (memberships.c.project_id == projects.c.id) & (memberships.c.user_id == user_id),
        )
        .where(projects.c.removed_ms.is_(None))
    )
    if org_role is None:  # who has a role in the organisation sees every project
        seen = seen.where(memberships.c.role.is_not(None))
    if name is not None:
        return conn.execute(seen.where(projects.c.name == name)).first()
    if home is not None:
        return conn.execute(seen.where(projects.c.id == home)).first()
    longest = (memberships.c.role.is_(None), memberships.c.added_ms, projects.c.created_ms)
    return conn.execute(seen.order_by(*longest, projects.c.name).limit(1)).first()
