"""Who may do what: rights, the roles that give them, and the caller that has them.

Every route of the server names one `Right` (or `PUBLIC`); a caller carries a set of them. Which
role gives which right is the one table below, and nothing else decides:

    organisation   owner    everything
                   admin    everything, but makes and unmakes no owner
                   auditor  reads everything of every project, changes nothing
    project        viewer      reads
                   member      viewer + submits, and changes its own jobs
                   maintainer  member + everybody's jobs, members and secrets of the project

A user has at most one role of each kind, and the rights of both together, in the one project that
a call is about. A token narrows them, and never adds one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Right(StrEnum):
    PUBLIC = "public"
    """No credential is needed: health, nothing that tells about users or jobs."""
    JOB_READ = "job.read"
    JOB_WRITE = "job.write"
    """Submit, and change one's own jobs."""
    JOB_WRITE_ANY = "job.write-any"
    """Change everybody's jobs in the project."""
    JOB_DEBUG = "job.debug"
    """Look into one's own running job: stacks, profiles, a debugger."""
    JOB_DEBUG_ANY = "job.debug-any"
    NODE_READ = "node.read"
    QUEUE_READ = "queue.read"
    QUEUE_WRITE = "queue.write"
    """Change queues, and the order of the jobs in them: an owner's or an administrator's. Who
    has it sees the jobs of every project in a queue."""
    QUOTA_READ = "quota.read"
    QUOTA_WRITE = "quota.write"
    """Change what projects own and may borrow: an owner's or an administrator's."""
    LIMIT_READ = "limit.read"
    LIMIT_WRITE = "limit.write"
    FEED_READ = "feed.read"
    BUNDLE_WRITE = "bundle.write"
    MODEL_READ = "model.read"
    MODEL_WRITE = "model.write"
    """Register models, describe them and move their aliases."""
    MODEL_REMOVE = "model.remove"
    """Remove one's own models and versions."""
    MODEL_REMOVE_ANY = "model.remove-any"
    """Remove everybody's models in the project."""
    TRACK_READ = "track.read"
    """Look at a project's experiments and runs."""
    TRACK_WRITE = "track.write"
    """Make experiments and runs, and log to them."""
    SECRET_READ = "secret.read"
    """The names of a project's secrets; nobody reads their values."""
    SECRET_WRITE = "secret.write"
    SELF_READ = "self.read"
    """Ask who one is. Every credential of a user has it, however narrow."""
    PROJECT_READ = "project.read"
    PROJECT_WRITE = "project.write"
    """Change a project's members, and its service accounts."""
    PROJECT_ADMIN = "project.admin"
    """Make and remove projects."""
    USER_READ = "user.read"
    USER_WRITE = "user.write"
    KEY_OWN = "key.own"
    """One's own keys, tokens and password."""
    USAGE_READ = "usage.read"
    USAGE_READ_ALL = "usage.read-all"
    PRICE_WRITE = "price.write"
    """Prices and budgets."""
    AUDIT_READ = "audit.read"
    AUDIT_READ_ALL = "audit.read-all"
    SERVER_READ = "server.read"
    SERVER_WRITE = "server.write"
    WORKER = "worker"
    """Report for one attempt; nothing else."""
    RUN = "run"
    """Register checkpoints of one attempt from inside user code."""


class OrgRole(StrEnum):
    OWNER = "owner"
    ADMIN = "admin"
    AUDITOR = "auditor"


class ProjectRole(StrEnum):
    VIEWER = "viewer"
    MEMBER = "member"
    MAINTAINER = "maintainer"


class UserKind(StrEnum):
    PERSON = "person"
    SERVICE = "service"
    """A program's account: keys and tokens only, no password."""


