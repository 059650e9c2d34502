"""Make a backup of a home, whether its server runs or not.

The databases come first, then the files that they name: what a row refers to was on the disk
before the row was. Of what came after the moment of the databases nothing is taken along but the
ends of logs, so there is no attempt, and no checkpoint of a job, that no row knows of.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from windlass import __version__
from windlass.core.errors import Forbidden, NotFound
from windlass.server.backups import databases
from windlass.server.backups.archive import Manifest, Writer, writing
from windlass.server.store.urls import is_sqlite

_OUTPUTS = ("out", "work")
"""Folders of an attempt that hold what a job wrote; its logs are always taken along."""


def create(
    home: Path, file: Path, *, database: str, credentials: Path, secrets: bool, outputs: bool
) -> Manifest:
    """`database`: of PostgreSQL, or empty. Raises Forbidden, NotFound, Conflict, Unavailable."""
    refuse_others(home)
    kind = "sqlite" if not database or is_sqlite(database) else "postgresql"
    if kind == "sqlite" and not (home / databases.CONTROL).exists():
        raise NotFound(
            f"{home} holds no database",
            hint="WINDLASS_HOME names the home; of a server on PostgreSQL give its --database",
        )
    with writing(file) as archive:
        # Beside the archive: there is room for it, or the backup fails anyway.
        with tempfile.TemporaryDirectory(prefix=".windlass-", dir=file.parent) as folder:
            heads = _heads(home, Path(folder))
            found = databases.snapshot(database, home, Path(folder))
            for path in found.files:
                archive.add(path, f"database/{path.name}")
            for path in heads:
                archive.add(path, f"home/{path.name}")
        for path, name in _files(home, found, outputs):
            archive.add(path, f"home/{name}")
        if secrets:
            _add_secrets(archive, home, credentials)
        return archive.finish(
            Manifest(
                windlass=__version__,
                revision=found.revision,
                database=kind,
                made=datetime.now(UTC).isoformat(timespec="seconds"),
                home=str(home),
                secrets=secrets,
                outputs=outputs,
                stored=found.stored,
            )  # fmt: skip
        )


def refuse_others(home: Path) -> None:
    """Whoever may read all of a home is its owner, or the administrator of the machine."""
    if os.name != "posix" or not home.exists():
        return
    owner = home.stat().st_uid
    if os.geteuid() not in (0, owner):
        raise Forbidden(
            f"{home} belongs to another user of this machine (uid {owner})",
            hint="only that user or root may back it up or restore it",
        )


def _add_secrets(archive: Writer, home: Path, credentials: Path) -> None:
    archive.add(home / "kek", "secrets/kek")
    if credentials.exists():
        archive.add(credentials, "secrets/credentials.json")


def _heads(home: Path, folder: Path) -> list[Path]:
    """How far the audit's chains had come, from before the moment of the database: a note that is
    ahead of its rows says that some were cut off."""
    copy = folder / "audit-heads.json"
    try:
        copy.write_bytes((home / copy.name).read_bytes())
    except FileNotFoundError:
        return []
    return [copy]


def _files(home: Path, found: databases.Snapshot, outputs: bool) -> Iterator[tuple[Path, str]]:
    if (home / "id").exists():
        yield home / "id", "id"
    for path, name in _below(home / "blobs", "blobs"):
        if name.split("/")[2] != "drafts":
            yield path, name
    for job_id in sorted(found.jobs):
        for path, name in _below(home / "jobs" / job_id, f"jobs/{job_id}"):
            if _of_job(name.split("/")[2:], outputs):
                yield path, name
    for attempt_id in sorted(found.attempts):
        for path, name in _below(home / "attempts" / attempt_id, f"attempts/{attempt_id}"):
            if _of_attempt(name.split("/")[2:], outputs):
                yield path, name


def _of_job(parts: list[str], outputs: bool) -> bool:
    if parts[0] == "checkpoints":
        return not parts[1].startswith(".tmp-")  # one that is being written
    return outputs


def _of_attempt(parts: list[str], outputs: bool) -> bool:
    """Of what a worker keeps for itself (its lock, its token, which process it is) nothing: it
    would be taken for a worker of the machine that it is restored to."""
    if len(parts) == 1:
        return True  # which engine it is of
    return parts[1] == "logs" or (outputs and parts[1] in _OUTPUTS)


def _below(folder: Path, name: str) -> Iterator[tuple[Path, str]]:
    """Plain files only; a link might lead anywhere."""
    for at, folders, files in os.walk(folder):
        folders.sort()
        inside = Path(at).relative_to(folder).as_posix()
        prefix = name if inside == "." else f"{name}/{inside}"
        for each in sorted(files):
            path = Path(at, each)
            if path.is_file() and not path.is_symlink():
                yield path, f"{prefix}/{each}"
