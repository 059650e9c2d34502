"""Files of runs: which there are, and what each is called.

The bytes are there before the row: a blob that nothing names is swept, a name without bytes would
be a lie. Whose a run is, its own row says, never a path.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, delete, exists, select

from windlass.core.artifacts import ArtifactView
from windlass.core.errors import Conflict, NotFound, TooLarge
from windlass.core.paths import plain_path
from windlass.server.artifacts.tables import artifacts
from windlass.server.clock import stamp
from windlass.server.store.upsert import insert_of

MOST_FILES = 10_000
"""Of a run, or of a logged model: a list of them is one answer."""


@dataclass(frozen=True)
class File:
    """A file of a run or of a model's version, by content."""

    path: str
    digest: str
    size: int


def record(
    conn: Connection, project_id: str, owner_id: str, file: File, now_ms: int,
    job_id: str | None = None,
) -> None:  # fmt: skip
    """Call a blob that is here by a path, in place of what had it before. Raises Conflict where
    a file would have to be a folder."""
    path = plain_path(file.path)
    _check_place(conn, owner_id, path)
    if _is_full(conn, owner_id, path):
        raise TooLarge(
            f"{owner_id} has {MOST_FILES} files, the most that a run may have: {path[:200]} is "
            "not kept",
            hint="pack many small files into one",
        )
    write(conn, project_id, owner_id, [File(path, file.digest, file.size)], now_ms, job_id)


def _check_place(conn: Connection, owner_id: str, path: str) -> None:
    folders = folders_of(path)
    mine = artifacts.c.owner_id == owner_id
    if folders:
        taken = conn.execute(
            select(artifacts.c.path).where(mine, artifacts.c.path.in_(folders)).limit(1)
        ).scalar()
        if taken is not None:
            raise Conflict(f"{taken} is a file: nothing can lie below it")
    if conn.execute(select(exists().where(mine, _below(path)))).scalar():
        raise Conflict(f"{path} is a folder: no file can have its name")


def folders_of(path: str) -> list[str]:
    """The folders that a file lies in, the outermost first."""
    above = path.split("/")
    return ["/".join(above[:depth]) for depth in range(1, len(above))]


def write(
    conn: Connection,
    project_id: str,
    owner_id: str,
    files: Sequence[File],
    now_ms: int,
    job_id: str | None,
) -> None:
    """The rows of files for which the caller knows that there is room, and no folder or file in
    their way."""
    rows = [
        {"owner_id": owner_id, "path": file.path, "project_id": project_id, "job_id": job_id,
         "digest": file.digest, "size": file.size, "changed_ms": now_ms}
        for file in files
    ]  # fmt: skip
    if not rows:
        return
    upsert = insert_of(conn)(artifacts).values(rows)
    fresh = {name: upsert.excluded[name] for name in ("digest", "size", "changed_ms")}
    conn.execute(
        upsert.on_conflict_do_update(
            index_elements=["owner_id", "path"], set_=fresh,
            where=artifacts.c.project_id == project_id,
        )
    )  # fmt: skip


def _is_full(conn: Connection, owner_id: str, path: str) -> bool:
    """Whether a file of another name would be one too many."""
    mine = artifacts.c.owner_id == owner_id
    last = select(artifacts.c.path).where(mine).offset(MOST_FILES - 1).limit(1)
    if conn.execute(last).first() is None:
        return False
    return conn.execute(select(exists().where(mine, artifacts.c.path == path))).scalar() is False


def find(conn: Connection, project_id: str, owner_id: str, path: str) -> File:
    """One file. Raises NotFound."""
    row = conn.execute(
        select(artifacts.c.path, artifacts.c.digest, artifacts.c.size).where(
            artifacts.c.project_id == project_id,
            artifacts.c.owner_id == owner_id,
            artifacts.c.path == plain_path(path),
        )
    ).first()
    if row is None:
        raise NotFound(f"no file {path} of {owner_id}")
    return File(*row)


def files_below(
    conn: Connection, project_id: str, owner_id: str, folder: str = ""
) -> tuple[File, ...]:
    """Every file of a run, or of a folder of it (or that one file), by path."""
    query = select(artifacts.c.path, artifacts.c.digest, artifacts.c.size).where(
        artifacts.c.project_id == project_id, artifacts.c.owner_id == owner_id
    )
    if folder:
        query = query.where(_below(folder) | (artifacts.c.path == folder))
    rows = [File(*row) for row in conn.execute(query)]
    return tuple(sorted(rows, key=lambda file: file.path))


def listing(
    conn: Connection, project_id: str, owner_id: str, folder: str = ""
) -> tuple[ArtifactView, ...]:
    """What lies directly in a folder, files and folders, by path; nothing for what is not there.
    For a file, nothing too: a file has nothing in it."""
    within = folder + "/" if folder else ""
    query = select(
        artifacts.c.path, artifacts.c.digest, artifacts.c.size, artifacts.c.changed_ms
    ).where(artifacts.c.project_id == project_id, artifacts.c.owner_id == owner_id)
    if folder:
        query = query.where(_below(folder))
    found: dict[str, ArtifactView] = {}
    sizes: dict[str, int] = {}
    for row in conn.execute(query):
        name, deeper, _ = row.path[len(within) :].partition("/")
        path = within + name
        if deeper:
            sizes[path] = sizes.get(path, 0) + row.size
        else:
            found[path] = ArtifactView(
                path=path, folder=False, size=row.size, digest=row.digest,
                changed=stamp(row.changed_ms),
            )  # fmt: skip
    for path, size in sizes.items():
        found[path] = ArtifactView(path=path, folder=True, size=size)
    return tuple(found[path] for path in sorted(found))


def remove(conn: Connection, project_id: str, owner_id: str, path: str = "") -> int:
    """Take a file, or a folder with all in it, or all files of a run away; how many they were.
    Model versions that were made of them keep theirs."""
    gone = delete(artifacts).where(
        artifacts.c.project_id == project_id, artifacts.c.owner_id == owner_id
    )
    if path:
        gone = gone.where(_below(path) | (artifacts.c.path == path))
    return conn.execute(gone).rowcount


def total(files: Iterable[File]) -> int:
    return sum(file.size for file in files)


def _below(folder: str) -> ColumnElement[bool]:
    return artifacts.c.path.startswith(folder + "/", autoescape=True)
