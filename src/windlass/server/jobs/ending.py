"""The end of many jobs at once, because what they were of is gone."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import ColumnElement, Connection, select

from windlass.core.jobs import TERMINAL
from windlass.server.jobs import moves
from windlass.server.jobs.tables import jobs

AT_ONCE = 200


def next_ones(conn: Connection, *where: ColumnElement[bool]) -> list[str]:
    """Some that have not ended and were not told to; none when there are no more."""
    query = (
        select(jobs.c.id)
        .where(jobs.c.state.not_in(sorted(TERMINAL)), *where)
        .where(jobs.c.wish.is_(None) | (jobs.c.wish != "cancel"))
        .limit(AT_ONCE)
    )
    return list(conn.scalars(query))


def wish(conn: Connection, ids: Iterable[str], reason: str, now_ms: int) -> None:
    """Wish that they end, with their grace; reconcile carries it out."""
    for job_id in ids:
        job = moves.load(conn, job_id)
        if job["state"] not in TERMINAL:
            moves.note(
                conn, job, "wished", reason=reason, now_ms=now_ms,
                data={"wish": "cancel", "now": False}, wish="cancel", wish_reason=reason,
                wish_now=0,
            )  # fmt: skip
