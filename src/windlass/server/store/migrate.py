"""Bring a database to the schema of this code.

Each step is one transaction with its row in `alembic_version`, so a killed migration goes on
where it was. Two servers never migrate at once: PostgreSQL's advisory lock makes the second
wait; SQLite's claim on the file refuses it. A database from a newer Windlass is left alone.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, MetaData, create_engine, event, inspect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

import windlass.server
from windlass import __version__
from windlass.core.errors import Conflict
from windlass.server.store import postgres, sqlite
from windlass.server.store.claim import Claim, refuse_network_file_system
from windlass.server.store.metadata import metadata
from windlass.server.store.urls import is_sqlite, sqlite_path

# Alembic is imported where a database is behind: it takes a tenth of a server's start, and most
# starts find a database that is new (`FRESH`) or as it should be.
if TYPE_CHECKING:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

MIGRATIONS = Path(__file__).parent / "migrations"
FRESH = MIGRATIONS / "fresh.sql"
"""What the migrations make of an empty SQLite file, statement by statement."""

BETWEEN = "\n-- next\n"
ADVISORY_LOCK = 0x77696E64  # "wind"


def migrate(url: str, *, claim: Claim | None = None, revision: str = "head") -> None:
    """Upgrade to `revision`. Raises `Conflict` when the database is newer than this code.

    On SQLite pass the `claim` when you hold it already.
    """
    with connected(url, claim=claim) as conn:
        if revision == "head" and (at_head(conn) or filled(conn)):
            return
        upgrade(conn, revision)


def at_head(conn: Connection) -> bool:
    with conn.begin():
        if not inspect(conn).has_table("alembic_version"):
            return False
        found = conn.exec_driver_sql("SELECT version_num FROM alembic_version").scalars().all()
    newest = max(file.name.partition("_")[0] for file in (MIGRATIONS / "versions").glob("0*.py"))
    return list(found) == [newest]


def filled(conn: Connection) -> bool:
    """Whether this was an empty SQLite file: then it is now at the newest revision."""
    if conn.dialect.name != "sqlite":
        return False
    with conn.begin():
        if conn.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar():
            return False
        for statement in FRESH.read_text().split(BETWEEN):
            conn.exec_driver_sql(statement)
    return True


def upgrade(conn: Connection, revision: str) -> None:
    """Through Alembic's steps, one by one."""
    from alembic import command
    from alembic.script import ScriptDirectory

    refuse_newer(conn, ScriptDirectory.from_config(config(conn)))
    command.upgrade(config(conn), revision)


def differences(conn: Connection) -> list[object]:
    """What a migrated database lacks, or has too much, of the tables the code declares."""
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    context = MigrationContext.configure(conn, opts={"compare_type": True})
    return list(compare_metadata(context, every_table()))


def every_table() -> MetaData:
    """`metadata` after every noun's tables have been declared in it."""
    for module in pkgutil.iter_modules(windlass.server.__path__, "windlass.server."):
        if module.ispkg:
            for inner in pkgutil.iter_modules([str(_folder(module.name))]):
                if inner.name == "tables":
                    importlib.import_module(f"{module.name}.tables")
    importlib.import_module("windlass.server.leases")
    return metadata


def _folder(package: str) -> Path:
    return Path(windlass.server.__path__[0]) / package.rpartition(".")[2]


def config(conn: Connection) -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = conn
    config.attributes["metadata"] = metadata
    return config


def refuse_newer(conn: Connection, scripts: ScriptDirectory) -> None:
    from alembic.migration import MigrationContext

    known = {script.revision for script in scripts.walk_revisions()}
    with conn.begin():
        found = set(MigrationContext.configure(conn).get_current_heads())
    if found - known:
        raise Conflict(
            f"the database is at revision {', '.join(sorted(found - known))}, "
            f"which Windlass {__version__} does not know: a newer one has written it",
            hint="install that version, or restore the backup made before its upgrade",
        )


@contextmanager
def connected(url: str, *, claim: Claim | None = None) -> Iterator[Connection]:
    """A connection that alone may change the schema, as long as it lasts."""
    if is_sqlite(url):
        with _sqlite(sqlite_path(url), claim) as conn:
            yield conn
    else:
        with _postgres(url) as conn:
            yield conn


@contextmanager
def _sqlite(path: Path, claim: Claim | None) -> Iterator[Connection]:
    refuse_network_file_system(path.parent)
    mine = None if claim else Claim(path)
    engine = create_engine(
        "sqlite://", creator=lambda: sqlite.connect(path, "FULL"), poolclass=NullPool
    )
    # The driver would begin for itself, and not before DDL: say it.
    event.listen(engine, "begin", lambda conn: conn.exec_driver_sql("BEGIN IMMEDIATE") and None)
    try:
        with engine.connect() as conn:
            yield conn
    except DBAPIError as error:
        explained = sqlite.explain(error, path)
        if explained is error:
            raise
        raise explained from error
    finally:
        if mine:
            mine.release(clean=not mine.unclean)


@contextmanager
def _postgres(url: str) -> Iterator[Connection]:
    engine = postgres.engine_for(
        url, connections=2, connect_seconds=5, settings={"lock_timeout": "60s"}
    )
    try:
        with engine.connect() as guard, engine.connect() as conn:
            guard = guard.execution_options(isolation_level="AUTOCOMMIT")
            guard.exec_driver_sql(f"SELECT pg_advisory_lock({ADVISORY_LOCK})")
            yield conn
            # Released with the session, and before it by no crash of ours.
            guard.exec_driver_sql(f"SELECT pg_advisory_unlock({ADVISORY_LOCK})")
    except DBAPIError as error:
        explained = postgres.explain(error)
        if explained is None:
            raise
        raise explained from error
    finally:
        engine.dispose()
