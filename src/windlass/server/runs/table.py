"""A table over many runs: a row for each, with the parameters and metrics that were asked for.

Everything comes from `runs`, `params`, `tags` and `latest`: a run's points are never looked at,
so ten thousand runs of a thousand keys are filtered and sorted in the database by one look at an
index for each run and condition.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Float,
    Select,
    Table,
    and_,
    case,
    cast,
    exists,
    func,
    select,
)

from windlass.core.errors import InvalidInput
from windlass.server.clock import stamp
from windlass.server.runs.filters import Clause, Value, parse, split_key
from windlass.server.runs.tables import latest, params, runs, tags
from windlass.server.runs.thinning import spelled

MAX_CELLS = 200_000
"""Values in one answer; who wants more asks for fewer columns or fewer runs."""
GUESSED = 20
"""Columns of either kind, where none were named."""

_METRICS: dict[str, Column[Any]] = {
    "metrics": latest.c.value, "metric": latest.c.value, "last": latest.c.value,
    "min": latest.c.min, "max": latest.c.max,
}  # fmt: skip
_PARAMS = ("params", "param", "parameters", "parameter")
_TAGS = ("tags", "tag")
_FACTS = ("", "attributes", "attribute", "attr", "run", "runs")
_OWN: dict[str, Column[Any]] = {
    "name": runs.c.name, "run_name": runs.c.name, "id": runs.c.id, "run_id": runs.c.id,
    "user": runs.c.user, "status": runs.c.status, "started": runs.c.started_ms,
    "start_time": runs.c.started_ms, "ended": runs.c.ended_ms, "end_time": runs.c.ended_ms,
    "source": runs.c.source, "job": runs.c.job_id,
}  # fmt: skip
_KINDS = "metrics, min, max, params, tags, or nothing for " + ", ".join(
    ("name", "id", "user", "status", "started", "ended", "source", "job")
)
_NUMBER = (
    r"^ *[+-]?(([0-9]{1,200}(\.[0-9]{0,200})?|\.[0-9]{1,200})([eE][+-]?[0-9]{1,2})?"
    r"|[0-9](\.[0-9]{0,200})?[eE][+-]?[12][0-9]{2}) *$"
)
"""What PostgreSQL casts to a double without an error: a larger or smaller one it refuses, and with
it the whole query."""
_LAST_MS = 253_402_300_799_999
"""The end of the year 9999: a client may log any time, and no date is later."""


@dataclass(frozen=True)
class Asked:
    filter: str = ""
    sort: str = ""
    """`metrics.loss`, `-max.acc`, `params.lr`, `started`; a minus turns it round."""
    columns: tuple[str, ...] = ()
    """`params.lr`, `metrics.loss` …; `*` is all, none are the most common."""
    ids: tuple[str, ...] = ()
    offset: int = 0
    limit: int = 50


def page(conn: Connection, project_id: str, asked: Asked) -> dict[str, Any]:
    """Rows in the order asked for, newest first by default; how many there are; where to go on."""
    chosen = [runs.c.project_id == project_id, runs.c.state == "active"]
    if asked.ids:
        chosen.append(runs.c.id.in_(asked.ids))
    numeric = _numeric(conn.dialect.name)
    chosen += [_condition(clause, numeric) for clause in parse(asked.filter)]
    query = _sorted(select(runs).where(*chosen), asked.sort, numeric)
    rows = conn.execute(query.offset(asked.offset).limit(asked.limit)).mappings().all()
    total = conn.execute(select(func.count()).select_from(runs).where(*chosen)).scalar() or 0
    ids = [row["id"] for row in rows]
    wanted = _columns(conn, ids, asked.columns)
    given = _params(conn, ids, wanted.params)
    told = _metrics(conn, ids, wanted.metrics)
    end = asked.offset + len(rows)
    return {
        "items": [
            {
                "id": row["id"], "name": row["name"], "user": row["user"],
                "status": row["status"], "source": row["source"], "job": row["job_id"],
                "started": _stamp(row["started_ms"]),
                "ended": _stamp(row["ended_ms"]),
                "params": given.get(row["id"], {}), "metrics": told.get(row["id"], {}),
            }
            for row in rows
        ],
        "total": total,
        "next": end if end < total else None,
        "more_columns": wanted.more,
    }  # fmt: skip


def tracked(kind: str) -> bool:
    """Whether a clause or a column of this kind is about what runs told."""
    return kind.lower() in {*_METRICS, *_PARAMS, *_TAGS}


def ids(conn: Connection, project_id: str, clauses: Sequence[Clause], sort: str = "") -> list[str]:
    """The runs of jobs for which all clauses hold, in the order asked for: as many as there
    are."""
    numeric = _numeric(conn.dialect.name)
    query = select(runs.c.id).where(
        runs.c.project_id == project_id, runs.c.state == "active", runs.c.job_id == runs.c.id,
        *(_condition(clause, numeric) for clause in clauses),
    )  # fmt: skip
    query = _sorted(query, sort, numeric) if sort else query
    return list(conn.execute(query).scalars())


def cells(
    conn: Connection, run_ids: Sequence[str], columns: Sequence[str]
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """By run: the parameters and the metrics that the columns name."""
    wanted = _columns(conn, run_ids, columns)
    return _params(conn, run_ids, wanted.params), _metrics(conn, run_ids, wanted.metrics)


def keys(conn: Connection, project_id: str, newest: int, most: int) -> dict[str, list[str]]:
    """The names of parameters and metrics that the newest runs have, the most common first."""
    recent = (
        select(runs.c.id)
        .where(runs.c.project_id == project_id, runs.c.state == "active")
        .order_by(runs.c.started_ms.desc())
        .limit(newest)
    )
    run_ids = list(conn.execute(recent).scalars())
    found: dict[str, list[str]] = {}
    for name, table in (("params", params), ("metrics", latest)):
        counted = (
            select(table.c.key)
            .where(table.c.run_id.in_(run_ids))
            .group_by(table.c.key)
            .order_by(func.count().desc(), table.c.key)
            .limit(most)
        )
        found[name] = list(conn.execute(counted).scalars())
    return found


# Filters


def _condition(clause: Clause, numeric: ColumnElement[float]) -> ColumnElement[bool]:
    kind = clause.kind.lower()
    if kind in _METRICS:
        return _there(latest, clause, _metric(clause, _METRICS[kind]))
    if kind in _PARAMS:
        # A number is compared as one: 0.1 is also 1e-1. Text is compared as it stands.
        if all(value.number is not None for value in clause.values) and not is_like(clause):
            there = compare(numeric, clause, [value.number for value in clause.values])
        else:
            there = text_of(params.c.value, clause)
        return _there(params, clause, there)
    if kind in _TAGS:
        there = text_of(tags.c.value, clause)
        return _there(tags, clause, there)
    if kind in _FACTS:
        return _fact(clause)
    raise InvalidInput(f"filter: no kind {clause.kind!r}; known: {_KINDS}")


def _there(table: Table, clause: Clause, holds: ColumnElement[bool]) -> ColumnElement[bool]:
    mine = exists().where(table.c.run_id == runs.c.id, table.c.key == clause.key, holds)
    return mine.correlate(runs)  # and not with the table that the rows are sorted by


def _metric(clause: Clause, column: Column[Any]) -> ColumnElement[bool]:
    if is_like(clause):
        raise InvalidInput(f"filter: {clause.kind}.{clause.key} is a number: no {clause.operator}")
    numbers = []
    for value in clause.values:
        if value.text.lower() == "nan":
            if clause.operator not in ("=", "!="):
                raise InvalidInput("filter: NaN is only = or !=")
            return column.is_(None) if clause.operator == "=" else column.is_not(None)
        numbers.append(_number(clause, value))
    return compare(column, clause, numbers)


def _fact(clause: Clause) -> ColumnElement[bool]:
    column = _OWN.get(clause.key.lower())
    if column is None:
        raise InvalidInput(f"filter: no {clause.key!r}; known: {_KINDS}")
    if column in (runs.c.started_ms, runs.c.ended_ms):
        if is_like(clause):
            raise InvalidInput(f"filter: {clause.key} is a time: no {clause.operator}")
        return compare(column, clause, [_moment(clause, value) for value in clause.values])
    if column is runs.c.status and not is_like(clause):
        words = [value.text.upper() for value in clause.values]
        return compare(column, clause, words)
    return text_of(column, clause)


def _moment(clause: Clause, value: Value) -> int:
    from windlass.server.http.query import moment

    if value.text.isdecimal() and len(value.text) < 19:
        return int(value.text)
    found = moment(f"filter: {clause.key}", value.text)
    assert found is not None
    return found


def text_of(column: ColumnElement[Any], clause: Clause) -> ColumnElement[bool]:
    """What a clause says of a column of text."""
    value = clause.value.text
    if is_like(clause):
        # A backslash is a letter like others, in either database.
        pattern = value.replace("\\", "\\\\")
        like = column.like if clause.operator == "like" else column.ilike
        return like(pattern, escape="\\")
    return compare(column, clause, [each.text for each in clause.values])


def compare(
    column: ColumnElement[Any], clause: Clause, values: Sequence[Any]
) -> ColumnElement[bool]:
    """What a clause says of a column, once its values are such as the column has."""
    value, operator = values[0], clause.operator
    found: ColumnElement[bool]
    match operator:
        case "=":
            found = column == value
        case "!=":
            found = column != value
        case "<":
            found = column < value
        case "<=":
            found = column <= value
        case ">":
            found = column > value
        case ">=":
            found = column >= value
        case "in":
            found = column.in_(values)
        case _:
            found = column.not_in(values)
    return found


def is_like(clause: Clause) -> bool:
    return clause.operator in ("like", "ilike")


def _number(clause: Clause, value: Value) -> float:
    try:
        return float(value.text)
    except ValueError:
        raise InvalidInput(
            f"filter: {clause.kind}.{clause.key}: a number (found {value.text!r})"
        ) from None


def _numeric(dialect: str) -> ColumnElement[float]:
    """A parameter's value as a number; NULL where it is none."""
    value = params.c.value
    if dialect == "sqlite":
        # CAST makes 3 of "3 layers" and 0 of "adam": only what JSON takes for a number is one.
        kind = case((func.json_valid(value) == 1, func.json_type(value)))
        return case((kind.in_(("integer", "real")), cast(value, Float)))
    return case((value.regexp_match(_NUMBER), cast(value, Float)))


