"""Limits on live jobs: read, changed, and held to in the transaction of the submit itself.

Two submits at once cannot both take the last place: SQLite has one writer, and on PostgreSQL who
submits to a project that has limits locks the project's row first. So a limit of 10 lets exactly
10 in, however many come together. A lower limit ends nothing: it lets nobody more in.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import (
    Connection,
    Select,
    Table,
    bindparam,
    delete,
    func,
    literal,
    select,
    text,
    update,
)

from windlass.core.access import Principal
from windlass.core.errors import Conflict, LimitExceeded, NotFound
from windlass.core.limits import EVERY, LimitsBody, LimitsPage, LimitsView, LimitView, whom
from windlass.server.access.tables import projects, users
from windlass.server.clock import stamp
from windlass.server.jobs.tables import UNFINISHED, jobs
from windlass.server.limits.tables import limits
from windlass.server.store.prepared import Prepared
from windlass.server.store.upsert import insert_for

Row = dict[str, Any]
_ANY = Prepared(
    text("SELECT count(*) FROM limits WHERE project = :project OR project = '*'").bindparams(
        project=""
    )
)


@cache
def _make(dialect: str) -> Any:
    row = insert_for(dialect)(limits).values(
        project=bindparam("project"), limits=[], revision=0, changed_ms=0
    )
    return row.on_conflict_do_nothing(index_elements=["project"])


def hold_to(conn: Connection, who: Principal, kind: str) -> None:
    """May one more job of this kind come in? Raises LimitExceeded."""
    if not _ANY.run(conn, {"project": who.project_name}).fetchone()[0]:
        return
    conn.execute(
        select(projects.c.id)
        .where(projects.c.id == who.project_id)
        .with_for_update(key_share=True)  # jobs that refer to the project are not in the way
    )
    for limit in _of(conn, who.project_name):
        if limit["kind"] not in (None, kind) or limit["user"] not in (None, EVERY, who.user_name):
            continue
        mine = limit["user"] is not None
        live = conn.execute(
            _count(who.project_id, who.user_id if mine else None, limit["kind"], limit["jobs"])
        ).scalar_one()
        if live >= limit["jobs"]:
            of = whom(who.user_name if mine else None, limit["kind"])
            raise LimitExceeded(
                f"{who.project_name} may have {limit['jobs']} live {of}, and has them",
                hint="wait for one to end, stop one, or ask an administrator: "
                f"`windlass limit ls` shows the limits of {who.project_name}",
                project=who.project_name, user=who.user_name if mine else None,
                kind=limit["kind"], limit=limit["jobs"],
            )  # fmt: skip


def put(conn: Connection, project: str, body: LimitsBody, now_ms: int) -> None:
    """Make the limits of a project so. Raises Conflict."""
    known = _lock(conn, project)
    revision = known["revision"]
    wanted = [limit.model_dump() for limit in body.limits]
    if known["limits"] == wanted:
        return  # it is so already: a call that is repeated changes nothing
    if body.revision is not None and body.revision != revision:
        raise Conflict(
            f"the limits of {project} have changed meanwhile: they are at revision {revision}, "
            f"you saw {body.revision}",
            hint="look at them again: windlass limit ls",
            revision=revision,
        )
    values = {"limits": wanted, "revision": revision + 1, "changed_ms": now_ms}
    conn.execute(update(limits).where(limits.c.project == project).values(values))


def remove(conn: Connection, project: str) -> None:
    """Raises NotFound."""
    if conn.execute(delete(limits).where(limits.c.project == project)).rowcount != 1:
        raise NotFound(
            f"no limits of {project!r}", hint="`windlass limit ls` lists the limits there are"
        )


def page(conn: Connection, only: str | None = None) -> LimitsPage:
    """Every project's limits with what counts against them; `only`: those of one project,
    and those that hold for it because it has none of its own."""
    query = select(limits).order_by(limits.c.project)
    if only is not None:
        query = query.where(limits.c.project.in_((only, EVERY)))
    ids, people = (_named(conn, table) for table in (projects, users))
    return LimitsPage(
        items=tuple(
            LimitsView(
                project=row["project"],
                limits=tuple(
                    LimitView(**limit, live=_live(conn, ids, people, row["project"], limit))
                    for limit in row["limits"]
                ),
                revision=row["revision"],
                changed=stamp(row["changed_ms"]),
            )
            for row in conn.execute(query).mappings()
        )
    )


def _named(conn: Connection, table: Table) -> dict[str, str]:
    """The ids of those that are there, by name."""
    there = select(table.c.name, table.c.id).where(table.c.removed_ms.is_(None))
    return {name: id_ for name, id_ in conn.execute(there)}


def _live(
    conn: Connection, ids: dict[str, str], people: dict[str, str], project: str, limit: Row
) -> int | None:
    if project == EVERY or limit["user"] == EVERY:
        return None
    named = limit["user"] is not None
    if project not in ids or (named and limit["user"] not in people):
        return 0
    user_id = people[limit["user"]] if named else None
    return int(conn.execute(_count(ids[project], user_id, limit["kind"], None)).scalar_one())


def _of(conn: Connection, project: str) -> list[Row]:
    """A project's own limits, and of each project's those that it says nothing of."""
    found: dict[tuple[str | None, str | None], Row] = {}
    rows = conn.execute(
        select(limits.c.limits).where(limits.c.project.in_((project, EVERY)))
        .order_by(limits.c.project == EVERY)
    )  # fmt: skip
    for (listed,) in rows:
        for limit in listed:
            found.setdefault((limit["user"], limit["kind"]), limit)
    return list(found.values())


def _count(
    project_id: str, user_id: str | None, kind: str | None, most: int | None
) -> Select[int]:
    """Live jobs; no more than `most` are looked at."""
    live = select(literal(1)).where(jobs.c.project_id == project_id, UNFINISHED)
    if user_id is not None:
        live = live.where(jobs.c.user_id == user_id)
    if kind is not None:
        live = live.where(jobs.c.kind == kind)
    return select(func.count()).select_from(live.limit(most).subquery())


def _lock(conn: Connection, project: str) -> Row:
    """The row, made if need be; nobody else changes it before this transaction ends."""
    conn.execute(_make(conn.dialect.name), {"project": project})
    row = conn.execute(select(limits).where(limits.c.project == project).with_for_update())
    return dict(row.mappings().one())
