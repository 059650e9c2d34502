"""/api/v1/login: how one who is not known yet becomes so. With /health and the login page, the
only routes that need no credential."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from sqlalchemy import Connection
from starlette.responses import Response

from windlass.core.access import Right
from windlass.core.errors import Unauthenticated
from windlass.core.sessions import (
    KeyLoginBody,
    LinkBody,
    LoginBody,
    NewKeyView,
    NewPasswordBody,
    WaysView,
)
from windlass.server.access import keys
from windlass.server.access.calls import Call, spend
from windlass.server.access.principals import no_project
from windlass.server.http.body import json_body
from windlass.server.http.marks import require
from windlass.server.parts import Parts, Wired
from windlass.server.sessions import attempts, links, service
from windlass.server.sessions.passwords import check_new
from windlass.server.sessions.routes import address_of, begin, set_session

router = APIRouter(prefix="/api/v1/login", tags=["login"])

Anyone = Annotated[Call, Depends(require(Right.PUBLIC))]
_DEAD = "the link was used already, or its time is over"


@router.get("", response_model=WaysView)
async def ways(call: Anyone, parts: Wired) -> WaysView:
    """How one can log in here."""
    oidc = parts.settings.oidc
    return WaysView(password=True, oidc=None if oidc is None else oidc.issuer)


@router.post("", status_code=204)
async def login(
    call: Anyone,
    parts: Wired,
    request: Request,
    body: Annotated[LoginBody, Depends(json_body(LoginBody))],
) -> Response:
    """A session for a browser, in a cookie."""
    address, passwords = address_of(request), parts.sessions.passwords
    user = await _checked(parts, call, body.user, body.password, address)
    fresh = None
    if passwords.outdated(user.password):
        fresh = await passwords.hash(body.password)

    def write(conn: Connection) -> None:
        attempts.right(conn, body.user, address)
        if fresh is not None:
            service.rehash(conn, user.id, user.password, fresh)

    return await begin(parts, request, call, user, "password", write)


@router.post("/key", status_code=201, response_model=NewKeyView)
async def login_for_key(
    call: Anyone,
    parts: Wired,
    request: Request,
    body: Annotated[KeyLoginBody, Depends(json_body(KeyLoginBody))],
) -> NewKeyView:
    """An access key for a program of the user, instead of a session; its secret is told here and
    never again."""
    address = address_of(request)
    user = await _checked(parts, call, body.user, body.password, address)
    me = await parts.access.principal_of(user.id, body.project)
    if me is None:
        raise Unauthenticated(service.WRONG)
    if not me.project_id:
        raise no_project(body.project or "for this user")
    call.principal = me
    now = parts.sessions.now_ms()

    def write(conn: Connection) -> keys.NewKey:
        spend(conn, call, about=user.name)
        attempts.right(conn, body.user, address)
        service.same_person(conn, user.id, user.epoch)
        return keys.make(
            conn, parts.access.sealer, user_id=user.id, user=user.name,
            project_id=me.project_id, project=me.project_name, name=body.name, now_ms=now,
        )  # fmt: skip

    new = await parts.store.write(write)
    return NewKeyView(
        access_key=new.access_key, secret_key=new.secret_key, user=new.user,
        project=new.project, name=body.name,
    )  # fmt: skip


@router.post("/link", status_code=204)
async def login_by_link(
    call: Anyone,
    parts: Wired,
    request: Request,
    body: Annotated[LinkBody, Depends(json_body(LinkBody))],
) -> Response:
    """A session for the browser that was given a link. A POST, so that nobody who only looks at
    the address uses it up."""
    now = parts.sessions.now_ms()
    user = await parts.store.read(lambda conn: _of_link(conn, links.BROWSER, body.link, now))

    def write(conn: Connection) -> None:
        if links.take(conn, links.BROWSER, body.link, now) is None:
            raise Unauthenticated(_DEAD)

    return await begin(parts, request, call, user, "link", write)


@router.post("/password", status_code=204)
async def set_password_by_link(
    call: Anyone,
    parts: Wired,
    request: Request,
    body: Annotated[NewPasswordBody, Depends(json_body(NewPasswordBody))],
) -> Response:
    """A new password, by the link that an administrator made; and a session."""
    sessions, now = parts.sessions, parts.sessions.now_ms()
    user = await parts.store.read(lambda conn: _of_link(conn, links.PASSWORD, body.link, now))
    hashed = await sessions.passwords.hash(check_new(body.password, user.name))
    call.principal = await sessions.who(user.id)

    def write(conn: Connection) -> service.Begun:
        spend(conn, call, about=user.name)
        if links.take(conn, links.PASSWORD, body.link, now) is None:
            raise Unauthenticated(_DEAD)
        service.same_person(conn, user.id, user.epoch)
        service.set_password(conn, user.id, hashed)
        fresh = service.person(conn, user_id=user.id)
        assert fresh is not None, "it was there in this transaction"
        return service.begin(
            conn, fresh, how="link", address=address_of(request),
            browser=request.headers.get("user-agent", ""), ages=sessions.ages, now_ms=now,
        )  # fmt: skip

    response = Response(status_code=204)
    set_session(response, await parts.store.write(write))
    return response


async def _checked(parts: Parts, call: Call, name: str, password: str, address: str) -> Any:
    """The person whose password this is. An unknown name, one without a password, a disabled one
    and a wrong password get the same answer after the same work. Raises Unauthenticated,
    LimitExceeded."""
    sessions = parts.sessions
    now = sessions.now_ms()
    call.about = name
    await parts.store.write(lambda conn: attempts.begin(conn, name, address, now))
    user = await parts.store.read(lambda conn: service.person(conn, name=name))
    known = None if user is None else user.password
    if not await sessions.passwords.verify(password, known) or user is None:
        raise Unauthenticated(service.WRONG)
    return user


def _of_link(conn: Connection, purpose: str, link: str, now_ms: int) -> Any:
    found = links.look(conn, purpose, link, now_ms)
    user = None if found is None else service.person(conn, user_id=found.user_id)
    if user is None:
        raise Unauthenticated(_DEAD)
    return user
