"""Secrets that jobs name: sealed, of a project or of one user in it."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, LargeBinary, String, Table

from windlass.server.store.metadata import Millis, metadata

secrets = Table(
    "secrets",
    metadata,
    Column("project_id", String(32), primary_key=True),
    # "": the project's own, for the jobs of all its members.
    Column("owner_id", String(32), primary_key=True),
    Column("name", String(256), primary_key=True),
    Column("version", BigInteger, nullable=False),
    # AES-256-GCM, opened only with the key-encryption key `kek`, which is never in the database.
    Column("sealed", LargeBinary, nullable=False),
    Column("kek", String(32), nullable=False),
    Column("changed_ms", Millis, nullable=False),
    Column("changed_by", String(255), nullable=False),
)
