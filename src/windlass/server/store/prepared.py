"""A statement written with SQLAlchemy and run on the driver itself.

What is on the path of every submit runs so often that SQLAlchemy's part of it (finding the
compiled form, an execution context, a result) costs several times what SQLite takes. Here that
part is done once for each dialect: the text, the order of the values and how each is converted.

An INSERT has the columns that it is given values for; the table's own defaults are not filled in.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from sqlalchemy import Connection, Dialect, Executable
from sqlalchemy.sql import ClauseElement


class Ran(Protocol):
    """What both drivers tell of a statement that ran."""

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any:
        """The next row, its values as the driver gives them."""


Values = tuple[tuple[str, Callable[[Any], Any] | None], ...]


class Prepared:
    def __init__(self, statement: Executable) -> None:
        self._statement = statement
        self._made: dict[tuple[str, ...], tuple[str, Values]] = {}

    def run(self, conn: Connection, values: Mapping[str, Any]) -> Ran:
        """Raises what the store that gave `conn` knows to explain."""
        text, wanted = self._of(conn, values)
        given = [
            values[name] if convert is None else convert(values[name]) for name, convert in wanted
        ]
        raw = conn.info.get("raw")
        if raw is not None:
            ran: sqlite3.Cursor = raw.execute(text, given)
            return ran
        # PostgreSQL: SQLAlchemy must know that a transaction has begun.
        return conn.exec_driver_sql(text, dict(zip((n for n, _ in wanted), given, strict=True)))

    def run_many(self, conn: Connection, rows: Sequence[Mapping[str, Any]]) -> int:
        """The statement for each of the rows, all with the same columns; how many rows of the
        table that made or changed."""
        if not rows:
            return 0
        text, wanted = self._of(conn, rows[0])
        raw = conn.info.get("raw")
        if raw is not None:
            given = [
                [row[name] if convert is None else convert(row[name]) for name, convert in wanted]
                for row in rows
            ]
            return int(raw.executemany(text, given).rowcount)
        named = [
            {
                name: row[name] if convert is None else convert(row[name])
                for name, convert in wanted
            }
            for row in rows
        ]
        return conn.exec_driver_sql(text, named).rowcount

    def _of(self, conn: Connection, values: Mapping[str, Any]) -> tuple[str, Values]:
        key = (conn.dialect.name, *values)
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = self._compile(conn.dialect, list(values))
        return made

    def _compile(self, dialect: Dialect, names: list[str]) -> tuple[str, Values]:
        assert isinstance(self._statement, ClauseElement)
        compiled: Any = self._statement.compile(dialect=dialect, column_keys=names)
        order = compiled.positiontup if compiled.positional else list(compiled.binds)
        return str(compiled), tuple(
            (name, compiled.binds[name].type.dialect_impl(dialect).bind_processor(dialect))
            for name in order
        )
