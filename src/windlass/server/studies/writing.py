"""The writes of a study's owner, each one transaction that holds or leaves no trace.

A trial's row and its job are written together: whoever dies in between has written neither. A
pause, a promotion and a pruning are wishes on the job, written with the trial's new state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection, insert, select, update

from windlass.core.access import Principal, Right
from windlass.core.errors import (
    Conflict,
    Fenced,
    InvalidInput,
    LimitExceeded,
    NotFound,
    Unavailable,
    WindlassError,
)
from windlass.core.jobs import TERMINAL, JobSpec, JobState
from windlass.core.studies import ENDED, STUDIES, TRIALS, StudySpec, StudyState, TrialState
from windlass.core.studies import trial_job as job_of
from windlass.server.access.principals import principal_of
from windlass.server.audit import record
from windlass.server.checkpoints import starting
from windlass.server.jobs import moves
from windlass.server.jobs import service as jobs
from windlass.server.reading import as_model
from windlass.server.studies import reports, service
from windlass.server.studies.tables import studies, trials
from windlass.tune.history import Create, Reports

Row = dict[str, Any]


class CannotGoOn(Exception):
    """No trial of this study can be made any more; the message says why."""


@dataclass
class Change:
    """What is to become of one trial."""

    number: int
    old: TrialState
    new: TrialState
    reason: str = ""
    rung: int | None = None
    wish: str | None = None
    """On its job: hold, release or cancel."""
    values: tuple[float | None, ...] | None = None
    excess: tuple[float, ...] = ()
    reports: Reports = ()


@dataclass
class Draft:
    """A trial that is to be made."""

    step: Create
    params: Mapping[str, Any]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    weights: int | None = None
    """The trial whose weights are shared with it, if that left any."""


def change(
    conn: Connection,
    seen: Mapping[str, Any],
    changes: Sequence[Change],
    drafts: Sequence[Draft],
    now_ms: int,
    *,
    checkpoints_of: Callable[[str], Path],
    to: StudyState | None = None,
    **columns: Any,
) -> tuple[list[str], str]:
    """All of it, if the study is still as it was seen; raises Conflict if not. The jobs that were
    told something, and why fewer trials were made than wanted ("": all were)."""
    row = current(conn, seen)
    told = []
    for each in changes:
        if (job_id := _change(conn, row, each, now_ms)) is not None:
            told.append(job_id)
    made, short = _make(conn, row, drafts, now_ms, checkpoints_of) if drafts else (0, "")
    values: Row = {**columns, "revision": row["revision"] + 1, "made": row["made"] + made}
    if to is not None:
        STUDIES.check(StudyState(row["state"]), to, "tune")
        values["state"] = to.value
        reason = values.get("reason", row["reason"])
        said = {**row, "state": to.value}
        service.tell(conn, said, f"study {row['name']} {to}: {reason}".rstrip(": "), now_ms)
    elif results := sum(each.new in ENDED for each in changes):
        more = "one more result" if results == 1 else f"{results} more results"
        service.tell(conn, row, f"study {row['name']}: {more}", now_ms)
    conn.execute(update(studies).where(studies.c.id == row["id"]).values(**values))
    return told, short


def current(conn: Connection, seen: Mapping[str, Any]) -> Row:
    """The study's row, locked, if nobody changed it since."""
    row = service.load(conn, seen["id"])
    if row is None or row["revision"] != seen["revision"]:
        raise Conflict(f"study {seen['name']} has changed meanwhile: look at it again")
    return row


def owner(conn: Connection, row: Mapping[str, Any]) -> Principal:
    """In whose name trials are made, with the rights it has now. Raises CannotGoOn."""
    who = principal_of(conn, row["user_id"], None, home=row["project_id"], bound=True)
    if who is None or not who.may(Right.JOB_WRITE):
        raise CannotGoOn("its owner may not submit jobs to this project any more")
    return who


def _change(conn: Connection, row: Row, each: Change, now_ms: int) -> str | None:
    values: Row = {"reason": each.reason}
    if each.new is not each.old:
        TRIALS.check(each.old, each.new, "tune")
        values["state"] = each.new.value
    else:
        values.pop("reason")
    if each.rung is not None:
        values["rung"] = each.rung
    if each.values is not None:
        values["values"] = list(each.values)
        values["excess"] = [value if math.isfinite(value) else None for value in each.excess]
        values["reports"] = reports.stored(each.reports)
    if each.new in ENDED:
        values["ended_ms"] = now_ms
    done = conn.execute(
        update(trials)
        .where(
            trials.c.study_id == row["id"],
            trials.c.number == each.number,
            trials.c.state == each.old.value,
        )
        .values(**values)
        .returning(trials.c.job_id)
    ).scalar()
    if done is None:
        raise Conflict(f"trial {each.number} of study {row['name']} has moved on")
    if each.wish is not None:
        _wish(conn, str(done), each.wish, each.reason, now_ms)
        return str(done)
    return None