class CallerKind(StrEnum):
    USER = "user"
    WORKER = "worker"
    RUN = "run"


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller whose credential has been checked, in the project that its call is about."""

    kind: CallerKind
    project_id: str
    """"": none; such a caller has its own keys and the list of its projects, nothing else."""
    user_id: str | None = None
    user_name: str = ""
    project_name: str = ""
    job_id: str | None = None
    attempt_id: str | None = None
    rights: frozenset[Right] = frozenset()
    role: ProjectRole | None = None
    """What it is in that project; None for who sees it by its role in the organisation."""
    org_role: OrgRole | None = None
    credential: str = ""
    """The access key, or the id of the token or session, for the audit."""
    user_kind: UserKind = UserKind.PERSON

    def may(self, right: Right) -> bool:
        return right is Right.PUBLIC or right in self.rights


_READ = frozenset(
    {
        Right.JOB_READ,
        Right.NODE_READ,
        Right.QUEUE_READ,
        Right.QUOTA_READ,
        Right.LIMIT_READ,
        Right.FEED_READ,
        Right.MODEL_READ,
        Right.TRACK_READ,
        Right.PROJECT_READ,
        Right.USAGE_READ,
        Right.SERVER_READ,
    }
)
OF_ANYBODY = frozenset({Right.SELF_READ, Right.KEY_OWN, Right.PROJECT_READ})
"""What every user may, also one who is in no project: its own keys, the list of its projects."""
_VIEWER = _READ | OF_ANYBODY
_MEMBER = _VIEWER | {
    Right.JOB_WRITE,
    Right.JOB_DEBUG,
    Right.BUNDLE_WRITE,
    Right.MODEL_WRITE,
    Right.MODEL_REMOVE,
    Right.TRACK_WRITE,
    Right.SECRET_READ,
}
_MAINTAINER = _MEMBER | {
    Right.JOB_WRITE_ANY,
    Right.JOB_DEBUG_ANY,
    Right.MODEL_REMOVE_ANY,
    Right.PROJECT_WRITE,
    Right.SECRET_WRITE,
    Right.AUDIT_READ,
}
_AUDITOR = _VIEWER | {
    Right.SECRET_READ,
    Right.USER_READ,
    Right.USAGE_READ_ALL,
    Right.AUDIT_READ,
    Right.AUDIT_READ_ALL,
}
_ADMIN = (
    _MAINTAINER
    | _AUDITOR
    | {
        Right.QUEUE_WRITE,
        Right.QUOTA_WRITE,
        Right.LIMIT_WRITE,
        Right.PROJECT_ADMIN,
        Right.USER_WRITE,
        Right.PRICE_WRITE,
        Right.SERVER_WRITE,
    }
)

RIGHTS_IN_PROJECT: dict[ProjectRole, frozenset[Right]] = {
    ProjectRole.VIEWER: _VIEWER,
    ProjectRole.MEMBER: _MEMBER,
    ProjectRole.MAINTAINER: _MAINTAINER,
}
RIGHTS_IN_ORGANISATION: dict[OrgRole, frozenset[Right]] = {
    OrgRole.OWNER: _ADMIN,  # that it alone makes owners is no route's, but a change's
    OrgRole.ADMIN: _ADMIN,
    OrgRole.AUDITOR: _AUDITOR,
}
NEEDS_PROJECT = frozenset(
    {
        Right.JOB_READ,
        Right.JOB_WRITE,
        Right.JOB_WRITE_ANY,
        Right.JOB_DEBUG,
        Right.JOB_DEBUG_ANY,
        Right.FEED_READ,
        Right.BUNDLE_WRITE,
        Right.MODEL_READ,
        Right.MODEL_WRITE,
        Right.MODEL_REMOVE,
        Right.MODEL_REMOVE_ANY,
        Right.TRACK_READ,
        Right.TRACK_WRITE,
        Right.SECRET_READ,
        Right.SECRET_WRITE,
        Right.PROJECT_WRITE,
        Right.USAGE_READ,
        Right.AUDIT_READ,
        Right.SERVER_READ,
    }
)
"""Rights that are about one project: a call that is about none has none of them."""
_OF_PROGRAMS = {
    CallerKind.WORKER: frozenset({Right.WORKER}),
    CallerKind.RUN: frozenset(
        {Right.RUN, Right.TRACK_READ, Right.TRACK_WRITE, Right.MODEL_READ, Right.MODEL_WRITE}
    ),
}


def rights_of(kind: CallerKind) -> frozenset[Right]:
    """What the program that holds an attempt's token may do. A user's rights are its roles'."""
    return _OF_PROGRAMS[kind]


def rights_in(org_role: OrgRole | None, role: ProjectRole | None) -> frozenset[Right]:
    """What a user of these roles may do in the project that `role` is of."""
    rights = OF_ANYBODY
    if role is not None:
        rights |= RIGHTS_IN_PROJECT[role]
    if org_role is not None:
        rights |= RIGHTS_IN_ORGANISATION[org_role]
    return rights


SCOPE_WORDS: dict[str, frozenset[Right]] = {
    "read": (_VIEWER | {Right.SECRET_READ, Right.AUDIT_READ}) - {Right.KEY_OWN},
    "write": _MEMBER - {Right.KEY_OWN},
}
"""Short words for scopes of a token: all that reads in its project; that and what a member
changes. What is of the whole organisation is named right by right."""

SCOPES = (*SCOPE_WORDS, *sorted(_ADMIN - {Right.KEY_OWN}))
"""What a token may be given. Never `key.own`: a token that makes keys would outlive itself."""


def rights_in_scope(scopes: Iterable[str]) -> frozenset[Right]:
    """The rights that a token's scopes let through. Unknown ones let nothing more through."""
    found = frozenset({Right.SELF_READ})
    for scope in scopes:
        if scope in SCOPE_WORDS:
            found |= SCOPE_WORDS[scope]
        elif scope in SCOPES:
            found |= {Right(scope)}
    return found
