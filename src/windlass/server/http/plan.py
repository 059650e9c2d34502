"""What a route does on each call, worked out once from what FastAPI found in its signature.

FastAPI works this out anew for every call, for all that it knows: forms, files, dependencies in
threads or with a `yield`, overrides, telemetry. A route here is plainer: async dependencies,
parameters of path, query and headers with one value each, the request itself. Any other is
refused when the server starts. The fields that check a value, and their errors, are FastAPI's.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from fastapi.exceptions import RequestValidationError, ResponseValidationError
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

_ELSEWHERE = (
    "websocket_param_name", "response_param_name", "background_tasks_param_name",
    "security_scopes_param_name", "body_params", "cookie_params",
)  # fmt: skip
_BODILESS = (204, 304)


class Unplanned(TypeError):
    """A route that asks for what only FastAPI's own way of calling it would give."""


class _Field(NamedTuple):
    name: str
    alias: str
    where: str
    validate: Callable[..., tuple[Any, list[Any]]]
    required: bool
    default: Any


class _Step(NamedTuple):
    """One function to call, after those it depends on."""

    name: str | None
    call: Callable[..., Awaitable[Any]]
    before: tuple[_Step, ...]
    path: tuple[_Field, ...]
    query: tuple[_Field, ...]
    headers: tuple[tuple[bytes, _Field], ...]
    requests: tuple[str, ...]
    """The names under which it wants the request."""


class Plan:
    """`await plan(request)` is the route's response, before any of it is sent."""

    def __init__(self, route: Any) -> None:
        self._endpoint = _step(route.dependant, f"{route.path}: {route.name}")
        self._field = route.response_field
        self._status = route.status_code or 200

    async def __call__(self, request: Request) -> Response:
        errors: list[Any] = []
        values = await _values(self._endpoint, request, {}, errors)
        if errors:
            raise RequestValidationError(errors)
        answer = await self._endpoint.call(**values)
        if isinstance(answer, Response):
            return answer
        if self._field is None:
            return JSONResponse(answer, self._status)
        content, wrong = self._field.validate(answer, {}, loc=("response",))
        if wrong:
            raise ResponseValidationError(wrong)
        body = b"" if self._status in _BODILESS else self._field.serialize_json(content)
        return Response(body, self._status, media_type="application/json")


async def _values(
    step: _Step, request: Request, known: dict[Any, Any], errors: list[Any]
) -> dict[str, Any]:
    """The arguments of a step; what is wrong with parameters is gathered in `errors`, and who
    depends on them is not called."""
    values: dict[str, Any] = {}
    for inner in step.before:
        if inner.call in known:
            found = known[inner.call]
        else:
            count = len(errors)
            given = await _values(inner, request, known, errors)
            if len(errors) > count:
                continue
            found = known[inner.call] = await inner.call(**given)
        if inner.name is not None:
            values[inner.name] = found
    if step.path:
        for field in step.path:
            _take(field, request.path_params.get(field.alias), values, errors)
    if step.query:
        raw = request.scope["query_string"]
        params = QueryParams(raw) if raw else {}
        for field in step.query:
            _take(field, params.get(field.alias), values, errors)
    for name, field in step.headers:
        value = next((v for n, v in request.scope["headers"] if n == name), None)
        text = None if value is None else value.decode("latin-1")
        _take(field, text, values, errors)
    for parameter in step.requests:
        values[parameter] = request
    return values


def _take(field: _Field, value: Any, values: dict[str, Any], errors: list[Any]) -> None:
    if value is not None:
        values[field.name], wrong = field.validate(value, {}, loc=(field.where, field.alias))
        errors += wrong
    elif field.required:
        missing = {"type": "missing", "loc": (field.where, field.alias), "msg": "Field required"}
        errors.append({**missing, "input": None})
    else:
        values[field.name] = field.default


def _step(dependant: Any, route: str) -> _Step:
    call = dependant.call
    if not inspect.iscoroutinefunction(call):
        raise Unplanned(f"{route}: {getattr(call, '__name__', call)} must be `async def`")
    for other in _ELSEWHERE:
        if getattr(dependant, other):
            raise Unplanned(f"{route}: takes {other.removesuffix('_param_name')}")
    return _Step(
        dependant.name,
        call,
        tuple(_step(inner, route) for inner in dependant.dependencies),
        tuple(_field(each, "path", route) for each in dependant.path_params),
        tuple(_field(each, "query", route) for each in dependant.query_params),
        tuple(
            (each.alias.lower().encode("latin-1"), _field(each, "header", route))
            for each in dependant.header_params
        ),
        tuple(
            name
            for name in (dependant.request_param_name, dependant.http_connection_param_name)
            if name
        ),
    )


def _field(field: Any, where: str, route: str) -> _Field:
    required = field.field_info.is_required()
    default = None if required else field.default
    if not isinstance(default, str | int | float | None):
        raise Unplanned(f"{route}: the default of {field.name} is not a plain value")
    return _Field(field.name, field.alias, where, field.validate, required, default)