# Order


def _sorted(query: Select[Any], word: str, numeric: ColumnElement[float]) -> Select[Any]:
    newest = (runs.c.started_ms.is_(None), runs.c.started_ms.desc(), runs.c.id)
    if not word:
        return query.order_by(*newest)
    down = word.startswith("-")
    kind, key = split_key(word.removeprefix("-"))
    by: list[ColumnElement[Any]]
    if kind.lower() in _METRICS:
        on = and_(latest.c.run_id == runs.c.id, latest.c.key == key)
        query, by = query.outerjoin(latest, on), [_METRICS[kind.lower()]]
    elif kind.lower() in _PARAMS:
        on = and_(params.c.run_id == runs.c.id, params.c.key == key)
        query, by = query.outerjoin(params, on), [numeric, params.c.value]
    elif kind.lower() in _FACTS and key.lower() in _OWN:
        by = [_OWN[key.lower()]]
    else:
        raise InvalidInput(
            f"sort: no {word!r}; such as metrics.loss, -max.acc, params.lr, started"
        )
    # Who has no value comes last either way, after those whose value is no number.
    absent = [each.is_(None) for each in reversed(by)]
    turned = [each.desc() if down else each.asc() for each in by]
    return query.order_by(*absent, *turned, *newest)


# Cells


