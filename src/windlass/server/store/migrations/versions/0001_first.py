"""The tables of the spine: access, bundles, nodes, jobs with all that belongs to them, events."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "bundles",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("project_id", sa.String(length=32), nullable=False),
        sa.Column("files", sa.Text(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("complete", sa.Integer(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("used_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("digest", "project_id", name=op.f("pk_bundles")),
    )
    op.create_table(
        "event_positions",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("last", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_event_positions")),
    )
    op.create_table(
        "events",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("position", sa.BigInteger(), nullable=True),
        sa.Column("job_id", sa.String(length=32), nullable=True),
        sa.Column("project_id", sa.String(length=32), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=True),
        sa.Column("kind", sa.String(length=40), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=True),
        sa.Column("reason", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("data", sa.Text(), server_default=sa.text("'{}'"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
        sa.UniqueConstraint("job_id", "seq", name=op.f("uq_events_job_id_seq")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_events_position", "events", ["position"], unique=True)
    op.create_index(
        "ix_events_project_id_position", "events", ["project_id", "position"], unique=False
    )
    op.create_index(
        "ix_events_unsequenced",
        "events",
        ["id"],
        unique=False,
        postgresql_where=sa.text("position IS NULL"),
        sqlite_where=sa.text("position IS NULL"),
    )
    op.create_table(
        "idempotency",
        sa.Column("project_id", sa.String(length=32), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "key", name=op.f("pk_idempotency")),
    )
    op.create_index("ix_idempotency_job", "idempotency", ["job_id"], unique=False)
    op.create_table(
        "leases",
        sa.Column("name", sa.String(length=40), nullable=False),
        sa.Column("holder", sa.String(length=200), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("until_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_leases")),
    )
    op.create_table(
        "nodes",
        sa.Column("engine", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("offer", sa.Text(), nullable=False),
        sa.Column("seen_ms", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("engine", "name", name=op.f("pk_nodes")),
    )
    op.create_table(
        "projects",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=40), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_projects")),
        sa.UniqueConstraint("name", name=op.f("uq_projects_name")),
    )
    queues = op.create_table(
        "queues",
        sa.Column("name", sa.String(length=40), nullable=False),
        sa.Column("policy", sa.String(length=20), nullable=False),
        sa.Column("paused", sa.Boolean(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("changed_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_queues")),
    )
    assert queues is not None
    first = {"name": "default", "policy": "backfill", "paused": False, "description": ""}
    op.bulk_insert(queues, [{**first, "revision": 1, "changed_ms": 0}])
    op.create_table(
        "quota_changes",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_quota_changes")),
    )
    op.create_table(
        "quotas",
        sa.Column("name", sa.String(length=40), nullable=False),
        sa.Column("cohort", sa.Boolean(), nullable=False),
        sa.Column("parent", sa.String(length=40), nullable=True),
        sa.Column("nominal", sa.Text(), nullable=False),
        sa.Column("borrow", sa.Text(), nullable=False),
        sa.Column("lend", sa.Text(), nullable=False),
        sa.Column("weight_milli", sa.BigInteger(), nullable=False),
        sa.Column("reclaim_any", sa.Boolean(), nullable=False),
        sa.Column("caps", sa.Text(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("changed_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_quotas")),
    )
    op.create_table(
        "signatures",
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("hash", name=op.f("pk_signatures")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "users",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=40), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("disabled", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users")),
        sa.UniqueConstraint("name", name=op.f("uq_users_name")),
    )
    op.create_table(
        "jobs",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("project_id", sa.String(length=32), nullable=False),
        sa.Column("user_id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=40), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("wish", sa.String(length=20), nullable=True),
        sa.Column("wish_for", sa.String(length=32), nullable=True),
        sa.Column("wish_reason", sa.Text(), nullable=True),
        sa.Column("wish_now", sa.Integer(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("framework", sa.String(length=40), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("queue", sa.String(length=40), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("order_ms", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("preemptions", sa.Integer(), nullable=False),
        sa.Column("members", sa.Integer(), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("bundle", sa.String(length=64), nullable=True),
        sa.Column("engine", sa.String(length=40), nullable=True),
        sa.Column("submitted_ms", sa.BigInteger(), nullable=False),
        sa.Column("queued_ms", sa.BigInteger(), nullable=True),
        sa.Column("started_ms", sa.BigInteger(), nullable=True),
        sa.Column("ended_ms", sa.BigInteger(), nullable=True),
        sa.Column("not_before_ms", sa.BigInteger(), nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("outcome", sa.String(length=20), nullable=True),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("stale_restarts", sa.Integer(), nullable=False),
        sa.Column("lost_nodes", sa.Text(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("done", sa.BigInteger(), nullable=True),
        sa.Column("total", sa.BigInteger(), nullable=True),
        sa.Column("rerun_of", sa.String(length=32), nullable=True),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_jobs_project_id_projects")
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_jobs_user_id_users")),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_jobs")),
        sa.UniqueConstraint("id", name=op.f("uq_jobs_id")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_jobs_bundle", "jobs", ["bundle"], unique=False)
    op.create_index("ix_jobs_expires", "jobs", ["expires_ms"], unique=False)
    op.create_index(
        "ix_jobs_project_name_number", "jobs", ["project_id", "name", "number"], unique=False
    )
    op.create_index("ix_jobs_project_number", "jobs", ["project_id", "number"], unique=False)
    op.create_index(
        "ix_jobs_project_state_number", "jobs", ["project_id", "state", "number"], unique=False
    )
    op.create_index(
        "ix_jobs_queue",
        "jobs",
        ["queue", "state", "priority", "order_ms"],
        unique=False,
        sqlite_where=sa.text("state NOT IN ('succeeded', 'failed', 'cancelled')"),
        postgresql_where=sa.text("state NOT IN ('succeeded', 'failed', 'cancelled')"),
    )
    op.create_index(
        "ix_jobs_unfinished",
        "jobs",
        ["state", "number"],
        unique=False,
        sqlite_where=sa.text("state NOT IN ('succeeded', 'failed', 'cancelled')"),
        postgresql_where=sa.text("state NOT IN ('succeeded', 'failed', 'cancelled')"),
    )
    op.create_table(
        "keys",
        sa.Column("access_key", sa.String(length=64), nullable=False),
        sa.Column("user_id", sa.String(length=32), nullable=False),
        sa.Column("project_id", sa.String(length=32), nullable=False),
        sa.Column("secret", sa.LargeBinary(), nullable=False),
        sa.Column("kek", sa.String(length=32), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("last_used_ms", sa.BigInteger(), nullable=True),
        sa.Column("disabled", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_keys_project_id_projects")
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_keys_user_id_users")),
        sa.PrimaryKeyConstraint("access_key", name=op.f("pk_keys")),
    )
    op.create_index(op.f("ix_keys_project_id"), "keys", ["project_id"], unique=False)
    op.create_index(op.f("ix_keys_user_id"), "keys", ["user_id"], unique=False)
    op.create_table(
        "attempts",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("outcome", sa.String(length=20), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("engine", sa.String(length=40), nullable=False),
        sa.Column("placement", sa.Text(), nullable=False),
        sa.Column("worker_hash", sa.String(length=64), nullable=False),
        sa.Column("run_hash", sa.String(length=64), nullable=False),
        sa.Column("tokens", sa.LargeBinary(), nullable=False),
        sa.Column("kek", sa.String(length=32), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("launched_ms", sa.BigInteger(), nullable=True),
        sa.Column("alive_ms", sa.BigInteger(), nullable=True),
        sa.Column("started_ms", sa.BigInteger(), nullable=True),
        sa.Column("ending_ms", sa.BigInteger(), nullable=True),
        sa.Column("grace_ms", sa.BigInteger(), nullable=True),
        sa.Column("ending_outcome", sa.String(length=20), nullable=True),
        sa.Column("deadline_ms", sa.BigInteger(), nullable=True),
        sa.Column("over_ms", sa.BigInteger(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("failure", sa.Text(), nullable=True),
        sa.Column("orders", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_attempts_job_id_jobs")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_attempts")),
        sa.UniqueConstraint("job_id", "number", name=op.f("uq_attempts_job_id_number")),
        sa.UniqueConstraint("run_hash", name=op.f("uq_attempts_run_hash")),
        sa.UniqueConstraint("worker_hash", name=op.f("uq_attempts_worker_hash")),
    )
    op.create_index(
        "ix_attempts_live",
        "attempts",
        ["state"],
        unique=False,
        sqlite_where=sa.text("state <> 'over'"),
        postgresql_where=sa.text("state <> 'over'"),
    )
    op.create_table(
        "dependencies",
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("after_id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=40), nullable=False),
        sa.Column("met", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_dependencies_job_id_jobs")),
        sa.PrimaryKeyConstraint("job_id", "after_id", name=op.f("pk_dependencies")),
    )
    op.create_index("ix_dependencies_after", "dependencies", ["after_id"], unique=False)
    op.create_table(
        "checkpoints",
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("path", sa.String(length=1024), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("registered_ms", sa.BigInteger(), nullable=False),
        sa.Column("bad", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_checkpoints_job_id_jobs")),
        sa.PrimaryKeyConstraint("job_id", "path", name=op.f("pk_checkpoints")),
    )
    op.create_table(
        "orders",
        sa.Column("attempt_id", sa.String(length=32), nullable=False),
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("node", sa.String(length=63), nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("asked_ms", sa.BigInteger(), nullable=False),
        sa.Column("done_ms", sa.BigInteger(), nullable=True),
        sa.Column("ok", sa.Integer(), nullable=True),
        sa.Column("result", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempts.id"], name=op.f("fk_orders_attempt_id_attempts")
        ),
        sa.PrimaryKeyConstraint("attempt_id", "id", "node", name=op.f("pk_orders")),
    )
    op.create_table(
        "workers",
        sa.Column("attempt_id", sa.String(length=32), nullable=False),
        sa.Column("node", sa.String(length=63), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=True),
        sa.Column("pid", sa.BigInteger(), nullable=True),
        sa.Column("boot_id", sa.String(length=64), nullable=True),
        sa.Column("members", sa.Text(), nullable=True),
        sa.Column("isolation", sa.Text(), nullable=True),
        sa.Column("registered_ms", sa.BigInteger(), nullable=True),
        sa.Column("started_ms", sa.BigInteger(), nullable=True),
        sa.Column("beat_ms", sa.BigInteger(), nullable=True),
        sa.Column("ranks", sa.Text(), nullable=True),
        sa.Column("ended_ranks", sa.Text(), nullable=True),
        sa.Column("hung_ms", sa.BigInteger(), nullable=True),
        sa.Column("record", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempts.id"], name=op.f("fk_workers_attempt_id_attempts")
        ),
        sa.PrimaryKeyConstraint("attempt_id", "node", name=op.f("pk_workers")),
    )
