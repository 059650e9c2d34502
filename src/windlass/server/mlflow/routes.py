"""/mlflow/<project>/…: the one route of MLflow's wire. What lies below it is in `endpoints`."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from pydantic_core import to_json
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from windlass.core.access import Right
from windlass.core.errors import Unauthenticated, WindlassError
from windlass.server.access import walls
from windlass.server.access.calls import Call
from windlass.server.audit import refusals
from windlass.server.http import exchange
from windlass.server.http.marks import MARK_ATTRIBUTE, PROJECT_ATTRIBUTE, TABLE_ATTRIBUTE
from windlass.server.mlflow import errors
from windlass.server.mlflow.asked import Asked
from windlass.server.mlflow.door import Door
from windlass.server.mlflow.endpoints import ENDPOINTS, METHODS, Endpoint, find, handler_of

router = APIRouter(tags=["mlflow"])
PREFIX = "/mlflow/{project}"
_door = Door()


Found = tuple[Endpoint, dict[str, str]] | None


async def _named(connection: HTTPConnection) -> Found:
    """Stands where other routes have their mark. Who may call is asked in the route, for its
    answer has another form; the marks of all endpoints are in the table."""
    return find(connection.scope["method"], "/" + connection.path_params["path"])


setattr(_named, MARK_ATTRIBUTE, Right.TRACK_READ)
setattr(_named, PROJECT_ATTRIBUTE, "project")
setattr(
    _named,
    TABLE_ATTRIBUTE,
    {(method, PREFIX + path): each.right for (method, path), each in ENDPOINTS.items()},
)


@router.api_route(
    PREFIX + "/{path:path}", methods=list(METHODS), include_in_schema=False, name="wire"
)
async def wire(request: Request, found: Annotated[Any, Depends(_named)]) -> Response:
    """MLflow's wire for one project."""
    current = exchange.of(request.scope)
    try:
        return await _answer(request, found)
    except errors.MlflowError as error:
        return errors.answer(error)
    except WindlassError as error:
        if error.status >= 500:
            raise
        refusals.note(request.scope, current.call, error)
        return errors.answer(error)


async def _answer(request: Request, found: Found) -> Response:
    parts = request.app.state.parts
    project = request.path_params["project"]
    right = Right.TRACK_READ if found is None else found[0].right
    audited = found is not None and found[0].audited
    call, attempt = await _door.enter(request, parts, project, right, audited)
    if found is None:
        path = request.path_params["path"]
        raise errors.MlflowError(
            "ENDPOINT_NOT_FOUND", f"No endpoint {request.method} /{path} is here."
        )
    endpoint, params = found
    if any("\0" in value for value in params.values()):
        raise errors.invalid("Invalid path")
    if not endpoint.stream:
        await _hold_to_signature(request, call)
    if call.within and parts.store.dialect == "postgresql":
        parts = _walled(parts, call.within)
    asked = Asked(parts, call.principal, project, request, params, attempt)
    answer = await handler_of(endpoint)(asked)
    if call.owes:
        call.changed_nothing()  # what was to go was gone already
    if isinstance(answer, Response):
        return answer
    return Response(to_json(answer, inf_nan_mode="strings"), media_type="application/json")


async def _hold_to_signature(request: Request, call: Call) -> None:
    if call.content_sha256 is not None:
        if hashlib.sha256(await request.body()).hexdigest() != call.content_sha256:
            raise Unauthenticated("the body is not the one that was signed")


def _walled(parts: Any, project_id: str) -> Any:
    from dataclasses import replace  # of the standard library; here since one dialect needs it

    return replace(parts, store=walls.around(parts.store, project_id))
