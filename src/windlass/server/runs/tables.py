"""What runs tell: their parameters, tags, metrics, and what they belong to. In SQLite these live
in a second file (NORMAL sync): a metric lost by a power cut is no lost job, and a metric must
never delay a submit.

A job's run has the job's own id, over all its attempts; a run that an MLflow client made has one
of its own. NaN is stored as NULL (SQLite has no other way), infinities as they are.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)

from windlass.server.store.metadata import Id, Millis

tracking = MetaData()

experiments = Table(
    "experiments",
    tracking,
    Column("project_id", Id, primary_key=True),
    Column("id", String(32), primary_key=True),  # digits; "0" is each project's own Default
    Column("name", String(500), nullable=False),
    Column("state", String(8), nullable=False),  # active, deleted
    Column("artifact_location", Text, nullable=False),
    Column("created_ms", Millis, nullable=False),
    Column("updated_ms", Millis, nullable=False),
    Index("uq_experiments_name", "project_id", "name", unique=True),
)

experiment_tags = Table(
    "experiment_tags",
    tracking,
    Column("project_id", Id, primary_key=True),
    Column("experiment_id", String(32), primary_key=True),
    Column("key", String(250), primary_key=True),
    Column("value", Text, nullable=False),
)

runs = Table(
    "runs",
    tracking,
    Column("id", Id, primary_key=True),
    Column("project_id", Id, nullable=False),
    Column("experiment_id", String(32), nullable=False),
    Column("name", String(250), nullable=False),
    Column("user", String(256), nullable=False),
    Column("status", String(10), nullable=False),  # MLflow's word: RUNNING, FINISHED …
    Column("state", String(8), nullable=False),  # active, deleted
    Column("started_ms", Millis),
    Column("ended_ms", Millis),
    Column("source", String(10), nullable=False),  # job, mlflow, offline
    Column("job_id", Id),  # the job inside which it was made; a job's own run names that job
    Column(
        "begun", Integer, nullable=False, server_default="0"
    ),  # attempt that MLflow began it in
    Index("ix_runs_experiment", "project_id", "experiment_id", "started_ms"),
    Index("ix_runs_job", "job_id"),
    Index("ix_runs_open", "status", "id"),
)

params = Table(
    "params",
    tracking,
    Column("run_id", Id, primary_key=True),
    Column("key", String(250), primary_key=True),
    Column("value", Text, nullable=False),
    Column("source", String(120), nullable=False, server_default=""),
    sqlite_with_rowid=False,
)

tags = Table(
    "tags",
    tracking,
    Column("run_id", Id, primary_key=True),
    Column("key", String(250), primary_key=True),
    Column("value", Text, nullable=False),
    sqlite_with_rowid=False,
)

points = Table(
    "points",
    tracking,
    Column("run_id", Id, primary_key=True),
    Column("key", String(255), primary_key=True),
    Column("rank", Integer, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    # Of the line in the rank's spool; of a point that came by MLflow's wire, a number made of what
    # it says (2**62 and more, rising with its time): one that a client sends twice is there once.
    Column("offset", BigInteger, primary_key=True),
    Column("step", BigInteger),
    Column("at_ms", Millis, nullable=False),
    Column("value", Float),
    sqlite_with_rowid=False,
)

latest = Table(
    "latest",
    tracking,
    Column("run_id", Id, primary_key=True),
    Column("key", String(255), primary_key=True),
    Column("rank", Integer, nullable=False),  # the lowest that logged the key: it alone counts
    Column("attempt", Integer, nullable=False),
    Column("step", BigInteger),
    Column("at_ms", Millis, nullable=False),
    Column("value", Float),
    Column("min", Float),  # of the values that are numbers; NULL: none was
    Column("max", Float),
    Column("min_step", BigInteger),
    Column("max_step", BigInteger),
    Column("count", BigInteger, nullable=False),
    Column("source", String(120), nullable=False, server_default=""),
    sqlite_with_rowid=False,
)
"""One row for each key, kept with each batch: a table of many runs never reads points."""

blocks = Table(
    "blocks",
    tracking,
    Column("run_id", Id, primary_key=True),
    Column("key", String(255), primary_key=True),
    Column("rank", Integer, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("first_offset", BigInteger, primary_key=True),
    Column("last_offset", BigInteger, nullable=False),
    Column("step_low", BigInteger),  # NULL: some of its points have no step
    Column("step_high", BigInteger),
    Column("at_low", Millis, nullable=False),
    Column("at_high", Millis, nullable=False),
    Column("coarse", LargeBinary, nullable=False),
    Column("middle", LargeBinary, nullable=False),
    Column("fine", LargeBinary, nullable=False),
)
"""What 4096 consecutive points of a spool come to (`thinning.summarise`), made when a long series
is first read; the points stay."""

spools = Table(
    "spools",
    tracking,
    Column("job_id", Id, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("rank", Integer, primary_key=True),
    Column("offset", BigInteger, nullable=False),
)

datasets = Table(
    "datasets",
    tracking,
    Column("run_id", Id, primary_key=True),
    Column("name", String(500), primary_key=True),
    Column("digest", String(36), primary_key=True),
    Column("source_type", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("schema", Text),
    Column("profile", Text),
    Column("tags", Text, nullable=False),  # JSON: the tags of the input, such as its context
    Column("place", Integer, nullable=False),
)
"""The data that a run read, as MLflow's `log_input` tells it."""

