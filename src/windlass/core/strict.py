"""The one base of everything that crosses a process: strict types, no surprises.

A plain pydantic model takes `"1"` and `true` as integers, NaN as a float, NUL and lone
surrogates as text (PostgreSQL and the JSON encoder then fail later), and ignores fields it
does not know. This one takes none of that.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

MAX_INT = 2**63 - 1
MAX_BYTES = 2**60
MAX_DURATION_MS = 36_525 * 86_400_000
"""A hundred years: what is more is a slip of the pen, and now and a few of these stay far below
what a BIGINT, a date and JSON's numbers hold."""
MAX_MOMENT_MS = 253_402_300_799_999
"""The last of 9999: no calendar of ours goes on."""


class Strict(BaseModel):
    # Its validator is made at its first use: a server has hundreds of these, a command needs few.
    model_config = ConfigDict(
        defer_build=True,
        strict=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        str_max_length=65536,
        hide_input_in_errors=False,
        ser_json_inf_nan="null",
        use_enum_values=False,
    )


_SURROGATE = re.compile("[\ud800-\udfff]")


def _clean(text: str) -> str:
    if "\0" in text:
        raise PydanticCustomError("nul", "a NUL character is not allowed in text")
    if not text.isascii() and _SURROGATE.search(text):
        raise PydanticCustomError("surrogate", "a lone surrogate is not text")
    return text


Text = Annotated[str, AfterValidator(_clean)]
Line = Annotated[str, AfterValidator(_clean), Field(max_length=4096)]
Lines = Annotated[tuple[Line, ...], Field(strict=False, max_length=4096)]
"""A list of lines; not strict about list or tuple, strict about what is in it."""
Count = Annotated[int, Field(ge=0, le=MAX_INT)]

_NAME = r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$"
Name = Annotated[str, Field(pattern=_NAME, max_length=40)]

_UNITS = {
    "": 1, "b": 1,
    "k": 1000, "kb": 1000, "m": 1000**2, "mb": 1000**2, "g": 1000**3, "gb": 1000**3,
    "t": 1000**4, "tb": 1000**4,
    "ki": 1024, "kib": 1024, "mi": 1024**2, "mib": 1024**2, "gi": 1024**3, "gib": 1024**3,
    "ti": 1024**4, "tib": 1024**4,
}  # fmt: skip
_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def parse_bytes(value: Any) -> Any:
    """`8GiB`, `512m`, `1.5g` or a plain integer, as bytes."""
    if not isinstance(value, str):
        return value
    found = re.fullmatch(r"\s*([0-9]{1,20})(\.[0-9]{1,6})?\s*([A-Za-z]*)\s*", value)
    if not found or found[3].lower() not in _UNITS:
        raise PydanticCustomError(
            "bytes", "a size is a number with a unit, such as 512MiB or 8GiB"
        )
    unit = _UNITS[found[3].lower()]
    return int(found[1]) * unit + int(Fraction("0" + (found[2] or "")) * unit)


def parse_duration_ms(value: Any) -> Any:
    """`90s`, `20m`, `6h`, `1h30m`, `2d`, or a number of seconds, as milliseconds."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        if not math.isfinite(value):
            return value
        return _within_bounds(round(Fraction(value) * 1000))
    if not isinstance(value, str):
        return value
    if len(value) > _DURATION_CHARS or not re.fullmatch(
        r"\s*([0-9]{1,16}(\.[0-9]{1,6})?(ms|[smhdw])\s*)+", value
    ):
        raise PydanticCustomError("duration", "a duration is like 90s, 20m, 6h, 1h30m or 2d")
    parts = re.findall(r"([0-9.]+)(ms|[smhdw])", value)
    return _within_bounds(round(sum(Fraction(number) * _MS[unit] for number, unit in parts)))


def _within_bounds(ms: int) -> int:
    if ms > MAX_DURATION_MS:
        raise PydanticCustomError("duration", "a duration of at most 100 years (36525d)")
    return ms


_DURATION_CHARS = 200


def format_duration(ms: int) -> str:
    """The shortest text that `parse_duration_ms` reads back as the same number."""
    for unit in ("w", "d", "h", "m", "s"):
        if ms and ms % _MS[unit] == 0:
            return f"{ms // _MS[unit]}{unit}"
    return f"{ms}ms"


_TEXT_OR_NUMBER: dict[str, Any] = {"anyOf": [{"type": "string"}, {"type": "number", "minimum": 0}]}

Bytes = Annotated[
    int,
    BeforeValidator(parse_bytes),
    Field(ge=0, le=MAX_BYTES),
    WithJsonSchema({**_TEXT_OR_NUMBER, "description": "bytes, or a text such as 8GiB"}),
]
DurationMs = Annotated[
    int,
    BeforeValidator(parse_duration_ms),
    Field(ge=0, le=MAX_DURATION_MS),
    PlainSerializer(format_duration),
    WithJsonSchema({**_TEXT_OR_NUMBER, "description": "seconds, or a text such as 20m or 1h30m"}),
]
"""Milliseconds inside; outside a text such as `6h`, or a number of seconds."""


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_moment_ms(value: Any) -> Any:
    """An ISO-8601 time with its zone, as UTC milliseconds. Without a zone nobody knows which
    hour was meant, so that is refused."""
    if not isinstance(value, str):
        raise PydanticCustomError("moment", _MOMENT)
    try:
        at = datetime.fromisoformat(value)
        if at.tzinfo is None:
            raise PydanticCustomError("moment", _MOMENT + ": its zone is missing")
        ms = (at - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError) as err:
        if isinstance(err, PydanticCustomError):
            raise
        raise PydanticCustomError("moment", _MOMENT) from err
    if ms < 0:
        raise PydanticCustomError("moment", _MOMENT + ": not before 1970")
    if ms > MAX_MOMENT_MS:
        raise PydanticCustomError("moment", _MOMENT + ": not after 9999 (UTC)")
    return ms


def format_moment(ms: int) -> str:
    at = _EPOCH + timedelta(milliseconds=ms)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


_MOMENT = "an ISO-8601 time with its zone, such as 2026-11-20T02:00:00Z"
MomentMs = Annotated[
    int,
    BeforeValidator(parse_moment_ms),
    PlainSerializer(format_moment),
    WithJsonSchema({"type": "string", "format": "date-time", "description": _MOMENT}),
]
"""UTC milliseconds inside; outside an ISO-8601 time with its zone."""
InstantMs = Annotated[int, Field(ge=0, le=MAX_MOMENT_MS)]
"""UTC milliseconds on both sides."""
