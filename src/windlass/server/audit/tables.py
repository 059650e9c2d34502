"""Who did what: rows that are written once and never changed.

Triggers (in the first migration) refuse every DELETE, and every UPDATE but one: a row gets its
place in its project's chain (`number`, `hash`) once. On SQLite, which has one writer, that is at
the insert.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Integer, String, Table, text
from sqlalchemy.schema import Index

from windlass.server.store.metadata import AutoNumber, Json, Millis, metadata

audit = Table(
    "audit",
    metadata,
    Column("id", AutoNumber, primary_key=True, autoincrement=True),
    # "": the chain of the whole server. No foreign key: the log outlives what it tells of.
    Column("project_id", String(32), nullable=False),
    Column("number", BigInteger, nullable=True),
    Column("at_ms", Millis, nullable=False),
    Column("project_name", String(40), nullable=False),
    Column("user_id", String(32), nullable=False),
    Column("user_name", String(255), nullable=False),
    Column("credential", String(64), nullable=False),
    Column("source", String(64), nullable=False),
    Column("request_id", String(32), nullable=False),
    Column("action", String(80), nullable=False),
    Column("object", String(255), nullable=False),
    Column("outcome", String(40), nullable=False),
    Column("times", Integer, nullable=False),
    Column("details", Json, nullable=False),
    Column("hash", String(64), nullable=True),
    Index("ix_audit_project_number", "project_id", "number", unique=True),
    Index(
        "ix_audit_unlinked",
        "id",
        postgresql_where=text("number IS NULL"),
        sqlite_where=text("number IS NULL"),
    ),
    sqlite_autoincrement=True,
)
