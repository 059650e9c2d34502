"""What each engine offers, and what is wrong with it."""

from __future__ import annotations

from sqlalchemy import Column, Integer, String, Table, Text

from windlass.server.store.metadata import Json, Millis, metadata

nodes = Table(
    "nodes",
    metadata,
    Column("engine", String(40), primary_key=True),
    Column("name", String(63), primary_key=True),
    Column("state", String(20), nullable=False),  # ready | paused | gone | unhealthy
    Column("reason", Text, nullable=False, default=""),
    Column("offer", Json, nullable=False),  # core.resources.Node
    Column("seen_ms", Millis, nullable=False),
    Column("revision", Integer, nullable=False, default=0),
)
