"""What ranks report while they run. In SQLite these live in a second file (NORMAL sync):
a metric lost by a power cut is no lost job, and a metric must never delay a submit."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Float, Integer, MetaData, String, Table

from windlass.server.store.metadata import Id, Millis

tracking = MetaData()

points = Table(
    "points",
    tracking,
    Column("job_id", Id, primary_key=True),
    Column("key", String(255), primary_key=True),
    Column("rank", Integer, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("offset", BigInteger, primary_key=True),  # of the line in the rank's spool
    Column("step", BigInteger),
    Column("at_ms", Millis, nullable=False),
    Column("value", Float),
)

spools = Table(
    "spools",
    tracking,
    Column("job_id", Id, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("rank", Integer, primary_key=True),
    Column("offset", BigInteger, nullable=False),
)
