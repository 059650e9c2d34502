"""Rows of queues. `default` is there from the first migration on."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, String, Table, Text
from sqlalchemy.types import BigInteger

from windlass.server.store.metadata import Millis, metadata

queues = Table(
    "queues",
    metadata,
    Column("name", String(40), primary_key=True),
    Column("policy", String(20), nullable=False),  # strict | backfill | best-effort
    Column("paused", Boolean, nullable=False),
    Column("description", Text, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("changed_ms", Millis, nullable=False),
)