logged_models = Table(
    "logged_models",
    tracking,
    Column("id", String(40), primary_key=True),  # m-<32 hex>
    Column("project_id", Id, nullable=False),
    Column("experiment_id", String(32), nullable=False),
    Column("name", String(500), nullable=False),
    Column("run_id", Id),
    Column("status", String(40), nullable=False),
    Column("message", Text),
    Column("model_type", String(500)),
    Column("created_ms", Millis, nullable=False),
    Column("updated_ms", Millis, nullable=False),
    Column("state", String(8), nullable=False),
    Index("ix_logged_models_experiment", "project_id", "experiment_id", "created_ms"),
    Index("ix_logged_models_run", "run_id"),
)

logged_model_notes = Table(
    "logged_model_notes",
    tracking,
    Column("model_id", String(40), primary_key=True),
    Column("kind", String(5), primary_key=True),  # tag, param
    Column("key", String(250), primary_key=True),
    Column("value", Text, nullable=False),
)

logged_model_metrics = Table(
    "logged_model_metrics",
    tracking,
    Column("model_id", String(40), primary_key=True),
    Column("key", String(255), primary_key=True),
    Column("run_id", Id, primary_key=True),
    Column("step", BigInteger, primary_key=True),
    Column("at_ms", Millis, primary_key=True),
    Column("value", Float),
    Column("dataset_name", String(500)),
    Column("dataset_digest", String(36)),
)

run_models = Table(
    "run_models",
    tracking,
    Column("run_id", Id, primary_key=True),
    Column("direction", String(3), primary_key=True),  # in, out
    Column("model_id", String(40), primary_key=True),
    Column("step", BigInteger, nullable=False),
)
"""Which logged models a run read or made."""

run_marks = Table(
    "run_marks",
    tracking,
    Column("run_id", Id, primary_key=True),
    Column("amount", BigInteger, nullable=False),
    Column("expires_ms", Millis, nullable=False),
    Index("ix_run_marks_expires", "expires_ms"),
)
"""How much a run that no job made had when it was last looked at, and when it goes if it has no
more then (`retention.py`)."""

system_minutes = Table(
    "system_minutes",
    tracking,
    Column("run_id", Id, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("rank", Integer, primary_key=True),
    Column("minute_ms", Millis, primary_key=True),
    Column("blob", LargeBinary, nullable=False),
)
"""What a rank used in a minute, second by second (`system.py`): one small blob, since a row for
each number would be a thousand rows a minute."""
