"""A call that was let in, the use of its signature, and its row in the audit log.

A signature that changes something is taken once. Its hash goes into the caller's own write
transaction, so it costs no commit of its own, and a write that fails does not use it up. In the
same transaction the audit log is told who did what.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, delete, select, text

from windlass.core.access import CallerKind, Principal
from windlass.core.errors import SignatureReused
from windlass.server.access import news
from windlass.server.access.tables import signatures
from windlass.server.audit import record
from windlass.server.jobs import orders
from windlass.server.store.prepared import Prepared

_SPEND = Prepared(
    text(
        "INSERT INTO signatures (hash, expires_ms) VALUES (:hash, :expires_ms)"
        " ON CONFLICT (hash) DO NOTHING"
    )
)

SWEPT = 2_000
NOBODY = Principal(kind=CallerKind.USER, project_id="")
"""The caller of a public route."""


@dataclass(slots=True)
class Call:
    """Who calls, and what the signature of a changing call still has to pay."""

    principal: Principal
    request_id: str = ""
    signature_hash: str | None = None
    """Set for a signed call of a changing method: must be spent."""
    expires_ms: int = 0
    content_sha256: str | None = None
    """The hash of the body that was signed; a streamed one is held to it at its last byte."""
    asked: Any = None
    """The body's JSON value as it was sent, once it was read."""
    settled: bool = field(default=False)
    """The signature was spent, or the route declared that a repeat changes nothing."""
    action: str = ""
    """What the route is called in the audit log, such as `jobs.submit`."""
    about: str = ""
    """The object, as far as the address says it; a service that knows better says so."""
    source: str = ""
    """The address that the call came from."""
    of_server: bool = False
    """It belongs into the server's own chain of the audit log, not into a project's."""
    changes: bool = False
    """A user's call that must leave a row in the audit log."""
    audited: bool = False
    within: str = ""
    """The project that the database itself holds the call's queries to; "": none."""
    again: Callable[[], Awaitable[Principal | None]] | None = None
    """Looks at the credential once more, for an answer that lasts; None: it is dead."""

    @property
    def owes(self) -> bool:
        return (self.signature_hash is not None and not self.settled) or (
            self.changes and not self.audited
        )

    def changed_nothing(self) -> None:
        """For a route that turned out to change nothing (a dry run): no need to spend."""
        self.settled = True
        self.changes = False


def spend(conn: Connection, call: Call, *, about: str | None = None, **details: Any) -> None:
    """Use up the call's signature in this transaction and write its row of the audit log;
    `SignatureReused` when it already was used.

    Every changing route calls this first in its write; a call that was answered well without it
    is turned into a 500, so that a forgotten one is found by its first test. Who knows only later
    what the call was about, or whether it changed anything, calls `use` first and `tell` then.
    """
    use(conn, call)
    tell(conn, call, about=about, **details)


def tell(
    conn: Connection,
    call: Call,
    *,
    about: str | None = None,
    outcome: str = record.OK,
    action: str | None = None,
    **details: Any,
) -> None:
    """Write the call's row of the audit log in this transaction. `details`: small, no secrets."""
    record.write(conn, entry_of(call, about=about, outcome=outcome, action=action, **details))
    call.audited = True
    if outcome == record.OK:
        news.tell(conn, action or call.action, call.within, record.now_ms(conn))


def entry_of(
    call: Call,
    *,
    about: str | None = None,
    outcome: str = record.OK,
    action: str | None = None,
    **details: Any,
) -> record.Entry:
    who = call.principal
    return record.Entry(
        action or call.action,
        "" if call.of_server else who.project_id,
        who.project_name,
        who.user_id or "",
        who.user_name,
        who.credential,
        call.source,
        call.request_id,
        call.about if about is None else about,
        outcome,
        1,
        details,
    )


def use(conn: Connection, call: Call) -> None:
    """Use up the call's signature in this transaction; `SignatureReused` when it already was,
    and `Fenced` when the attempt that calls was over before its write came."""
    if call.principal.kind is CallerKind.RUN:
        orders.current(conn, call.principal.attempt_id or "")
    if call.signature_hash is None:
        return
    values = {"hash": call.signature_hash, "expires_ms": call.expires_ms}
    if _SPEND.run(conn, values).rowcount != 1:
        raise SignatureReused(
            "this signature was already used", hint="sign again, with the same Idempotency-Key"
        )
    call.settled = True


def sweep(conn: Connection, now_ms: int) -> int:
    """Forget signatures that are out of their window anyway, at most `SWEPT` of them: a busy
    minute leaves many, and others want to write."""
    old = select(signatures.c.hash).where(signatures.c.hash < signature_key(now_ms, ""))
    return conn.execute(delete(signatures).where(signatures.c.hash.in_(old.limit(SWEPT)))).rowcount


def signature_key(expires_ms: int, signature: str) -> str:
    """The row's key for a signature: in order of time, and told by the signature alone."""
    digest = hashlib.sha256(signature.encode()).hexdigest()[:52] if signature else ""
    return f"{expires_ms:012x}{digest}"
