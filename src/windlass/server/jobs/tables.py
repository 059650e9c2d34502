"""Rows of jobs and of everything that belongs to one.

`jobs.revision` rises with each event of a job and is that event's `seq`; `jobs.fence` is the
number of its newest attempt. The API writes `wish*`; only `moves.py` writes `state`.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from windlass.server.store.metadata import AutoNumber, Id, Json, Millis, metadata

UNFINISHED = text("state NOT IN ('succeeded', 'failed', 'cancelled')")

jobs = Table(
    "jobs",
    metadata,
    Column("number", AutoNumber, primary_key=True),
    Column("id", Id, nullable=False, unique=True),
    Column("project_id", Id, ForeignKey("projects.id"), nullable=False),
    Column("user_id", Id, ForeignKey("users.id"), nullable=False),
    Column("name", String(40), nullable=False),
    Column("state", String(20), nullable=False),
    Column("reason", Text, nullable=False, default=""),
    Column("wish", String(20)),  # cancel | restart | preempt | resize | hold | release | delete
    Column("wish_for", Id),  # the job for whose sake it is preempted
    Column("wish_reason", Text),
    Column("wish_now", Integer, nullable=False, default=0),
    Column("revision", BigInteger, nullable=False),
    Column("fence", Integer, nullable=False, default=0),
    Column("framework", String(40), nullable=False),
    Column("spec", Json, nullable=False),
    # What the scheduler orders by: of the spec at first, then as `queue move | priority` say.
    Column("queue", String(40), nullable=False),
    Column("priority", Integer, nullable=False),
    Column("order_ms", Millis, nullable=False),
    Column("kind", String(20), nullable=False),  # train | notebook | serve
    Column("preemptions", Integer, nullable=False, default=0),
    Column("promised", Json),  # {start_ms, nodes, made_ms}: what was last said of its start
    Column("resized_ms", Millis),  # when it was last told to take other seats
    Column("members", Integer, nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("bundle", String(64)),
    Column("engine", String(40)),
    Column("submitted_ms", Millis, nullable=False),
    Column("queued_ms", Millis),
    Column("started_ms", Millis),
    Column("ended_ms", Millis),
    Column("not_before_ms", Millis, nullable=False, default=0),  # backoff
    Column("expires_ms", Millis),  # when TTL removes it
    Column("exit_code", Integer),
    Column("outcome", String(20)),
    Column("failures", Integer, nullable=False, default=0),  # spent of retry.times
    Column("stale_restarts", Integer, nullable=False, default=0),  # in a row, no further step
    Column("lost_nodes", Json, nullable=False, default=list),  # nodes lost in a row
    Column("step", BigInteger),  # newest step any attempt reported
    Column("done", BigInteger),
    Column("total", BigInteger),
    Column("rerun_of", Id),
    Index("ix_jobs_project_number", "project_id", "number"),
    Index("ix_jobs_project_name_number", "project_id", "name", "number"),
    Index("ix_jobs_project_state_number", "project_id", "state", "number"),
    Index(
        "ix_jobs_unfinished",
        "state",
        "number",
        sqlite_where=UNFINISHED,
        postgresql_where=UNFINISHED,
    ),
    Index(
        "ix_jobs_queue",
        "queue",
        "state",
        "priority",
        "order_ms",
        sqlite_where=UNFINISHED,
        postgresql_where=UNFINISHED,
    ),
    Index(
        "ix_jobs_live_of",  # what limits count
        "project_id",
        "user_id",
        "kind",
        sqlite_where=UNFINISHED,
        postgresql_where=UNFINISHED,
    ),
    Index("ix_jobs_expires", "expires_ms"),
    Index("ix_jobs_bundle", "bundle"),
    sqlite_autoincrement=True,  # a number is a cursor: never used twice
)

attempts = Table(
    "attempts",
    metadata,
    Column("id", Id, primary_key=True),
    Column("job_id", Id, ForeignKey("jobs.id"), nullable=False),
    Column("number", Integer, nullable=False),  # the fence
    Column("state", String(20), nullable=False),
    Column("outcome", String(20)),
    Column("reason", Text, nullable=False, default=""),
    Column("engine", String(40), nullable=False),
    Column("placement", Json, nullable=False),  # [Placed]
    Column("worker_hash", String(64), nullable=False, unique=True),
    Column("run_hash", String(64), nullable=False, unique=True),
    Column("tokens", LargeBinary, nullable=False),  # both, sealed: a launch may be repeated
    Column("kek", String(32), nullable=False),
    Column("created_ms", Millis, nullable=False),
    Column("launched_ms", Millis),
    Column("alive_ms", Millis),
    Column("started_ms", Millis),
    Column("ending_ms", Millis),
    Column("grace_ms", Millis),
    Column("ending_outcome", String(20)),
    Column("ending_wish", String(20)),  # the wish for whose sake it ends: who pays for its grace
    Column("deadline_ms", Millis),
    Column("over_ms", Millis),
    Column("exit_code", Integer),
    Column("step", BigInteger),
    Column("failure", Json),  # first failing rank, its traceback
    Column("orders", Integer, nullable=False, default=0),  # ids given out
    UniqueConstraint("job_id", "number"),
    Index(
        "ix_attempts_live",
        "state",
        sqlite_where=text("state <> 'over'"),
        postgresql_where=text("state <> 'over'"),
    ),
)

workers = Table(
    "workers",
    metadata,
    Column("attempt_id", Id, ForeignKey("attempts.id"), primary_key=True),
    Column("node", String(63), primary_key=True),
    Column("seq", BigInteger, nullable=False, default=0),
    Column("host", String(255)),
    Column("pid", BigInteger),
    Column("boot_id", String(64)),
    Column("members", Json),  # [{role, index, ports}]
    Column("isolation", Json),
    Column("registered_ms", Millis),
    Column("started_ms", Millis),
    Column("beat_ms", Millis),
    Column("ranks", Json),  # of the newest beat
    Column("ended_ranks", Json),  # ranks that ended while others of this worker go on
    Column("hung_ms", Millis),  # when it last said that no rank of its node moves
    Column("record", Json),  # the exit record
    # What its ranks have used so far, by its beats and its record (see server/usage).
    Column("used_cpu", BigInteger, nullable=False, default=0),  # ms
    Column("used_memory", BigInteger, nullable=False, default=0),  # MiB x ms
    Column("peak_bytes", BigInteger, nullable=False, default=0),
)

orders = Table(
    "orders",
    metadata,
    Column("attempt_id", Id, ForeignKey("attempts.id"), primary_key=True),
    Column("id", Integer, primary_key=True),
    Column("node", String(63), primary_key=True),
    Column("kind", String(20), nullable=False),
    Column("body", Json, nullable=False),
    Column("asked_ms", Millis, nullable=False),
    Column("done_ms", Millis),
    Column("ok", Integer),
    Column("result", Json),
)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("job_id", Id, ForeignKey("jobs.id"), primary_key=True),
    Column("path", String(1024), primary_key=True),
    Column("attempt", Integer, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("registered_ms", Millis, nullable=False),
    Column("bad", Text),  # why it is not used any more
    Column("source", String(20), nullable=False, server_default="windlass"),  # | files
    Column("ranks", Integer, nullable=False, server_default="0"),  # parts, one for each rank
    Column("verified_ms", Millis),  # when all its digests last held
    Column("removing_ms", Millis),  # from here on it is not there; its files go next
    Column("removing_why", Text),
    Index(
        "ix_checkpoints_removing",
        "removing_ms",
        sqlite_where=text("removing_ms IS NOT NULL"),
        postgresql_where=text("removing_ms IS NOT NULL"),
    ),
)

starts = Table(
    "starts",
    metadata,
    Column("job_id", Id, ForeignKey("jobs.id"), primary_key=True),
    Column("kind", String(10), nullable=False),  # job | model
    Column("resume", Integer, nullable=False),
    Column("source_id", Id),  # the job; of a model's version, the job that made it
    Column("source_name", String(300), nullable=False),  # as it was called then
    Column("step", BigInteger),
    Column("version", Integer),
    Column("digest", String(64), nullable=False),
    Column("path", String(1024)),  # of the job's checkpoint; NULL: none that could go
    Column("root", Text),  # the folder its files lie in; NULL: they are the project's blobs
    Column("name", String(300), nullable=False),  # what the worker lays it out as
    Column("files", Json, nullable=False),  # [{path, bytes, digest}]
    Column("lineage", Json, nullable=False),  # what that started from itself, [Origin]
    Index("ix_starts_source", "source_id"),
)
"""What a job starts from. It does not go while the job that needs it is unfinished."""

dependencies = Table(
    "dependencies",
    metadata,
    Column("job_id", Id, ForeignKey("jobs.id"), primary_key=True),
    Column("after_id", Id, primary_key=True),
    Column("name", String(40), nullable=False),
    Column("met", Integer, nullable=False, default=0),  # it has succeeded
    Index("ix_dependencies_after", "after_id"),
)

idempotency = Table(
    "idempotency",
    metadata,
    Column("project_id", Id, primary_key=True),
    Column("user_id", Id, primary_key=True),
    Column("key", String(255), primary_key=True),
    Column("digest", String(64), nullable=False),
    Column("status", Integer, nullable=False),
    Column("answer", Json, nullable=False),
    Column("job_id", Id, nullable=False),
    Index("ix_idempotency_job", "job_id"),
)
