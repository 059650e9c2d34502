"""The user: who acts, with which keys and tokens."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from windlass.core.access import OrgRole, ProjectRole, Right, UserKind
from windlass.core.projects import RoleInProject
from windlass.core.strict import DurationMs, Line, Name, Strict

DAY_MS = 86_400_000

RoleInOrganisation = Annotated[OrgRole, Field(strict=False)]
KindOfUser = Annotated[UserKind, Field(strict=False)]


class UserBody(Strict):
    name: Name
    kind: KindOfUser = UserKind.PERSON
    role: RoleInOrganisation | None = None
    """In the organisation; only an owner makes owners."""
    project: Name | None = None
    """One to be in at once."""
    project_role: RoleInProject = ProjectRole.MEMBER


class OrgRoleBody(Strict):
    role: RoleInOrganisation | None


class DisabledBody(Strict):
    disabled: bool
    """True: all its credentials are refused from now on; its jobs go on."""


class UserRemoved(Strict):
    name: str
    unfinished: int
    """Its jobs that had not ended: they go on, or were told to end."""


class InProject(Strict):
    project: str
    role: ProjectRole


class UserView(Strict):
    name: str
    kind: UserKind
    role: OrgRole | None
    project: str | None
    """The project that a service account is of."""
    disabled: bool
    created: str
    projects: tuple[InProject, ...]
    keys: int
    """Live ones."""


class UserPage(Strict):
    items: tuple[UserView, ...]


class KeyBody(Strict):
    name: Name | None = None
    user: Name | None = None
    """Another's: a service account of the project, or anybody's for an administrator."""


class RotateBody(Strict):
    overlap: Annotated[DurationMs, Field(le=30 * DAY_MS)] = DAY_MS
    """So long the old key goes on beside the new one."""


class KeyView(Strict):
    access_key: str
    name: str
    user: str
    project: str
    created: str
    last_used: str | None
    expires: str | None
    state: str
    """live | retiring (replaced, dies at `expires`) | dead"""


class KeyMade(KeyView):
    secret_key: str
    """Shown here and never again."""


class KeyPage(Strict):
    items: tuple[KeyView, ...]


class TokenBody(Strict):
    name: Name
    scopes: Annotated[tuple[Line, ...], Field(strict=False, min_length=1, max_length=64)] = (
        "write",
    )
    expires: DurationMs = 30 * DAY_MS
    user: Name | None = None


class TokenView(Strict):
    id: str
    name: str
    user: str
    project: str
    scopes: tuple[str, ...]
    created: str
    expires: str
    last_used: str | None
    expired: bool


class TokenMade(TokenView):
    token: str
    """Shown here and never again."""


class TokenPage(Strict):
    items: tuple[TokenView, ...]


class WhoAmI(Strict):
    user: str
    kind: UserKind
    org_role: OrgRole | None
    project: str | None
    role: ProjectRole | None
    credential: str
    """The access key, or the id of the token or session."""
    rights: tuple[Right, ...]


class RekeyBody(Strict):
    drop_old: bool = False
    """Take the key-encryption keys that no row needs any more out of the file."""


class RekeyAnswer(Strict):
    kek: str
    rewrapped: int
    kept: tuple[str, ...]
    """Older key-encryption keys that are still in the file."""
