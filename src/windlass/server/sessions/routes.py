"""/api/v1/session, /sessions, /password: what one who is known does about being so."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request
from sqlalchemy import Connection, Row, select
from starlette.responses import Response

from windlass.core.access import OrgRole, Right
from windlass.core.errors import Forbidden, InvalidInput, NotFound, Unauthenticated
from windlass.core.sessions import (
    LinkView,
    Nothing,
    PasswordBody,
    SessionPage,
    SessionView,
    WhoView,
)
from windlass.server.access.calls import Call, spend
from windlass.server.access.tables import users
from windlass.server.clock import stamp
from windlass.server.http.body import json_body
from windlass.server.http.marks import require
from windlass.server.http.query import ObjectName
from windlass.server.parts import Parts, Wired
from windlass.server.sessions import attempts, cookies, links, service
from windlass.server.sessions.passwords import check_new

router = APIRouter(prefix="/api/v1", tags=["sessions"])

Known = Annotated[Call, Depends(require(Right.SELF_READ))]
Own = Annotated[Call, Depends(require(Right.KEY_OWN))]
Empty = Annotated[Nothing, Depends(json_body(Nothing))]
SessionId = Annotated[str, Path(pattern="^[0-9a-f]{32}$")]

LINK_SECONDS = 60
RESET_SECONDS = 24 * 3600
CLIENT_HEADER = "X-Wl-Client"


@router.get("/session", response_model=WhoView)
async def who(call: Known, parts: Wired) -> WhoView:
    """Who calls, and with what."""
    me = call.principal
    now = parts.sessions.now_ms()

    def read(conn: Connection) -> tuple[bool, SessionView | None]:
        user_id = me.user_id or ""
        known = conn.execute(select(users.c.password).where(users.c.id == user_id)).scalar()
        mine = service.listing(conn, user_id, now, parts.sessions.ages)
        current = next((row for row in mine if row.id == me.credential), None)
        return known is not None, None if current is None else _view(current, me.credential)

    has_password, session = await parts.store.read(read)
    return WhoView(
        user=me.user_name,
        kind=me.user_kind.value,
        role=me.org_role.value if me.org_role else None,
        project=me.project_name or None,
        project_role=me.role.value if me.role else None,
        rights=tuple(sorted(right.value for right in me.rights)),
        has_password=has_password,
        session=session,
        header=CLIENT_HEADER,
    )


@router.post("/logout", status_code=204)
async def logout(call: Own, parts: Wired, body: Empty) -> Response:
    """End the session that calls. With a key or a token there is none to end."""
    me = call.principal

    def write(conn: Connection) -> None:
        spend(conn, call)
        service.end(conn, me.user_id or "", me.credential)

    await parts.store.write(write)
    response = Response(status_code=204)
    response.headers.append("set-cookie", cookies.clearing(cookies.SESSION))
    return response


@router.get("/sessions", response_model=SessionPage)
async def listing(call: Own, parts: Wired) -> SessionPage:
    """One's own sessions, the one used last first."""
    me = call.principal
    now = parts.sessions.now_ms()
    rows = await parts.store.read(
        lambda conn: service.listing(conn, me.user_id or "", now, parts.sessions.ages)
    )
    return SessionPage(items=tuple(_view(row, me.credential) for row in rows))


@router.delete("/sessions/{session_id}", status_code=204)
async def end(call: Own, parts: Wired, session_id: SessionId) -> Response:
    """End one of one's own sessions: dead at once, on every server."""

    def write(conn: Connection) -> None:
        spend(conn, call)
        service.end(conn, call.principal.user_id or "", session_id)

    await parts.store.write(write)
    return Response(status_code=204)


@router.delete("/sessions", status_code=204)
async def end_all(call: Own, parts: Wired) -> Response:
    """End all of one's own sessions but the one that calls."""

    def write(conn: Connection) -> None:
        spend(conn, call)
        service.end_all(conn, call.principal.user_id or "", but=call.principal.credential)

    await parts.store.write(write)
    return Response(status_code=204)


@router.post("/sessions/links", status_code=201, response_model=LinkView)
async def make_link(call: Own, parts: Wired, body: Empty) -> LinkView:
    """An address that logs a browser in, once, within a minute. Only for a call that is signed
    with an access key: a session that could make another would never end."""
    user_id = service.only_people(call.principal)
    if call.signature_hash is None:
        raise Forbidden("only a call that is signed with an access key makes a link")
    now = parts.sessions.now_ms()

    def write(conn: Connection) -> str:
        spend(conn, call)
        return links.make(conn, links.BROWSER, user_id, seconds=LINK_SECONDS, now_ms=now)

    token = await parts.store.write(write)
    url = f"{parts.settings.address}/login#link={token}"
    return LinkView(url=url, expires=stamp(now + LINK_SECONDS * 1000))


