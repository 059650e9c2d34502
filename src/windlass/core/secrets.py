"""Secrets of jobs as the API sees them: a value goes in, and never comes out."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from windlass.core.strict import Strict

MAX_CHARS = 32_768
"""Of one value: an environment variable has at most 128 KiB of bytes on Linux."""

SecretName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=256)]


def _check(value: Any) -> Any:
    if not isinstance(value, str):
        raise PydanticCustomError("secret", "a text")
    if not value or len(value) > MAX_CHARS:
        raise PydanticCustomError("secret", f"a text of 1 to {MAX_CHARS} characters")
    if "\0" in value or any("\ud800" <= char <= "\udfff" for char in value):
        raise PydanticCustomError("secret", "text without NUL and lone surrogates")
    return value


SecretValue = Annotated[
    str,
    BeforeValidator(_check),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MAX_CHARS}),
]


class SecretBody(Strict):
    model_config = ConfigDict(hide_input_in_errors=True)

    value: SecretValue


class SecretView(Strict):
    """All that anybody is told of a secret."""

    name: str
    own: bool
    """The caller's alone; else every member's jobs may name it."""
    version: int
    changed: str
    changed_by: str


class SecretPage(Strict):
    items: tuple[SecretView, ...]
