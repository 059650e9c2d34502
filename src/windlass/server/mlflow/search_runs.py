"""`runs/search`: a filter and an order as one SELECT over runs, their latest metrics, parameters
and tags. Points are never read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, case, exists, or_, select

from windlass.server.mlflow import filters
from windlass.server.mlflow.errors import MlflowError, invalid
from windlass.server.mlflow.filters import ATTRIBUTE, DATASET, METRIC, PARAM, TAG, Comparison
from windlass.server.runs.tables import datasets, latest, params, runs, tags

_ALIASES = {
    "created": "start_time", "Created": "start_time", "run name": "run_name",
    "Run name": "run_name", "Run Name": "run_name",
}  # fmt: skip
_COLUMNS: dict[str, Any] = {
    "run_id": runs.c.id, "run_name": runs.c.name, "status": runs.c.status, "user_id": runs.c.user,
    "start_time": runs.c.started_ms, "end_time": runs.c.ended_ms,
}  # fmt: skip
_TABLES = {METRIC: latest, PARAM: params, TAG: tags}
NAMES = filters.Names(
    kinds=(METRIC, PARAM, TAG, ATTRIBUTE, DATASET),
    numeric=frozenset({"start_time", "end_time", "created", "Created"}),
    attributes=frozenset({*_COLUMNS, "artifact_uri", *_ALIASES}),
    lists=frozenset({"run_id"}),
)
_MOST_ORDERS = 16


def query(text: str, order_by: Sequence[str], dialect: str) -> Select[Any]:
    """The runs that the filter lets through, in order; whose they are is for the caller to add."""
    chosen = select(runs)
    for comparison in filters.parse(text, NAMES):
        chosen = chosen.where(_clause(comparison, dialect))
    return _ordered(chosen, order_by)


def _clause(comparison: Comparison, dialect: str) -> ColumnElement[bool]:
    kind, key = comparison.kind, _ALIASES.get(comparison.key, comparison.key)
    if kind == ATTRIBUTE:
        column = _COLUMNS.get(key)
        if column is None:  # artifact_uri, which is made of the other columns
            column = "mlflow-artifacts:/" + runs.c.experiment_id + "/" + runs.c.id + "/artifacts"
        return filters.compare(column, comparison.comparator, comparison.value, dialect)
    if kind == DATASET:
        return _of_dataset(key, comparison, dialect)
    table = _TABLES[kind]
    mine = and_(table.c.run_id == runs.c.id, table.c.key == key)
    if comparison.comparator in filters.NULL:
        there = exists().where(mine)
        return ~there if comparison.comparator == "IS NULL" else there
    said = filters.compare(table.c.value, comparison.comparator, comparison.value, dialect)
    if kind == METRIC and comparison.comparator == "!=":
        said = or_(said, table.c.value.is_(None))  # NaN is unlike every number
    return exists().where(mine, said)


def _of_dataset(key: str, comparison: Comparison, dialect: str) -> ColumnElement[bool]:
    if key != "context":
        said = filters.compare(datasets.c[key], comparison.comparator, comparison.value, dialect)
        return exists().where(datasets.c.run_id == runs.c.id, said)
    if comparison.comparator not in ("=", "IN"):
        raise invalid("A dataset's context is compared by = and IN here.")
    values = comparison.value if isinstance(comparison.value, list) else [comparison.value]
    # Tags of an input are a short JSON list of pairs; what is looked for has no quotes in it.
    pairs = [f'%["mlflow.data.context", "{value}"]%' for value in values if '"' not in value]
    told = or_(*(datasets.c.tags.like(pair) for pair in pairs)) if pairs else runs.c.id.is_(None)
    return exists().where(datasets.c.run_id == runs.c.id, told)


def _ordered(chosen: Select[Any], order_by: Sequence[str]) -> Select[Any]:
    if len(order_by) > _MOST_ORDERS:
        raise invalid(f"order_by has at most {_MOST_ORDERS} fields.")
    seen: set[tuple[str, str]] = set()
    for text in order_by:
        kind, key, ascending = filters.order(text, NAMES, NAMES.attributes - {"artifact_uri"})
        key = _ALIASES.get(key, key)
        if (kind, key) in seen:
            # A 500 there; a caller's mistake is none here.
            raise MlflowError(
                "INTERNAL_ERROR", f"`order_by` contains duplicate fields: {list(order_by)}", 400
            )
        seen.add((kind, key))
        if kind == DATASET:
            raise invalid(f"Invalid identifier type '{kind}'")
        if kind == ATTRIBUTE:
            value = _COLUMNS[key]
            absent: Any = case((value.is_(None), 1), else_=0)
        else:
            table = _TABLES[kind].alias(f"ordered_{len(seen)}")
            joined = and_(table.c.run_id == runs.c.id, table.c.key == key)
            chosen = chosen.outerjoin(table, joined)
            value = table.c.value
            absent = case((table.c.run_id.is_(None), 2), (value.is_(None), 1), else_=0)
        chosen = chosen.order_by(absent, value.asc() if ascending else value.desc())
    if (ATTRIBUTE, "start_time") not in seen:
        chosen = chosen.order_by(runs.c.started_ms.desc())
    return chosen.order_by(runs.c.id)
