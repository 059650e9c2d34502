"""/api/v1/login/oidc: to the issuer and back."""

from __future__ import annotations

import base64
import json
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request
from sqlalchemy import Connection
from starlette.responses import Response

from windlass.core.access import Right
from windlass.core.errors import Internal, NotFound, Unauthenticated, WindlassError
from windlass.core.sessions import IdentityBody
from windlass.server.access.calls import Call, spend
from windlass.server.audit import refusals
from windlass.server.http.body import json_body
from windlass.server.http.marks import require
from windlass.server.http.openapi import answers
from windlass.server.http.query import ObjectName, QueryLine
from windlass.server.parts import Parts, Wired
from windlass.server.sessions import cookies, identities, links
from windlass.server.sessions.oidc import Issuer, Journey
from windlass.server.sessions.routes import begin

router = APIRouter(prefix="/api/v1", tags=["login"])

Anyone = Annotated[Call, Depends(require(Right.PUBLIC))]
JOURNEY_SECONDS = 600
_ELSEWHERE = answers("text/html", status=303)


@router.get("/login/oidc", status_code=303, response_class=Response, responses=_ELSEWHERE)
async def leave(call: Anyone, parts: Wired) -> Response:
    """To the issuer's page, where the user logs in."""
    journey = Journey.new()
    url = await _issuer(parts).leave(journey)
    response = _to(url)
    sealed = _seal(parts, journey, parts.sessions.now_ms() + JOURNEY_SECONDS * 1000)
    response.headers.append("set-cookie", cookies.setting(cookies.LOGIN, sealed, JOURNEY_SECONDS))
    return response


@router.get("/login/oidc/back", status_code=303, response_class=Response, responses=_ELSEWHERE)
async def arrive(
    call: Anyone,
    parts: Wired,
    request: Request,
    code: QueryLine = "",
    state: QueryLine = "",
    iss: QueryLine = "",
    error: QueryLine = "",
    error_description: QueryLine = "",
    error_uri: QueryLine = "",
    session_state: QueryLine = "",
    scope: QueryLine = "",
    authuser: QueryLine = "",
    prompt: QueryLine = "",
    hd: QueryLine = "",
    client_info: QueryLine = "",
) -> Response:
    """Back from the issuer: a session, or the login page with the reason. Issuers add parameters
    that are not looked at."""
    issuer = _issuer(parts)
    try:
        if error:
            raise Unauthenticated(f"the issuer says: {error[:80]}")
        response = await _session(parts, issuer, request, call, code, state, iss)
    except WindlassError as err:
        if isinstance(err, Internal):
            raise
        refusals.note(request.scope, call, err)
        hint = f" ({err.hint})" if err.hint else ""
        response = _to(f"{parts.settings.address}/login#error={quote(err.message + hint)}")
    response.headers.append("set-cookie", cookies.clearing(cookies.LOGIN))
    return response


@router.put("/users/{name}/identity", status_code=204)
async def link(
    call: Annotated[Call, Depends(require(Right.USER_WRITE))],
    parts: Wired,
    name: ObjectName,
    body: Annotated[IdentityBody, Depends(json_body(IdentityBody))],
) -> Response:
    """Say which account of the issuer is this user: by its mail address, or what else names it."""
    oidc = _issuer(parts).settings
    now = parts.sessions.now_ms()

    def write(conn: Connection) -> None:
        spend(conn, call, about=name)
        identities.link(conn, oidc.issuer, name, body.value, call.principal, now)

    await parts.store.write(write)
    return Response(status_code=204)


async def _session(
    parts: Parts, issuer: Issuer, request: Request, call: Call, code: str, state: str, iss: str
) -> Response:
    now = parts.sessions.now_ms()
    journey = _unseal(parts, cookies.value_of(request.scope["headers"], cookies.LOGIN), now)
    if journey is None or not code or not state:
        raise Unauthenticated("this login has not begun here, or its time is over")
    claims = await issuer.arrive(journey, state, code, iss)

    def who(conn: Connection) -> object:
        if not links.once(conn, links.OIDC, state, seconds=JOURNEY_SECONDS, now_ms=now):
            raise Unauthenticated("this login was used already")
        return identities.user_of(conn, issuer.settings, claims, now)

    user = await parts.store.write(who)
    response = await begin(parts, request, call, user, "oidc")
    response.status_code = 303
    response.headers["location"] = f"{parts.settings.address}/login"
    return response


def _issuer(parts: Parts) -> Issuer:
    if parts.sessions.issuer is None:
        raise NotFound("there is no OpenID issuer here", hint="start it with --oidc-issuer")
    return parts.sessions.issuer


def _to(url: str) -> Response:
    return Response(
        status_code=303,
        headers={"location": url, "cache-control": "no-store", "referrer-policy": "no-referrer"},
        media_type="text/html",
    )


def _seal(parts: Parts, journey: Journey, until_ms: int) -> str:
    sealer = parts.access.sealer
    held = json.dumps([until_ms, journey.state, journey.nonce, journey.verifier])
    sealed = base64.urlsafe_b64encode(sealer.seal(held, "oidc")).decode()
    return f"{sealer.kek}.{sealed}"


def _unseal(parts: Parts, value: str | None, now_ms: int) -> Journey | None:
    kek, _, sealed = (value or "").partition(".")
    try:
        held = parts.access.sealer.unseal(base64.urlsafe_b64decode(sealed), kek, "oidc")
        until_ms, state, nonce, verifier = json.loads(held)
    except (Internal, ValueError):
        return None
    return Journey(state, nonce, verifier) if until_ms > now_ms else None
