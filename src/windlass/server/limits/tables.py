"""Rows of limits: a project's all together, so that one row is the lock and the revision."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, String, Table

from windlass.server.store.metadata import Json, Millis, metadata

limits = Table(
    "limits",
    metadata,
    Column("project", String(40), primary_key=True),  # `*`: each that has none of its own
    Column("limits", Json, nullable=False),  # [{user, kind, jobs}]
    Column("revision", BigInteger, nullable=False),
    Column("changed_ms", Millis, nullable=False),
)
