from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from sqlalchemy import inspect

from windlass.core.errors import Conflict
from windlass.server.store.claim import Claim
from windlass.server.store.migrate import FRESH, connected, differences, every_table, migrate
from windlass.server.store.migrations.__main__ import fresh
from windlass.testing.postgres import PostgresServer


def test_a_migrated_database_has_the_tables_the_code_declares(database_url: str) -> None:
    migrate(database_url)
    with connected(database_url) as conn:
        assert differences(conn) == []
        assert set(inspect(conn).get_table_names()) == {*every_table().tables, "alembic_version"}


def test_a_new_sqlite_file_is_what_the_migrations_would_have_made() -> None:
    assert FRESH.read_text() == fresh(), "run `python -m windlass.server.store.migrations`"


def test_a_missing_column_would_be_seen(database_url: str) -> None:
    migrate(database_url)
    with connected(database_url) as conn:
        with conn.begin():
            conn.exec_driver_sql("ALTER TABLE leases DROP COLUMN holder")
        found = differences(conn)
    assert "add_column" in str(found) and "holder" in str(found)


def test_migrating_again_changes_nothing(database_url: str) -> None:
    migrate(database_url)
    migrate(database_url)
    with connected(database_url) as conn:
        assert differences(conn) == []


def test_a_database_newer_than_the_code_is_refused(database_url: str) -> None:
    migrate(database_url)
    with connected(database_url) as conn, conn.begin():
        conn.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(Conflict, match="9999.*newer"):
        migrate(database_url)


def test_a_migration_killed_halfway_leaves_nothing_and_runs_again(database_url: str) -> None:
    code = f"""
import os, signal
from sqlalchemy import event
from sqlalchemy.engine import Engine
from windlass.server.store.migrate import migrate
count = 0
@event.listens_for(Engine, "before_cursor_execute")
def cut(conn, cursor, statement, parameters, context, executemany):
    global count
    count += "CREATE TABLE" in statement
    if count == 5:
        os.kill(os.getpid(), signal.SIGKILL)
migrate({database_url!r})
"""
    killed = subprocess.run([sys.executable, "-c", code], check=False)
    assert killed.returncode == -signal.SIGKILL
    with connected(database_url) as conn:
        assert set(inspect(conn).get_table_names()) <= {"alembic_version"}
    migrate(database_url)
    with connected(database_url) as conn:
        assert differences(conn) == []


def test_two_servers_may_migrate_one_postgresql_at_once(postgres: PostgresServer) -> None:
    url = postgres.fresh()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            migrate(url)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    postgres.drop(url)


def test_a_file_in_use_is_not_migrated(tmp_path: Path) -> None:
    claim = Claim(tmp_path / "windlass.db")
    with pytest.raises(Conflict, match=f"pid {os.getpid()}"):
        migrate(f"sqlite:///{tmp_path}/windlass.db")
    claim.release()
