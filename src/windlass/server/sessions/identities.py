"""From another issuer's account to a user here.

An account is known by its subject, which the issuer gives to nobody else; a mail address or a name
may pass to another person. An administrator writes down which address is whom; the first account
that comes with that address is bound to the user, and no other after it. An existing user is never
taken over by an account that merely has the same name.
"""

from __future__ import annotations

import re
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, delete, insert, select, update

from windlass.core.access import OrgRole, Principal, UserKind
from windlass.core.errors import Forbidden, NotFound
from windlass.server.access.tables import users
from windlass.server.sessions.service import person
from windlass.server.sessions.tables import identities
from windlass.server.settings import Oidc


def user_of(conn: Connection, oidc: Oidc, claims: dict[str, Any], now_ms: int) -> Any:
    """The row of the person. Raises Forbidden when it is nobody here."""
    subject, value = str(claims["sub"])[:255], value_of(oidc, claims)
    here = identities.c.issuer == oidc.issuer
    row = conn.execute(
        select(identities.c.user_id).where(here, identities.c.subject == subject)
    ).first()
    if row is None:
        row = _first_time(conn, oidc, subject, value, now_ms)
    found = person(conn, user_id=row.user_id)
    if found is None:
        raise Forbidden("this user may not log in")
    return found


def value_of(oidc: Oidc, claims: dict[str, Any]) -> str:
    """What names the user in the issuer's word. Raises Forbidden for what is not vouched for."""
    value = claims.get(oidc.claim)
    if not isinstance(value, str) or not 0 < len(value) <= 255 or not value.isprintable():
        raise Forbidden(f"the issuer does not tell `{oidc.claim}`")
    if oidc.claim != "email":
        return value
    if claims.get("email_verified") is not True:
        raise Forbidden("the issuer has not checked that this mail address is yours")
    name, at, domain = value.lower().rpartition("@")
    if not at or not name or (oidc.domains and domain not in oidc.domains):
        raise Forbidden("mail addresses of this domain may not log in here")
    return f"{name}@{domain}"


def link(conn: Connection, issuer: str, name: str, value: str, by: Principal, now_ms: int) -> None:
    """Write down that this account is that user; who was bound to the address before is not any
    more. Raises NotFound, Forbidden."""
    found = person(conn, name=name)
    if found is None:
        raise NotFound(f"no person {name} who may log in")
    if found.role == OrgRole.OWNER.value and by.org_role is not OrgRole.OWNER:
        raise Forbidden("only an owner says who is an owner")
    value = value.lower() if "@" in value else value
    here = (identities.c.issuer == issuer) & (identities.c.value == value)
    taken = conn.execute(select(users.c.role).join(identities).where(here)).scalar()
    if taken == OrgRole.OWNER.value and by.org_role is not OrgRole.OWNER:
        raise Forbidden("this account is an owner's")
    conn.execute(delete(identities).where(here))
    conn.execute(
        insert(identities).values(issuer=issuer, value=value, user_id=found.id, created_ms=now_ms)
    )


def _first_time(conn: Connection, oidc: Oidc, subject: str, value: str, now_ms: int) -> Any:
    named = (identities.c.issuer == oidc.issuer) & (identities.c.value == value)
    row = conn.execute(
        select(identities.c.user_id, identities.c.subject).where(named).with_for_update()
    ).first()
    if row is not None and row.subject is not None:
        raise Forbidden("this name was another account's", hint="ask an administrator")
    if row is not None:
        bound = update(identities).where(named, identities.c.subject.is_(None))
        if conn.execute(bound.values(subject=subject)).rowcount == 1:
            return row
        raise Forbidden("this name was another account's", hint="ask an administrator")
    if not oidc.create:
        raise Forbidden("nobody here is this account", hint="ask an administrator to link it")
    return _make(conn, oidc.issuer, subject, value, now_ms)


def _make(conn: Connection, issuer: str, subject: str, value: str, now_ms: int) -> Any:
    name = user_name(value)
    # Also a removed one's: nobody walks in by himself under the name of who left.
    taken = select(users.c.id).where(users.c.name == name)
    if not name or conn.execute(taken).first():
        raise Forbidden(
            f"there is a user {name} already" if name else "this name cannot be a user's",
            hint="ask an administrator to link this account to a user",
        )
    user_id = uuid4().hex
    conn.execute(
        insert(users).values(id=user_id, name=name, kind=UserKind.PERSON.value, created_ms=now_ms)
    )
    conn.execute(
        insert(identities).values(
            issuer=issuer, value=value, subject=subject, user_id=user_id, created_ms=now_ms
        )
    )
    return conn.execute(select(users.c.id.label("user_id")).where(users.c.id == user_id)).one()


def user_name(value: str) -> str:
    """A user's name from an address or another word; "" when nothing of it can be one."""
    plain = re.sub(r"[^a-z0-9]+", "-", value.lower().partition("@")[0]).strip("-")
    return plain[:40].strip("-")
