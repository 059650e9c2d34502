"""What trials report: read from what their runs tracked, by step.

    latest   one row for each key: a trial's value, and whether there is anything new
    points   the values by step, which pruners compare; read from where the last look ended

A step that a later attempt did again keeps its first value: a pruner has judged by it already.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, select

from windlass.core.studies import Objective, StudySpec
from windlass.server.runs.tables import latest, points
from windlass.tune.history import Reports

KEPT = 1000
"""So many reports of an ended trial are kept with it."""
_TOGETHER = 500


class Watch:
    """The reports of live trials as they grow, of one metric of each."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, Reports]] = {}  # run → how many points, reports

    def look(self, conn: Connection, metric: str, run_ids: Sequence[str]) -> dict[str, Reports]:
        """All reports of these runs so far."""
        for at in range(0, len(run_ids), _TOGETHER):
            some = run_ids[at : at + _TOGETHER]
            rows = conn.execute(
                select(latest.c.run_id, latest.c.rank, latest.c.count).where(
                    latest.c.run_id.in_(some), latest.c.key == metric
                )
            ).all()
            for run_id, rank, count in rows:
                known, so_far = self._known.get(run_id, (0, ()))
                if count != known:
                    grown = (*so_far, *_after(conn, run_id, metric, rank, so_far))
                    self._known[run_id] = (count, grown)
        return {run_id: self._known[run_id][1] for run_id in run_ids if run_id in self._known}

    def forget(self, run_ids: Sequence[str]) -> None:
        for run_id in run_ids:
            self._known.pop(run_id, None)


def _after(
    conn: Connection, run_id: str, metric: str, rank: int, so_far: Reports
) -> list[tuple[int, float]]:
    query = select(points.c.step, points.c.value).where(
        points.c.run_id == run_id, points.c.key == metric, points.c.rank == rank
    )
    if so_far:
        query = query.where(points.c.step > so_far[-1][0])
    found: dict[int, float] = {}
    for step, value in conn.execute(query.order_by(points.c.attempt, points.c.offset)):
        if step is not None:
            found.setdefault(int(step), math.nan if value is None else float(value))
    return sorted(found.items())


def finals(
    conn: Connection, spec: StudySpec, run_ids: Sequence[str]
) -> dict[str, tuple[tuple[float | None, ...], tuple[float, ...]]]:
    """By run: its value for each objective (None: none that is a number), and for each
    constraint how far it is out of bounds."""
    names = [each.metric for each in spec.objectives]
    names += [each.metric for each in spec.constraints]
    by_run: dict[str, dict[str, Mapping[str, Any]]] = {run_id: {} for run_id in run_ids}
    for at in range(0, len(run_ids), _TOGETHER):
        some = run_ids[at : at + _TOGETHER]
        rows = conn.execute(
            select(latest).where(latest.c.run_id.in_(some), latest.c.key.in_(names))
        )
        for row in rows.mappings():
            by_run[row["run_id"]][row["key"]] = dict(row)
    return {
        run_id: (
            tuple(_value(each, found.get(each.metric)) for each in spec.objectives),
            tuple(
                each.excess(_number(found.get(each.metric), "value")) for each in spec.constraints
            ),
        )
        for run_id, found in by_run.items()
    }


def _value(objective: Objective, row: Mapping[str, Any] | None) -> float | None:
    if objective.take == "last":
        return _number(row, "value")
    return _number(row, "max" if objective.goal == "maximize" else "min")


def _number(row: Mapping[str, Any] | None, column: str) -> float | None:
    value = None if row is None else row[column]
    return float(value) if value is not None and math.isfinite(value) else None


def stored(reports: Reports) -> list[list[float | int | None]]:
    """As a trial's row keeps them: no more than `KEPT`, the last among them."""
    apart = max(1, math.ceil(len(reports) / KEPT))
    kept = [each for at, each in enumerate(reversed(reports)) if at % apart == 0]
    return [[step, value if math.isfinite(value) else None] for step, value in reversed(kept)]


def restored(kept: Sequence[Sequence[Any]]) -> Reports:
    return tuple((int(step), math.nan if value is None else value) for step, value in kept)


def latest_of(
    conn: Connection, spec: StudySpec, run_ids: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """By run, the columns of its trial as far as it has come."""
    values = finals(conn, spec, run_ids)
    steps: dict[str, tuple[int, float | None]] = {}
    for at in range(0, len(run_ids), _TOGETHER):
        rows = conn.execute(
            select(latest.c.run_id, latest.c.step, latest.c.value).where(
                latest.c.run_id.in_(run_ids[at : at + _TOGETHER]),
                latest.c.key == spec.objectives[0].metric,
            )
        )
        steps |= {run_id: (step, value) for run_id, step, value in rows if step is not None}
    return {
        run_id: {"values": list(found), "reports": [steps[run_id]] if run_id in steps else []}
        for run_id, (found, _) in values.items()
        if any(each is not None for each in found)
    }
