"""Who calls over MLflow's wire: a user with a token (as bearer, or as the password of Basic,
which is all that its clients know), or user code with the token of its attempt.

An attempt's token is looked up at most every few seconds, for metrics come in streams. It is good
while its attempt is the newest of its job and not over.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import time
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select
from starlette.requests import HTTPConnection

from windlass.core import signing
from windlass.core.access import CallerKind, Principal, Right, rights_of
from windlass.core.errors import Fenced, Forbidden, Unauthenticated
from windlass.core.jobs import AttemptState
from windlass.server.access.calls import Call, use
from windlass.server.access.principals import no_project
from windlass.server.access.service import KEY_SECONDS
from windlass.server.access.tables import projects, users
from windlass.server.access.walls import WALLED
from windlass.server.audit.naming import describe
from windlass.server.http import exchange
from windlass.server.jobs.tables import attempts, jobs

_OF_ATTEMPT = b"wlr_"
_MOST = 4096


@dataclass(frozen=True, slots=True)
class Known:
    principal: Principal
    attempt: int
    until: float


class Door:
    """One per server; holds nothing but what it looked up lately."""

    def __init__(self) -> None:
        self._known: dict[bytes, Known] = {}

    async def enter(
        self, connection: HTTPConnection, parts: Any, project: str, right: Right, audited: bool
    ) -> tuple[Call, int]:
        """The call and the number of the attempt that makes it; raises as any route does.
        `audited`: the handler writes its row of the audit log."""
        scope = connection.scope
        headers = [_as_bearer(name, value) for name, value in scope["headers"]]
        token = next((v[7:].strip() for n, v in headers if _is_bearer(n, v)), b"")
        current, attempt = exchange.of(scope), 0
        if token.startswith(_OF_ATTEMPT):
            known = await self._of_attempt(token, parts)
            if known.principal.project_name != project:
                raise no_project(project)
            call, attempt = Call(known.principal, current.request_id), known.attempt
        else:
            signed = signing.SignedParts(
                scope["method"], scope.get("raw_path") or scope["path"].encode(),
                scope["query_string"], headers,
            )  # fmt: skip
            call = await parts.access.authenticate(signed, _claimed, current.request_id, project)
        current.call = call
        describe(call, scope, right, repeatable=not audited)
        if right in WALLED:
            call.within = call.principal.project_id
        if not call.principal.may(right):
            raise Forbidden(
                f"this credential ({call.principal.kind}) lacks the right {right}",
                right=str(right),
            )
        if call.signature_hash is not None and not audited:
            await parts.store.write(lambda conn: use(conn, call))
        return call, attempt

    async def _of_attempt(self, token: bytes, parts: Any) -> Known:
        digest = hashlib.sha256(token)
        known = self._known.get(digest.digest())
        if known is not None and known.until > time.monotonic():
            return known
        hexadecimal = digest.hexdigest()
        now = time.monotonic()
        principal, number = await parts.store.read(lambda conn: _look(conn, hexadecimal))
        known = Known(principal, number, now + KEY_SECONDS)
        while len(self._known) >= _MOST:
            del self._known[next(iter(self._known))]
        self._known[digest.digest()] = known
        return known


def _look(conn: Connection, token_hash: str) -> tuple[Principal, int]:
    row = conn.execute(
        select(
            attempts.c.id, attempts.c.number, attempts.c.state, jobs.c.id.label("job_id"),
            jobs.c.fence, jobs.c.project_id, jobs.c.user_id, projects.c.name.label("project"),
            users.c.name.label("user"),
        )
        .join(jobs, jobs.c.id == attempts.c.job_id)
        .join(projects, projects.c.id == jobs.c.project_id)
        .join(users, users.c.id == jobs.c.user_id)
        .where(attempts.c.run_hash == token_hash)
    ).first()  # fmt: skip
    if row is None:
        raise Unauthenticated("the token is not known, or its time is over")
    if row.state == AttemptState.OVER or row.number != row.fence:
        raise Fenced(f"attempt {row.number} is over: the newest is {row.fence}")
    return Principal(
        kind=CallerKind.RUN, project_id=row.project_id, project_name=row.project,
        user_name=row.user, job_id=row.job_id, attempt_id=row.id,
        rights=rights_of(CallerKind.RUN),
    ), row.number  # fmt: skip


def _as_bearer(name: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Basic's password as the bearer token that it is; anything else as it came."""
    if name != b"authorization" or value[:6].lower() != b"basic ":
        return name, value
    try:
        _, _, password = base64.b64decode(value[6:].strip(), validate=True).partition(b":")
    except (ValueError, binascii.Error):
        return name, value
    return name, b"Bearer " + password


def _is_bearer(name: bytes, value: bytes) -> bool:
    return name == b"authorization" and value[:7].lower() == b"bearer "


async def _claimed(claimed: str | None) -> str:
    """Of a signed call's body only the hash that it names; a body that is read is held to it."""
    return claimed or signing.EMPTY_HASH
