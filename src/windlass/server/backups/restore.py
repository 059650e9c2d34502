"""Make an empty home of a backup.

read all of it, compare every digest        → InvalidInput, nothing was touched
its schema is one that this code knows      → Conflict, nothing was touched
unpack into HOME/.restoring, migrate        a kill here leaves a home that is still refused
what ran is told lost                       its processes were another machine's
move into place, the database last
"""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

from sqlalchemy import text

from windlass.core.engines import LOCAL
from windlass.core.errors import Conflict, InvalidInput
from windlass.server.backups import archive, databases
from windlass.server.backups.archive import Manifest
from windlass.server.backups.create import refuse_others
from windlass.server.private import write_private
from windlass.server.store.migrate import MIGRATIONS, connected, migrate
from windlass.server.store.urls import is_sqlite

_STAGE = ".restoring"
_UNIMPORTANT = {"client", "lost+found"}
"""What a home may hold and still be empty: the cache of the command line, and what a fresh file
system has."""


def restore(home: Path, file: Path, *, database: str, credentials: Path) -> tuple[Manifest, int]:
    """What was in it, and how many attempts that ran then are told lost. Raises InvalidInput,
    Conflict, Forbidden, Unavailable."""
    refuse_others(home)
    _refuse_filled(home)
    manifest = archive.check(file)
    _refuse_newer(file, manifest)
    remote = _address(manifest, database)
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    stage = home / _STAGE
    stage.mkdir(mode=0o700)
    archive.extract(file, manifest, stage)
    if remote:
        databases.load(remote, stage / "database" / databases.DUMP)
        shutil.rmtree(stage / "database")
    url = remote or f"sqlite:///{stage / 'database' / databases.CONTROL}"
    migrate(url)
    _move_paths(url, manifest.home, str(home))
    lost = _tell_lost(url, stage / "home" / "attempts", manifest.made)
    _own(home, stage)
    _settle(home, stage, credentials)
    return manifest, lost


def _refuse_filled(home: Path) -> None:
    found = sorted({path.name for path in home.iterdir()} - _UNIMPORTANT) if home.exists() else []
    if found:
        raise Conflict(
            f"{home} is not empty: it has {', '.join(found[:5])}",
            hint=f"a restore that was cut short: remove {home} and begin again"
            if _STAGE in found
            else "give another: WINDLASS_HOME=/path/of/new windlass backup restore FILE",
        )


def _refuse_newer(file: Path, manifest: Manifest) -> None:
    known = {path.name.partition("_")[0] for path in (MIGRATIONS / "versions").glob("0*.py")}
    if manifest.revision not in known:
        raise Conflict(
            f"{file} holds a database of revision {manifest.revision}, which this Windlass does "
            "not know: a newer one has written it",
            hint=f"restore it with Windlass {manifest.windlass}",
        )


def _address(manifest: Manifest, database: str) -> str:
    """Of the PostgreSQL database to fill; empty: the files of the home."""
    remote = bool(database) and not is_sqlite(database)
    if manifest.database == "sqlite":
        if remote:
            raise InvalidInput(
                "--database: this backup holds SQLite files, which PostgreSQL cannot take",
                hint="restore it without --database",
            )
        return ""
    if not remote:
        raise InvalidInput(
            "--database: this backup is of PostgreSQL, and needs an empty database to go to",
            hint="createdb windlass, then --database postgresql://user@host/windlass",
        )
    databases.require("pg_restore")
    databases.refuse_filled(database)
    return database


_PATHS = (("checkpoints", "path"), ("starts", "path"), ("starts", "root"))
"""Columns that name folders below the home."""


def _move_paths(url: str, old: str, new: str) -> None:
    words = {"old": old + "/", "length": len(old) + 1, "new": new + "/"}
    with connected(url) as conn, conn.begin():
        for table, column in _PATHS:
            change = f"UPDATE {table} SET {column} = :new || substr({column}, :length + 1)"
            conn.execute(text(f"{change} WHERE substr({column}, 1, :length) = :old"), words)


_RAN = text(
    "SELECT attempts.id, attempts.number, workers.node FROM attempts"
    " JOIN workers ON workers.attempt_id = attempts.id"
    " WHERE attempts.over_ms IS NULL AND attempts.engine = :engine"
)


def _tell_lost(url: str, attempts: Path, made: str) -> int:
    """A record for each worker of this machine's engine that ran when the backup was made: it is
    judged as ever, and by its retry rules the job goes on from its checkpoint. Workers of a
    cluster are asked for there, as after any start of the server."""
    with connected(url) as conn:
        ran = conn.execute(_RAN, {"engine": LOCAL}).all()
    for attempt_id, number, node in ran:
        record: dict[str, Any] = {
            "api": 1, "attempt_id": attempt_id, "attempt": number, "node": node, "boot_id": "",
            "ended_ms": time.time_ns() // 1_000_000, "outcome": "lost",
            "reason": f"it ran when the backup of {made} was made, and this server was restored "
            "from that",
            "ranks": [], "first_failure": None, "survivors": [],
        }  # fmt: skip
        write_private(attempts / attempt_id / node / "exit.json", json.dumps(record))
    return len({attempt_id for attempt_id, _, _ in ran})


def _own(home: Path, stage: Path) -> None:
    """Root restores for the owner of the home."""
    if os.name != "posix" or os.geteuid() != 0:
        return
    owner = home.stat()
    if owner.st_uid == 0:
        return
    for at, _, files in os.walk(stage):
        for path in (at, *(os.path.join(at, each) for each in files)):
            os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def _settle(home: Path, stage: Path, credentials: Path) -> None:
    kept = stage / "secrets"
    if (kept / "credentials.json").exists() and not credentials.exists():
        credentials.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        shutil.move(kept / "credentials.json", credentials)
    if (kept / "kek").exists():
        os.rename(kept / "kek", home / "kek")
    if (stage / "home").exists():
        for path in sorted((stage / "home").iterdir()):
            os.rename(path, home / path.name)
    for name in (databases.TRACKING, databases.CONTROL):
        if (stage / "database" / name).exists():
            os.rename(stage / "database" / name, home / name)
    archive.sync_folder(home)
    shutil.rmtree(stage)
