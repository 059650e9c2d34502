"""Files of runs and of logged models, by path; their bytes are blobs of the project."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, String, Table

from windlass.server.store.metadata import Id, Millis, metadata

artifacts = Table(
    "artifacts",
    metadata,
    Column("owner_id", String(64), primary_key=True),  # a run's id, or a logged model's (m-…)
    Column("path", String(1024), primary_key=True),
    Column("project_id", Id, nullable=False),
    Column("job_id", Id),  # the job inside which it was made, with which it goes
    Column("digest", String(64), nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("changed_ms", Millis, nullable=False),
    Index("ix_artifacts_job", "job_id"),
)
