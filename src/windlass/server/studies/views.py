"""Studies and trials as the API shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windlass.core.errors import Unreadable
from windlass.core.studies import (
    Objective,
    StudyDetail,
    StudySpec,
    StudyState,
    StudyView,
    TrialState,
    TrialView,
)
from windlass.server.clock import iso, stamp
from windlass.server.reading import as_model
from windlass.server.studies import service
from windlass.tune.history import Past
from windlass.tune.results import best, curve, importance

Row = Mapping[str, Any]


def study_view(row: Row, counts: Mapping[str, int], found: Sequence[Past] = ()) -> StudyView:
    """`found`: the best of it."""
    return StudyView.model_construct(**_fields(row, counts, found))


def with_one_objective(rows: Sequence[Row]) -> list[str]:
    """The ids of those whose best is one trial, and cheap to find."""
    return [row["id"] for row in rows if len(_objectives(row)) == 1]


def best_of(rows: Sequence[Row], results: Mapping[str, Sequence[Past]]) -> dict[str, list[Past]]:
    """By study, the best of it, where its results were read."""
    return {
        row["id"]: best(_objectives(row), results[row["id"]])
        for row in rows
        if row["id"] in results and _objectives(row)
    }


def _objectives(row: Row) -> tuple[Objective, ...]:
    """None where its spec cannot be read."""
    try:
        return _spec(row).objectives
    except Unreadable:
        return ()


def _spec(row: Row) -> StudySpec:
    return as_model(StudySpec, row["spec"], "spec")


def study_detail(row: Row, trials: Sequence[Row]) -> StudyDetail:
    spec = _spec(row)
    history = [service.past_of(each) for each in trials]
    counts: dict[str, int] = {}
    for past in history:
        counts[past.state.value] = counts.get(past.state.value, 0) + 1
    first = spec.objectives[0]
    return StudyDetail.model_construct(
        **_fields(row, counts, best(spec.objectives, history)),
        spec=spec,
        importance=importance(spec.space, first, history),
        curve=tuple(curve(first, history)),
    )


def trial_view(row: Row) -> TrialView:
    past = service.past_of(row)
    reports, values = past.reports, past.values
    return TrialView.model_construct(
        number=past.number, state=TrialState(row["state"]), reason=row["reason"],
        job=past.job_id, params=dict(past.params),
        values=tuple(values), feasible=past.feasible,
        step=reports[-1][0] if reports else None, rung=past.rung, parent=row["parent"],
        created=stamp(row["created_ms"]), ended=iso(row["ended_ms"]),
    )  # fmt: skip


def _fields(row: Row, counts: Mapping[str, int], found: Sequence[Past]) -> dict[str, Any]:
    try:
        spec, reason = _spec(row), row["reason"]
        told = {"sampler": spec.sampler.kind or "", "pruner": spec.pruner.kind}
    except Unreadable as err:
        told, reason = {"sampler": "", "pruner": ""}, err.message
    return {
        **told,
        "id": row["id"], "name": row["name"], "project": row["project"], "user": row["user"],
        "state": StudyState(row["state"]), "reason": reason, "wish": row["wish"],
        "objectives": _objectives(row), "trials": row["target"], "made": row["made"],
        "counts": dict(counts), "best": tuple(past.number for past in found),
        "best_values": found[0].values if len(found) == 1 else (),
        "created": stamp(row["created_ms"]), "ended": iso(row["ended_ms"]),
    }  # fmt: skip
