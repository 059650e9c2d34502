"""One request and its answer, as far as the layers around a route must know of each other."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from windlass.server.access.calls import Call

_KEY = "windlass.exchange"


class Exchange:
    __slots__ = ("call", "given_up", "request_id", "route", "started")

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.call: Call | None = None
        """Set once the caller is known."""
        self.given_up = False
        """The rest of the body is not waited for: it must not be taken for the next request."""
        self.route = ""
        """The template of the path that was asked for; "": none was found yet."""
        self.started = False
        """Whether an answer has begun: no other can be given any more."""


def begin(scope: MutableMapping[str, Any], request_id: str) -> Exchange:
    exchange = scope[_KEY] = Exchange(request_id)
    return exchange


def of(scope: MutableMapping[str, Any]) -> Exchange:
    """The exchange of a scope; a new one where no outer layer began it."""
    found = scope.get(_KEY)
    return found if isinstance(found, Exchange) else begin(scope, "")
