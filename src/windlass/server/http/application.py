"""The application: FastAPI declares and describes the routes, and what runs on a call is this.

[BasePath ──►] Limits ──► Routes ──► Plan ──► the route
               (the wall)  │ finds the route, answers its errors
                           └─► FastAPI's router: mounts, websockets, no such path, no such method
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute, iter_route_contexts
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from windlass.server.audit import refusals
from windlass.server.http import errors, exchange
from windlass.server.http.base_path import BasePath
from windlass.server.http.limits import Limits, Rules
from windlass.server.http.plan import Plan
from windlass.server.http.tally import Tally


class Application(FastAPI):
    """Add routes and mounts, then serve it: a route added after the first call is not seen."""

    def __init__(self, rules: Rules, base_path: str = "", **about: Any) -> None:
        super().__init__(
            openapi_url=None, docs_url=None, redoc_url=None,
            telemetry={"tracing": False, "metrics": False, "logs": False}, **about,
        )  # fmt: skip
        self._rules = rules
        self._base_path = base_path
        self.tally = Tally()

    def build_middleware_stack(self) -> ASGIApp:
        """Once, at the first call. Raises `Unplanned`."""
        wall = Limits(Routes(self), self._rules, self.tally)
        return BasePath(wall, self._base_path) if self._base_path else wall


class Routes:
    def __init__(self, app: FastAPI) -> None:
        self._rest = app.router
        self._plain: dict[tuple[str, str], tuple[Any, Plan]] = {}
        """By method and path: routes without parameters, the first of those that match."""
        self._others: list[tuple[Any, Plan]] = []
        for route in iter_route_contexts(app.router.routes):
            if isinstance(route.original_route, APIRoute):
                self._add(route, Plan(route))

    def _add(self, route: Any, plan: Plan) -> None:
        for method in route.methods:
            if not route.param_convertors and not any(
                method in other.methods and other.path_regex.match(route.path)
                for other, _ in self._others
            ):
                self._plain.setdefault((method, route.path), (route, plan))
        self._others.append((route, plan))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._rest(scope, receive, send)
            return
        try:
            plan = self._find(scope)
            if plan is None:
                await self._rest(scope, receive, send)
                return
            response = await plan(Request(scope, receive, send))
        except errors.EXPECTED as error:
            current = exchange.of(scope)
            if current.started:
                raise
            refusals.note(scope, current.call, error)
            response = errors.answer_to(error, current.request_id)
        await response(scope, receive, send)

    def _find(self, scope: Scope) -> Plan | None:
        """The plan of the route that is meant, with what the scope says of it filled in."""
        method, path = scope["method"], scope["path"]
        found = self._plain.get((method, path))
        params: dict[str, Any] = {}
        if found is None:
            for route, plan in self._others:
                match = route.path_regex.match(path)
                if match and method in route.methods:
                    found = route, plan
                    params = {
                        name: route.param_convertors[name].convert(value)
                        for name, value in match.groupdict().items()
                    }
                    break
            else:
                return None
        exchange.of(scope).route = found[0].path
        scope["route"], scope["path_params"] = found[0].original_route, params
        return found[1]
