"""Searches in the registry: filters, order and pages as MLflow has them, as one SELECT that gives
no more than a page. Texts are compared and ordered by their code points, in both databases."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    JSON,
    ColumnElement,
    Connection,
    Select,
    Text,
    cast,
    collate,
    func,
    select,
    type_coerce,
)

from windlass.core.errors import InvalidInput
from windlass.server.mlflow import filters
from windlass.server.mlflow.errors import invalid, of_type
from windlass.server.mlflow.pages import offset_of, token_of
from windlass.server.models.tables import model_versions
from windlass.server.models.tables import models as models_table
from windlass.server.runs.filters import Clause, parse

Row = dict[str, Any]
_ORDER = re.compile(r"\s*[`\"]?([\w.]+)[`\"]?\s*(asc|desc)?\s*", re.IGNORECASE)
_MOST_ORDER = 1000
_MODELS, _VERSIONS = models_table.c, model_versions.c
_OF_MODELS = {
    "name": _MODELS.name, "creation_timestamp": _MODELS.created_ms,
    "last_updated_timestamp": _MODELS.changed_ms,
}  # fmt: skip
_OF_VERSIONS = {
    "name": _MODELS.name, "creation_timestamp": _VERSIONS.created_ms,
    "last_updated_timestamp": _VERSIONS.changed_ms, "version_number": _VERSIONS.number,
}  # fmt: skip
_TEXTS = {"name": _MODELS.name, "run_id": _VERSIONS.run_id, "source_path": _VERSIONS.source}
_IS_PROMPT = "mlflow.prompt.is_prompt"
_NUMERIC = ("=", "!=", "<", "<=", ">", ">=")
_TEXTUAL = ("=", "!=", "like", "ilike")


@dataclass(frozen=True)
class Wish:
    """What a search asks for."""

    clauses: tuple[Clause, ...]
    order: tuple[tuple[str, bool], ...]
    most: int
    offset: int

    @staticmethod
    def of(fields: Mapping[str, Any], *, most: int, default: int) -> Wish:
        filtering, token = fields.get("filter") or "", fields.get("page_token") or ""
        for name, value in (("filter", filtering), ("page_token", token)):
            if not isinstance(value, str):
                raise of_type(name, value)
        order = fields.get("order_by") or []
        if not isinstance(order, list) or not all(isinstance(each, str) for each in order):
            raise of_type("order_by", order)
        try:
            clauses = tuple(parse(filtering))
        except InvalidInput as error:
            raise invalid(f"Invalid filter '{filtering}': {error.message}") from None
        return Wish(
            clauses,
            tuple(_direction(each) for each in order),
            _whole(fields.get("max_results"), most, default),
            offset_of(token),
        )

    def page(self, conn: Connection, query: Select[Any]) -> tuple[list[Row], str]:
        """Those of this page, and the token of the next."""
        found = conn.execute(query.offset(self.offset).limit(self.most + 1)).mappings()
        rows = [dict(row) for row in found]
        more = len(rows) > self.most
        return rows[: self.most], token_of(self.offset + self.most) if more else ""


def models(conn: Connection, project_id: str, wish: Wish) -> tuple[list[Row], str]:
    """A page of them, and the token of the next."""
    query = select(models_table).where(_MODELS.project_id == project_id)
    texts = {"name": _MODELS.name}
    for clause in wish.clauses:
        query = query.where(_holds(clause, texts, {}, _MODELS.tags, conn.dialect.name))
    order = _ordered(wish.order, _OF_MODELS, (("name", True),), conn.dialect.name)
    return wish.page(conn, query.order_by(*order))


def versions(conn: Connection, project_id: str, wish: Wish) -> tuple[list[Row], str]:
    """A page of them, and the token of the next."""
    table, dialect = model_versions, conn.dialect.name
    wanted = [column for column in table.c if column.name not in ("files", "lineage", "unsafe")]
    query = (
        select(*wanted, _MODELS.name)
        .join(models_table, _MODELS.id == table.c.model_id)
        .where(table.c.project_id == project_id)
    )
    numbers = {"version_number": table.c.number}
    for clause in wish.clauses:
        query = query.where(_holds(clause, _TEXTS, numbers, table.c.tags, dialect))
    usual = (("last_updated_timestamp", False), ("name", True), ("version_number", False))
    last = (("name", True), ("version_number", False))
    return wish.page(
        conn, query.order_by(*_ordered(wish.order or usual, _OF_VERSIONS, last, dialect))
    )


def answer(name: str, wires: Sequence[Row], token: str) -> Row:
    found: Row = {name: list(wires)} if wires else {}
    if token:
        found["next_page_token"] = token
    return found


def _holds(
    clause: Clause,
    texts: Mapping[str, Any],
    numbers: Mapping[str, Any],
    tags: Any,
    dialect: str,
) -> ColumnElement[bool]:
    if clause.kind in ("tag", "tags"):
        if clause.operator not in _TEXTUAL:
            raise invalid(f"Invalid comparator for tag: {clause.operator}")
        left = _tag(tags, clause.key, dialect)
        if clause.key == _IS_PROMPT:  # clients ask for models that are none
            left = func.coalesce(left, "false")
        return filters.compare(left, clause.operator.upper(), clause.value.text, dialect)
    if clause.kind not in ("", "attribute", "attributes"):
        raise invalid(
            f"Invalid entity type '{clause.kind}'. Valid entity types are "
            "('attribute', 'tag', 'tags')"
        )
    if clause.key in numbers:
        number = clause.value.number
        if clause.operator not in _NUMERIC:
            raise invalid(f"Invalid comparator for attribute {clause.key}: {clause.operator}")
        if number is None or not number.is_integer() or abs(number) >= 2**31:
            raise invalid(f"Invalid value for numeric attribute '{clause.key}'")
        return filters.compare(numbers[clause.key], clause.operator, int(number), dialect)
    if clause.key not in texts:
        listed = sorted({*texts, *numbers})
        raise invalid(f"Invalid attribute key '{clause.key}' specified. Valid keys are {listed}")
    lists = clause.operator in ("in", "not in") and clause.key in ("name", "run_id")
    if clause.operator not in _TEXTUAL and not lists:
        raise invalid(f"Invalid comparator for attribute: {clause.operator}")
    value = [each.text for each in clause.values] if lists else clause.value.text
    left = func.coalesce(texts[clause.key], "")
    return filters.compare(left, clause.operator.upper(), value, dialect)


def _tag(tags: Any, key: str, dialect: str) -> Any:
    """A tag's value, NULL where there is none; the key is bound, whatever stands in it."""
    if dialect == "sqlite":
        each = func.json_each(tags).table_valued("key", "value")
        return select(each.c.value).where(each.c.key == key).scalar_subquery()
    return func.json_extract_path_text(cast(type_coerce(tags, Text), JSON), key)


