"""Code of jobs: a manifest per bundle; its blobs are files named by their digest."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Integer, String, Table

from windlass.server.store.metadata import Id, Json, Millis, metadata

bundles = Table(
    "bundles",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("project_id", Id, primary_key=True),
    Column("files", Json, nullable=False),
    Column("count", Integer, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("complete", Integer, nullable=False),
    Column("created_ms", Millis, nullable=False),
    Column("used_ms", Millis, nullable=False),
)
