"""Who calls: keys and their signatures, bearer tokens, and the first key of a new server.

An unknown key and a wrong signature get the same answer after the same work: the HMAC is
computed either way, against a secret that nobody has when there is no key. A key's row is read
at most every few seconds, so that a revoked one is dead on every server within that time.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from uuid import uuid4

from sqlalchemy import Connection, insert, select, update

from windlass.core import signing
from windlass.core.access import CallerKind, Principal, rights_of
from windlass.core.errors import NotFound, Unauthenticated
from windlass.server.access.calls import Call, signature_key, sweep
from windlass.server.access.sealing import Sealer
from windlass.server.access.tables import keys, projects, users
from windlass.server.store.base import Store

KEY_SECONDS = 4.0
"""How long a key's row is believed without another look."""

DEFAULT_PROJECT = "default"
OWNER = "owner"

_MAX_CACHED = 4096
_TOKEN_PREFIXES = ("wlw_", "wlr_")
_WRONG = "the access key is not known or the signature does not match"

FindToken = Callable[[str], Awaitable[Principal | None]]
"""The caller that a bearer token's SHA-256 (hex) stands for, while its attempt lives."""


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key as it is shown, once."""

    access_key: str
    secret_key: str
    user: str
    project: str


@dataclass(frozen=True, slots=True)
class _Known:
    secret: str
    principal: Principal | None
    """None: no such key, or disabled; `secret` is then nobody's."""
    until: float


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
        self._sealer = sealer
        self._find_token = find_token
        self._now_ms = now_ms
        self._known: dict[str, _Known] = {}
        self._unknown: dict[str, _Known] = {}
        self._used: dict[str, int] = {}
        self._decoy = _new_secret()
        self._sealed_decoy = sealer.seal(self._decoy, "decoy")

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
        self.forget(access_key)

    def forget(self, access_key: str | None = None) -> None:
        """Look at the row again at the next call (all rows, when no key is named)."""
        for cache in (self._known, self._unknown):
            cache.pop(access_key, None) if access_key else cache.clear()

    async def authenticate(
        self,
        parts: signing.SignedParts,
        read_hash: Callable[[str | None], Awaitable[str]],
        request_id: str = "",
    ) -> Call:
        """The caller of a request, or `Unauthenticated`.

        `read_hash` reads the body and hashes it; it is told the hash that the caller gave.
        """
        given = [value for name, value in parts.headers if name == b"authorization"]
        if len(given) != 1:
            raise Unauthenticated(
                "no credential was given" if not given else "more than one credential was given",
                hint="sign the request with an access key, or send a bearer token",
            )
        if given[0][:7].lower() == b"bearer ":
            return Call(await self._of_token(given[0][7:].strip()), request_id)
        claim = signing.parse(given[0])
        if claim is None:
            raise Unauthenticated(
                "the Authorization header is of no known form",
                hint="`WL4-HMAC-SHA256 Credential=…` or `Bearer wlw_…`",
            )
        now_ms = self._now_ms()
        checked = signing.check(claim, parts, now_ms)
        known = await self._lookup(claim.access_key)
        payload_hash = await read_hash(checked.content_hash)
        genuine = signing.verify(checked, known.secret, payload_hash)
        if not genuine or known.principal is None:
            raise Unauthenticated(_WRONG)
        self._used[claim.access_key] = now_ms
        call = Call(known.principal, request_id)
        if parts.method not in signing.SAFE_METHODS:
            call.signature_hash = signature_key(checked.expires_ms, claim.signature)
            call.expires_ms = checked.expires_ms
            call.content_sha256 = payload_hash
        return call

    async def tend(self) -> None:
        """Once a minute, from a loop: note when keys were last used, forget old signatures."""
        used, self._used = self._used, {}
        now_ms = self._now_ms()

        def write(conn: Connection) -> None:
            for access_key, at_ms in used.items():
                conn.execute(
                    update(keys)
                    .where(keys.c.access_key == access_key)
                    .where(keys.c.last_used_ms.is_(None) | (keys.c.last_used_ms < at_ms))
                    .values(last_used_ms=at_ms)
                )
            sweep(conn, now_ms)

        try:
            await self._store.write(write)
        except BaseException:
            self._used = {**used, **self._used}
            raise

    async def _of_token(self, token: bytes) -> Principal:
        principal = None
        if token.startswith(tuple(prefix.encode() for prefix in _TOKEN_PREFIXES)):
            principal = await self._find_token(hashlib.sha256(token).hexdigest())
        if principal is None:
            raise Unauthenticated("the token is not known, or its attempt is over")
        return principal

    async def _lookup(self, access_key: str) -> _Known:
        now = time.monotonic()
        known = self._known.get(access_key) or self._unknown.get(access_key)
        if known is not None and known.until > now:
            return known
        row = await self._store.read(lambda conn: self._read(conn, access_key))
        secret, principal = row
        known = _Known(secret, principal, now + KEY_SECONDS)
        cache, other = self._known, self._unknown
        if principal is None:
            cache, other = other, cache
        other.pop(access_key, None)
        if len(cache) >= _MAX_CACHED:  # strangers fill their own cache, not the one of keys
            del cache[next(iter(cache))]
        cache[access_key] = known
        return known

    def _read(self, conn: Connection, access_key: str) -> tuple[str, Principal | None]:
        row = conn.execute(
            select(
                keys.c.secret,
                keys.c.kek,
                keys.c.version,
                keys.c.user_id,
                keys.c.project_id,
                users.c.name,
                projects.c.name,
            )
            .join(users, users.c.id == keys.c.user_id)
            .join(projects, projects.c.id == keys.c.project_id)
            .where(keys.c.access_key == access_key)
            .where(keys.c.disabled.is_(False))
            .where(users.c.disabled.is_(False))
        ).one_or_none()
        if row is None:
            return self._sealer.unseal(self._sealed_decoy, self._sealer.kek, "decoy"), None
        sealed, kek, version, user_id, project_id, user, project = row
        secret = self._sealer.unseal(sealed, kek, access_key, project_id, str(version))
        return secret, Principal(
            kind=CallerKind.USER,
            project_id=project_id,
            project_name=project,
            user_id=user_id,
            user_name=user,
            rights=rights_of(CallerKind.USER),
        )

    def _first(self, conn: Connection) -> NewKey | None:
        for table, name in ((projects, DEFAULT_PROJECT), (users, OWNER)):
            if conn.execute(select(table.c.id).where(table.c.name == name)).first() is None:
                row = {"id": uuid4().hex, "name": name, "created_ms": self._now_ms()}
                conn.execute(insert(table).values(row))
        if conn.execute(select(keys.c.access_key).limit(1)).first() is not None:
            return None
        return self._issue(conn, OWNER, DEFAULT_PROJECT)

    def _issue(self, conn: Connection, user: str, project: str) -> NewKey:
        user_id = conn.execute(select(users.c.id).where(users.c.name == user)).scalar()
        project_id = conn.execute(select(projects.c.id).where(projects.c.name == project)).scalar()
        if user_id is None or project_id is None:
            raise NotFound(f"no user {user}" if user_id is None else f"no project {project}")
        new = NewKey(_new_access_key(), _new_secret(), user, project)
        conn.execute(
            insert(keys).values(
                access_key=new.access_key,
                user_id=user_id,
                project_id=project_id,
                secret=self._sealer.seal(new.secret_key, new.access_key, project_id, "1"),
                kek=self._sealer.kek,
                version=1,
                created_ms=self._now_ms(),
                disabled=False,
            )
        )
        return new


def new_token(kind: CallerKind) -> tuple[str, str]:
    """A bearer token for an attempt's worker or run, and the SHA-256 to keep of it."""
    token = {CallerKind.WORKER: "wlw_", CallerKind.RUN: "wlr_"}[kind] + secrets.token_urlsafe(32)
    return token, hashlib.sha256(token.encode()).hexdigest()


def _new_access_key() -> str:
    return "WL" + base64.b32encode(secrets.token_bytes(12)).decode()[:18]


def _new_secret() -> str:
    return secrets.token_urlsafe(30)
