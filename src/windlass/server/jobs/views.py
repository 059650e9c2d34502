"""Rows as the API shows them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from windlass.core.access import Principal
from windlass.core.errors import Unreadable
from windlass.core.events import EventView
from windlass.core.jobs import (
    AttemptState,
    AttemptView,
    JobDetail,
    JobSpec,
    JobState,
    JobView,
    Origin,
    Outcome,
    RankView,
)
from windlass.server.clock import iso, stamp
from windlass.server.reading import or_else, placement_of, spec_of

Row = Mapping[str, Any]
_YEAR_9999_MS = 253_370_764_800_000
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


def job_detail(
    row: Row,
    attempts: Sequence[Row],
    isolation: Mapping[str, Row] | None = None,
    lineage: tuple[Origin, ...] = (),
    ended: Sequence[Row] = (),
) -> JobDetail:
    """`ended`: how ranks of the newest attempt ended."""
    newest = attempts[-1]["id"] if attempts else None
    spec, unreadable = JobSpec.model_construct(), ""
    try:
        spec = spec_of(row)
        for attempt in attempts:
            placement_of(attempt)
    except Unreadable as err:
        unreadable = err.message
    ranks = tuple(sorted((rank_view(each) for each in ended), key=lambda each: each.rank))
    return JobDetail.model_construct(
        **job_fields(row),
        spec=spec,
        unreadable=unreadable,
        attempts=tuple(
            attempt_view(
                attempt,
                (isolation or {}).get(attempt["id"], {}),
                ranks if attempt["id"] == newest else (),
            )
            for attempt in attempts
        ),
        lineage=lineage,
    )


def attempt_view(row: Row, isolation: Row, ranks: tuple[RankView, ...] = ()) -> AttemptView:
    return AttemptView.model_construct(
        number=row["number"],
        state=AttemptState(row["state"]),
        outcome=Outcome(row["outcome"]) if row["outcome"] else None,
        reason=row["reason"],
        exit_code=row["exit_code"],
        nodes=nodes_of(row),
        created=stamp(row["created_ms"]),
        started=iso(row["started_ms"]),
        ended=iso(row["over_ms"]),
        isolation={node: or_else(found, {}) for node, found in isolation.items()},
        ranks=ranks,
    )


def rank_view(row: Row) -> RankView:
    """From a worker's exit record, which any version of a worker may have written."""

    def number(name: str) -> int | None:
        found = row.get(name)
        return found if isinstance(found, int) and not isinstance(found, bool) else None

    def time(name: str) -> str | None:
        found = number(name)
        return iso(found) if found is not None and 0 <= found < _YEAR_9999_MS else None

    return RankView.model_construct(
        rank=number("rank") or 0, role=str(row.get("role", "")), index=number("index") or 0,
        local_rank=number("local_rank") or 0, node=row["node"], exit=number("exit"),
        signal=number("signal"), oom=row.get("oom") is True,
        ended_by=str(row.get("ended_by") or ""), restarts=number("restarts") or 0,
        peak_bytes=number("peak_bytes"), started=time("started_ms"), ended=time("ended_ms"),
    )  # fmt: skip


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
        data=or_else(row["data"], {}),
    )


def nodes_of(attempt: Row) -> tuple[str, ...]:
    """None where its placement cannot be read."""
    try:
        return tuple(sorted({placed["node"] for placed in placement_of(attempt)}))
    except Unreadable:
        return ()


def command_line(spec: Row) -> str:
    """ "" where the spec cannot be read: a list shows what there is."""
    try:
        words = spec.get("run") or next(
            (role["run"] for role in spec.get("roles", {}).values() if role.get("run")), ()
        )
        return shlex.join(words)
    except (Unreadable, AttributeError, KeyError, TypeError):
        return ""