@router.put("/password", status_code=204)
async def change_password(
    call: Own,
    parts: Wired,
    request: Request,
    body: Annotated[PasswordBody, Depends(json_body(PasswordBody))],
) -> Response:
    """Set or change one's own password. All sessions end, and tokens too; the one that calls gets
    a new one. Access keys stay."""
    me, sessions = call.principal, parts.sessions
    user_id = service.only_people(me)
    new = check_new(body.new, me.user_name)
    now, address = sessions.now_ms(), address_of(request)
    known = await parts.store.read(lambda conn: service.person(conn, user_id=user_id))
    if known is None:
        raise Unauthenticated(service.WRONG)
    if known.password is not None:
        if body.old is None:
            raise InvalidInput("old: the password there is now is needed")
        await parts.store.write(lambda conn: attempts.begin(conn, me.user_name, address, now))
        if not await sessions.passwords.verify(body.old, known.password):
            raise Forbidden("the old password is wrong")
    hashed = await sessions.passwords.hash(new)

    def write(conn: Connection) -> service.Begun | None:
        spend(conn, call)
        service.same_person(conn, user_id, known.epoch)
        attempts.right(conn, me.user_name, address)
        mine = service.listing(conn, user_id, now, sessions.ages)
        old = next((row for row in mine if row.id == me.credential), None)
        service.set_password(conn, user_id, hashed)
        if old is None:
            return None
        return service.begin(
            conn, _again(conn, user_id), how=old.how, address=address,
            browser=request.headers.get("user-agent", ""), ages=sessions.ages, now_ms=now,
        )  # fmt: skip

    begun = await parts.store.write(write)
    response = Response(status_code=204)
    if begun is not None:
        set_session(response, begun)
    return response


@router.post("/users/{name}/password-link", status_code=201, response_model=LinkView)
async def reset(
    call: Annotated[Call, Depends(require(Right.USER_WRITE))],
    parts: Wired,
    name: ObjectName,
    body: Empty,
) -> LinkView:
    """An address where this user sets a new password, once, within a day. An owner's only for an
    owner."""
    now = parts.sessions.now_ms()

    def write(conn: Connection) -> str:
        spend(conn, call, about=name)
        found = service.person(conn, name=name)
        if found is None:
            raise NotFound(f"no person {name} who may log in")
        if found.role == OrgRole.OWNER.value and call.principal.org_role is not OrgRole.OWNER:
            raise Forbidden("only an owner makes a link to an owner's password")
        return links.make(conn, links.PASSWORD, found.id, seconds=RESET_SECONDS, now_ms=now)

    token = await parts.store.write(write)
    url = f"{parts.settings.address}/login#password={token}"
    return LinkView(url=url, expires=stamp(now + RESET_SECONDS * 1000))


def set_session(response: Response, begun: service.Begun) -> None:
    response.headers.append(
        "set-cookie", cookies.setting(cookies.SESSION, begun.token, begun.seconds)
    )
    response.headers["cache-control"] = "no-store"


def address_of(request: Request) -> str:
    return request.client.host if request.client is not None else ""


async def begin(
    parts: Parts, request: Request, call: Call, user: Any, how: str, write: Any = None
) -> Response:
    """Log a person in who was found to be one: the session, its cookie, its row of the audit log.
    `write(conn)` belongs to the same transaction, and may still refuse."""
    sessions = parts.sessions
    who = await sessions.who(user.id)
    now, had = sessions.now_ms(), cookies.value_of(request.scope["headers"], cookies.SESSION)

    def commit(conn: Connection) -> service.Begun:
        if write is not None:
            write(conn)
        begun = service.begin(
            conn, service.same_person(conn, user.id, user.epoch), how=how,
            address=address_of(request), browser=request.headers.get("user-agent", ""),
            ages=sessions.ages, now_ms=now, instead_of=had,
        )  # fmt: skip
        call.principal = replace(who, credential=begun.id)
        spend(conn, call, about=user.name)
        return begun

    response = Response(status_code=204)
    set_session(response, await parts.store.write(commit))
    return response


def _again(conn: Connection, user_id: str) -> Any:
    found = service.person(conn, user_id=user_id)
    assert found is not None, "it was there in this transaction"
    return found


def _view(row: Row[Any], current: str) -> SessionView:
    return SessionView(
        id=row.id, how=row.how, address=row.address, browser=row.browser,
        created=stamp(row.created_ms), seen=stamp(row.seen_ms), expires=stamp(row.expires_ms),
        current=row.id == current,
    )  # fmt: skip
