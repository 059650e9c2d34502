"""The cookie that a browser holds: its name, how it is set, how it is found.

`__Host-` makes the browser keep it for this very host, never for a neighbour under the same
domain, and only with Secure and Path=/. Browsers take http://127.0.0.1 and http://localhost for
secure.
"""

from __future__ import annotations

from collections.abc import Iterable

SESSION = "__Host-windlass"
LOGIN = "__Host-windlass-login"
"""Held while the browser is at another issuer's page: who comes back is who left."""

_RULES = "Path=/; Secure; HttpOnly; SameSite=Lax"


def setting(name: str, value: str, seconds: int) -> str:
    """The value of a Set-Cookie header."""
    return f"{name}={value}; Max-Age={max(0, seconds)}; {_RULES}"


def clearing(name: str) -> str:
    return setting(name, "", 0)


def value_of(headers: Iterable[tuple[bytes, bytes]], name: str) -> str | None:
    """The cookie of that name; None when it is not there, or there twice: then somebody else set
    one of them."""
    found = []
    for header, line in headers:
        if header == b"cookie":
            for pair in line.decode("latin-1").split(";"):
                key, _, value = pair.strip().partition("=")
                if key == name:
                    found.append(value.strip())
    return found[0] if len(found) == 1 and found[0] else None
