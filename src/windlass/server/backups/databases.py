"""The databases at one moment, while a server goes on writing to them.

SQLite: both files are held for as long as it takes to begin reading (milliseconds), so that the
jobs and what they told are of one moment; then the online backup API copies each as it was.
PostgreSQL: the snapshot of one transaction, which `pg_dump` is told to read in. Row-level security
is forced on its tables, and shows all rows to whoever names no project, as here: hence
`--enable-row-security`, without which pg_dump refuses.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, create_engine, inspect, make_url, text

from windlass.core.errors import Conflict, InvalidInput, Unavailable
from windlass.server.store import postgres
from windlass.server.store.urls import is_sqlite

CONTROL, TRACKING, DUMP = "windlass.db", "tracking.db", "windlass.dump"


@dataclass(frozen=True)
class Snapshot:
    """Copies that will not change, and what is to be known of them."""

    files: list[Path]
    revision: str
    jobs: frozenset[str]
    attempts: frozenset[str]
    stored: int


def snapshot(url: str, home: Path, folder: Path) -> Snapshot:
    """`url`: of PostgreSQL; empty: the files of the home. The copies lie in `folder`."""
    return _dump(url, folder) if url and not is_sqlite(url) else _copies(home, folder)


def _copies(home: Path, folder: Path) -> Snapshot:
    sources = [home / CONTROL, home / TRACKING]
    copies = [folder / source.name for source in sources]
    with ExitStack() as stack:
        readers = [stack.enter_context(closing(_open(source))) for source in sources]
        with ExitStack() as held:
            for source in sources:
                writer = held.enter_context(closing(_open(source)))
                writer.execute("BEGIN IMMEDIATE")
            for reader in readers:
                reader.execute("BEGIN")
                reader.execute("SELECT count(*) FROM sqlite_master").fetchone()
        for reader, copy in zip(readers, copies, strict=True):
            with closing(sqlite3.connect(copy)) as target:
                reader.backup(target)
    for copy in copies:
        copy.chmod(0o600)
    engine = create_engine(f"sqlite:///{copies[0]}")
    try:
        with engine.connect() as conn:
            return _known(conn, copies)
    finally:
        engine.dispose()


def _open(path: Path) -> sqlite3.Connection:
    conn = sqlite3.connect(f"file:{path}?mode=rw", uri=True, isolation_level=None, timeout=30)
    conn.execute("PRAGMA busy_timeout=30000")
    return conn


def _dump(url: str, folder: Path) -> Snapshot:
    engine = postgres.engine_for(url, connections=1, connect_seconds=5, settings={})
    try:
        with engine.connect() as conn:
            conn = conn.execution_options(isolation_level="REPEATABLE READ")
            known = _known(conn, [folder / DUMP])
            name = conn.execute(text("SELECT pg_export_snapshot()")).scalar()
            _run(
                "pg_dump", url, "--format=custom", "--enable-row-security", "--no-owner",
                "--no-privileges", f"--snapshot={name}", f"--file={folder / DUMP}",
            )  # fmt: skip
            return known
    finally:
        engine.dispose()


def _known(conn: Connection, files: list[Path]) -> Snapshot:
    revision = conn.execute(text("SELECT version_num FROM alembic_version")).scalar_one()
    stored = text("SELECT count(*) FROM objects WHERE removing_ms IS NULL")
    return Snapshot(
        files, str(revision), _ids(conn, "jobs"), _ids(conn, "attempts"),
        int(conn.execute(stored).scalar_one()) if inspect(conn).has_table("objects") else 0,
    )  # fmt: skip


def _ids(conn: Connection, table: str) -> frozenset[str]:
    return frozenset(conn.execute(text(f"SELECT id FROM {table}")).scalars())


def refuse_filled(url: str) -> None:
    """Raises Conflict when a PostgreSQL database holds tables already."""
    engine = postgres.engine_for(url, connections=1, connect_seconds=5, settings={})
    try:
        with engine.connect() as conn:
            found = inspect(conn).get_table_names()
    finally:
        engine.dispose()
    if found:
        raise Conflict(
            f"the database {make_url(url).database} is not empty: it has a table {found[0]}",
            hint="create another (createdb), and give its address with --database",
        )


def load(url: str, dump: Path) -> None:
    """Fill an empty PostgreSQL database: all of it or, when something fails, nothing."""
    _run(
        "pg_restore", url, "--no-owner", "--no-privileges", "--exit-on-error",
        "--single-transaction", after=[str(dump)],
    )  # fmt: skip


def require(program: str) -> None:
    if shutil.which(program) is None:
        raise InvalidInput(
            f"a PostgreSQL database needs {program}, which is not on PATH",
            hint="install PostgreSQL's client programs (Debian: postgresql-client)",
        )


def _run(program: str, url: str, *words: str, after: Sequence[str] = ()) -> None:
    """The password goes by the environment: everybody sees the words of a command."""
    require(program)
    parts = make_url(url)
    secret = {"PGPASSWORD": parts.password} if isinstance(parts.password, str) else {}
    plain = parts.set(drivername="postgresql", password=None)
    address = f"--dbname={plain.render_as_string(hide_password=False)}"
    done = subprocess.run(
        [program, address, "--no-password", *words, *after],
        env={**os.environ, **secret}, capture_output=True, text=True, errors="replace",
    )  # fmt: skip
    if done.returncode:
        raise Unavailable(f"{program} failed: {done.stderr.strip() or done.returncode}")