@dataclass(frozen=True)
class _Wanted:
    params: list[str] | None
    """None: all."""
    metrics: list[str] | None
    more: int = 0


def _columns(conn: Connection, ids: Sequence[str], columns: Sequence[str]) -> _Wanted:
    if "*" in columns:
        _bound(conn, ids)
        return _Wanted(None, None)
    if columns:
        split = [(word, *split_key(word)) for word in columns]
        for word, kind, _ in split:
            if kind not in _METRICS and kind not in _PARAMS:
                raise InvalidInput(
                    f"columns: no {word!r}; such as params.lr, metrics.loss, max.acc, or *"
                )
        return _Wanted(
            [key for _, kind, key in split if kind in _PARAMS],
            [key for _, kind, key in split if kind in _METRICS],
        )
    more = 0
    found: list[list[str]] = []
    for table in (params, latest):
        common = select(table.c.key).where(table.c.run_id.in_(ids)).group_by(table.c.key)
        counted = conn.execute(common.order_by(func.count().desc(), table.c.key)).scalars().all()
        found.append(list(counted[:GUESSED]))
        more += max(0, len(counted) - GUESSED)
    return _Wanted(found[0], found[1], more)


def _bound(conn: Connection, ids: Sequence[str]) -> None:
    count = sum(
        conn.execute(select(func.count()).where(table.c.run_id.in_(ids))).scalar() or 0
        for table in (params, latest)
    )
    if count > MAX_CELLS:
        raise InvalidInput(
            f"columns: {len(ids)} runs have {count} values; an answer has at most {MAX_CELLS}",
            hint="name the columns, or ask for fewer runs at once",
        )


def _params(
    conn: Connection, ids: Sequence[str], keys: list[str] | None
) -> dict[str, dict[str, dict[str, str]]]:
    found: dict[str, dict[str, dict[str, str]]] = {}
    if keys == [] or not ids:
        return found
    query = select(params).where(params.c.run_id.in_(ids)).order_by(params.c.run_id, params.c.key)
    if keys is not None:
        query = query.where(params.c.key.in_(keys))
    for row in conn.execute(query).mappings():
        told = {"value": row["value"], "source": row["source"]}
        found.setdefault(row["run_id"], {})[row["key"]] = told
    return found


def _metrics(
    conn: Connection, ids: Sequence[str], keys: list[str] | None
) -> dict[str, dict[str, dict[str, Any]]]:
    found: dict[str, dict[str, dict[str, Any]]] = {}
    if keys == [] or not ids:
        return found
    query = select(latest).where(latest.c.run_id.in_(ids)).order_by(latest.c.run_id, latest.c.key)
    if keys is not None:
        query = query.where(latest.c.key.in_(keys))
    for row in conn.execute(query).mappings():
        value = math.nan if row["value"] is None else row["value"]
        found.setdefault(row["run_id"], {})[row["key"]] = {
            "last": spelled(value), "step": row["step"], "at": _stamp(row["at_ms"]),
            "min": _said(row["min"]), "min_step": row["min_step"],
            "max": _said(row["max"]), "max_step": row["max_step"],
            "count": row["count"], "source": row["source"],
        }  # fmt: skip
    return found


def _stamp(ms: int | None) -> str | None:
    return None if ms is None else stamp(min(max(ms, 0), _LAST_MS))


def _said(value: float | None) -> float | str | None:
    return None if value is None else spelled(value)
