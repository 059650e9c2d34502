"""A call that was let in, and the use of its signature.

A signature that changes something is taken once. Its hash goes into the caller's own write
transaction, so it costs no commit of its own, and a write that fails does not use it up.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, delete, text

from windlass.core.access import CallerKind, Principal
from windlass.core.errors import SignatureReused
from windlass.server.access.tables import signatures
from windlass.server.store.prepared import Prepared

_SPEND = Prepared(
    text(
        "INSERT INTO signatures (hash, expires_ms) VALUES (:hash, :expires_ms)"
        " ON CONFLICT (hash) DO NOTHING"
    )
)

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

    @property
    def owes(self) -> bool:
        return self.signature_hash is not None and not self.settled

    def changed_nothing(self) -> None:
        """For a route that turned out to change nothing (a dry run): no need to spend."""
        self.settled = True


def spend(conn: Connection, call: Call) -> None:
    """Use up the call's signature in this transaction; `SignatureReused` when it already was.

    Every changing route calls this first in its write; a signed call that was answered well
    without it is turned into a 500, so that a forgotten one is found by its first test.
    """
    if call.signature_hash is None:
        return
    values = {"hash": call.signature_hash, "expires_ms": call.expires_ms}
    if _SPEND.run(conn, values).rowcount != 1:
        raise SignatureReused(
            "this signature was already used", hint="sign again, with the same Idempotency-Key"
        )
    call.settled = True


def sweep(conn: Connection, now_ms: int) -> int:
    """Forget signatures that are out of their window anyway."""
    before = signature_key(now_ms, "")
    return conn.execute(delete(signatures).where(signatures.c.hash < before)).rowcount


def signature_key(expires_ms: int, signature: str) -> str:
    """The row's key for a signature: in order of time, and told by the signature alone."""
    digest = hashlib.sha256(signature.encode()).hexdigest()[:52] if signature else ""
    return f"{expires_ms:012x}{digest}"
