"""Draft the next migration: `python -m windlass.server.store.migrations "Add queues"`.

Compares the tables that the code declares with a scratch database at the newest revision. Read
the draft: a rename looks like a drop and an add. Steps only go forward; what a release still
needs is dropped one release later (expand, then contract).

Without a message: write `fresh.sql` anew, from what the migrations make of an empty file.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from typing import Any

from alembic import command
from alembic.autogenerate.api import AutogenContext
from alembic.script import ScriptDirectory
from sqlalchemy import TextClause
from sqlalchemy.sql.elements import False_, True_

from windlass.server.store.metadata import Json
from windlass.server.store.migrate import (
    BETWEEN,
    FRESH,
    config,
    connected,
    every_table,
    upgrade,
)


def draft(message: str) -> None:
    every_table()
    with tempfile.TemporaryDirectory() as folder:
        with connected(f"sqlite:///{folder}/scratch.db") as conn:
            settings = config(conn)
            settings.attributes["render_item"] = _plain
            number = len(list(ScriptDirectory.from_config(settings).walk_revisions())) + 1
            settings.attributes["batch"] = number > 1  # new tables need no copying
            if number > 1:
                command.upgrade(settings, "head")
            settings.set_main_option("file_template", "%%(rev)s_%%(slug)s")
            command.revision(settings, message, autogenerate=True, rev_id=f"{number:04}")


def fresh() -> str:
    """The statements of `fresh.sql`, as the migrations would have it today."""
    with tempfile.TemporaryDirectory() as folder:
        with connected(f"sqlite:///{folder}/scratch.db") as conn:
            upgrade(conn, "head")
            driver = conn.connection.driver_connection
            assert isinstance(driver, sqlite3.Connection)
            lines = [line.rstrip(";") for line in driver.iterdump()]
    return BETWEEN.join(line for line in lines if line not in ("BEGIN TRANSACTION", "COMMIT"))


def _plain(kind: str, item: Any, context: AutogenContext) -> str | bool:
    """A migration names no type of ours: what it did then must not change with our code."""
    if kind == "type" and isinstance(item, Json):
        return "sa.Text()"
    if kind == "server_default":
        value = getattr(item, "arg", item)  # Alembic would render it in SQLite's spelling.
        if isinstance(value, False_ | True_):
            return f"sa.{value!s}()"
        if isinstance(value, TextClause):
            return f"sa.text({value.text!r})"
    return False


if __name__ == "__main__":
    if sys.argv[1:]:
        draft(sys.argv[1])
    else:
        FRESH.write_text(fresh())
