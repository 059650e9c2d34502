"""Who may do what: rights, and the caller that has them.

Every route of the server names one `Right` (or `PUBLIC`); a caller carries a set of them.
Roles per project are for later: whatever decides, decides in `rights_of`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Right(StrEnum):
    PUBLIC = "public"
    """No credential is needed: health, nothing that tells about users or jobs."""
    JOB_READ = "job.read"
    JOB_WRITE = "job.write"
    JOB_DEBUG = "job.debug"
    """Look into a running job: stacks, profiles, a debugger."""
    NODE_READ = "node.read"
    QUEUE_READ = "queue.read"
    QUEUE_WRITE = "queue.write"
    """Change queues, and the order of the jobs in them: an owner's or an administrator's. Who
    has it sees the jobs of every project in a queue."""
    QUOTA_READ = "quota.read"
    QUOTA_WRITE = "quota.write"
    """Change what projects own and may borrow: an owner's or an administrator's."""
    FEED_READ = "feed.read"
    BUNDLE_WRITE = "bundle.write"
    SERVER_READ = "server.read"
    SERVER_WRITE = "server.write"
    WORKER = "worker"
    """Report for one attempt; nothing else."""
    RUN = "run"
    """Track one attempt's run from inside user code; nothing else."""


class CallerKind(StrEnum):
    USER = "user"
    WORKER = "worker"
    RUN = "run"


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller whose credential has been checked."""

    kind: CallerKind
    project_id: str
    user_id: str | None = None
    user_name: str = ""
    project_name: str = ""
    job_id: str | None = None
    attempt_id: str | None = None
    rights: frozenset[Right] = frozenset()

    def may(self, right: Right) -> bool:
        return right is Right.PUBLIC or right in self.rights


_OF_A_USER = frozenset(
    {
        Right.JOB_READ,
        Right.JOB_WRITE,
        Right.JOB_DEBUG,
        Right.NODE_READ,
        Right.QUEUE_READ,
        Right.QUEUE_WRITE,
        Right.QUOTA_READ,
        Right.QUOTA_WRITE,
        Right.FEED_READ,
        Right.BUNDLE_WRITE,
        Right.SERVER_READ,
        Right.SERVER_WRITE,
    }
)
_RIGHTS = {
    CallerKind.USER: _OF_A_USER,
    CallerKind.WORKER: frozenset({Right.WORKER}),
    CallerKind.RUN: frozenset({Right.RUN}),
}


def rights_of(kind: CallerKind) -> frozenset[Right]:
    """What a caller of this kind may do in the project of its credential."""
    return _RIGHTS[kind]
