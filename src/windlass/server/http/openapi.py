"""The API's description: FastAPI's own, completed by what it cannot see.

Bodies are read by `json_body`, errors are answered in our form and callers are let in by marks:
all three are added here, so that generated clients are right.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import iter_route_contexts
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from windlass.core.access import Right
from windlass.server.http.body import MODEL_ATTRIBUTE
from windlass.server.http.marks import mark_of

_REF = "#/components/schemas/"
ABOUT = """Submit, follow and steer jobs. Signed with an access key and a secret key in the form of
AWS Signature Version 4; workers and user code use the bearer token of their attempt. Every answer
carries `X-Wl-Request-Id`."""
_ERROR = {
    "type": "object",
    "title": "Error",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {
                "code": {"type": "string"},
                "message": {"type": "string"},
                "hint": {"type": "string"},
                "details": {"type": "object"},
                "request_id": {"type": "string"},
            },
        }
    },
}
_SECURITY = {
    "signature": {
        "type": "apiKey",
        "in": "header",
        "name": "Authorization",
        "description": "`WL4-HMAC-SHA256 Credential=…, SignedHeaders=…, Signature=…`. The header "
        "`X-Wl-Project`, signed too, names the project; by default it is the key's own.",
    },
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "of a user, in one project: `wl_…`; of an attempt: `wlw_…`, `wlr_…`",
    },
}


def answers(*kinds: str, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """What a route says that answers in something other than JSON: `responses=answers(…)`."""
    text = {"schema": {"type": "string"}}
    content = {kind: {} if kind == OCTETS else text for kind in kinds}
    return {status: {"description": "As it comes", "content": content}}


OCTETS = "application/octet-stream"
EVENT_STREAM = answers("text/event-stream")


def describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document of an app whose routes carry marks."""
    document = get_openapi(
        title=app.title, version=app.version, description=ABOUT, routes=app.routes
    )
    components = document.setdefault("components", {})
    schemas: dict[str, Any] = components.setdefault("schemas", {})
    schemas.pop("HTTPValidationError", None)
    schemas.pop("ValidationError", None)
    schemas["Error"] = _ERROR
    components["securitySchemes"] = _SECURITY
    routes = list(_documented(app))
    refs = _add_bodies(schemas, {model for _, _, model in routes if model is not None})
    for operation, mark, model in _operations(document, routes):
        operation["responses"].pop("422", None)
        operation["responses"]["default"] = {
            "description": "What was wrong, what was found, what to do",
            "content": {"application/json": {"schema": {"$ref": _REF + "Error"}}},
        }
        operation["security"] = _security(mark)
        if model is not None:
            schema = {"$ref": _REF + refs[model]}
            operation["requestBody"] = {
                "required": True,
                "content": {"application/json": {"schema": schema}},
            }
    return document


def _documented(app: FastAPI) -> Iterator[tuple[Any, Right | None, type[BaseModel] | None]]:
    for route in iter_route_contexts(app.routes):
        if getattr(route, "dependant", None) is None or not getattr(
            route, "include_in_schema", False
        ):
            continue
        model = None
        for dependency in route.dependant.dependencies:
            model = getattr(dependency.call, MODEL_ATTRIBUTE, model)
        yield route, mark_of(route), model


def _operations(
    document: dict[str, Any], routes: list[tuple[Any, Right | None, type[BaseModel] | None]]
) -> Iterator[tuple[dict[str, Any], Right | None, type[BaseModel] | None]]:
    for route, mark, model in routes:
        for method in route.methods or ():
            operation = document["paths"].get(route.path_format, {}).get(method.lower())
            if operation is not None:
                # Short and stable: generated clients name their methods by it.
                operation["operationId"] = "_".join([*operation.get("tags", ())[:1], route.name])
                yield operation, mark, model


def _security(mark: Right | None) -> list[dict[str, list[str]]]:
    if mark is Right.PUBLIC:
        return []
    if mark in (Right.WORKER, Right.RUN):
        return [{"token": []}]
    return [{"signature": []}, {"token": []}]


def _add_bodies(
    schemas: dict[str, Any], models: set[type[BaseModel]]
) -> dict[type[BaseModel], str]:
    """Add the models' input schemas; where an answer's schema of that name differs, as X-Input."""
    ordered = sorted(models, key=lambda model: (model.__module__, model.__qualname__))
    refs, found = models_json_schema(
        [(model, "validation") for model in ordered], ref_template=_REF + "{model}"
    )
    mine: dict[str, Any] = found.get("$defs", {})
    renamed: set[str] = set()
    while True:
        differing = {
            name
            for name, schema in mine.items()
            if name in schemas and _renamed(schema, renamed) != schemas[name]
        }
        if differing <= renamed:
            break
        renamed |= differing
    for name, schema in mine.items():
        schemas[_input(name, renamed)] = _renamed(schema, renamed)
    return {
        model: _input(refs[(model, "validation")]["$ref"].removeprefix(_REF), renamed)
        for model in ordered
    }


def _input(name: str, renamed: set[str]) -> str:
    return f"{name}-Input" if name in renamed else name


def _renamed(schema: Any, renamed: set[str]) -> Any:
    if isinstance(schema, dict):
        return {
            key: _REF + _input(value.removeprefix(_REF), renamed)
            if key == "$ref" and isinstance(value, str)
            else _renamed(value, renamed)
            for key, value in schema.items()
        }
    return [_renamed(item, renamed) for item in schema] if isinstance(schema, list) else schema
