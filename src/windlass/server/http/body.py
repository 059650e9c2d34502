"""Bodies: strict JSON into a strict model, or raw bytes checked as they stream by.

JSON as most parsers take it is looser than what two databases and three languages agree on:
the last of two equal keys wins, NaN and 1e400 pass, UTF-16 is guessed. Here a body is UTF-8,
has unique keys, finite numbers, integers of 64 bits and a bounded depth, and no text in it
holds NUL or half a surrogate pair; or it is refused with the reason.

FastAPI's own body parsing is not used, because it reads the body before it asks who is calling.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NoReturn, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from windlass.core.errors import Internal, InvalidInput, Unauthenticated
from windlass.core.explain import explain, found
from windlass.core.strict import MAX_INT
from windlass.server.http import exchange

MAX_DEPTH = 64
MODEL_ATTRIBUTE = "windlass_body_model"

M = TypeVar("M", bound=BaseModel)

_TOKENS = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\Z)|([\[{])|([\]}])', re.DOTALL)
_BAD_TEXT = re.compile("[\0\ud800-\udfff]")


def json_body(model: type[M]) -> Callable[[Request], Awaitable[M]]:
    """A dependency that reads the body as `model`; it stands after the route's mark. Where the
    model hides its input in errors (it holds a secret), no answer repeats any of it."""
    hidden = bool(model.model_config.get("hide_input_in_errors"))

    async def read(request: Request) -> M:
        call = exchange.of(request.scope).call
        if call is None:
            raise Internal("a body was read before the caller was known")
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise InvalidInput(
                f"Content-Type: a JSON body is needed (found {found(kind)})",
                hint="send `Content-Type: application/json`",
            )
        body = await request.body()
        try:
            call.asked = check_json(body)
        except InvalidInput:
            if hidden:
                raise InvalidInput(
                    "the body is not JSON as it is asked for; since it may hold a secret, "
                    "what was found is not repeated here"
                ) from None
            raise
        try:
            return model.model_validate_json(body)
        except ValidationError as error:
            wrong = error.errors(include_url=False, include_input=not hidden)
            raise explain(wrong, model) from None

    setattr(read, MODEL_ATTRIBUTE, model)
    return read


def check_json(body: bytes) -> Any:
    """The value of a JSON text that all parsers read alike, or `InvalidInput`."""
    if not body:
        raise InvalidInput("the body is empty: JSON is needed")
    _check_depth(body)
    try:
        value = _DECODER.decode(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InvalidInput(f"the body is not UTF-8 (byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise InvalidInput(
            f"the body is not JSON: {error.msg} (line {error.lineno}, column {error.colno})"
        ) from None
    except RecursionError:
        raise InvalidInput(f"the body is nested deeper than {MAX_DEPTH}") from None
    if b"\\u0000" in body or b"\\ud" in body or b"\\uD" in body:
        _check_text(value, "")
    return value


async def byte_stream(request: Request) -> AsyncIterator[bytes]:
    """The body of a route marked `stream=True`, piece by piece.

    Raises `Unauthenticated` at the end when it was not the body that was signed: what was made
    of the pieces must be thrown away then.
    """
    call = exchange.of(request.scope).call
    if call is None:
        raise Internal("a body was read before the caller was known")
    hasher = hashlib.sha256()
    async for piece in request.stream():
        hasher.update(piece)
        yield piece
    if call.content_sha256 is not None and hasher.hexdigest() != call.content_sha256:
        raise Unauthenticated("the body is not the one that was signed")


def _check_depth(body: bytes) -> None:
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return
    depth = 0
    for token in _TOKENS.finditer(body):
        if token.lastindex == 1:
            depth += 1
            if depth > MAX_DEPTH:
                raise InvalidInput(f"the body is nested deeper than {MAX_DEPTH}")
        elif token.lastindex == 2:
            depth -= 1


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise InvalidInput(f"the key {found(key)} is there twice in one object")
            seen.add(key)
    return value


def _refuse_constant(text: str) -> NoReturn:
    raise InvalidInput(f"{text} is not JSON: numbers are finite")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise InvalidInput(f"the number {found(text)} is out of range")
    return value


def _whole(text: str) -> int:
    if len(text) > 20 or not -MAX_INT - 1 <= int(text) <= MAX_INT:
        raise InvalidInput(f"the integer {found(text)} is out of range: at most 64 bits")
    return int(text)


def _check_text(value: Any, path: str) -> None:
    if isinstance(value, str):
        if _BAD_TEXT.search(value):
            raise InvalidInput(
                f"{path or 'the body'}: text without NUL and lone surrogates "
                f"(found {found(value)})"
            )
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_text(key, f"{path}.{found(key)}".lstrip("."))
            _check_text(item, f"{path}.{found(key)[1:-1]}".lstrip("."))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check_text(item, f"{path}[{index}]")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique,
    parse_constant=_refuse_constant,
    parse_float=_finite,
    parse_int=_whole,
)
