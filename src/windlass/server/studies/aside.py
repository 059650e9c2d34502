"""A study whose rows cannot be read stops: what its trials run is told to end, then it fails with
the reason. Nothing of its spec is needed for that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select

from windlass.core.jobs import TERMINAL, JobState
from windlass.core.studies import LIVE_STUDIES, StudyState, TrialState
from windlass.server.jobs.tables import jobs
from windlass.server.studies import service, writing
from windlass.server.studies.tables import trials
from windlass.server.studies.writing import Change


def set_aside(
    conn: Connection, study_id: str, why: str, now_ms: int, checkpoints_of: Callable[[str], Path]
) -> list[str]:
    """The next step towards its end; the jobs that were told to."""
    row = service.load(conn, study_id)
    if row is None or StudyState(row["state"]) not in LIVE_STUDIES:
        return []
    changes = _changes(conn, study_id, why)
    values: dict[str, Any] = {}
    if row["state"] == StudyState.RUNNING:
        values = {"to": StudyState.STOPPING, "ending": StudyState.FAILED.value, "reason": why}
    elif not changes and not _open(conn, study_id):
        if row["wish"] == "delete":
            service.erase(conn, study_id)
            service.tell(conn, row, f"study {row['name']} removed", now_ms)
            return []
        values = {"to": StudyState.FAILED, "ended_ms": now_ms, "reason": why}
        values |= {"wish": None, "wish_reason": None}
    if not changes and not values:
        return []  # its jobs are ending
    told, _ = writing.change(
        conn, row, changes, [], now_ms, checkpoints_of=checkpoints_of, **values
    )
    return told


def _changes(conn: Connection, study_id: str, why: str) -> list[Change]:
    found = []
    for number, state, job in _open(conn, study_id):
        old = TrialState(state)
        if job is None or JobState(job) in TERMINAL:
            found.append(Change(number, old, TrialState.CANCELLED, why))
        elif old is not TrialState.STOPPING:
            found.append(Change(number, old, TrialState.STOPPING, why, wish="cancel"))
    return found


def _open(conn: Connection, study_id: str) -> list[Any]:
    """(number, state, state of its job) of the trials that have not ended."""
    query = (
        select(trials.c.number, trials.c.state, jobs.c.state.label("job"))
        .outerjoin(jobs, jobs.c.id == trials.c.job_id)
        .where(trials.c.study_id == study_id, trials.c.ended_ms.is_(None))
    )
    return list(conn.execute(query))
