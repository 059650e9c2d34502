"""Query parameters: only names the route knows, each once, as clean text.

What is left unsaid by HTTP is where the two ends of a call disagree: a misspelt filter that is
ignored lists everything. Types here take one spelling of a value (`7`, not ` 7`, `7.0`, `+7`).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import unquote_to_bytes

from fastapi import Query
from pydantic import AfterValidator, BeforeValidator
from pydantic_core import PydanticCustomError

from windlass.core.errors import InvalidInput
from windlass.core.explain import found
from windlass.core.strict import MAX_INT, Name

MAX_QUERY_BYTES = 8192


def check_query(raw: bytes, known: Collection[str]) -> None:
    """Raises `InvalidInput` unless every parameter is known, single, and UTF-8 without NUL."""
    if not raw:
        return
    if len(raw) > MAX_QUERY_BYTES:
        raise InvalidInput(f"the query is longer than {MAX_QUERY_BYTES} bytes")
    seen: set[str] = set()
    for pair in raw.split(b"&"):
        name = _text(pair.partition(b"=")[0], "the name of a query parameter")
        _text(pair.partition(b"=")[2], f"query parameter {name}")
        if name not in known:
            listed = ", ".join(sorted(known)) or "none"
            raise InvalidInput(f"no query parameter {found(name)}; known: {listed}")
        if name in seen:
            raise InvalidInput(f"query parameter {name} is given twice")
        seen.add(name)


def _text(raw: bytes, what: str) -> str:
    try:
        text = unquote_to_bytes(raw.replace(b"+", b" ")).decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidInput(f"{what} is not UTF-8 (found {found(raw)})") from None
    if "\0" in text:
        raise InvalidInput(f"{what} holds a NUL character")
    return text


def _digits(value: Any) -> Any:
    if isinstance(value, str):
        if not re.fullmatch(r"-?(0|[1-9][0-9]{0,18})", value):
            raise PydanticCustomError("whole", "a whole number of at most 64 bits")
        number = int(value)
        if not -MAX_INT - 1 <= number <= MAX_INT:
            raise PydanticCustomError("whole", "a whole number of at most 64 bits")
        return number
    return value


def _flag(value: Any) -> Any:
    if isinstance(value, str):
        if value not in ("true", "false"):
            raise PydanticCustomError("flag", "true or false")
        return value == "true"
    return value


def _one_line(value: str) -> str:
    if any(not char.isprintable() for char in value):
        raise PydanticCustomError("line", "one line of text without control characters")
    return value


WholeNumber = Annotated[int, BeforeValidator(_digits)]
Flag = Annotated[bool, BeforeValidator(_flag)]
QueryLine = Annotated[str, AfterValidator(_one_line), Query(max_length=1024)]
QueryWords = Annotated[str, AfterValidator(_one_line), Query(max_length=4096)]
"""A filter, a list of names or of ids. Its own, as bounds of a type and of its use both hold."""
QueryCursor = Annotated[str, AfterValidator(_one_line), Query(max_length=6000)]
QueryId = Annotated[str, Query(pattern="^[0-9a-f]{32}$")]
Ref = Annotated[str, AfterValidator(_one_line)]
"""A job's id, a unique prefix of it, or its name: as a path parameter, with its own bound."""
ObjectName = Name
"""The name of what has one alone (a queue, a quota): as a path parameter."""


def moment(name: str, text: str | None) -> int | None:
    """An ISO-8601 time as milliseconds; without a zone it is UTC. Raises InvalidInput."""
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
        return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise InvalidInput(f"{name}: an ISO-8601 time (found {text!r})") from None
