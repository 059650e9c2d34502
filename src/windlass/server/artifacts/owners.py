"""Whose files they are: a run's, a job's (its run has the same id) or a logged model's.

Asked by the id alone, in the rows of the caller's project. An attempt's token writes to the runs
of its own job; a member writes to its own jobs and to runs that no job made.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlalchemy import Connection, select

from windlass.core.access import CallerKind, Principal, Right
from windlass.core.errors import Forbidden, NotFound
from windlass.server.jobs import service as jobs_service
from windlass.server.jobs.tables import jobs
from windlass.server.parts import Parts
from windlass.server.runs.tables import logged_models, runs

_RUN = re.compile(r"[0-9a-f]{32}")
_LOGGED = re.compile(r"m-[0-9a-f]{32}")


@dataclass(frozen=True)
class Owner:
    id: str
    """What its files are kept under."""
    run_id: str | None
    job_id: str | None
    user_id: str | None = None
    """Whose job it is; None: no job's."""
    logged: bool = False


async def owner(parts: Parts, who: Principal, ref: str, *, write: bool = False) -> Owner:
    """A job by id, prefix or name; a run or a logged model by its id. Raises NotFound, also for
    another project's, and Forbidden for who may look but not `write`."""
    found = await _owner(parts, who, ref)
    if write:
        _check(who, found)
    return found


async def _owner(parts: Parts, who: Principal, ref: str) -> Owner:
    if _LOGGED.fullmatch(ref):
        return await _logged(parts, who, ref)

    def look(conn: Connection) -> Owner | None:
        try:
            job = jobs_service.find(conn, who, ref)
        except NotFound:
            return None
        return Owner(job["id"], job["id"], job["id"], job["user_id"])

    found = await parts.store.read(look)
    if found is not None:
        return found
    if not _RUN.fullmatch(ref):
        raise NotFound(f"no job or run {ref!r}", hint="`windlass ps -a` lists the jobs there are")
    return await _run(parts, who, ref)


async def _run(parts: Parts, who: Principal, run_id: str) -> Owner:
    def look(conn: Connection) -> str | None:
        row = conn.execute(
            select(runs.c.job_id).where(runs.c.id == run_id, runs.c.project_id == who.project_id)
        ).first()
        if row is None:
            raise NotFound(f"no job or run {run_id!r}")
        job: str | None = row.job_id
        return job

    job_id = await parts.tracking.read(look)
    return Owner(run_id, run_id, job_id, await _user_of(parts, who, job_id))


async def _logged(parts: Parts, who: Principal, model_id: str) -> Owner:
    def look(conn: Connection) -> tuple[str | None, str | None]:
        row = conn.execute(
            select(logged_models.c.run_id, runs.c.job_id)
            .outerjoin(runs, runs.c.id == logged_models.c.run_id)
            .where(logged_models.c.id == model_id, logged_models.c.project_id == who.project_id)
        ).first()
        if row is None:
            raise NotFound(f"no logged model {model_id!r}")
        return row.run_id, row.job_id

    run_id, job_id = await parts.tracking.read(look)
    return Owner(model_id, run_id, job_id, await _user_of(parts, who, job_id), logged=True)


async def _user_of(parts: Parts, who: Principal, job_id: str | None) -> str | None:
    if job_id is None:
        return None
    query = select(jobs.c.user_id).where(jobs.c.id == job_id, jobs.c.project_id == who.project_id)
    return await parts.store.read(lambda conn: conn.execute(query).scalar())


def _check(who: Principal, found: Owner) -> None:
    if who.kind is not CallerKind.USER:
        if found.job_id is None or found.job_id != who.job_id:
            raise Forbidden("the token of an attempt writes to the runs of its own job only")
    elif found.user_id not in (None, who.user_id) and not who.may(Right.JOB_WRITE_ANY):
        raise Forbidden(
            "this is a run of another user's job: a member changes its own only",
            hint="ask its owner, or a maintainer of the project",
            right=str(Right.JOB_WRITE_ANY),
        )
