"""Who comes to a board: a page with the address that was made for its user, or a program with a
credential of its own. Never a cookie: pages of boards are user code."""

from __future__ import annotations

import hashlib

from sqlalchemy import Connection
from starlette.requests import Request

from windlass.core import signing
from windlass.core.access import Principal, Right
from windlass.core.errors import Forbidden, Unauthenticated
from windlass.server.access.calls import NOBODY, Call
from windlass.server.access.walls import around
from windlass.server.audit.naming import describe
from windlass.server.boards import capability
from windlass.server.http import exchange
from windlass.server.jobs import service as jobs
from windlass.server.jobs.service import Row
from windlass.server.parts import Parts

RIGHT = Right.JOB_READ


async def enter(request: Request, parts: Parts, ref: str, secret: str) -> Row:
    """The row of the job whose board is asked for. Raises as any route does; what is said of the
    call in the audit log never has the address's secret."""
    current, headers = exchange.of(request.scope), request.headers
    _settle(request, Call(NOBODY, current.request_id), ref)
    if headers.get("origin", "null") != "null":
        raise Forbidden("only the board's own page may call it")
    if "upgrade" in headers:
        raise Forbidden("a board has no connection that is upgraded")
    if "authorization" in headers:
        return await _job(parts, (await _with_credential(request, parts)).principal, ref)
    if len(ref) != 32:
        raise capability.dead()
    now = parts.sessions.now_ms()
    user_id, credential, project = capability.opened(parts.access.sealer, secret, ref, now)

    def read(conn: Connection) -> Principal:
        ages = parts.sessions.ages
        return capability.holder(conn, user_id, credential, project, ages, now)

    who = await parts.store.read(read)
    _settle(request, Call(who, current.request_id), ref)
    _check(who)
    return await _job(parts, who, ref)


async def _job(parts: Parts, who: Principal, ref: str) -> Row:
    store = around(parts.store, who.project_id)
    return await store.read(lambda conn: jobs.find(conn, who, ref))


def _check(who: Principal) -> None:
    for right in (RIGHT, Right.TRACK_READ):
        if not who.may(right):
            raise Forbidden(f"this credential ({who.kind}) lacks the right {right}", right=right)


async def _with_credential(request: Request, parts: Parts) -> Call:
    scope = request.scope
    signed = signing.SignedParts(
        scope["method"], scope.get("raw_path") or scope["path"].encode(),
        scope["query_string"], scope["headers"],
    )  # fmt: skip

    async def read_hash(claimed: str | None) -> str:
        actual = hashlib.sha256(await request.body()).hexdigest()
        if claimed is not None and claimed != actual:
            raise Unauthenticated("X-Wl-Content-Sha256 is not the hash of the body")
        return actual

    current = exchange.of(scope)
    call = await parts.access.authenticate(signed, read_hash, current.request_id)
    _settle(request, call, request.path_params["ref"])
    _check(call.principal)
    return call


def _settle(request: Request, call: Call, ref: str) -> None:
    """It is known who calls; nothing that passes here changes anything of ours."""
    exchange.of(request.scope).call = call
    describe(call, request.scope, RIGHT, repeatable=True)
    call.about, call.settled = ref, True
