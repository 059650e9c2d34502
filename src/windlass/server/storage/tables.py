"""Which object of the storage holds which file. A file is there when its row is: the row comes
after the bytes were read back and found the same."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, String, Table

from windlass.server.store.metadata import Id, Millis, metadata

objects = Table(
    "objects",
    metadata,
    Column("key", String(255), primary_key=True),  # where it lies; never used twice
    Column("owner", String(200), nullable=False),  # blobs/PROJECT, checkpoints/JOB/…, logs/…
    Column("path", String(1024), nullable=False),  # the file among those of its owner
    Column("project_id", Id, nullable=False),
    Column("job_id", Id),  # with which it goes
    Column("digest", String(64), nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("used_ms", Millis, nullable=False),  # when somebody last named it
    Column("removing_ms", Millis),  # from here on it is not there; its bytes go next
    Index("ix_objects_owner", "owner", "path"),
    Index("ix_objects_job", "job_id"),
    Index("ix_objects_removing", "removing_ms"),
)
