"""Rows as the API shows them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from windlass.core.access import Principal
from windlass.core.events import EventView
from windlass.core.jobs import (
    AttemptState,
    AttemptView,
    JobDetail,
    JobSpec,
    JobState,
    JobView,
    Outcome,
)
from windlass.server.clock import iso, stamp

Row = Mapping[str, Any]
_BLANK = dict.fromkeys(
    ("engine", "started_ms", "ended_ms", "exit_code", "outcome", "step", "done", "total")
)


def job_fields(row: Row) -> dict[str, Any]:
    """The fields of a JobView from a joined row (`project` and `user` are names)."""
    done, total = row["done"], row["total"]
    return {
        "id": row["id"],
        "name": row["name"],
        "project": row["project"],
        "user": row["user"],
        "state": JobState(row["state"]),
        "reason": row["reason"],
        "wish": row["wish"],
        "framework": row["framework"],
        "members": row["members"],
        "gpus": row["gpus"],
        "queue": row["queue"],
        "priority": row["priority"],
        "work": row["kind"],
        "engine": row["engine"],
        "attempt": row["fence"],
        "failures": row["failures"],
        "exit_code": row["exit_code"],
        "outcome": Outcome(row["outcome"]) if row["outcome"] else None,
        "step": row["step"] if row.get("attempt_step") is None else row["attempt_step"],
        "progress": round(done / total, 4) if done is not None and total else None,
        "submitted": stamp(row["submitted_ms"]),
        "queued": iso(row["queued_ms"]),
        "started": iso(row["started_ms"]),
        "ended": iso(row["ended_ms"]),
        "rerun_of": row["rerun_of"],
        "revision": row["revision"],
        "command": command_line(row["spec"]),
    }


def job_view(row: Row) -> JobView:
    return JobView.model_construct(**job_fields(row))


def new_job(row: Row, who: Principal, spec: JobSpec) -> JobView:
    """As it is answered at its submit, before there is a row."""
    words = spec.run or next((role.run for role in spec.roles.values() if role.run), ())
    names = {"project": who.project_name, "user": who.user_name, "spec": {"run": words}}
    return job_view({**_BLANK, **row, **names})


def job_detail(row: Row, attempts: Sequence[Row]) -> JobDetail:
    return JobDetail.model_construct(
        **job_fields(row),
        spec=JobSpec.model_validate(row["spec"]),
        attempts=tuple(attempt_view(attempt) for attempt in attempts),
    )


def attempt_view(row: Row) -> AttemptView:
    return AttemptView.model_construct(
        number=row["number"],
        state=AttemptState(row["state"]),
        outcome=Outcome(row["outcome"]) if row["outcome"] else None,
        reason=row["reason"],
        exit_code=row["exit_code"],
        nodes=tuple(sorted({placed["node"] for placed in row["placement"]})),
        created=stamp(row["created_ms"]),
        started=iso(row["started_ms"]),
        ended=iso(row["over_ms"]),
    )


def event_view(row: Row, names: Mapping[str, str]) -> EventView:
    return EventView.model_construct(
        cursor=str(row["position"]),
        job=row["job_id"],
        job_name=names.get(row["job_id"] or ""),
        seq=row["seq"],
        attempt=row["attempt"],
        kind=row["kind"],
        at=stamp(row["at_ms"]),
        state=row["state"],
        reason=row["reason"],
        data=row["data"],
    )


def command_line(spec: Row) -> str:
    words = spec.get("run") or next(
        (role["run"] for role in spec.get("roles", {}).values() if role.get("run")), ()
    )
    return shlex.join(words)
