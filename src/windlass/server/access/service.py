"""Who calls: keys and their signatures, bearer tokens, sessions, and the first key of a server.

An unknown key and a wrong signature get the same answer after the same work: the HMAC is
computed either way, against a secret that nobody has when there is no key. What a credential
stands for (its user, the role there) is read at most every few seconds, so that what is revoked,
disabled or dropped is so on every server within that time, and at once on the one that did it.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from uuid import uuid4

from sqlalchemy import Connection, insert, select, update

from windlass.core import signing
from windlass.core.access import CallerKind, OrgRole, Principal, ProjectRole
from windlass.core.errors import InvalidInput, NotFound, Unauthenticated
from windlass.server.access import keys as key_rows
from windlass.server.access import tokens as token_rows
from windlass.server.access.calls import SWEPT, Call, signature_key, sweep
from windlass.server.access.keys import NewKey
from windlass.server.access.principals import no_project, principal_of
from windlass.server.access.sealing import Sealer
from windlass.server.access.tables import keys, memberships, projects, tokens, users
from windlass.server.audit import record
from windlass.server.store.base import Store
from windlass.server.store.hints import touch

KEY_SECONDS = 4.0
"""How long what is known of a credential is believed without another look."""

TOPIC = "access"
DEFAULT_PROJECT = "default"
OWNER = "owner"

_MAX_CACHED = 4096
_TOKEN_PREFIXES = (b"wlw_", b"wlr_")
_WRONG = "the access key is not known or the signature does not match"
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")

FindToken = Callable[[str], Awaitable[Principal | None]]
"""The caller that a bearer token's SHA-256 (hex) stands for, while its attempt lives."""

FindSession = Callable[[signing.SignedParts, str | None], Awaitable[Principal | None]]
"""The caller behind a request that has no Authorization header but may have a session's cookie,
in the project of that name (None: the user's own choice). None: there is no session. It raises
what is wrong with a session's request (its origin, its CSRF header), and finds the caller with
`Access.principal_of`."""


@dataclass(frozen=True, slots=True)
class _Known:
    secret: str
    principal: Principal | None
    """None: no such credential, or dead; `secret` is then nobody's."""
    missing: bool
    """The credential is good, the project is none that its user sees."""
    until: float
    until_ms: int | None = None
    """When it dies by itself."""


