"""A finished job goes with all that belongs to it: files first, then rows.

A row without files can be removed again; files without a row would stay for ever.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from sqlalchemy import Connection, Delete, String, Update, bindparam, delete, select, update

from windlass.core.errors import Conflict, NotFound
from windlass.core.jobs import TERMINAL, JobState
from windlass.engines.removal import remove_tree
from windlass.server import feed
from windlass.server.artifacts.tables import artifacts
from windlass.server.events.tables import events
from windlass.server.jobs.tables import (
    attempts,
    checkpoints,
    dependencies,
    idempotency,
    jobs,
    orders,
    starts,
    workers,
)
from windlass.server.storage.tables import objects
from windlass.server.store.prepared import Prepared


def removable(conn: Connection, job_id: str) -> list[str]:
    """The attempts of a finished job, whose files go first. Raises NotFound, Conflict."""
    job = conn.execute(select(jobs.c.name, jobs.c.state).where(jobs.c.id == job_id)).first()
    if job is None:
        raise NotFound(f"no job {job_id}")
    if JobState(job.state) not in TERMINAL:
        raise Conflict(
            f"job {job.name} is {job.state}", hint=f"stop it first: windlass stop {job.name}"
        )
    return list(conn.execute(select(attempts.c.id).where(attempts.c.job_id == job_id)).scalars())


def remove_folder(folder: Path) -> None:
    """A job's own folder, with what its ranks wrote there. Raises Conflict when something of it
    cannot be removed; calling again goes on."""
    try:
        parent = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            remove_tree(folder.name, parent)
        finally:
            os.close(parent)
    except FileNotFoundError:
        return
    except OSError as err:
        raise Conflict(f"the files in {folder} cannot be removed: {err}") from err


def remove(conn: Connection, job_id: str, now_ms: int) -> None:
    """Take a finished job out, its files being gone. Finished is for ever: no lock is needed."""
    removable(conn, job_id)
    remove_rows(conn, [job_id], now_ms)


def remove_rows(conn: Connection, job_ids: Sequence[str], now_ms: int) -> None:
    """Every row of these jobs, children first. Their events go with them, so one of no job's
    own says that they are gone: who has not heard of their end would keep their place for ever."""
    for statement in _REMOVE:
        for job_id in job_ids:
            statement.run(conn, {"job": job_id, "now": now_ms})
    for job_id in job_ids:
        feed.append(
            conn, job_id=None, project_id="", seq=0, attempt=None, kind="removed", at_ms=now_ms,
            state=None, reason="", data={"job": job_id},
        )  # fmt: skip


def _removing() -> Iterator[Delete | Update]:
    job = bindparam("job", type_=String())
    of_attempts = select(attempts.c.id).where(attempts.c.job_id == job)
    for table in (orders, workers):
        yield delete(table).where(table.c.attempt_id.in_(of_attempts))
    for child in (artifacts, attempts, checkpoints, starts, dependencies, idempotency, events):
        yield delete(child).where(child.c.job_id == job)
    yield delete(jobs).where(jobs.c.id == job)
    # After its row: whoever writes down more of it meanwhile looks for that row first.
    yield update(objects).where(objects.c.job_id == job).values(removing_ms=bindparam("now"))


# A statement for each job: their text is always the same. One for a whole batch, with the ids as
# JSON, was no quicker for a writer and made SQLite 3.40 end in a segmentation fault.
_REMOVE = tuple(Prepared(statement) for statement in _removing())
