"""Answers for what went wrong: always JSON, always encodable, never a trace.

FastAPI's own encoder fails on what it must report (NaN, a lone surrogate), and so turns a
caller's mistake into a 500. Here every error becomes a `WindlassError`, and that one has an
encoder which cannot fail.
"""

from __future__ import annotations

import json
import logging
import math
from http import HTTPStatus
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from windlass.core.errors import Internal, InvalidInput, NotFound, WindlassError
from windlass.core.explain import explain, found

log = logging.getLogger("windlass.server.http")

_RETRY_LATER = frozenset({429, 503, 507})
_MAX_DEPTH = 12


EXPECTED = (WindlassError, RequestValidationError, HTTPException)
"""What a route may raise to be answered with; anything else is a mistake of ours."""


def answer_to(error: Exception, request_id: str) -> Response:
    """The answer to one of those `EXPECTED`."""
    if isinstance(error, RequestValidationError):
        return answer(explain(error.errors()), request_id)
    if isinstance(error, HTTPException):
        return _of_http(error, request_id)
    assert isinstance(error, WindlassError)
    if isinstance(error, Internal):
        log.error("request %s failed", request_id, exc_info=error)
    return answer(error, request_id)


def answer(error: WindlassError, request_id: str = "", status: int | None = None) -> Response:
    status = status or error.status
    wire = error.to_wire()
    if request_id:
        wire["error"]["request_id"] = request_id
    response = Response(encode(wire), status, media_type="application/json")
    if status in _RETRY_LATER:
        seconds = error.details.get("retry_after_seconds", 1)
        response.headers["retry-after"] = str(seconds if isinstance(seconds, int) else 1)
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        response.headers["connection"] = "close"  # nobody wants the rest of it
    if status == HTTPStatus.UNAUTHORIZED:
        response.headers["www-authenticate"] = 'WL4-HMAC-SHA256 realm="windlass", Bearer'
    return response


def internal(error: BaseException, request_id: str, what: str) -> Response:
    """Our own fault: the trace goes to the log, the caller gets a number to quote."""
    log.error("request %s (%s) failed", request_id, what, exc_info=error)
    return answer(
        Internal(
            "the server made a mistake",
            hint=f"look for {request_id} in the server's log" if request_id else "",
        ),
        request_id,
    )


def encode(value: Any) -> bytes:
    """JSON in UTF-8 for any value at all."""
    return json.dumps(_safe(value, 0), ensure_ascii=False, separators=(",", ":")).encode()


def _safe(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value).encode("utf-8", "backslashreplace").decode()
    if isinstance(value, int):
        return int(value) if value.bit_length() < 64 else found(int(value))
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if depth < _MAX_DEPTH and isinstance(value, dict):
        return {str(_safe(str(key), depth)): _safe(item, depth + 1) for key, item in value.items()}
    if depth < _MAX_DEPTH and isinstance(value, list | tuple | set | frozenset):
        return [_safe(item, depth + 1) for item in value]
    return _safe(found(value), depth)


def _of_http(error: HTTPException, request_id: str) -> Response:
    """What the router itself refuses: no such path, no such method on it."""
    if error.status_code == HTTPStatus.NOT_FOUND:
        return answer(NotFound("no such address"), request_id)
    if error.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return answer(Internal(str(error.detail)), request_id, error.status_code)
    phrase = HTTPStatus(error.status_code).phrase.lower()
    response = answer(InvalidInput(phrase), request_id, error.status_code)
    for name, value in (error.headers or {}).items():
        response.headers[name] = value
    return response
