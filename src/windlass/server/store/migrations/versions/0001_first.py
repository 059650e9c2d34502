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
        "audit",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("project_id", sa.String(length=32), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=True),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("project_name", sa.String(length=40), nullable=False),
        sa.Column("user_id", sa.String(length=32), nullable=False),
        sa.Column("user_name", sa.String(length=255), nullable=False),
        sa.Column("credential", sa.String(length=64), nullable=False),
        sa.Column("source", sa.String(length=64), nullable=False),
        sa.Column("request_id", sa.String(length=32), nullable=False),
        sa.Column("action", sa.String(length=80), nullable=False),
        sa.Column("object", sa.String(length=255), nullable=False),
        sa.Column("outcome", sa.String(length=40), nullable=False),
        sa.Column("times", sa.Integer(), nullable=False),
        sa.Column("details", sa.Text(), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_audit_project_number", "audit", ["project_id", "number"], unique=True)
    op.create_index(
        "ix_audit_unlinked",
        "audit",
        ["id"],
        unique=False,
        postgresql_where=sa.text("number IS NULL"),
        sqlite_where=sa.text("number IS NULL"),
    )
    op.create_table(
        "secrets",
        sa.Column("project_id", sa.String(length=32), nullable=False),
        sa.Column("owner_id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=256), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.Column("kek", sa.String(length=32), nullable=False),
        sa.Column("changed_ms", sa.BigInteger(), nullable=False),
        sa.Column("changed_by", sa.String(length=255), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "owner_id", "name", name=op.f("pk_secrets")),
    )
    op.create_table(
        "saved_views",
        sa.Column("project_id", sa.String(length=32), nullable=False),
        sa.Column("user_id", sa.String(length=32), nullable=False),
        sa.Column("page", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("search", sa.Text(), nullable=False),
        sa.Column("changed_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(
            "project_id", "user_id", "page", "name", name=op.f("pk_saved_views")
        ),
    )
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
        sa.Column("user_id", sa.String(length=32), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "user_id", "key", name=op.f("pk_idempotency")),
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
        sa.Column("removed_ms", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_projects")),
    )
    op.create_index(
        "uq_projects_name",
        "projects",
        ["name"],
        unique=True,
        postgresql_where=sa.text("removed_ms IS NULL"),
        sqlite_where=sa.text("removed_ms IS NULL"),
    )
    op.create_table(
        "engines",
        sa.Column("name", sa.String(length=40), nullable=False),
        sa.Column("kind", sa.String(length=40), nullable=False),
        sa.Column("options", sa.Text(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_engines")),
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
        "limits",
        sa.Column("project", sa.String(length=40), nullable=False),
        sa.Column("limits", sa.Text(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("changed_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project", name=op.f("pk_limits")),
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
        sa.Column("kind", sa.String(length=20), server_default="person", nullable=False),
        sa.Column("role", sa.String(length=20), nullable=True),
        sa.Column("project_id", sa.String(length=32), nullable=True),
        sa.Column("password", sa.Text(), nullable=True),
        sa.Column("disabled", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("epoch", sa.Integer(), server_default="0", nullable=False),
        sa.Column("removed_ms", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_users_project_id_projects")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users")),
    )
    op.create_index(
        "uq_users_name",
        "users",
        ["name"],
        unique=True,
        postgresql_where=sa.text("removed_ms IS NULL"),
        sqlite_where=sa.text("removed_ms IS NULL"),
    )
    op.create_table(
        "memberships",
        sa.Column("project_id", sa.String(length=32), nullable=False),
        sa.Column("user_id", sa.String(length=32), nullable=False),
        sa.Column("role", sa.String(length=20), nullable=False),
        sa.Column("added_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_memberships_project_id_projects")
        ),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_memberships_user_id_users")
        ),
        sa.PrimaryKeyConstraint("project_id", "user_id", name=op.f("pk_memberships")),
    )
    op.create_index(op.f("ix_memberships_user_id"), "memberships", ["user_id"], unique=False)
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=40), nullable=False),
        sa.Column("user_id", sa.String(length=32), nullable=False),
        sa.Column("project_id", sa.String(length=32), nullable=False),
        sa.Column("scopes", sa.Text(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), nullable=False),
        sa.Column("last_used_ms", sa.BigInteger(), nullable=True),
        sa.Column("disabled", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_tokens_project_id_projects")
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_tokens_user_id_users")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("hash", name=op.f("uq_tokens_hash")),
    )
    op.create_index(op.f("ix_tokens_project_id"), "tokens", ["project_id"], unique=False)
    op.create_index(op.f("ix_tokens_user_id"), "tokens", ["user_id"], unique=False)
    op.create_table(
        "sessions",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("user_id", sa.String(length=32), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("how", sa.String(length=20), nullable=False),
        sa.Column("address", sa.String(length=64), nullable=False),
        sa.Column("browser", sa.String(length=200), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("seen_ms", sa.BigInteger(), nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_sessions_user_id_users")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sessions")),
        sa.UniqueConstraint("hash", name=op.f("uq_sessions_hash")),
    )
    op.create_index(op.f("ix_sessions_user_id"), "sessions", ["user_id"], unique=False)
    op.create_table(
        "login_links",
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("purpose", sa.String(length=20), nullable=False),
        sa.Column("user_id", sa.String(length=32), nullable=True),
        sa.Column("expires_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_login_links_user_id_users")
        ),
        sa.PrimaryKeyConstraint("hash", name=op.f("pk_login_links")),
    )
    op.create_index(op.f("ix_login_links_expires_ms"), "login_links", ["expires_ms"], unique=False)
    op.create_index(op.f("ix_login_links_user_id"), "login_links", ["user_id"], unique=False)
    op.create_table(
        "login_attempts",
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("last_ms", sa.BigInteger(), nullable=False),
        sa.Column("until_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_login_attempts")),
    )
    op.create_index(op.f("ix_login_attempts_last_ms"), "login_attempts", ["last_ms"], unique=False)
    op.create_table(
        "identities",
        sa.Column("issuer", sa.String(length=500), nullable=False),
        sa.Column("value", sa.String(length=255), nullable=False),
        sa.Column("subject", sa.String(length=255), nullable=True),
        sa.Column("user_id", sa.String(length=32), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_identities_user_id_users")
        ),
        sa.PrimaryKeyConstraint("issuer", "value", name=op.f("pk_identities")),
        sa.UniqueConstraint("issuer", "subject", name=op.f("uq_identities_issuer_subject")),
    )
    op.create_index(op.f("ix_identities_user_id"), "identities", ["user_id"], unique=False)
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
        sa.Column("promised", sa.Text(), nullable=True),
        sa.Column("resized_ms", sa.BigInteger(), nullable=True),
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
        "ix_jobs_live_of",
        "jobs",
        ["project_id", "user_id", "kind"],
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
        sa.Column("name", sa.String(length=40), server_default="", nullable=False),
        sa.Column("user_id", sa.String(length=32), nullable=False),
        sa.Column("project_id", sa.String(length=32), nullable=False),
        sa.Column("secret", sa.LargeBinary(), nullable=False),
        sa.Column("kek", sa.String(length=32), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("last_used_ms", sa.BigInteger(), nullable=True),
        sa.Column("expires_ms", sa.BigInteger(), nullable=True),
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
        sa.Column("ending_wish", sa.String(length=20), nullable=True),
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
        "recent_use",
        sa.Column("tenant", sa.String(length=255), nullable=False),
        sa.Column("amount", sa.Text(), nullable=False),
        sa.Column("half_lives", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", name=op.f("pk_recent_use")),
    )
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
        sa.Column("source", sa.String(length=20), server_default="windlass", nullable=False),
        sa.Column("ranks", sa.Integer(), server_default="0", nullable=False),
        sa.Column("verified_ms", sa.BigInteger(), nullable=True),
        sa.Column("removing_ms", sa.BigInteger(), nullable=True),
        sa.Column("removing_why", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_checkpoints_job_id_jobs")),
        sa.PrimaryKeyConstraint("job_id", "path", name=op.f("pk_checkpoints")),
    )
    op.create_index(
        "ix_checkpoints_removing",
        "checkpoints",
        ["removing_ms"],
        unique=False,
        sqlite_where=sa.text("removing_ms IS NOT NULL"),
        postgresql_where=sa.text("removing_ms IS NOT NULL"),
    )
    op.create_table(
        "starts",
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("kind", sa.String(length=10), nullable=False),
        sa.Column("resume", sa.Integer(), nullable=False),
        sa.Column("source_id", sa.String(length=32), nullable=True),
        sa.Column("source_name", sa.String(length=300), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("version", sa.Integer(), nullable=True),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("path", sa.String(length=1024), nullable=True),
        sa.Column("root", sa.Text(), nullable=True),
        sa.Column("name", sa.String(length=300), nullable=False),
        sa.Column("files", sa.Text(), nullable=False),
        sa.Column("lineage", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_starts_job_id_jobs")),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_starts")),
    )
    op.create_index("ix_starts_source", "starts", ["source_id"], unique=False)
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
        sa.Column("used_cpu", sa.BigInteger(), nullable=False),
        sa.Column("used_memory", sa.BigInteger(), nullable=False),
        sa.Column("peak_bytes", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempts.id"], name=op.f("fk_workers_attempt_id_attempts")
        ),
        sa.PrimaryKeyConstraint("attempt_id", "node", name=op.f("pk_workers")),
    )
    op.create_table(
        "artifacts",
        sa.Column("owner_id", sa.String(length=64), nullable=False),
        sa.Column("path", sa.String(length=1024), nullable=False),
        sa.Column("project_id", sa.String(length=32), nullable=False),
        sa.Column("job_id", sa.String(length=32), nullable=True),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("changed_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("owner_id", "path", name=op.f("pk_artifacts")),
    )
    op.create_index("ix_artifacts_job", "artifacts", ["job_id"], unique=False)
    op.create_table(
        "objects",
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("owner", sa.String(length=200), nullable=False),
        sa.Column("path", sa.String(length=1024), nullable=False),
        sa.Column("project_id", sa.String(length=32), nullable=False),
        sa.Column("job_id", sa.String(length=32), nullable=True),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("used_ms", sa.BigInteger(), nullable=False),
        sa.Column("removing_ms", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_objects")),
    )
    op.create_index("ix_objects_owner", "objects", ["owner", "path"], unique=False)
    op.create_index("ix_objects_job", "objects", ["job_id"], unique=False)
    op.create_index("ix_objects_removing", "objects", ["removing_ms"], unique=False)
    _create_models()
    _create_studies()
    _guard_audit()
    for table in (
        "jobs", "events", "idempotency", "bundles", "secrets",
        "artifacts", "models", "model_versions", "model_aliases", "model_moves",
        "studies", "trials", "saved_views", "objects",
    ):  # fmt: skip
        _wall(table)
    op.create_table(
        "budget_marks",
        sa.Column("kind", sa.String(length=10), nullable=False),
        sa.Column("subject_id", sa.String(length=32), nullable=False),
        sa.Column("period", sa.String(length=10), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("percent", sa.Integer(), nullable=False),
        sa.Column("cost", sa.BigInteger(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(
            "kind", "subject_id", "period", "amount", "percent", name=op.f("pk_budget_marks")
        ),
    )
    op.create_table(
        "budgets",
        sa.Column("kind", sa.String(length=10), nullable=False),
        sa.Column("subject_id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("period", sa.String(length=10), nullable=False),
        sa.Column("on_spent", sa.String(length=10), nullable=False),
        sa.Column("spent", sa.Boolean(), nullable=False),
        sa.Column("changed_ms", sa.BigInteger(), nullable=False),
        sa.Column("set_by", sa.String(length=255), nullable=False),
        sa.PrimaryKeyConstraint("kind", "subject_id", name=op.f("pk_budgets")),
    )
    op.create_table(
        "holdings",
        sa.Column("attempt_id", sa.String(length=32), nullable=False),
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("job_name", sa.String(length=255), nullable=False),
        sa.Column("project_id", sa.String(length=32), nullable=False),
        sa.Column("project_name", sa.String(length=255), nullable=False),
        sa.Column("user_id", sa.String(length=32), nullable=False),
        sa.Column("user_name", sa.String(length=255), nullable=False),
        sa.Column("pool", sa.String(length=255), nullable=False),
        sa.Column("gpu_model", sa.String(length=255), nullable=False),
        sa.Column("nodes", sa.Text(), nullable=False),
        sa.Column("members", sa.Integer(), nullable=False),
        sa.Column("cpus_milli", sa.BigInteger(), nullable=False),
        sa.Column("memory_mib", sa.BigInteger(), nullable=False),
        sa.Column("gpu_milli", sa.BigInteger(), nullable=False),
        sa.Column("cost_limit", sa.BigInteger(), nullable=True),
        sa.Column("from_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("attempt_id", "part", name=op.f("pk_holdings")),
    )
    op.create_index("ix_holdings_job", "holdings", ["job_id"], unique=False)
    op.create_table(
        "ledger",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("attempt_id", sa.String(length=32), nullable=False),
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=10), nullable=False),
        sa.Column("from_ms", sa.BigInteger(), nullable=False),
        sa.Column("to_ms", sa.BigInteger(), nullable=False),
        sa.Column("project_id", sa.String(length=32), nullable=False),
        sa.Column("cpu", sa.BigInteger(), nullable=False),
        sa.Column("memory", sa.BigInteger(), nullable=False),
        sa.Column("gpu", sa.BigInteger(), nullable=False),
        sa.Column("used_cpu", sa.BigInteger(), nullable=False),
        sa.Column("used_memory", sa.BigInteger(), nullable=False),
        sa.Column("peak_bytes", sa.BigInteger(), nullable=False),
        sa.Column("cost", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ledger")),
        sa.UniqueConstraint(
            "attempt_id",
            "part",
            "kind",
            "from_ms",
            name=op.f("uq_ledger_attempt_id_part_kind_from_ms"),
        ),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_ledger_from", "ledger", ["from_ms"], unique=False)
    op.create_index("ix_ledger_project_from", "ledger", ["project_id", "from_ms"], unique=False)
    op.create_table(
        "prices",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("resource", sa.String(length=80), nullable=False),
        sa.Column("from_ms", sa.BigInteger(), nullable=False),
        sa.Column("price", sa.BigInteger(), nullable=True),
        sa.Column("set_ms", sa.BigInteger(), nullable=False),
        sa.Column("set_by", sa.String(length=255), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_prices")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "usage_cursor",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("ledger_id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_usage_cursor")),
    )
    op.create_table(
        "usage_days",
        sa.Column("day", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("project_id", sa.String(length=32), nullable=False),
        sa.Column("user_id", sa.String(length=32), nullable=False),
        sa.Column("pool", sa.String(length=255), nullable=False),
        sa.Column("gpu_model", sa.String(length=255), nullable=False),
        sa.Column("kind", sa.String(length=10), nullable=False),
        sa.Column("project_name", sa.String(length=255), nullable=False),
        sa.Column("user_name", sa.String(length=255), nullable=False),
        sa.Column("cpu", sa.BigInteger(), nullable=False),
        sa.Column("memory", sa.BigInteger(), nullable=False),
        sa.Column("gpu", sa.BigInteger(), nullable=False),
        sa.Column("used_cpu", sa.BigInteger(), nullable=False),
        sa.Column("used_memory", sa.BigInteger(), nullable=False),
        sa.Column("peak_bytes", sa.BigInteger(), nullable=False),
        sa.Column("cost", sa.BigInteger(), nullable=False),
        sa.Column("entries", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(
            "day", "project_id", "user_id", "pool", "gpu_model", "kind", name=op.f("pk_usage_days")
        ),
    )
    for table in ("holdings", "ledger", "prices"):
        _refuse_changes(table)


def _create_studies() -> None:
    op.create_table(
        "studies",
        sa.Column(
            "number",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("project_id", sa.String(length=32), nullable=False),
        sa.Column("user_id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=40), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("wish", sa.String(length=20), nullable=True),
        sa.Column("wish_reason", sa.Text(), nullable=True),
        sa.Column("ending", sa.String(length=20), nullable=True),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("framework", sa.String(length=40), nullable=False),
        sa.Column("bundle", sa.String(length=64), nullable=True),
        sa.Column("target", sa.Integer(), nullable=False),
        sa.Column("made", sa.Integer(), nullable=False),
        sa.Column("warm", sa.Text(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=True),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("deadline_ms", sa.BigInteger(), nullable=True),
        sa.Column("ended_ms", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_studies_project_id_projects")
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_studies_user_id_users")),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_studies")),
        sa.UniqueConstraint("id", name=op.f("uq_studies_id")),
        sa.UniqueConstraint("project_id", "name", name=op.f("uq_studies_project_id_name")),
        sa.UniqueConstraint(
            "project_id", "user_id", "key", name=op.f("uq_studies_project_id_user_id_key")
        ),
        sqlite_autoincrement=True,
    )
    live = sa.text("state IN ('running', 'stopping')")
    op.create_index(
        "ix_studies_live", "studies", ["state"], sqlite_where=live, postgresql_where=live
    )
    op.create_table(
        "trials",
        sa.Column("study_id", sa.String(length=32), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.String(length=32), nullable=False),
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("params", sa.Text(), nullable=False),
        sa.Column("attrs", sa.Text(), nullable=False),
        sa.Column("rung", sa.Integer(), nullable=False),
        sa.Column("parent", sa.Integer(), nullable=True),
        sa.Column("values", sa.Text(), nullable=False),
        sa.Column("excess", sa.Text(), nullable=False),
        sa.Column("reports", sa.Text(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("ended_ms", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["study_id"], ["studies.id"], name=op.f("fk_trials_study_id_studies")
        ),
        sa.PrimaryKeyConstraint("study_id", "number", name=op.f("pk_trials")),
        sa.UniqueConstraint("job_id", name=op.f("uq_trials_job_id")),
    )


def _create_models() -> None:
    op.create_table(
        "models",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("project_id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=256), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("tags", sa.Text(), nullable=False),
        sa.Column("user_id", sa.String(length=32), nullable=False),
        sa.Column("user_name", sa.String(length=255), nullable=False),
        sa.Column("last", sa.Integer(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("changed_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_models")),
        sa.UniqueConstraint("project_id", "name", name=op.f("uq_models_project_id_name")),
    )
    op.create_table(
        "model_versions",
        sa.Column("model_id", sa.String(length=32), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.String(length=32), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("files", sa.Text(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("format", sa.String(length=40), nullable=False),
        sa.Column("unsafe", sa.Text(), nullable=False),
        sa.Column("stage", sa.String(length=20), nullable=False),
        sa.Column("staged_ms", sa.BigInteger(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("tags", sa.Text(), nullable=False),
        sa.Column("run_id", sa.String(length=64), nullable=True),
        sa.Column("job_id", sa.String(length=32), nullable=True),
        sa.Column("logged_id", sa.String(length=64), nullable=True),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("run_link", sa.Text(), nullable=False),
        sa.Column("lineage", sa.Text(), nullable=False),
        sa.Column("user_id", sa.String(length=32), nullable=False),
        sa.Column("user_name", sa.String(length=255), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("changed_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name=op.f("fk_model_versions_model_id_models")
        ),
        sa.PrimaryKeyConstraint("model_id", "number", name=op.f("pk_model_versions")),
    )
    op.create_index(
        "ix_model_versions_project_run", "model_versions", ["project_id", "run_id"], unique=False
    )
    op.create_table(
        "model_aliases",
        sa.Column("model_id", sa.String(length=32), nullable=False),
        sa.Column("alias", sa.String(length=256), nullable=False),
        sa.Column("project_id", sa.String(length=32), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("moved_ms", sa.BigInteger(), nullable=False),
        sa.Column("user_name", sa.String(length=255), nullable=False),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name=op.f("fk_model_aliases_model_id_models")
        ),
        sa.PrimaryKeyConstraint("model_id", "alias", name=op.f("pk_model_aliases")),
    )
    op.create_table(
        "model_moves",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("project_id", sa.String(length=32), nullable=False),
        sa.Column("model_id", sa.String(length=32), nullable=False),
        sa.Column("alias", sa.String(length=256), nullable=False),
        sa.Column("before", sa.Integer(), nullable=True),
        sa.Column("after", sa.Integer(), nullable=True),
        sa.Column("user_id", sa.String(length=32), nullable=False),
        sa.Column("user_name", sa.String(length=255), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_model_moves")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_model_moves_model", "model_moves", ["model_id", "id"], unique=False)


def _refuse_changes(table: str) -> None:
    """Make the database itself hold a table to be append-only."""
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            "CREATE OR REPLACE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END $$"
        )
        op.execute(
            f"CREATE TRIGGER {table}_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE "
            f"ON {table} FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"
        )
        return
    for verb in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER {table}_refuses_{verb.lower()} BEFORE {verb} ON {table} "
            f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
        )


def _wall(table: str) -> None:
    """A transaction that names a project sees and writes the rows of that one alone, but may tell
    the loops something: a row of no project. The owner of the tables is held to it as well: the
    server is the owner."""
    if op.get_bind().dialect.name != "postgresql":
        return
    named = "coalesce((SELECT current_setting('windlass.project', true)), '')"
    op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
    op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
    op.execute(
        f"CREATE POLICY one_project ON {table} USING ({named} IN ('', project_id))"
        f" WITH CHECK (project_id = '' OR {named} IN ('', project_id))"
    )


def _guard_audit() -> None:
    """The audit log is written once: nothing is removed from it, and a row is changed only when
    it gets its place in the chain."""
    fixed = (
        "id", "project_id", "at_ms", "project_name", "user_id", "user_name", "credential",
        "source", "request_id", "action", "object", "outcome", "times", "details",
    )  # fmt: skip
    if op.get_bind().dialect.name == "sqlite":
        same = " AND ".join(f"NEW.{name} IS OLD.{name}" for name in fixed)
        op.execute(
            "CREATE TRIGGER audit_is_kept BEFORE DELETE ON audit"
            " BEGIN SELECT RAISE(ABORT, 'audit rows are never removed'); END"
        )
        op.execute(
            "CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit"
            f" WHEN OLD.number IS NOT NULL OR NEW.number IS NULL OR NOT ({same})"
            " BEGIN SELECT RAISE(ABORT, 'audit rows are never changed'); END"
        )
        return
    same = " AND ".join(f"NEW.{name} IS NOT DISTINCT FROM OLD.{name}" for name in fixed)
    op.execute(
        f"""
        CREATE FUNCTION audit_is_kept() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF TG_OP = 'UPDATE' THEN
                IF OLD.number IS NULL AND NEW.number IS NOT NULL AND ({same}) THEN
                    RETURN NEW;
                END IF;
            END IF;
            RAISE EXCEPTION 'audit rows are never changed or removed';
        END $$
        """
    )
    op.execute(
        "CREATE TRIGGER audit_is_kept BEFORE UPDATE OR DELETE ON audit"
        " FOR EACH ROW EXECUTE FUNCTION audit_is_kept()"
    )
    op.execute(
        "CREATE TRIGGER audit_is_not_emptied BEFORE TRUNCATE ON audit"
        " FOR EACH STATEMENT EXECUTE FUNCTION audit_is_kept()"
    )
