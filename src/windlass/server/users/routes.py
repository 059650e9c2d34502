"""/api/v1/users: who acts on this server; /api/v1/whoami: and who is asking."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path
from sqlalchemy import Connection

from windlass.core.access import Right
from windlass.core.users import (
    DisabledBody,
    OrgRoleBody,
    UserBody,
    UserPage,
    UserRemoved,
    UserView,
    WhoAmI,
)
from windlass.server.access.calls import Call, spend
from windlass.server.http.body import json_body
from windlass.server.http.marks import require
from windlass.server.http.query import Flag, ObjectName
from windlass.server.parts import Parts, Wired
from windlass.server.users import removal, service

router = APIRouter(prefix="/api/v1", tags=["users"])

Read = Annotated[Call, Depends(require(Right.USER_READ))]
Write = Annotated[Call, Depends(require(Right.USER_WRITE))]
UserName = Annotated[ObjectName, Path(description="the user's name")]


@router.get("/whoami", response_model=WhoAmI)
async def whoami(call: Annotated[Call, Depends(require(Right.SELF_READ))]) -> WhoAmI:
    """Who calls, in which project, with which rights."""
    who = call.principal
    return WhoAmI(
        user=who.user_name,
        kind=who.user_kind,
        org_role=who.org_role,
        project=who.project_name or None,
        role=who.role,
        credential=who.credential,
        rights=tuple(sorted(who.rights)),
    )


@router.get("/users", response_model=UserPage)
async def listing(call: Read, parts: Wired) -> UserPage:
    """Every user and service account."""
    return UserPage(items=tuple(await parts.store.read(service.every)))


@router.post("/users", status_code=201, response_model=UserView)
async def make(
    call: Write, parts: Wired, body: Annotated[UserBody, Depends(json_body(UserBody))]
) -> UserView:
    """A new user, in a project at once if one is named. It gets its first key with
    `POST /keys`, or a link to choose a password."""
    now = parts.clock.now_ms()

    def write(conn: Connection) -> UserView:
        spend(conn, call, about=body.name, role=body.role)
        return service.views(conn, [service.make(conn, call.principal, body, now)])[0]

    return await parts.store.write(write)


@router.get("/users/{name}", response_model=UserView)
async def show(call: Read, parts: Wired, name: UserName) -> UserView:
    """One user, with the projects it is in."""
    return await parts.store.read(lambda conn: service.one(conn, name))


@router.put("/users/{name}/disabled", response_model=UserView)
async def set_disabled(
    call: Write,
    parts: Wired,
    name: UserName,
    body: Annotated[DisabledBody, Depends(json_body(DisabledBody))],
) -> UserView:
    """Refuse all credentials of a user from now on, while its jobs go on; or let its keys work
    again. Tokens and sessions of before stay dead."""

    def write(conn: Connection) -> UserView:
        spend(conn, call, disabled=body.disabled)
        row = service.set_disabled(conn, call.principal, name, body.disabled)
        return service.views(conn, [row])[0]

    found = await parts.store.write(write)
    parts.access.forget()
    return found


@router.delete("/users/{name}", response_model=UserRemoved)
async def remove(
    call: Write, parts: Wired, name: UserName, stop_jobs: Flag = False
) -> UserRemoved:
    """Remove a user for good: its keys, tokens and sessions are dead at once, and it is in no
    list. Its jobs stay its own and go on, unless `stop_jobs`; its name is free once the last of
    them has ended."""
    if stop_jobs:
        await _stop_first(call, parts, name)

    def write(conn: Connection) -> UserRemoved:
        if not stop_jobs:
            spend(conn, call, stop_jobs=False)
        left = removal.remove(conn, call.principal, name, parts.clock.now_ms())
        return UserRemoved(name=name, unfinished=left)

    found = await parts.store.write(write)
    parts.access.forget()
    return found


async def _stop_first(call: Call, parts: Parts, name: str) -> None:
    """Close its doors, then end its jobs. A server that dies meanwhile leaves a disabled user,
    and the call can be made again."""

    def close(conn: Connection) -> str:
        spend(conn, call, stop_jobs=True)
        return removal.begin(conn, call.principal, name)

    user_id = await parts.store.write(close)
    parts.access.forget()
    while stopped := await parts.store.write(
        lambda conn: removal.stop_jobs(conn, user_id, name, parts.clock.now_ms())
    ):
        for job_id in stopped:
            parts.reconcile.hint(job_id)


@router.put("/users/{name}/role", response_model=UserView)
async def set_role(
    call: Write,
    parts: Wired,
    name: UserName,
    body: Annotated[OrgRoleBody, Depends(json_body(OrgRoleBody))],
) -> UserView:
    """Its role in the organisation; null takes it away."""

    def write(conn: Connection) -> UserView:
        spend(conn, call, role=body.role)
        row = service.set_role(conn, call.principal, name, body.role)
        return service.views(conn, [row])[0]

    found = await parts.store.write(write)
    parts.access.forget()
    return found
