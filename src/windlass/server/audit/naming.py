"""What a call is called in the audit log, told from its route."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.core.access import CallerKind, Right
from windlass.core.signing import SAFE_METHODS
from windlass.server.access.calls import Call

OF_SERVER = frozenset(
    {
        Right.PROJECT_ADMIN,
        Right.USER_WRITE,
        Right.QUEUE_WRITE,
        Right.QUOTA_WRITE,
        Right.LIMIT_WRITE,
        Right.PRICE_WRITE,
        Right.SERVER_WRITE,
        Right.AUDIT_READ_ALL,
    }
)
"""Calls that need one of these are about the whole server: they are in its own chain, where the
members of the project that the caller happened to speak for do not read them."""


def describe(call: Call, scope: Mapping[str, Any], right: Right, repeatable: bool) -> None:
    """Write down in the call what the audit log will want to know of it."""
    call.action = action_of(scope)
    params = scope.get("path_params")
    if params:
        call.about = "/".join(str(value) for value in params.values())
    call.source = source_of(scope)
    call.of_server = right in OF_SERVER
    call.changes = (
        not repeatable
        and right is not Right.PUBLIC
        and call.principal.kind is CallerKind.USER
        and scope.get("method", "GET") not in SAFE_METHODS
    )


def action_of(scope: Mapping[str, Any]) -> str:
    """`jobs.submit`: the route's tag and name; the method where no route was found."""
    route = scope.get("route")
    known: str | None = getattr(route, "windlass_action", None)
    if known is None:
        if route is None:
            return str(scope.get("method", scope["type"])).lower()
        tags = getattr(route, "tags", None) or ["server"]
        known = f"{tags[0]}.{getattr(route, 'name', '')}".replace("_", "-")
        setattr(route, "windlass_action", known)  # noqa: B010
    return known


def source_of(scope: Mapping[str, Any]) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""
