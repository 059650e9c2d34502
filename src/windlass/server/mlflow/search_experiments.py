"""`experiments/search`: a filter and an order as one SELECT."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Select, and_, cast, exists, select

from windlass.server.mlflow import filters
from windlass.server.mlflow.errors import invalid
from windlass.server.mlflow.filters import ATTRIBUTE, TAG, Comparison
from windlass.server.mlflow.rows import experiment_id_of
from windlass.server.runs.tables import experiment_tags, experiments

_NUMBER = cast(experiments.c.id, BigInteger)
_COLUMNS: dict[str, Any] = {
    "name": experiments.c.name, "experiment_id": experiments.c.id,
    "creation_time": experiments.c.created_ms, "last_update_time": experiments.c.updated_ms,
}  # fmt: skip
NAMES = filters.Names(
    kinds=(ATTRIBUTE, TAG),
    numeric=frozenset({"creation_time", "last_update_time"}),
    attributes=frozenset(_COLUMNS),
    lists=frozenset({"experiment_id"}),
    null=(TAG,),
)
_USUAL = ("creation_time DESC", "experiment_id ASC")


def query(
    project_id: str, text: str, order_by: Sequence[str], states: Sequence[str], dialect: str
) -> Select[Any]:
    """The experiments of a project that the filter lets through, in order."""
    chosen = select(experiments).where(
        experiments.c.project_id == project_id, experiments.c.state.in_(states)
    )
    for comparison in filters.parse(text, NAMES):
        chosen = chosen.where(_clause(comparison, dialect))
    seen = set()
    for each in order_by or _USUAL:
        kind, key, ascending = filters.order(each, NAMES, NAMES.attributes)
        if kind != ATTRIBUTE:
            raise invalid(f"Invalid order_by entity: {kind}")
        column = _NUMBER if key == "experiment_id" else _COLUMNS[key]
        chosen = chosen.order_by(column.asc() if ascending else column.desc())
        seen.add(key)
    return chosen if "experiment_id" in seen else chosen.order_by(_NUMBER.desc())


def _clause(comparison: Comparison, dialect: str) -> ColumnElement[bool]:
    comparator, value = comparison.comparator, comparison.value
    if comparison.kind == ATTRIBUTE:
        if comparison.key == "experiment_id":
            if comparator not in ("=", "!=", "IN", "NOT IN"):
                raise invalid(f"Invalid comparator for experiment_id: {comparator}")
            one = not isinstance(value, list)
            value = experiment_id_of(value) if one else [experiment_id_of(v) for v in value]
        elif comparison.key in NAMES.numeric and isinstance(value, float):
            raise invalid(f"Invalid value for numeric attribute '{comparison.key}': '{value}'")
        return filters.compare(_COLUMNS[comparison.key], comparator, value, dialect)
    mine = and_(
        experiment_tags.c.project_id == experiments.c.project_id,
        experiment_tags.c.experiment_id == experiments.c.id,
        experiment_tags.c.key == comparison.key,
    )
    if comparator in filters.NULL:
        there = exists().where(mine)
        return ~there if comparator == "IS NULL" else there
    said = filters.compare(experiment_tags.c.value, comparator, value, dialect)
    return exists().where(mine, said)