def _wish(conn: Connection, job_id: str, wish: str, reason: str, now_ms: int) -> None:
    """Raises Conflict where the job has another wish first: it is looked at again."""
    try:
        job = moves.load(conn, job_id)
    except NotFound:
        raise Conflict(f"job {job_id} is gone") from None
    state = JobState(job["state"])
    if state in TERMINAL or job["wish"] == "cancel":
        if wish == "cancel":
            return
        raise Conflict(f"job {job['name']} is {state}")
    if wish != "cancel" and job["wish"] is not None:
        raise Conflict(f"job {job['name']} is told to {job['wish']} first")
    moves.note(
        conn, job, "wished", reason=reason, now_ms=now_ms, data={"wish": wish, "by": "study"},
        wish=wish, wish_reason=reason, wish_now=0,
    )  # fmt: skip


def _make(
    conn: Connection,
    row: Row,
    drafts: Sequence[Draft],
    now_ms: int,
    checkpoints_of: Callable[[str], Path],
) -> tuple[int, str]:
    """How many of the drafts became trials, each with its job, and why not all."""
    who = owner(conn, row)
    spec = as_model(StudySpec, row["spec"], "spec")
    for at, draft in enumerate(drafts):
        number = row["made"] + at
        if draft.step.number != number:
            raise Conflict(f"trial {draft.step.number} of study {row['name']} is there already")
        try:
            job, start = _prepared(conn, who, row, spec, draft, checkpoints_of)
            accepted = jobs.submit(
                conn, who, job, row["framework"], key=None, digest="", now_ms=now_ms, start=start
            )
        except LimitExceeded as err:
            if draft.step.parent is not None:  # the one whose place it takes must not go alone
                raise Conflict(err.message) from err
            return at, err.message  # nothing of this one was written yet
        except (Fenced, Unavailable):
            raise
        except NotFound as err:  # a checkpoint that went this moment: look again
            raise Conflict(err.message) from err
        except WindlassError as err:
            raise CannotGoOn(f"trial {number} cannot be submitted: {err.message}") from err
        record.write(conn, _entry(who, row, accepted.job_id, number))
        conn.execute(
            insert(trials).values(
                study_id=row["id"], number=number, project_id=row["project_id"],
                job_id=accepted.job_id, state=TrialState.RUNNING.value, reason="",
                params=dict(draft.params), attrs=dict(draft.attrs), rung=draft.step.rung,
                parent=_parent(draft, start), values=[], excess=[], reports=[], created_ms=now_ms,
            )
        )  # fmt: skip
    return len(drafts), ""


def _entry(who: Principal, row: Row, job_id: str, number: int) -> record.Entry:
    """A trial is submitted in its owner's name: the audit log tells so, and by what."""
    return record.Entry(
        "jobs.submit", who.project_id, who.project_name, who.user_id or "", who.user_name,
        f"study:{row['name']}", "", "", job_id, record.OK, 1,
        {"study": row["id"], "trial": number},
    )  # fmt: skip


def _prepared(
    conn: Connection,
    who: Principal,
    row: Row,
    spec: StudySpec,
    draft: Draft,
    checkpoints_of: Callable[[str], Path],
) -> tuple[JobSpec, starting.Start | None]:
    """The job, and what it starts from."""

    def found(job: JobSpec) -> starting.Start | None:
        if job.start_from is None:
            return None
        return starting.prepare(conn, who, job.start_from, checkpoints_of, jobs.find)

    if draft.weights is not None:
        job = _job(row, spec, draft, {"job": _job_of(conn, row, draft.weights)})
        try:
            return job, found(job)
        except (InvalidInput, NotFound):
            pass  # the best one left no checkpoint, or it is gone: this one begins with its own
    start_from = None
    if draft.step.parent is not None:
        start_from = {"job": _job_of(conn, row, draft.step.parent), "resume": True}
    job = _job(row, spec, draft, start_from)
    return job, found(job)


def _parent(draft: Draft, start: starting.Start | None) -> int | None:
    return draft.weights if draft.weights is not None and start is not None else draft.step.parent


def _job_of(conn: Connection, row: Row, number: int) -> str:
    wanted = (trials.c.study_id == row["id"], trials.c.number == number)
    return str(conn.execute(select(trials.c.job_id).where(*wanted)).scalar_one())


def _job(row: Row, spec: StudySpec, draft: Draft, start_from: Row | None) -> JobSpec:
    try:
        return job_of(spec, row["name"], draft.step.number, draft.params, start_from)
    except ValidationError as err:
        first = err.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise CannotGoOn(
            f"trial {draft.step.number} makes no job: {where}: {first['msg']}"
        ) from err