def _direction(text: str) -> tuple[str, bool]:
    found = _ORDER.fullmatch(text) if len(text) <= _MOST_ORDER else None
    if found is None:
        raise invalid(f"Invalid order_by clause '{text[:_MOST_ORDER]}'.")
    key = found[1].removeprefix("attribute.").removeprefix("attributes.")
    return key, (found[2] or "asc").lower() == "asc"


def _ordered(
    order: Sequence[tuple[str, bool]],
    columns: Mapping[str, Any],
    last: Sequence[tuple[str, bool]],
    dialect: str,
) -> list[Any]:
    named = {key for key, _ in order}
    for key in named:
        if key not in columns:
            raise invalid(
                f"Invalid order by key '{key}' specified. Valid keys are {sorted(columns)}"
            )
    found = []
    for key, up in dict([*order, *((key, up) for key, up in last if key not in named)]).items():
        column = columns[key]
        if key == "name" and dialect == "postgresql":  # else by the language of the database
            column = collate(column, "C")
        found.append(column.asc() if up else column.desc())
    return found


def _whole(value: Any, most: int, default: int) -> int:
    if value is None or value == "":
        return default
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        raise of_type("max_results", value) from None
    if number > most:
        raise of_type("max_results", value)
    if number < 1:
        raise invalid(
            f"Invalid value for max_results. It must be a positive integer, but got {number}"
        )
    return number
