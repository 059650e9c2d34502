"""Rows of engines that were added beside the local one."""

from __future__ import annotations

from sqlalchemy import Column, String, Table

from windlass.server.store.metadata import Json, Millis, metadata

engines = Table(
    "engines",
    metadata,
    Column("name", String(40), primary_key=True),
    Column("kind", String(40), nullable=False),
    Column("options", Json, nullable=False),
    Column("created_ms", Millis, nullable=False),
)
