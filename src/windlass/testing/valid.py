"""Any valid value of a model, drawn from the model itself: what a field may be is written once,
in `core/`, and a field that is added there is drawn here too."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from hypothesis import assume
from hypothesis import strategies as some
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from windlass.core.strict import MAX_BYTES, MAX_DURATION_MS, MAX_MOMENT_MS, format_duration

Some = some.SearchStrategy[Any]
_FEW = 3
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def raw(model: type[BaseModel], special: Mapping[str, Some]) -> Some:
    """What a user may send to make one of these. `special`: by path (`code.git`, `run`), what
    the model takes only by a rule of its own."""

    @some.composite
    def draw_one(draw: some.DrawFn) -> Any:
        value = draw(_object(model, special, ""))
        try:
            model.model_validate(value)
        except ValidationError:
            assume(False)
        return value

    return draw_one()


def _object(model: type[BaseModel], special: Mapping[str, Some], path: str) -> Some:
    needed: dict[str, Some] = {}
    free: dict[str, Some] = {}
    for name, field in model.model_fields.items():
        drawn = special.get(path + name)
        if drawn is None:
            drawn = _field(field, special, f"{path}{name}.")
        (needed if field.is_required() else free)[name] = drawn
    return some.fixed_dictionaries(needed, optional=free)


def _field(field: FieldInfo, special: Mapping[str, Some], path: str) -> Some:
    return _kind(field.annotation, field.metadata, special, path)


def _kind(kind: Any, marks: list[Any], special: Mapping[str, Some], path: str) -> Some:
    if get_origin(kind) is Annotated:
        inner, *more = get_args(kind)
        return _kind(inner, [*_flat(more), *marks], special, path)
    for mark in marks:
        if (
            written := _WRITTEN.get(getattr(getattr(mark, "func", None), "__name__", ""))
        ) is not None:
            return written(marks)
    if get_origin(kind) in (Union, types.UnionType):
        return some.one_of(*(_kind(each, [], special, path) for each in get_args(kind)))
    if get_origin(kind) is Literal:
        return some.sampled_from(get_args(kind))
    if get_origin(kind) is tuple:
        item = _kind(get_args(kind)[0], [], special, path)
        return some.lists(item, min_size=int(_bound(marks, MinLen, 0)), max_size=_FEW)
    if get_origin(kind) is dict:
        key, value = (_kind(each, [], special, path) for each in get_args(kind))
        return some.dictionaries(key, value, min_size=int(_bound(marks, MinLen, 0)), max_size=_FEW)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return _object(kind, special, path)
    return _plain(kind, marks)


def _plain(kind: Any, marks: list[Any]) -> Some:
    if kind is types.NoneType:
        return some.none()
    if kind is bool:
        return some.booleans()
    if kind is int:
        least, most = _bound(marks, Ge, -(2**63)), _bound(marks, Le, 2**63 - 1)
        return some.integers(int(least), int(most)) | some.sampled_from([int(least), int(most)])
    if kind is float:
        return some.floats(
            min_value=_bound(marks, Ge, _bound(marks, Gt, None)),
            max_value=_bound(marks, Le, _bound(marks, Lt, None)),
            exclude_min=any(isinstance(mark, Gt) for mark in marks),
            exclude_max=any(isinstance(mark, Lt) for mark in marks),
            allow_nan=False, allow_infinity=False,
        )  # fmt: skip
    assert kind is str, f"say in `special` what a {kind} may be"
    for mark in marks:
        if pattern := getattr(mark, "pattern", None):
            return some.from_regex(pattern, fullmatch=True)
    most = int(min(40, _bound(marks, MaxLen, 40)))
    text = some.characters(codec="utf-8", exclude_characters="\0")
    return some.text(text, min_size=int(_bound(marks, MinLen, 0)), max_size=most)


def _flat(marks: list[Any]) -> list[Any]:
    """A `Field(...)` holds several."""
    return [one for mark in marks for one in getattr(mark, "metadata", None) or [mark]]


def _bound(marks: list[Any], mark: type[Any], absent: Any) -> Any:
    """The narrowest of those that are given."""
    found: list[Any] = [getattr(each, _NAMES[mark]) for each in marks if isinstance(each, mark)]
    if not found:
        return absent
    return min(found) if mark in (Le, Lt, MaxLen) else max(found)


_NAMES: dict[type[Any], str] = {
    Ge: "ge", Gt: "gt", Le: "le", Lt: "lt", MinLen: "min_length", MaxLen: "max_length"
}  # fmt: skip


# As a user writes what a field reads in a way of its own, by the name of what reads it.


def _duration(marks: list[Any]) -> Some:
    most = int(_bound(marks, Le, MAX_DURATION_MS))
    ms = some.integers(0, most) | some.sampled_from([0, most])
    seconds = some.floats(0, most / 1000, allow_nan=False) | some.integers(0, most // 1000)
    return ms.map(format_duration) | ms.map("{}ms".format) | seconds


def _bytes(marks: list[Any]) -> Some:
    most = int(_bound(marks, Le, MAX_BYTES))
    return some.integers(0, most) | some.sampled_from([0, most, f"{most // 2**40}TiB", "1.5k"])


def _moment(marks: list[Any]) -> Some:
    def written(ms: int) -> str:
        return (_EPOCH + timedelta(milliseconds=ms)).isoformat()

    last = some.sampled_from([0, MAX_MOMENT_MS])
    return (some.integers(0, MAX_MOMENT_MS) | last).map(written)


def _amounts(marks: list[Any]) -> Some:
    number = some.integers(0, 10_000_000) | some.integers(0, 10_000_000_000).map(
        lambda n: n / 1000
    )
    memory = some.integers(0, MAX_BYTES) | some.sampled_from(["64GiB", "3TiB", MAX_BYTES])
    return some.fixed_dictionaries(
        {}, optional={"gpus": number, "cpus": number, "memory": memory, "gpus:A100 80": number}
    )


def _weight(marks: list[Any]) -> Some:
    return some.integers(1, 1_000_000) | some.floats(0.001, 1_000_000)


def _money(marks: list[Any]) -> Some:
    return some.integers(0, 10**15).map(lambda micro: f"{micro // 10**6}.{micro % 10**6:06}")


def _param(marks: list[Any]) -> Some:
    whole = some.integers(-(2**63), 2**63 - 1)
    number = some.floats(allow_nan=False, allow_infinity=False)
    return (
        some.booleans()
        | whole
        | number
        | some.text(some.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
    )


_WRITTEN: dict[str, Callable[[list[Any]], Some]] = {
    "parse_duration_ms": _duration, "parse_bytes": _bytes, "parse_moment_ms": _moment,
    "_amounts": _amounts, "_weight": _weight, "parse_money": _money, "_param": _param,
}  # fmt: skip
