"""What the scheduler promised to jobs that wait, kept in their rows for the next core.

A core dies with its server. Whoever was told when its job will start should not be told another
time by the next one, so each promise is written down, and told to the core that is built anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, update

from windlass.core.jobs import JobState
from windlass.scheduler.events import NEVER, Promise, Remember
from windlass.server.jobs.tables import jobs

Row = dict[str, Any]


def note(conn: Connection, promises: Sequence[Promise], now_ms: int) -> None:
    """These were promised now. Nobody is waiting for it: no event, no new revision."""
    told = [
        {
            "row": one.job_id,
            "told": None
            if one.start_ms >= NEVER  # it was taken back
            else {"start_ms": one.start_ms, "nodes": list(one.nodes), "made_ms": now_ms},
        }
        for one in promises
    ]
    conn.execute(_PROMISED, told)


def remembered(rows: Iterable[Row]) -> list[Remember]:
    """What those of these jobs that wait were promised since they queued up."""
    found = []
    for row in rows:
        told = row["promised"]
        if (
            isinstance(told, dict)
            and row["state"] == JobState.QUEUED
            and told["made_ms"] >= row["queued_ms"]
        ):
            nodes = tuple(told["nodes"])
            found.append(Remember(row["id"], told["start_ms"], nodes, told["made_ms"]))
    return found


_PROMISED = (
    update(jobs)
    .where(jobs.c.id == bindparam("row"))
    .values(promised=bindparam("told", type_=jobs.c.promised.type))
)
