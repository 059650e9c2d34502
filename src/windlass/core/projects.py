"""The project: a tenant, and what its users are in it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from windlass.core.access import ProjectRole, UserKind
from windlass.core.strict import Name, Strict

RoleInProject = Annotated[ProjectRole, Field(strict=False)]
"""As a word of JSON."""


class ProjectBody(Strict):
    name: Name


class MemberBody(Strict):
    role: RoleInProject


class ServiceBody(Strict):
    """A service account of the project: a program's, with keys and tokens and no password."""

    name: Name
    role: RoleInProject = ProjectRole.MEMBER


class MemberView(Strict):
    user: str
    kind: UserKind
    role: ProjectRole
    disabled: bool
    added: str


class ProjectView(Strict):
    name: str
    role: ProjectRole | None
    """The caller's; None: it sees the project by its role in the organisation."""
    members: int
    jobs: int
    """Unfinished ones."""
    created: str


class ProjectDetail(ProjectView):
    people: tuple[MemberView, ...]


class ProjectPage(Strict):
    items: tuple[ProjectView, ...]
