"""Rows of projects, users, what they are in each other, their keys and tokens, and the signatures
that were used up."""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    false,
    text,
)

from windlass.server.store.metadata import Id, Json, Millis, metadata

_THERE = text("removed_ms IS NULL")

projects = Table(
    "projects",
    metadata,
    Column("id", Id, primary_key=True),
    Column("name", String(40), nullable=False),
    Column("created_ms", Millis, nullable=False),
    # Set: it is seen no more, its jobs are being stopped, and its rows stay for the books.
    Column("removed_ms", Millis),
    Index("uq_projects_name", "name", unique=True, sqlite_where=_THERE, postgresql_where=_THERE),
)

users = Table(
    "users",
    metadata,
    Column("id", Id, primary_key=True),
    Column("name", String(40), nullable=False),
    Column("created_ms", Millis, nullable=False),
    Column("kind", String(20), nullable=False, server_default="person"),  # person | service
    Column("role", String(20)),  # in the organisation: owner | admin | auditor
    Column("project_id", Id, ForeignKey("projects.id")),  # the one that a service account is of
    Column("password", Text),  # argon2id; None: it cannot log in with one
    Column("disabled", Boolean, nullable=False, server_default=false()),
    # Rises when tokens and sessions made before must die: a new password, a disabled user.
    Column("epoch", Integer, nullable=False, server_default="0"),
    # Set: it is disabled for good and seen no more; its row stays for its jobs and the books.
    Column("removed_ms", Millis),
    Index("uq_users_name", "name", unique=True, sqlite_where=_THERE, postgresql_where=_THERE),
)

memberships = Table(
    "memberships",
    metadata,
    Column("project_id", Id, ForeignKey("projects.id"), primary_key=True),
    Column("user_id", Id, ForeignKey("users.id"), primary_key=True, index=True),
    Column("role", String(20), nullable=False),  # viewer | member | maintainer
    Column("added_ms", Millis, nullable=False),
)

keys = Table(
    "keys",
    metadata,
    Column("access_key", String(64), primary_key=True),
    Column("name", String(40), nullable=False, server_default=""),
    Column("user_id", Id, ForeignKey("users.id"), nullable=False, index=True),
    Column("project_id", Id, ForeignKey("projects.id"), nullable=False, index=True),
    # AES-256-GCM, opened only with the key-encryption key `kek`, which is never in the database.
    Column("secret", LargeBinary, nullable=False),
    Column("kek", String(32), nullable=False),
    Column("version", Integer, nullable=False),
    Column("created_ms", Millis, nullable=False),
    Column("last_used_ms", Millis),
    Column("expires_ms", Millis),  # it was replaced by another, and dies then
    Column("disabled", Boolean, nullable=False, server_default=false()),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", Id, primary_key=True),
    Column("hash", String(64), nullable=False, unique=True),  # SHA-256; the token is shown once
    Column("name", String(40), nullable=False),
    Column("user_id", Id, ForeignKey("users.id"), nullable=False, index=True),
    Column("project_id", Id, ForeignKey("projects.id"), nullable=False, index=True),
    Column("scopes", Json, nullable=False),
    Column("epoch", Integer, nullable=False),  # the user's when it was made
    Column("created_ms", Millis, nullable=False),
    Column("expires_ms", Millis, nullable=False),
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
