"""Rows of projects, users, their keys, and the signatures that were used up."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, ForeignKey, Integer, LargeBinary, String, Table, false

from windlass.server.store.metadata import Id, Millis, metadata

projects = Table(
    "projects",
    metadata,
    Column("id", Id, primary_key=True),
    Column("name", String(40), nullable=False, unique=True),
    Column("created_ms", Millis, nullable=False),
)

users = Table(
    "users",
    metadata,
    Column("id", Id, primary_key=True),
    Column("name", String(40), nullable=False, unique=True),
    Column("created_ms", Millis, nullable=False),
    Column("disabled", Boolean, nullable=False, server_default=false()),
)

keys = Table(
    "keys",
    metadata,
    Column("access_key", String(64), primary_key=True),
    Column("user_id", Id, ForeignKey("users.id"), nullable=False, index=True),
    Column("project_id", Id, ForeignKey("projects.id"), nullable=False, index=True),
    # AES-256-GCM, opened only with the key-encryption key `kek`, which is never in the database.
    Column("secret", LargeBinary, nullable=False),
    Column("kek", String(32), nullable=False),
    Column("version", Integer, nullable=False),
    Column("created_ms", Millis, nullable=False),
    Column("last_used_ms", Millis),
    Column("disabled", Boolean, nullable=False, server_default=false()),
)

signatures = Table(
    "signatures",
    metadata,
    # A signature that changed something is accepted once and forgotten after its window. The key
    # begins with the time when it may be forgotten (12 hex digits of `expires_ms`), then 52 of
    # its SHA-256: so new rows all go to one page, old ones are one range, and no index is needed.
    Column("hash", String(64), primary_key=True),
    Column("expires_ms", Millis, nullable=False),
    sqlite_with_rowid=False,
)
