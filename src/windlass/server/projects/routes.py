"""/api/v1/projects: tenants, and who is what in them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Response
from sqlalchemy import Connection

from windlass.core.access import Right
from windlass.core.projects import (
    MemberBody,
    ProjectBody,
    ProjectDetail,
    ProjectPage,
    ServiceBody,
)
from windlass.core.users import UserView
from windlass.server.access.calls import Call, spend
from windlass.server.http.body import json_body
from windlass.server.http.marks import require
from windlass.server.http.query import ObjectName
from windlass.server.parts import Parts, Wired
from windlass.server.projects import service
from windlass.server.users import service as users

router = APIRouter(prefix="/api/v1/projects", tags=["projects"])

# The project that these are about is the one in the path, whatever the caller else speaks for.
Read = Annotated[Call, Depends(require(Right.PROJECT_READ, project="name"))]
Write = Annotated[Call, Depends(require(Right.PROJECT_WRITE, project="name"))]
ProjectName = Annotated[ObjectName, Path(description="the project's name")]
UserName = Annotated[ObjectName, Path(description="the user's name")]


@router.get("", response_model=ProjectPage)
async def listing(
    call: Annotated[Call, Depends(require(Right.PROJECT_READ))], parts: Wired
) -> ProjectPage:
    """The projects that the caller is in; every one for who has a role in the organisation."""
    found = await parts.store.read(lambda conn: service.every(conn, call.principal))
    return ProjectPage(items=tuple(found))


@router.post("", status_code=201, response_model=ProjectDetail)
async def make(
    call: Annotated[Call, Depends(require(Right.PROJECT_ADMIN))],
    parts: Wired,
    body: Annotated[ProjectBody, Depends(json_body(ProjectBody))],
) -> ProjectDetail:
    """A new project, which its maker maintains."""
    now = parts.clock.now_ms()

    def write(conn: Connection) -> None:
        spend(conn, call, about=body.name)
        service.make(conn, call.principal, body.name, now)

    await parts.store.write(write)
    parts.access.forget()
    who = await parts.access.principal_of(call.principal.user_id or "", body.name)
    assert who is not None
    return await parts.store.read(lambda conn: service.one(conn, who))


@router.get("/{name}", response_model=ProjectDetail)
async def show(call: Read, parts: Wired, name: ProjectName) -> ProjectDetail:
    """A project with its members."""
    return await parts.store.read(lambda conn: service.one(conn, call.principal))


@router.delete("/{name}", status_code=204)
async def remove(
    call: Annotated[Call, Depends(require(Right.PROJECT_ADMIN, project="name"))],
    parts: Wired,
    name: ProjectName,
) -> Response:
    """Remove a project: nobody sees it any more, and its jobs are stopped. Its name is free once
    they have ended."""
    now, project_id = parts.clock.now_ms(), call.principal.project_id

    def write(conn: Connection) -> None:
        spend(conn, call)
        service.remove(conn, project_id, now)

    await parts.store.write(write)
    parts.access.forget()
    await stop_jobs(parts, project_id)
    return Response(status_code=204)


async def stop_jobs(parts: Parts, project_id: str | None = None) -> None:
    """End what is left of removed projects."""
    while stopped := await parts.store.write(
        lambda conn: service.stop_jobs(conn, parts.clock.now_ms(), project_id)
    ):
        for job_id in stopped:
            parts.reconcile.hint(job_id)


@router.put("/{name}/members/{user}", response_model=ProjectDetail)
async def set_member(
    call: Write,
    parts: Wired,
    name: ProjectName,
    user: UserName,
    body: Annotated[MemberBody, Depends(json_body(MemberBody))],
) -> ProjectDetail:
    """Let a user into the project, or give it another role there."""
    now = parts.clock.now_ms()

    def write(conn: Connection) -> ProjectDetail:
        spend(conn, call, role=body.role)
        service.set_member(conn, call.principal, user, body.role, now)
        return service.one(conn, call.principal)

    found = await parts.store.write(write)
    parts.access.forget()
    return found


@router.delete("/{name}/members/{user}", status_code=204)
async def remove_member(call: Write, parts: Wired, name: ProjectName, user: UserName) -> Response:
    """Take a user out of the project; its jobs there go on."""

    def write(conn: Connection) -> None:
        spend(conn, call)
        service.remove_member(conn, call.principal, user)

    await parts.store.write(write)
    parts.access.forget()
    return Response(status_code=204)


@router.post("/{name}/services", status_code=201, response_model=UserView)
async def make_service(
    call: Write,
    parts: Wired,
    name: ProjectName,
    body: Annotated[ServiceBody, Depends(json_body(ServiceBody))],
) -> UserView:
    """A service account of the project: a program's user, with keys and tokens and no
    password."""
    now = parts.clock.now_ms()

    def write(conn: Connection) -> UserView:
        spend(conn, call, about=f"{name}/{body.name}", role=body.role)
        row = users.make_service(conn, call.principal, body.name, body.role, now)
        return users.views(conn, [row])[0]

    return await parts.store.write(write)
