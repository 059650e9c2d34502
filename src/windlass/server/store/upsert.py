"""INSERT that knows `on_conflict_do_…`: both databases have it, SQLAlchemy by dialect alone."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection
from sqlalchemy.dialects import postgresql, sqlite


def insert_of(conn: Connection) -> Any:
    """`insert_of(conn)(table)`; untyped, for the two dialects' statements share no class."""
    return insert_for(conn.dialect.name)


def insert_for(dialect: str) -> Any:
    return sqlite.insert if dialect == "sqlite" else postgresql.insert
