"""Rows of studies and their trials.

A trial is written with its job in one transaction, under the next number of its study. Its job may
be removed later; what came of it stays here: parameters, values, reports.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from windlass.server.store.metadata import AutoNumber, Id, Json, Millis, metadata

_LIVE = text("state IN ('running', 'stopping')")

studies = Table(
    "studies",
    metadata,
    Column("number", AutoNumber, primary_key=True),
    Column("id", Id, nullable=False, unique=True),
    Column("project_id", Id, ForeignKey("projects.id"), nullable=False),
    Column("user_id", Id, ForeignKey("users.id"), nullable=False),
    Column("name", String(40), nullable=False),
    Column("state", String(20), nullable=False),
    Column("reason", Text, nullable=False),
    Column("wish", String(20)),  # stop | delete | go-on
    Column("wish_reason", Text),
    Column("ending", String(20)),  # of a stopping one: what it will then be
    Column("spec", Json, nullable=False),
    Column("framework", String(40), nullable=False),
    Column("bundle", String(64)),
    Column("target", Integer, nullable=False),  # how many trials there are to be
    Column("made", Integer, nullable=False),
    Column("warm", Json, nullable=False),  # results of earlier studies, as they were
    Column("revision", BigInteger, nullable=False),
    Column("key", String(255)),  # the idempotency key of the call that made it
    Column("digest", String(64), nullable=False),
    Column("created_ms", Millis, nullable=False),
    Column("deadline_ms", Millis),
    Column("ended_ms", Millis),
    UniqueConstraint("project_id", "name"),
    UniqueConstraint("project_id", "user_id", "key"),
    Index("ix_studies_live", "state", sqlite_where=_LIVE, postgresql_where=_LIVE),
    sqlite_autoincrement=True,  # a number is a cursor: never used twice
)

trials = Table(
    "trials",
    metadata,
    Column("study_id", Id, ForeignKey("studies.id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("project_id", Id, nullable=False),
    Column("job_id", Id, nullable=False, unique=True),
    Column("state", String(20), nullable=False),
    Column("reason", Text, nullable=False),
    Column("params", Json, nullable=False),
    Column("attrs", Json, nullable=False),  # what its sampler wants to find again
    Column("rung", Integer, nullable=False),
    Column("parent", Integer),  # the trial from whose checkpoint it started
    Column("values", Json, nullable=False),  # for each objective; null: none
    Column("excess", Json, nullable=False),  # for each constraint; null: infinite
    Column("reports", Json, nullable=False),  # [[step, value]] of the first objective
    Column("created_ms", Millis, nullable=False),
    Column("ended_ms", Millis),
)