class Access:
    """Authenticates calls. One per server; holds no state but caches."""

    def __init__(
        self,
        store: Store,
        sealer: Sealer,
        find_token: FindToken,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._store = store
        self.sealer = sealer
        self._find_token = find_token
        self.find_session: FindSession | None = None
        self._now_ms = now_ms
        self._known: dict[tuple[str, str | None], _Known] = {}
        self._unknown: dict[tuple[str, str | None], _Known] = {}
        self._changes = 0
        self._used: dict[str, int] = {}
        self._used_tokens: dict[str, int] = {}
        self._decoy = Sealer({"decoy": secrets.token_bytes(32)})
        self._sealed_decoy = self._decoy.seal(key_rows.new_secret(), "decoy")

    async def first_start(self) -> NewKey | None:
        """Make the project, its owner and one key on a server that has none; the secret is
        returned here and never again."""
        return await self._store.write(self._first)

    async def issue(self, user: str = OWNER, project: str = DEFAULT_PROJECT) -> NewKey:
        """One more key for a user; the secret is returned here and never again."""
        return await self._store.write(lambda conn: self._issue(conn, user, project))

    async def disable(self, access_key: str) -> None:
        statement = update(keys).where(keys.c.access_key == access_key).values(disabled=True)
        await self._store.write(lambda conn: conn.execute(statement).rowcount)
        self.forget()

    def forget(self) -> None:
        """Look at the rows again at the next call: something about who may what has changed."""
        self._changes += 1
        self._known.clear()
        self._unknown.clear()

    def last_used(self, credential: str) -> int:
        """When this server last saw it, where that is not written yet; 0: it did not."""
        return max(self._used.get(credential, 0), self._used_tokens.get(credential, 0))

    async def principal_of(
        self, user_id: str, project: str | None, *, credential: str = ""
    ) -> Principal | None:
        """The user in a project, for a credential that was checked elsewhere (a session); None
        when it is gone or disabled. Raises NotFound for a project that it does not see."""

        def read(conn: Connection) -> tuple[str, Principal | None, int | None]:
            return "", principal_of(conn, user_id, project, credential=credential), None

        known = await self._lookup((f"user {user_id} {credential}", project), read)
        return None if known.principal is None else self._in_project(known, project)

    async def authenticate(
        self,
        parts: signing.SignedParts,
        read_hash: Callable[[str | None], Awaitable[str]],
        request_id: str = "",
        project: str | None = None,
    ) -> Call:
        """The caller of a request, or `Unauthenticated`; `NotFound` when it speaks of a project
        that it does not see.

        `read_hash` reads the body and hashes it; it is told the hash that the caller gave.
        `project` is the one that the path names; otherwise it is that of X-Wl-Project.
        """
        given = [value for name, value in parts.headers if name == b"authorization"]
        if project is None:
            project = _asked_project(parts)
        elif _NAME.fullmatch(project) is None:
            project = ""  # of no project, and nothing to look for
        if not given and self.find_session is not None:
            find_session = self.find_session
            found = await find_session(parts, project)
            if found is not None:
                return Call(found, request_id, again=lambda: find_session(parts, project))
        if len(given) != 1:
            raise Unauthenticated(
                "no credential was given" if not given else "more than one credential was given",
                hint="sign the request with an access key, or send a bearer token",
            )
        if given[0][:7].lower() == b"bearer ":
            token = given[0][7:].strip()
            bearer = await self._of_token(token, project)
            return Call(bearer, request_id, again=lambda: self._of_token(token, project))
        claim = signing.parse(given[0])
        if claim is None:
            raise Unauthenticated(
                "the Authorization header is of no known form",
                hint="`WL4-HMAC-SHA256 Credential=…` or `Bearer wl_…`",
            )
        now_ms = self._now_ms()
        checked = signing.check(claim, parts, now_ms)
        known = await self._of_key(claim.access_key, project)
        payload_hash = await read_hash(checked.content_hash)
        genuine = signing.verify(checked, known.secret, payload_hash)
        if not genuine or (known.principal is None and not known.missing):
            raise Unauthenticated(_WRONG)
        self._used[claim.access_key] = now_ms
        call = Call(self._in_project(known, project), request_id)
        call.again = lambda: self._again(claim.access_key, project)
        if parts.method not in signing.SAFE_METHODS:
            call.signature_hash = signature_key(checked.expires_ms, claim.signature)
            call.expires_ms = checked.expires_ms
            call.content_sha256 = payload_hash
        return call

    async def tend(self) -> None:
        """Once a minute, from a loop: note when credentials were last used, forget old
        signatures."""
        self.sealer.reload()
        used, self._used = self._used, {}
        used_tokens, self._used_tokens = self._used_tokens, {}
        now_ms = self._now_ms()

        def write(conn: Connection) -> None:
            for column, table, seen in (
                (keys.c.access_key, keys, used),
                (tokens.c.id, tokens, used_tokens),
            ):
                for credential, at_ms in seen.items():
                    conn.execute(
                        update(table)
                        .where(column == credential)
                        .where(table.c.last_used_ms.is_(None) | (table.c.last_used_ms < at_ms))
                        .values(last_used_ms=at_ms)
                    )

        try:
            await self._store.write(write)
        except BaseException:
            self._used = {**used, **self._used}
            self._used_tokens = {**used_tokens, **self._used_tokens}
            raise
        while await self._store.write(lambda conn: sweep(conn, now_ms)) == SWEPT:
            pass

    async def _of_key(self, access_key: str, project: str | None) -> _Known:
        return await self._lookup(
            (access_key, project), lambda conn: self._read_key(conn, access_key, project)
        )

    async def _again(self, access_key: str, project: str | None) -> Principal | None:
        return (await self._of_key(access_key, project)).principal

    async def _of_token(self, token: bytes, project: str | None) -> Principal:
        principal = None
        if token.startswith(_TOKEN_PREFIXES):
            principal = await self._find_token(hashlib.sha256(token).hexdigest())
        elif token_rows.well_formed(token):
            digest = token_rows.hash_of(token)
            known = await self._lookup(
                (digest, project), lambda conn: self._read_token(conn, digest, project)
            )
            if known.principal is not None or known.missing:
                principal = self._in_project(known, project)
                self._used_tokens[principal.credential] = self._now_ms()
        if principal is None:
            raise Unauthenticated("the token is not known, or its time is over")
        return principal

    def _in_project(self, known: _Known, project: str | None) -> Principal:
        if known.principal is None:
            raise no_project(project or "")
        return known.principal

    async def _lookup(
        self,
        asked: tuple[str, str | None],
        read: Callable[[Connection], tuple[str, Principal | None, int | None]],
    ) -> _Known:
        known = self._known.get(asked) or self._unknown.get(asked)
        if known is not None and known.until > time.monotonic():
            if known.until_ms is None or known.until_ms > self._now_ms():
                return known
        while True:
            now, changes = time.monotonic(), self._changes
            missing = False
            try:
                secret, principal, until_ms = await self._store.read(read)
            except _Missing as found:
                secret, principal, until_ms, missing = found.secret, None, None, True
            if changes == self._changes:
                break  # else what was read may be what was before: once more
        known = _Known(secret, principal, missing, now + KEY_SECONDS, until_ms)
        cache, other = self._known, self._unknown
        if principal is None:
            cache, other = other, cache
        other.pop(asked, None)
        if len(cache) >= _MAX_CACHED:  # strangers fill their own cache, not the one of keys
            del cache[next(iter(cache))]
        cache[asked] = known
        return known

    def _read_key(
        self, conn: Connection, access_key: str, project: str | None
    ) -> tuple[str, Principal | None, int | None]:
        row = conn.execute(
            select(
                keys.c.secret, keys.c.kek, keys.c.version, keys.c.user_id, keys.c.project_id,
                keys.c.expires_ms,
            )
            .join(users, users.c.id == keys.c.user_id)
            .where(keys.c.access_key == access_key)
            .where(keys.c.disabled.is_(False))
            .where(users.c.disabled.is_(False))
            .where(keys.c.expires_ms.is_(None) | (keys.c.expires_ms > self._now_ms()))
        ).one_or_none()  # fmt: skip
        if row is None:
            return self._decoy.unseal(self._sealed_decoy, "decoy", "decoy"), None, None
        secret = self.sealer.unseal(
            row.secret, row.kek, access_key, row.project_id, str(row.version)
        )
        try:
            principal = principal_of(
                conn, row.user_id, project, home=row.project_id, credential=access_key
            )
        except NotFound as err:
            raise _Missing(secret) from err
        return secret, principal, row.expires_ms

    def _read_token(
        self, conn: Connection, digest: str, project: str | None
    ) -> tuple[str, Principal | None, int | None]:
        try:
            found = token_rows.holder(conn, digest, project, self._now_ms())
        except NotFound as err:
            raise _Missing("") from err
        return ("", None, None) if found is None else ("", *found)

    def _first(self, conn: Connection) -> NewKey | None:
        now_ms = self._now_ms()
        ids = {}
        for table, name, more in (
            (projects, DEFAULT_PROJECT, {}),
            (users, OWNER, {"role": OrgRole.OWNER.value}),
        ):
            known = conn.execute(select(table.c.id).where(table.c.name == name)).scalar()
            ids[name] = known or uuid4().hex
            if known is None:
                row = {"id": ids[name], "name": name, "created_ms": now_ms, **more}
                conn.execute(insert(table).values(row))
                if table is users:
                    conn.execute(
                        insert(memberships).values(
                            project_id=ids[DEFAULT_PROJECT], user_id=ids[OWNER],
                            role=ProjectRole.MAINTAINER.value, added_ms=now_ms,
                        )
                    )  # fmt: skip
        if conn.execute(select(keys.c.access_key).limit(1)).first() is not None:
            return None
        return self._issue(conn, OWNER, DEFAULT_PROJECT)

    def _issue(self, conn: Connection, user: str, project: str) -> NewKey:
        there = (users.c.name == user) & users.c.removed_ms.is_(None)
        user_id = conn.execute(select(users.c.id).where(there)).scalar()
        project_id = conn.execute(
            select(projects.c.id).where(
                projects.c.name == project, projects.c.removed_ms.is_(None)
            )
        ).scalar()
        if user_id is None or project_id is None:
            raise NotFound(f"no user {user}" if user_id is None else f"no project {project}")
        new = key_rows.make(
            conn, self.sealer, user_id=user_id, user=user, project_id=project_id, project=project,
            now_ms=self._now_ms(), bounded=False,  # a server that starts must have one
        )  # fmt: skip
        told = record.Entry(
            "server.issue-key", project_name=project, user_id=user_id, user_name=user,
            object=new.access_key,
        )  # fmt: skip
        record.write(conn, told)
        return new


class _Missing(Exception):
    """The credential is good; the project is none that its user sees."""

    def __init__(self, secret: str) -> None:
        super().__init__()
        self.secret = secret


def changed(conn: Connection) -> None:
    """In every transaction that changes who may what: this server looks again once it is
    committed."""
    touch(conn, TOPIC)


def new_token(kind: CallerKind) -> tuple[str, str]:
    """A bearer token for an attempt's worker or run, and the SHA-256 to keep of it."""
    token = {CallerKind.WORKER: "wlw_", CallerKind.RUN: "wlr_"}[kind] + secrets.token_urlsafe(32)
    return token, hashlib.sha256(token.encode()).hexdigest()


def _asked_project(parts: signing.SignedParts) -> str | None:
    given = [value for name, value in parts.headers if name == b"x-wl-project"]
    if not given:
        return None
    if len(given) > 1:
        raise InvalidInput("X-Wl-Project: given more than once")
    name = given[0].decode("latin-1").strip()
    return name if _NAME.fullmatch(name) else ""
