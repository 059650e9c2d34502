"""The rows of stored files: find them, write one down, mark those that go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from sqlalchemy import ColumnElement, Connection, delete, insert, select, update

from windlass.server.jobs.tables import jobs
from windlass.server.storage.tables import objects

_TOGETHER = 500
"""So many names in one question: databases have a bound."""
_LATELY_MS = 3_600_000
"""What was named so lately need not be written again: it is old after a day."""


@dataclass(frozen=True)
class Object:
    key: str
    owner: str
    path: str
    project_id: str
    job_id: str | None
    digest: str
    size: int


_COLUMNS = tuple(objects.c[name] for name in Object.__dataclass_fields__)


def blobs_of(project_id: str) -> str:
    return f"blobs/{project_id}"


def checkpoint_of(job_id: str, attempt: int, step: int, digest: str) -> str:
    return f"checkpoints/{job_id}/{attempt}-{step}-{digest[:16]}"


def logs_of(attempt_id: str, node: str) -> str:
    return f"logs/{attempt_id}/{node}"


def batched(names: Iterable[str]) -> Iterator[list[str]]:
    left = iter(names)
    while some := list(islice(left, _TOGETHER)):
        yield some


def found(conn: Connection, owner: str, paths: Iterable[str] | None = None) -> dict[str, Object]:
    """By path: of these, or all that an owner has."""
    query = select(*_COLUMNS).where(objects.c.owner == owner, objects.c.removing_ms.is_(None))
    if paths is None:
        return {row.path: Object(*row) for row in conn.execute(query)}
    by_path = {}
    for some in batched(set(paths)):
        for row in conn.execute(query.where(objects.c.path.in_(some))):
            by_path[row.path] = Object(*row)
    return by_path


def by_digest(conn: Connection, job_id: str, digest: str) -> Object | None:
    """Any object of a job with these bytes."""
    row = conn.execute(
        select(*_COLUMNS)
        .where(
            objects.c.job_id == job_id, objects.c.digest == digest,
            objects.c.removing_ms.is_(None),
        )
        .limit(1)
    ).first()  # fmt: skip
    return None if row is None else Object(*row)


def register(conn: Connection, made: Sequence[Object], now_ms: int) -> None:
    """Write down what is complete, but what belongs to a job that is gone. Of one that another
    server wrote down meanwhile there are two, and either may be read: they have the same bytes."""
    owned = {each.job_id for each in made} - {None}
    there = set(
        conn.execute(select(jobs.c.id).where(jobs.c.id.in_(owned)).with_for_update()).scalars()
    )
    kept = [each for each in made if each.job_id is None or each.job_id in there]
    if kept:
        conn.execute(insert(objects), [{**each.__dict__, "used_ms": now_ms} for each in kept])


def touch(conn: Connection, owner: str, paths: Iterable[str], now_ms: int) -> None:
    """Somebody is about to name them: they are not old any more."""
    for some in batched(set(paths)):
        which = (objects.c.owner == owner) & objects.c.path.in_(some)
        _update(conn, which & (objects.c.used_ms < now_ms - _LATELY_MS), used_ms=now_ms)


def mark(conn: Connection, owner: str, now_ms: int, path: str | None = None) -> None:
    """An owner's objects, or one of them, are not wanted any more."""
    which = objects.c.owner == owner
    if path is not None:
        which &= objects.c.path == path
    _update(conn, which, removing_ms=now_ms)


def mark_of_no_job(conn: Connection, now_ms: int) -> None:
    """Whatever is left of jobs that are gone."""
    there = select(jobs.c.id)
    which = objects.c.job_id.is_not(None) & objects.c.job_id.not_in(there)
    _update(conn, which, removing_ms=now_ms)


def unnamed_blobs(conn: Connection, before_ms: int) -> list[Object]:
    """Those that nobody has named lately: they may go if nothing refers to them."""
    query = select(*_COLUMNS).where(
        objects.c.owner.startswith("blobs/"),
        objects.c.used_ms < before_ms,
        objects.c.removing_ms.is_(None),
    )
    return [Object(*row) for row in conn.execute(query)]


def mark_old(conn: Connection, keys: Sequence[str], before_ms: int, now_ms: int) -> None:
    """But for those that somebody has named meanwhile."""
    for some in batched(keys):
        which = objects.c.key.in_(some) & (objects.c.used_ms < before_ms)
        _update(conn, which, removing_ms=now_ms)


def going(conn: Connection, limit: int = 200) -> list[str]:
    """Keys of what is marked."""
    query = select(objects.c.key).where(objects.c.removing_ms.is_not(None)).limit(limit)
    return list(conn.execute(query).scalars())


def gone(conn: Connection, keys: Sequence[str]) -> None:
    """Their bytes are removed."""
    conn.execute(
        delete(objects).where(objects.c.key.in_(keys), objects.c.removing_ms.is_not(None))
    )


def known(conn: Connection, keys: Sequence[str]) -> set[str]:
    """Which of these have a row, marked or not."""
    return set(conn.execute(select(objects.c.key).where(objects.c.key.in_(keys))).scalars())


def _update(conn: Connection, which: ColumnElement[bool], **values: int) -> None:
    conn.execute(update(objects).where(which, objects.c.removing_ms.is_(None)).values(**values))
