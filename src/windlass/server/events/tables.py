"""What happened, in order: the rows that every feed is made of.

`id` is the order of insertion, `seq` the order within one job. `position` is the order in which
readers may follow: null until the sequencer has seen the row committed (see `server/feed.py`).
`event_positions` holds the last position given out (PostgreSQL only; SQLite counts by itself).
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Integer, String, Table, Text, UniqueConstraint, text
from sqlalchemy.schema import Index

from windlass.server.store.metadata import AutoNumber, Id, Json, Millis, metadata

events = Table(
    "events",
    metadata,
    Column("id", AutoNumber, primary_key=True, autoincrement=True),
    Column("position", BigInteger, nullable=True),
    Column("job_id", Id, nullable=True),
    Column("project_id", Id, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("attempt", Integer, nullable=True),
    Column("kind", String(40), nullable=False),
    Column("at_ms", Millis, nullable=False),
    Column("state", String(20), nullable=True),
    Column("reason", Text, nullable=False, server_default=text("''")),
    Column("data", Json, nullable=False, server_default=text("'{}'")),
    UniqueConstraint("job_id", "seq"),
    Index("ix_events_position", "position", unique=True),
    Index("ix_events_project_id_position", "project_id", "position"),
    Index(
        "ix_events_unsequenced",
        "id",
        postgresql_where=text("position IS NULL"),
        sqlite_where=text("position IS NULL"),
    ),
    # A deleted event's id is never given out again: a cursor at it would miss the new one.
    sqlite_autoincrement=True,
)

positions = Table(
    "event_positions",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # one row: 1
    Column("last", BigInteger, nullable=False),
)
