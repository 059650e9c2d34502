"""What a parameter of a study may be: a range or a list, on a condition or always.

log:1e-4..1e-1        between these, all magnitudes alike
float:0..1            float:0..1/0.1 in steps
int:1..6              int:32..256/32 in steps; logint:1..1024
sgd,adam   [1, 2, 4]  one of these
{range: float:0..1, when: {optimizer: [adam]}}   only where `optimizer` is adam
{range: int:1..9, when: [{a: 1}, {b: 2, c: 3}]}  where a is 1, or where b is 2 and c is 3
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from windlass.core.jobs import EnvName, Param
from windlass.core.strict import Strict

Values = Mapping[str, Any]
_RANGE = re.compile(r"^(log|float|int|logint):(.+)\.\.([^/]+)(?:/(.+))?$")
_MEANT = "such as log:1e-4..1e-1, float:0..1, int:1..6, a list of choices, or sgd,adam"
MOST = 1_000_000_000_000_000.0
"""Past it, a float no longer tells one integer from the next."""


Condition = dict[EnvName, Annotated[tuple[Param, ...], Field(strict=False, min_length=1)]]
"""Each of these parameters has one of these values."""


class Dimension(Strict):
    """One parameter."""

    kind: Literal["float", "int", "choice"]
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    step: float | None = None
    choices: Annotated[tuple[Param, ...], Field(strict=False, max_length=10_000)] = ()
    when: Annotated[tuple[Condition, ...], Field(strict=False, max_length=200)] = ()
    """It exists only where one of these holds; empty: always."""

    @model_validator(mode="before")
    @classmethod
    def _written(cls, value: Any) -> Any:
        return _as_fields(value)

    @model_validator(mode="after")
    def _sound(self) -> Dimension:
        if self.kind == "choice":
            if not self.choices:
                raise PydanticCustomError("space", "no choices: " + _MEANT)
            if len({(type(each), each) for each in self.choices}) != len(self.choices):
                raise PydanticCustomError("space", "a choice stands twice")
            return self
        if not (abs(self.low) <= MOST and abs(self.high) <= MOST) and self.kind == "int":
            raise PydanticCustomError("space", "whole numbers of at most 10^15")
        if not self.low <= self.high:
            raise PydanticCustomError("space", "the lower end is above the upper: " + _MEANT)
        if self.log and self.low <= 0:
            raise PydanticCustomError("space", "a log range begins above 0")
        if self.kind == "int" and not (self.low.is_integer() and self.high.is_integer()):
            raise PydanticCustomError("space", "an int range has whole ends")
        if self.step is not None:
            if self.step <= 0 or (self.kind == "int" and not float(self.step).is_integer()):
                raise PydanticCustomError("space", "a step is above 0, and whole for int")
            if self.log:
                raise PydanticCustomError("space", "a log range has no steps")
        return self

    def contains(self, value: Any) -> bool:
        if self.kind == "choice":
            return any(type(value) is type(each) and value == each for each in self.choices)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        if self.kind == "int" and value != int(value):
            return False
        return self.low <= value <= self.high

    def text(self) -> str:
        """As a person would write it."""
        if self.kind == "choice":
            return ", ".join(str(each) for each in self.choices)
        logarithmic = {"int": "logint", "float": "log"}
        kind = logarithmic.get(self.kind, self.kind) if self.log else self.kind
        step = f"/{self.step:g}" if self.step else ""
        return f"{kind}:{self.low:g}..{self.high:g}{step}"


def parse(text: str) -> dict[str, Any]:
    """A dimension's fields from one word. Raises PydanticCustomError naming what is meant."""
    found = _RANGE.match(text.strip())
    if found is None:
        if ".." in text or re.match(r"^(log|float|int|logint):", text):
            raise PydanticCustomError("space", "not a range; " + _MEANT)
        return {"kind": "choice", "choices": [value_of(word) for word in text.split(",")]}
    kind, low, high, step = found.groups()
    ends = [_number(low), _number(high)]
    return {
        "kind": "int" if kind in ("int", "logint") else "float",
        "low": ends[0], "high": ends[1], "log": kind.startswith("log"),
        "step": None if step is None else _number(step),
    }  # fmt: skip


def holds(dimension: Dimension, values: Values) -> bool:
    """Whether the parameter exists beside these."""
    return not dimension.when or any(_met(condition, values) for condition in dimension.when)


def _met(condition: Condition, values: Values) -> bool:
    for name, allowed in condition.items():
        if name not in values:
            return False
        value = values[name]
        if not any(value == each and _alike(value, each) for each in allowed):
            return False
    return True


def first_of(space: Mapping[str, Dimension]) -> dict[str, Any]:
    """Every parameter at its lower end, whether its condition holds or not."""
    return {
        name: dim.choices[0] if dim.kind == "choice" else numeric(dim, dim.low)
        for name, dim in space.items()
    }


def numeric(dimension: Dimension, value: float) -> int | float:
    return int(value) if dimension.kind == "int" else float(value)


def value_of(text: str) -> bool | int | float | str:
    """What a choice's text means: a truth, a number, or just text."""
    word = text.strip()
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    for kind in (int, float):
        try:
            number = kind(word)
        except ValueError:
            continue
        return number if abs(number) < float("inf") else word
    return word


def _alike(one: Any, other: Any) -> bool:
    return isinstance(one, bool) == isinstance(other, bool)


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise PydanticCustomError("space", "{text} is not a number; " + _MEANT, {"text": text})
    return number


def _as_fields(value: Any) -> Any:
    """The texts of this module's head, as the fields of a dimension."""
    if isinstance(value, list | tuple):
        return {"kind": "choice", "choices": list(value)}
    if isinstance(value, str):
        return parse(value)
    if isinstance(value, bool | int | float):
        return {"kind": "choice", "choices": [value]}
    if isinstance(value, dict) and ("range" in value or "choices" in value):
        value = dict(value)
        base = value.pop("range", None)
        if "when" in value:
            value["when"] = _conditions(value["when"])
        if base is None:
            return {"kind": "choice", **value}
        made = _as_fields(base)
        return {**made, **value} if isinstance(made, dict) else made
    if value is None:
        raise PydanticCustomError("space", _MEANT)
    return value


def _conditions(when: Any) -> Any:
    """One condition or several, a single value or a list of them."""
    if isinstance(when, dict):
        when = [when]
    if not isinstance(when, list | tuple):
        return when
    return [
        {n: list(v) if isinstance(v, list | tuple) else [v] for n, v in each.items()}
        if isinstance(each, dict)
        else each
        for each in when
    ]
