"""/api/v1/keys and /api/v1/tokens: what a user proves itself with.

One's own, those of a service account of the project for its maintainers, anybody's (not above
oneself) for administrators. A token makes none: it would outlive itself.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Response
from sqlalchemy import Connection, select

from windlass.core.access import Principal, Right
from windlass.core.errors import Conflict, Forbidden, NotFound
from windlass.core.users import (
    KeyBody,
    KeyMade,
    KeyPage,
    KeyView,
    RotateBody,
    TokenBody,
    TokenMade,
    TokenPage,
    TokenView,
)
from windlass.server.access import keys, tokens
from windlass.server.access.calls import Call, spend
from windlass.server.access.principals import principal_of
from windlass.server.access.service import Access, changed
from windlass.server.access.tables import keys as key_table
from windlass.server.access.tables import tokens as token_table
from windlass.server.access.tables import users as user_table
from windlass.server.clock import iso, stamp
from windlass.server.http.body import json_body
from windlass.server.http.marks import require
from windlass.server.http.query import QueryLine
from windlass.server.parts import Wired
from windlass.server.users import service

router = APIRouter(prefix="/api/v1", tags=["credentials"])

Own = Annotated[Call, Depends(require(Right.KEY_OWN))]
AccessKey = Annotated[str, Path(pattern=r"^[A-Za-z0-9]{2,64}$", description="the access key")]
TokenRef = Annotated[
    str, Path(pattern=r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$", description="its id or name")
]
Row = dict[str, Any]


@router.get("/keys", response_model=KeyPage)
async def list_keys(call: Own, parts: Wired, user: QueryLine | None = None) -> KeyPage:
    """The keys of the caller, or of a user it may act for; newest first."""
    now = parts.clock.now_ms()

    def look(conn: Connection) -> tuple[Row, list[Row]]:
        owner = service.find_to_act_for(conn, call.principal, user)
        return owner, keys.listing(conn, owner["id"])

    owner, rows = await parts.store.read(look)
    return KeyPage(items=tuple(_key(parts.access, owner, row, now) for row in rows))


@router.post("/keys", status_code=201, response_model=KeyMade)
async def make_key(
    call: Own, parts: Wired, body: Annotated[KeyBody, Depends(json_body(KeyBody))]
) -> KeyMade:
    """One more key, of the project that the call is about. Its secret is shown here and never
    again."""
    now = parts.clock.now_ms()

    def write(conn: Connection) -> KeyMade:
        owner = service.find_to_act_for(conn, call.principal, body.user)
        spend(conn, call, about=owner["name"])
        return _new_key(conn, parts.access, call.principal, owner, body.name or "", now)

    return await parts.store.write(write)


@router.delete("/keys/{access_key}", status_code=204)
async def revoke_key(call: Own, parts: Wired, access_key: AccessKey) -> Response:
    """Dead at once."""

    def write(conn: Connection) -> None:
        owner = _owner_of_key(conn, call.principal, access_key)
        spend(conn, call)
        keys.revoke(conn, owner["id"], access_key)
        changed(conn)

    await parts.store.write(write)
    parts.access.forget()
    return Response(status_code=204)


@router.post("/keys/{access_key}/rotate", status_code=201, response_model=KeyMade)
async def rotate_key(
    call: Own,
    parts: Wired,
    access_key: AccessKey,
    body: Annotated[RotateBody, Depends(json_body(RotateBody))],
) -> KeyMade:
    """A new key in place of this one, which goes on for `overlap` and then dies."""
    now = parts.clock.now_ms()

    def write(conn: Connection) -> KeyMade:
        owner = _owner_of_key(conn, call.principal, access_key)
        spend(conn, call)
        old = keys.find(conn, owner["id"], access_key)
        keys.retire(conn, owner["id"], access_key, now + body.overlap, now)
        changed(conn)
        return _new_key(conn, parts.access, call.principal, owner, old["name"], now, old)

    found = await parts.store.write(write)
    parts.access.forget()
    return found


@router.get("/tokens", response_model=TokenPage)
async def list_tokens(call: Own, parts: Wired, user: QueryLine | None = None) -> TokenPage:
    """The tokens of the caller, or of a user it may act for, that were not revoked."""
    now = parts.clock.now_ms()

    def look(conn: Connection) -> tuple[Row, list[Row]]:
        owner = service.find_to_act_for(conn, call.principal, user)
        return owner, tokens.listing(conn, owner["id"])

    owner, rows = await parts.store.read(look)
    return TokenPage(items=tuple(TokenView(**_token(parts.access, owner, r, now)) for r in rows))


@router.post("/tokens", status_code=201, response_model=TokenMade)
async def make_token(
    call: Own, parts: Wired, body: Annotated[TokenBody, Depends(json_body(TokenBody))]
) -> TokenMade:
    """A bearer token of the project that the call is about, narrowed to `scopes`. It is shown
    here and never again."""
    now = parts.clock.now_ms()

    def write(conn: Connection) -> TokenMade:
        owner = service.find_to_act_for(conn, call.principal, body.user)
        spend(conn, call, about=f"{owner['name']}/{body.name}")
        holder = _in_project(conn, call.principal, owner)
        lacks = [s for s in body.scopes if s in set(Right) and not holder.may(Right(s))]
        if lacks:
            raise Forbidden(
                f"scopes: {owner['name']} has no right {lacks[0]} in {holder.project_name}",
                right=lacks[0],
            )
        row, token = tokens.make(
            conn, call.principal, owner["id"], name=body.name, scopes=body.scopes,
            lives_ms=body.expires, now_ms=now,
        )  # fmt: skip
        return TokenMade(**_token(parts.access, owner, row, now), token=token)

    return await parts.store.write(write)


@router.delete("/tokens/{ref}", status_code=204)
async def revoke_token(
    call: Own, parts: Wired, ref: TokenRef, user: QueryLine | None = None
) -> Response:
    """Dead at once. By its id, or by name where one has it."""

    def write(conn: Connection) -> None:
        owner = _owner_of_token(conn, call.principal, ref, user)
        spend(conn, call)
        tokens.revoke(conn, owner["id"], ref)
        changed(conn)

    await parts.store.write(write)
    parts.access.forget()
    return Response(status_code=204)


def _in_project(conn: Connection, who: Principal, owner: Row) -> Principal:
    """The owner of a credential to be, in the project of the call. Raises Conflict."""
    if not who.project_id:
        raise Conflict("a credential is of a project", hint="name one: --project NAME")
    try:
        found = principal_of(conn, owner["id"], who.project_name)
    except NotFound:
        found = None
    if found is None:
        raise Conflict(
            f"{owner['name']} is disabled, or is not in project {who.project_name}",
            hint=f"windlass project add {who.project_name} {owner['name']}",
        )
    return found


def _new_key(
    conn: Connection,
    access: Access,
    who: Principal,
    owner: Row,
    name: str,
    now_ms: int,
    old: Row | None = None,
) -> KeyMade:
    if old is None:
        _in_project(conn, who, owner)
    project_id, project = (
        (who.project_id, who.project_name) if old is None else (old["project_id"], old["project"])
    )
    new = keys.make(
        conn, access.sealer, user_id=owner["id"], user=owner["name"], project_id=project_id,
        project=project, name=name, now_ms=now_ms,
    )  # fmt: skip
    row = keys.find(conn, owner["id"], new.access_key)
    view = _key(access, owner, row, now_ms)
    return KeyMade(**view.model_dump(), secret_key=new.secret_key)


def _owner_of_key(conn: Connection, who: Principal, access_key: str) -> Row:
    name = conn.execute(
        select(user_table.c.name)
        .join(key_table, key_table.c.user_id == user_table.c.id)
        .where(key_table.c.access_key == access_key)
    ).scalar()
    try:
        if name is not None:
            return service.find_to_act_for(conn, who, name)
    except NotFound:
        pass
    raise NotFound(f"no key {access_key}", hint="`windlass key ls` lists those there are")


def _owner_of_token(conn: Connection, who: Principal, ref: str, user: str | None) -> Row:
    name = user
    if user is None:
        name = conn.execute(
            select(user_table.c.name)
            .join(token_table, token_table.c.user_id == user_table.c.id)
            .where(token_table.c.id == ref)
        ).scalar()
    try:
        return service.find_to_act_for(conn, who, name)
    except NotFound:
        raise NotFound(f"no token {ref}") from None


def _key(access: Access, owner: Row, row: Row, now_ms: int) -> KeyView:
    state = "dead" if keys.dead(row, now_ms) else "retiring" if row["expires_ms"] else "live"
    used = max(row["last_used_ms"] or 0, access.last_used(row["access_key"]))
    return KeyView(
        access_key=row["access_key"], name=row["name"], user=owner["name"],
        project=row["project"], created=stamp(row["created_ms"]), last_used=iso(used or None),
        expires=iso(row["expires_ms"]), state=state,
    )  # fmt: skip


def _token(access: Access, owner: Row, row: Row, now_ms: int) -> dict[str, Any]:
    used = max(row["last_used_ms"] or 0, access.last_used(row["id"]))
    return {
        "id": row["id"], "name": row["name"], "user": owner["name"], "project": row["project"],
        "scopes": tuple(row["scopes"]), "created": stamp(row["created_ms"]),
        "expires": stamp(row["expires_ms"]), "last_used": iso(used or None),
        "expired": row["expires_ms"] <= now_ms,
    }  # fmt: skip
