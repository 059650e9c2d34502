"""Rows of quotas: projects by name, and the cohorts they belong to.

`quota_changes` has one row, whose revision rises with every change of any quota. Who changes one
locks it first: a parent that goes while a child comes would leave a tree with a hole.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Integer, String, Table, Text

from windlass.server.store.metadata import Json, Millis, metadata

quotas = Table(
    "quotas",
    metadata,
    Column("name", String(40), primary_key=True),
    Column("cohort", Boolean, nullable=False),
    Column("parent", String(40)),
    Column("nominal", Json, nullable=False),  # resource → milli, or bytes
    Column("borrow", Json, nullable=False),
    Column("lend", Json, nullable=False),
    Column("weight_milli", BigInteger, nullable=False),
    Column("reclaim_any", Boolean, nullable=False),
    Column("caps", Json, nullable=False),  # [{kind, user, limits}]
    Column("revision", BigInteger, nullable=False),
    Column("changed_ms", Millis, nullable=False),
)

changes = Table(
    "quota_changes",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # one row: 1
    Column("revision", BigInteger, nullable=False),
)

recent_use = Table(
    "recent_use",  # what decides between tenants whose shares are equal: see `jobs/lately`
    metadata,
    Column("tenant", String(255), primary_key=True),
    Column("amount", Text, nullable=False),  # an integer of any length
    Column("half_lives", BigInteger, nullable=False),
)
