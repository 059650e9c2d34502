"""Jobs that wait for others to succeed: `after:` of the job file, as rows.

A row is open until its job has succeeded. One whose job failed, was cancelled, or is gone can
never be met: then the one that waits is cancelled, and says for whom it waited.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, delete, insert, select, update

from windlass.core.errors import InvalidInput
from windlass.core.jobs import TERMINAL, JobState
from windlass.server.jobs.tables import dependencies, jobs


@dataclass(frozen=True)
class After:
    """A job that another waits for."""

    id: str
    name: str
    state: JobState


@dataclass(frozen=True)
class Over:
    """That a job (`job_id`) waits for is over: `state`, None when it is gone."""

    job_id: str
    after_id: str
    name: str
    state: str | None


def waits_for(after: Sequence[After]) -> str:
    """The reason a new job is held for; "" when all have succeeded already. Raises InvalidInput
    for one that never will."""
    for other in after:
        if other.state in (JobState.FAILED, JobState.CANCELLED):
            raise InvalidInput(
                f"after: job {other.name} is {other.state}, so this one could never start",
                hint=f"name another, or `windlass rerun {other.name}` first",
            )
    waits = [other.name for other in after if other.state is not JobState.SUCCEEDED]
    return f"waits for {', '.join(waits)} to succeed" if waits else ""


def write(conn: Connection, job_id: str, after: Sequence[After]) -> None:
    """Remember whom a new job waits for."""
    if after:
        conn.execute(
            insert(dependencies),
            [
                {
                    "job_id": job_id, "after_id": other.id, "name": other.name,
                    "met": int(other.state is JobState.SUCCEEDED),
                }
                for other in after
            ],
        )  # fmt: skip


def overdue(conn: Connection, ids: Sequence[str] | None = None) -> list[Over]:
    """Who waits for a job that is over, or gone: among all, or where one of these jobs is the one
    that waits or the one that is waited for."""
    if ids is None:
        return _overdue(conn, _OVERDUE)
    found: dict[tuple[str, str], Over] = {}
    for at in range(0, len(ids), _PAGE):
        some = ids[at : at + _PAGE]
        for column in (dependencies.c.after_id, dependencies.c.job_id):
            for over in _overdue(conn, _OVERDUE.where(column.in_(some))):
                found[over.job_id, over.after_id] = over
    return list(found.values())


def _overdue(conn: Connection, query: Select[Any]) -> list[Over]:
    return [Over(*row) for row in conn.execute(query)]


_PAGE = 500
_WAITS, _FOR = jobs.alias("waits"), jobs.alias("waited_for")
_OVERDUE = (
    select(dependencies.c.job_id, dependencies.c.after_id, dependencies.c.name, _FOR.c.state)
    .join(_WAITS, _WAITS.c.id == dependencies.c.job_id)
    .outerjoin(_FOR, _FOR.c.id == dependencies.c.after_id)
    .where(
        dependencies.c.met == 0,
        _WAITS.c.state == JobState.HELD.value,
        _FOR.c.state.is_(None) | _FOR.c.state.in_(sorted(TERMINAL)),
    )
    .order_by(_WAITS.c.number, dependencies.c.after_id)
)


def met(conn: Connection, over: Over) -> None:
    """It has succeeded."""
    conn.execute(
        update(dependencies)
        .where(dependencies.c.job_id == over.job_id, dependencies.c.after_id == over.after_id)
        .values(met=1)
    )


def open_of(conn: Connection, job_id: str) -> list[str]:
    """The names of those it still waits for."""
    return list(
        conn.execute(
            select(dependencies.c.name).where(
                dependencies.c.job_id == job_id, dependencies.c.met == 0
            )
        ).scalars()
    )


def forget(conn: Connection, job_id: str) -> None:
    """It waits for nobody any more."""
    conn.execute(delete(dependencies).where(dependencies.c.job_id == job_id))
