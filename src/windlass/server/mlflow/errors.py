"""Errors as an MLflow client reads them: its codes, its statuses, its form."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import Response

from windlass.core.errors import WindlassError
from windlass.core.explain import found
from windlass.server.http.errors import encode

_STATUS = {
    "INTERNAL_ERROR": 500,
    "INVALID_STATE": 500,
    "NOT_IMPLEMENTED": 501,
    "TEMPORARILY_UNAVAILABLE": 503,
    "REQUEST_LIMIT_EXCEEDED": 429,
    "RESOURCE_EXHAUSTED": 429,
    "RESOURCE_CONFLICT": 409,
    "ENDPOINT_NOT_FOUND": 404,
    "RESOURCE_DOES_NOT_EXIST": 404,
    "PERMISSION_DENIED": 403,
    "UNAUTHENTICATED": 401,
    "BAD_REQUEST": 400,
    "RESOURCE_ALREADY_EXISTS": 400,
    "INVALID_PARAMETER_VALUE": 400,
}
_CLASSES = {
    "BAD_REQUEST": ("KAM00", "INVALID_PARAMETER_VALUE"),
    "ENDPOINT_NOT_FOUND": ("KAM00", "RESOURCE_NOT_FOUND"),
    "INTERNAL_ERROR": ("XXM00", "CLIENT_INTERNAL_ERROR"),
    "INVALID_PARAMETER_VALUE": ("KAM00", "INVALID_PARAMETER_VALUE"),
    "INVALID_STATE": ("XXM00", "CLIENT_INTERNAL_ERROR"),
    "PERMISSION_DENIED": ("KAM00", "PERMISSION_DENIED"),
    "RESOURCE_ALREADY_EXISTS": ("KAM00", "RESOURCE_ALREADY_EXISTS"),
    "RESOURCE_DOES_NOT_EXIST": ("KAM00", "RESOURCE_NOT_FOUND"),
    "TEMPORARILY_UNAVAILABLE": ("XXM00", "CLIENT_INTERNAL_ERROR"),
}
"""What newer servers add to a code; they are told from it alone."""
_BY_STATUS = {
    400: "INVALID_PARAMETER_VALUE",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "RESOURCE_DOES_NOT_EXIST",
    409: "RESOURCE_CONFLICT",
    413: "BAD_REQUEST",
    429: "REQUEST_LIMIT_EXCEEDED",
    503: "TEMPORARILY_UNAVAILABLE",
}
_MORE = " See the API docs for more information about request parameters."


class MlflowError(Exception):
    """What a handler raises to be answered with."""

    def __init__(self, code: str, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status or _STATUS[code]


def invalid(message: str) -> MlflowError:
    return MlflowError("INVALID_PARAMETER_VALUE", message)


def absent(message: str) -> MlflowError:
    return MlflowError("RESOURCE_DOES_NOT_EXIST", message)


def missing(name: str) -> MlflowError:
    return invalid(f"Missing value for required parameter '{name}'.{_MORE}")


def of_type(name: str, value: Any) -> MlflowError:
    """A field of the wrong type, in the words of MLflow's own check."""
    hint = f" Hint: Value was of type '{type(value).__name__}'."
    return invalid(f"{wrong(name, value, hint)}{_MORE}")


def wrong(name: str, value: Any, why: str = "") -> str:
    try:
        shown = json.dumps(value, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError):
        shown = found(value)
    tail = f": {why}" if why else "."
    return f"Invalid value {shown} for parameter '{name}' supplied{tail}"


def answer(error: MlflowError | WindlassError, request_id: str = "") -> Response:
    if isinstance(error, WindlassError):
        code = _BY_STATUS.get(error.status, "INTERNAL_ERROR")
        message, status = error.message, error.status
        if error.hint:
            message = f"{message} ({error.hint})"
    else:
        code, message, status = error.code, error.message, error.status
    body = {"error_code": code, "message": message}
    if code in _CLASSES:
        body["sqlstate"], body["error_class"] = _CLASSES[code]
    response = Response(encode(body), status, media_type="application/json")
    if status in (429, 503, 507):
        response.headers["retry-after"] = "1"
    if status == 401:
        response.headers["www-authenticate"] = 'Basic realm="windlass", Bearer'
    return response
