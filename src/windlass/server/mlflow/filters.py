"""MLflow's filters: `metrics.loss < 1 and params.lr = "0.1"`. Text in, comparisons out.

The grammar is that of `runs.filters`; here is what MLflow lets it say: which kinds and keys there
are, which take numbers and which quoted text, and by what they may be compared.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, func, literal

from windlass.core.errors import InvalidInput
from windlass.server.mlflow.errors import invalid
from windlass.server.runs import filters as grammar

METRIC, PARAM, TAG, ATTRIBUTE, DATASET = "metric", "parameter", "tag", "attribute", "dataset"
_KINDS = {
    "metric": METRIC, "metrics": METRIC, "parameter": PARAM, "parameters": PARAM, "param": PARAM,
    "params": PARAM, "tag": TAG, "tags": TAG, "attribute": ATTRIBUTE, "attributes": ATTRIBUTE,
    "attr": ATTRIBUTE, "run": ATTRIBUTE, "dataset": DATASET, "datasets": DATASET,
}  # fmt: skip
NUMERIC = (">", ">=", "!=", "=", "<", "<=")
TEXTUAL = ("!=", "=", "LIKE", "ILIKE")
LISTED = ("IN", "NOT IN")
NULL = ("IS NULL", "IS NOT NULL")
_MOST_ORDER = 1000
"""Its pattern takes time with the square of the length."""


@dataclass(frozen=True)
class Names:
    """What a kind of thing is searched by."""

    kinds: tuple[str, ...]
    numeric: frozenset[str]
    attributes: frozenset[str]
    lists: frozenset[str] = frozenset()
    """The attributes that may be compared with a list."""
    null: tuple[str, ...] = (TAG, PARAM)


@dataclass(frozen=True)
class Comparison:
    kind: str
    key: str
    comparator: str
    value: Any
    """A number, a text, a list of texts; None after IS NULL."""


def parse(text: str, names: Names) -> list[Comparison]:
    """The comparisons, all of which must hold."""
    try:
        clauses = grammar.parse(text, null=True)
    except InvalidInput as error:
        raise invalid(f"Invalid clause(s) in filter string: {error.message}") from None
    return [_judged(clause, names) for clause in clauses]


def identify(word: str, names: Names, valid: frozenset[str]) -> tuple[str, str]:
    """(kind, key) of `metrics.loss`; without a kind it is an attribute."""
    kind, dot, key = word.partition(".")
    if not dot:
        kind, key = ATTRIBUTE, word
    kind = kind.strip("`")
    told = _KINDS.get(kind)
    if told is None or told not in names.kinds:
        raise invalid(f"Invalid entity type '{kind}'. Valid values are {list(names.kinds)}")
    if len(key) > 1 and key[0] == key[-1] and key[0] in "\"'`":
        key = key[1:-1]
    if told == ATTRIBUTE and key not in valid:
        raise invalid(f"Invalid attribute key '{key}' specified. Valid keys are '{set(valid)}'")
    if told == DATASET and key not in ("name", "digest", "context"):
        raise invalid(f"Invalid dataset key '{key}' specified.")
    return told, key


def order(text: str, names: Names, valid: frozenset[str]) -> tuple[str, str, bool]:
    """(kind, key, ascending) of one clause of `order_by`."""
    if len(text) > _MOST_ORDER:
        raise invalid(f"An order_by clause has at most {_MOST_ORDER} characters.")
    match = re.fullmatch(r"\s*(.*?)(?:\s+(?i:(asc|desc)))?\s*", text, re.DOTALL)
    word = match.group(1) if match else ""
    quoted = re.search(r"[`\"']", word)
    if not word or (" " in word and not quoted and word not in valid):
        raise invalid(f"Invalid order_by clause '{text}'. Could not be parsed.")
    descending = match is not None and (match.group(2) or "").lower() == "desc"
    kind, key = identify(word, names, valid)
    return kind, key, not descending


def compare(column: Any, comparator: str, value: Any, dialect: str) -> ColumnElement[bool]:
    """The comparison as SQL, its value bound."""
    result: Any
    if comparator == "LIKE":
        if dialect == "sqlite":  # whose LIKE takes A for a
            result = column.op("GLOB")(literal(_glob(value)))
        else:
            result = column.like(value, escape="")
    elif comparator == "ILIKE":
        # Without an escape, as SQLite has it: PostgreSQL's own is the backslash.
        escape = None if dialect == "sqlite" else ""
        result = func.lower(column).like(value.lower(), escape=escape)
    elif comparator == "IN":
        result = column.in_(value)
    elif comparator == "NOT IN":
        result = column.not_in(value)
    else:
        result = {
            "=": column == value, "!=": column != value, "<": column < value,
            "<=": column <= value, ">": column > value, ">=": column >= value,
        }[comparator]  # fmt: skip
    found: ColumnElement[bool] = result
    return found


def _judged(clause: grammar.Clause, names: Names) -> Comparison:
    comparator = clause.operator.upper()
    word = f"{clause.kind}.{clause.key}" if clause.kind else clause.key
    kind, key = identify(word, names, names.attributes)
    if comparator in NULL:
        if kind not in names.null:
            raise invalid(
                f"IS NULL / IS NOT NULL is only supported for tags and params, not for "
                f"'{kind}' '{key}'"
            )
        return Comparison(kind, key, comparator, None)
    if comparator in LISTED:
        return Comparison(kind, key, comparator, _listed(clause, kind, key, names))
    value = _value(clause.value, kind, key, names)
    _check(kind, key, comparator, names)
    return Comparison(kind, key, comparator, value)


def _value(given: grammar.Value, kind: str, key: str, names: Names) -> int | float | str:
    if kind == METRIC or (kind == ATTRIBUTE and key in names.numeric):
        if given.number is None:
            what = "metric" if kind == METRIC else f"numeric attribute: {key}"
            raise invalid(f"Expected numeric value type for {what}. Found {given.text}")
        whole = kind != METRIC and re.fullmatch(r"[+-]?\d{1,18}", given.text)
        return int(given.text) if whole else given.number
    if not given.quoted:
        usual = f"{kind} (e.g. 'my-value')"
        what = {ATTRIBUTE: "attributes", DATASET: "dataset attributes"}.get(kind, usual)
        raise invalid(f"Expected a quoted string value for {what}. Got value {given.text}")
    return given.text


def _listed(clause: grammar.Clause, kind: str, key: str, names: Names) -> list[str]:
    if kind not in (ATTRIBUTE, DATASET) or (kind == ATTRIBUTE and key not in names.lists):
        raise invalid(
            f"Only {sorted(names.lists)} attributes support "
            "comparison with a list of quoted string values."
        )
    if not all(value.quoted for value in clause.values):
        raise invalid("A list of quoted string values, such as ('a', 'b'), is needed.")
    return [value.text for value in clause.values]


def _check(kind: str, key: str, comparator: str, names: Names) -> None:
    if kind == METRIC or (kind == ATTRIBUTE and key in names.numeric):
        allowed: Sequence[str] = NUMERIC
    elif kind in (ATTRIBUTE, DATASET):
        allowed = (*TEXTUAL, *LISTED)
    else:
        allowed = TEXTUAL
    if comparator not in allowed:
        raise invalid(f"Invalid comparator '{comparator}' not one of '{set(allowed)}'")


def _glob(pattern: str) -> str:
    special = {"%": "*", "_": "?", "*": "[*]", "?": "[?]", "[": "[[]"}
    return "".join(special.get(letter, letter) for letter in pattern)
