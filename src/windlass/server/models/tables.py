"""Models, their versions and aliases, and who moved which alias when.

A version is written once: its files and their digest never change, and its number is never given
again. Its description, tags and stage may.
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
)

from windlass.server.store.metadata import AutoNumber, Id, Json, Millis, metadata

models = Table(
    "models",
    metadata,
    Column("id", Id, primary_key=True),
    Column("project_id", Id, nullable=False),
    Column("name", String(256), nullable=False),
    Column("description", Text, nullable=False, default=""),
    Column("tags", Json, nullable=False, default=dict),
    Column("user_id", Id, nullable=False),
    Column("user_name", String(255), nullable=False),
    Column("last", Integer, nullable=False, default=0),  # the newest number ever given
    Column("created_ms", Millis, nullable=False),
    Column("changed_ms", Millis, nullable=False),
    UniqueConstraint("project_id", "name"),
)

model_versions = Table(
    "model_versions",
    metadata,
    Column("model_id", Id, ForeignKey("models.id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("project_id", Id, nullable=False),
    Column("digest", String(64), nullable=False),  # of the list of files
    Column("files", Json, nullable=False),  # [{path, digest, size}]
    Column("bytes", BigInteger, nullable=False),
    Column("format", String(40), nullable=False),
    Column("unsafe", Json, nullable=False, default=list),  # files that run code when opened
    Column("stage", String(20), nullable=False, default="None"),
    Column("staged_ms", Millis, nullable=False, default=0),
    Column("description", Text, nullable=False, default=""),
    Column("tags", Json, nullable=False, default=dict),
    Column("run_id", String(64)),
    Column("job_id", Id),
    Column("logged_id", String(64)),  # the logged model (m-…) it was made from
    Column("source", Text, nullable=False, default=""),  # as who registered it named it
    Column("run_link", Text, nullable=False, default=""),
    Column("lineage", Json, nullable=False, default=dict),  # as it was when it was registered
    Column("user_id", Id, nullable=False),
    Column("user_name", String(255), nullable=False),
    Column("created_ms", Millis, nullable=False),
    Column("changed_ms", Millis, nullable=False),
    Index("ix_model_versions_project_run", "project_id", "run_id"),
)

model_aliases = Table(
    "model_aliases",
    metadata,
    Column("model_id", Id, ForeignKey("models.id"), primary_key=True),
    Column("alias", String(256), primary_key=True),
    Column("project_id", Id, nullable=False),
    Column("number", Integer, nullable=False),
    Column("moved_ms", Millis, nullable=False),
    Column("user_name", String(255), nullable=False),
)

model_moves = Table(
    "model_moves",
    metadata,
    Column("id", AutoNumber, primary_key=True),
    Column("project_id", Id, nullable=False),
    Column("model_id", Id, nullable=False),
    Column("alias", String(256), nullable=False),
    Column("before", Integer),  # None: it was nowhere
    Column("after", Integer),  # None: it was taken away
    Column("user_id", Id, nullable=False),
    Column("user_name", String(255), nullable=False),
    Column("at_ms", Millis, nullable=False),
    Index("ix_model_moves_model", "model_id", "id"),
    sqlite_autoincrement=True,
)
