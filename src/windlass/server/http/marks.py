"""Every route carries a mark: the right that a caller needs. One without does not start.

Other systems were entered through the routes that lay beside their authentication: a mount, a
websocket, a router added later. So nothing here matches paths. A mark is a dependency of the
route itself, and `check_marked` looks at every way in before the server listens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from fastapi.routing import iter_route_contexts
from starlette.requests import HTTPConnection, Request
from starlette.routing import BaseRoute, Host, Mount, Route, Router, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from windlass.core import signing
from windlass.core.access import Right
from windlass.core.errors import Forbidden, Unauthenticated
from windlass.server.access.calls import NOBODY, Call
from windlass.server.access.walls import WALLED
from windlass.server.audit.naming import describe
from windlass.server.http import exchange
from windlass.server.http.query import check_query

MARK_ATTRIBUTE = "windlass_mark"
OTHERS_ATTRIBUTE = "windlass_others"
PROJECT_ATTRIBUTE = "windlass_project"
TABLE_ATTRIBUTE = "windlass_table"
"""Of the first dependency of a route that stands for many ways in: by method and path, the right
that each needs."""


class Unmarked(Exception):
    """A way into the server that says nothing about who may take it."""


def require(
    right: Right,
    *,
    stream: bool = False,
    repeatable: bool = False,
    project: str = "",
    others: Right | None = None,
) -> Callable[[HTTPConnection], Awaitable[Call]]:
    """A dependency that lets a caller in who has `right`, and says who it is.

    It must be the route's first dependency, so that a stranger learns nothing from it.
    `stream`: the body is not read here; the route reads it with `byte_stream`, and a signed
    call must name its hash. `repeatable`: the same call twice changes nothing more, so its
    signature need not be spent (blobs by digest). `project`: the path's parameter that names the
    project which the call is about; otherwise it is that of X-Wl-Project or the credential.
    `others`: the right that it takes where the object is another user's; the service looks, this
    is what the matrix of rights is drawn from.
    The server's `Access` is found in `app.state.access`.
    """

    async def enter(connection: HTTPConnection) -> Call:
        if right is Right.PUBLIC:
            found = exchange.of(connection.scope)
            found.call = Call(NOBODY, found.request_id)
            describe(found.call, connection.scope, right, repeatable)
        else:
            named = connection.path_params.get(project) if project else None
            await _enter(connection, right, stream, named, repeatable)
        call = exchange.of(connection.scope).call
        assert call is not None
        if repeatable:
            call.settled = True
        if connection.scope["query_string"]:
            check_query(connection.scope["query_string"], _known_query(connection.scope))
        return call

    setattr(enter, MARK_ATTRIBUTE, right)
    setattr(enter, OTHERS_ATTRIBUTE, others)
    setattr(enter, PROJECT_ATTRIBUTE, project)
    return enter


class Guarded:
    """An ASGI app behind a mark: the one way to mount what is not ours (files, a proxy)."""

    def __init__(self, app: ASGIApp, right: Right) -> None:
        self.app = app
        self.right = right

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.right is not Right.PUBLIC and scope["type"] in ("http", "websocket"):
            connection = (
                Request(scope, receive) if scope["type"] == "http" else HTTPConnection(scope)
            )
            await _enter(connection, self.right, stream=True, repeatable=True)
        await self.app(scope, receive, send)


def check_marked(app: Any) -> dict[str, Right]:
    """Every way into `app` with its mark; raises `Unmarked` for the first that has none.

    Called once all routes are added, before the server listens.
    """
    marked: dict[str, Right] = {}
    for where, mark in _walk(app, ""):
        if mark is None:
            raise Unmarked(
                f"{where} has no permission mark: give the route "
                "`Depends(require(Right.…))` as its first dependency, or mount `Guarded(app, …)`"
            )
        marked[where] = mark
    return marked


def mark_of(route: Any) -> Right | None:
    """The mark of a FastAPI route: that of its first dependency."""
    dependencies = route.dependant.dependencies
    if not dependencies:
        return None
    mark = getattr(dependencies[0].call, MARK_ATTRIBUTE, None)
    return mark if isinstance(mark, Right) else None


def _table_of(route: Any) -> dict[tuple[str, str], Right]:
    dependencies = getattr(getattr(route, "dependant", None), "dependencies", None)
    return getattr(dependencies[0].call, TABLE_ATTRIBUTE, {}) if dependencies else {}


async def _enter(
    connection: HTTPConnection,
    right: Right,
    stream: bool,
    project: str | None = None,
    repeatable: bool = False,
) -> None:
    found = exchange.of(connection.scope)
    scope = connection.scope
    parts = signing.SignedParts(
        scope.get("method", "GET"),
        scope.get("raw_path") or scope["path"].encode(),
        scope["query_string"],
        scope["headers"],
    )

    async def read_hash(claimed: str | None) -> str:
        if not isinstance(connection, Request):
            return signing.EMPTY_HASH
        if stream:  # without the header the signature covers the empty body, and nothing else
            return claimed or signing.EMPTY_HASH
        body = await connection.body()
        actual = hashlib.sha256(body).hexdigest() if body else signing.EMPTY_HASH
        if claimed is not None and claimed != actual:
            raise Unauthenticated("X-Wl-Content-Sha256 is not the hash of the body")
        return actual

    call = await connection.app.state.access.authenticate(
        parts, read_hash, found.request_id, project
    )
    found.call = call  # before the refusal: the audit log tells who was refused
    describe(call, scope, right, repeatable)
    if right in WALLED:
        call.within = call.principal.project_id
    if not call.principal.may(right):
        raise Forbidden(
            f"this credential ({call.principal.kind}) lacks the right {right}",
            hint="" if call.principal.project_id else "name a project: X-Wl-Project, --project",
            right=str(right),
        )


def _known_query(scope: Scope) -> frozenset[str]:
    """The names a route reads, its dependencies included; worked out once per route."""
    route = scope.get("route")
    known = getattr(route, "windlass_query", None)
    if known is None:
        heap = [route.dependant] if route is not None and hasattr(route, "dependant") else []
        names: set[str] = set()
        while heap:
            dependant = heap.pop()
            names.update(field.alias for field in dependant.query_params)
            heap.extend(dependant.dependencies)
        known = frozenset(names)
        if route is not None:
            setattr(route, "windlass_query", known)  # noqa: B010
    return known


def _walk(app: Any, prefix: str) -> Iterator[tuple[str, Right | None]]:
    """All ways into an app, mounts and hosts opened up; None stands for a missing mark."""
    if isinstance(app, Guarded):
        yield f"{prefix}/*", app.right
        return
    router = getattr(app, "router", app)
    if not isinstance(router, Router):
        yield f"{prefix}/* ({type(app).__name__})", None
        return
    routes: list[BaseRoute] = [*router.routes, *getattr(router, "_low_priority_routes", ())]
    for found in iter_route_contexts(routes):
        yield from _walk_route(found, prefix)
    for group in routes:
        for low in getattr(group, "effective_low_priority_routes", lambda: ())():
            yield f"{prefix}{low.frontend_prefix}/* (files)", mark_of(low)


def _walk_route(found: Any, prefix: str) -> Iterator[tuple[str, Right | None]]:
    route = found.original_route
    where = f"{prefix}{found.path or getattr(route, 'host', '')}"
    if isinstance(route, Mount | Host):
        # `_base_app` is what was mounted; `app` may be wrapped in the mount's own middleware.
        yield from _walk(getattr(route, "_base_app", route.app), where)
    elif table := _table_of(found):
        for (method, path), right in table.items():
            yield f"{method} {prefix}{path}", right
    elif getattr(found, "dependant", None) is not None:
        names = ",".join(sorted(found.methods)) if getattr(found, "methods", None) else "WS"
        yield f"{names} {where}", mark_of(found)
    elif isinstance(route, Route | WebSocketRoute):
        endpoint = route.endpoint
        if methods := getattr(route, "methods", None):
            where = f"{','.join(sorted(methods))} {where}"
        yield where, endpoint.right if isinstance(endpoint, Guarded) else None
    else:
        yield f"{where} ({type(route).__name__})", None
