"""From what the database holds to what it means, or `Unreadable` with the field and the value.

A bug, or a server of another version, may have written what this one does not understand. One
such row must stop nobody: who reads rows reads them here, and sets aside the one that fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from windlass.core.errors import Unreadable
from windlass.core.explain import explain, found
from windlass.core.jobs import JobSpec, Outcome
from windlass.server.store.metadata import Garbled

M = TypeVar("M", bound=BaseModel)
Row = Mapping[Any, Any]


def as_model(model: type[M], value: Any, what: str) -> M:
    if isinstance(value, Garbled):
        raise Unreadable(f"its {what} cannot be read: {value!r}")
    try:
        return model.model_validate(value)
    except ValidationError as err:
        why = explain(err.errors(), model).message
        raise Unreadable(f"its {what} cannot be read: {why}") from err


def spec_of(row: Row) -> JobSpec:
    """Of a job's row."""
    return as_model(JobSpec, row["spec"], "spec")


def placement_of(row: Row, spec: JobSpec | None = None) -> Sequence[Row]:
    """Of an attempt's row: members with their nodes, of roles that the spec has."""
    members = row["placement"]
    if not isinstance(members, list):
        raise Unreadable(f"its placement cannot be read: {found(members)}")
    for placed in members:
        if not (
            isinstance(placed, dict)
            and isinstance(placed.get("role"), str)
            and isinstance(placed.get("node"), str)
            and isinstance(placed.get("index"), int)
            and isinstance(placed.get("gpu_ids"), list)
            and (spec is None or placed["role"] in spec.roles)
        ):
            raise Unreadable(f"its placement cannot be read: {found(placed)}")
    return members


def record_of(row: Row) -> dict[str, Any] | None:
    """Of a worker's row: how its part ended, None while it goes on."""
    record = row["record"]
    if record is None:
        return None
    ranks = record.get("ranks") if isinstance(record, dict) else None
    if (
        not isinstance(record, dict)
        or record.get("outcome") not in _OUTCOMES
        or not isinstance(record.get("node"), str)
        or not isinstance(ranks, list | None)
        or not all(isinstance(rank, dict) and "role" in rank for rank in ranks or ())
    ):
        raise Unreadable(f"the exit record of node {row['node']} cannot be read: {found(record)}")
    return record


_OUTCOMES = frozenset(Outcome)


def or_else(value: Any, other: Any) -> Any:
    """The value, or the other where it is garbled: for what only adds to what is shown."""
    return other if isinstance(value, Garbled) else value
