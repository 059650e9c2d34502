"""One row for each view that a user keeps in a project."""

from __future__ import annotations

from sqlalchemy import Column, String, Table, Text

from windlass.server.store.metadata import Id, Millis, metadata

saved_views = Table(
    "saved_views",
    metadata,
    Column("project_id", Id, primary_key=True),
    Column("user_id", Id, primary_key=True),
    Column("page", String(40), primary_key=True),
    Column("name", String(80), primary_key=True),
    Column("search", Text, nullable=False),
    Column("changed_ms", Millis, nullable=False),
)
