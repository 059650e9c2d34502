"""What pydantic found wrong, in our words: which field, what was found, what is allowed.

The same sentence for a job file, a flag and an API call. Nothing here may fail on what it
reports: NaN, lone surrogates, integers of 5,000 digits and 20 MB texts all pass through it.
"""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from windlass.core.errors import InvalidInput

_FOUND_CHARS = 120
_MAX_FIELDS = 20
_IN_MESSAGE = 3
_PLACES = frozenset({"body", "query", "path", "header", "cookie"})


def explain(
    errors: Sequence[Mapping[str, Any]], model: type[BaseModel] | None = None, what: str = ""
) -> InvalidInput:
    """The error to raise for pydantic's list of errors; `model` lets it name the choices."""
    fields: dict[tuple[str, str], dict[str, str]] = {}
    for error in errors[: _MAX_FIELDS * 5]:
        path, known = _place(model, tuple(error.get("loc", ())))
        entry = {
            "field": plain(".".join(path)) or "(the whole)",
            "found": _met(error),
            "allowed": plain(_allowed(error, path, known)),
        }
        key = (entry["field"], entry["found"])
        if key not in fields:
            fields[key] = entry
        elif entry["allowed"] not in fields[key]["allowed"].split(" or "):
            fields[key]["allowed"] += " or " + entry["allowed"]
    listed = list(fields.values())
    told = [
        f"{entry['field']}: {entry['allowed']} (found {entry['found']})"
        for entry in listed[:_IN_MESSAGE]
    ]
    if len(listed) > _IN_MESSAGE:
        told.append(f"and {len(listed) - _IN_MESSAGE} more")
    message = (f"{what}: " if what else "") + "; ".join(told)
    return InvalidInput(message, fields=listed[:_MAX_FIELDS])


def _met(error: Mapping[str, Any]) -> str:
    if error.get("type") == "missing":
        return "nothing"
    # Left out by who must not repeat it: a secret.
    return found(error["input"]) if "input" in error else "what is not told here"


def found(value: object) -> str:
    """A short text for any value; never raises, never long, always encodable."""
    try:
        if isinstance(value, str):
            return repr(value) if len(value) <= _FOUND_CHARS else _cut(repr(value[:_FOUND_CHARS]))
        if isinstance(value, bytes):
            return _cut(repr(value[:_FOUND_CHARS]))
        if isinstance(value, bool) or value is None:
            return {True: "true", False: "false", None: "null"}[value]
        if isinstance(value, int) and value.bit_length() > 400:
            return f"an integer of {value.bit_length()} bits"
        if isinstance(value, int | float):
            return repr(value)
        if isinstance(value, Mapping):
            names = ", ".join(found(key) for key in list(value)[:8])
            return plain(_cut(f"an object with {names}" if names else "an empty object"))
        if isinstance(value, list | tuple | set | frozenset):
            return f"a list of {len(value)}"
        return plain(_cut(repr(value)))
    except Exception:
        return f"a {type(value).__name__}"


def plain(text: str) -> str:
    """The text with whatever cannot be encoded as UTF-8, or hurts a terminal, escaped."""
    text = text.encode("utf-8", "backslashreplace").decode()
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def one_line(text: str) -> str:
    """A text from outside inside a line of ours: no line of its own, nothing for a terminal."""
    return text if text.isprintable() else " ".join(plain(text).split())


def _cut(text: str) -> str:
    return text if len(text) <= _FOUND_CHARS else text[: _FOUND_CHARS - 1] + "…"


def _allowed(error: Mapping[str, Any], path: Sequence[str], known: Iterable[str]) -> str:
    message = str(error.get("msg", "")).removeprefix("Value error, ")
    kind = error.get("type")
    if kind == "missing":
        return "required"
    if kind == "extra_forbidden":
        names = sorted(known)
        if not names:
            return "no such field"
        near = difflib.get_close_matches(path[-1] if path else "", names, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        return f"no such field; {hint}known: {', '.join(names)}"
    if kind == "string_unicode":
        return "text without lone surrogates"
    message = message.removeprefix("Input should be ")
    if kind == "string_pattern_mismatch":
        context = error.get("ctx") or {}
        return f"a text matching {context.get('pattern', '')}"
    return message or "not valid"


def _place(
    model: type[BaseModel] | None, loc: tuple[str | int, ...]
) -> tuple[list[str], list[str]]:
    """The field's path as a user would write it, and the names known where it stands.

    Pydantic's own path also holds the tried members of a union and marks such as `[key]`;
    walking the model tells these from names.
    """
    if loc and loc[0] in _PLACES:
        loc = loc[1:]
    if model is None:
        return [str(part) for part in loc], []
    path: list[str] = []
    kinds: list[Any] = [model]
    known: list[str] = []
    for part in loc:
        kinds = [option for kind in kinds for option in _options(kind)]
        known = [name for kind in kinds if _is_model(kind) for name in kind.model_fields]
        if part in known:
            path.append(str(part))
            kinds = [
                kind.model_fields[str(part)].annotation
                for kind in kinds
                if _is_model(kind) and part in kind.model_fields
            ]
            continue
        inner = [get_args(kind) for kind in kinds]
        values = [
            args[-1] if args[-1] is not Ellipsis else args[0]
            for kind, args in zip(kinds, inner, strict=True)
            if args and (isinstance(part, int) or get_origin(kind) is dict)
        ]
        if part == "[key]":
            continue
        if values:
            path.append(str(part))
            kinds = values
        elif known:
            path.append(str(part))
    return path, known


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _options(kind: Any) -> list[Any]:
    if get_origin(kind) is Annotated:
        return _options(get_args(kind)[0])
    if get_origin(kind) in (Union, types.UnionType):
        return [option for member in get_args(kind) for option in _options(member)]
    return [kind]
