"""Rows of metering: who held what (`holdings`), the ledger of it, prices and budgets.

Holdings, the ledger and prices are append-only: the database itself refuses to change or delete a
row of them. None refers to a job's row, so a job that is removed leaves its bill behind.

    holdings     one row per attempt, pool and GPU model: who, and how much at a time
    ledger       what a holding was worth from one moment to another; never across a UTC hour
    usage_days   the ledger's sums by day, up to the entry that `usage_cursor` names

Amounts are whole numbers: milli-CPU x ms, MiB x ms, milli-GPU x ms, ms of CPU that were used,
micro-units of money.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import (
    DDL,
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    String,
    Table,
    UniqueConstraint,
    event,
)

from windlass.server.store.metadata import AutoNumber, Id, Json, Millis, metadata

NAME = String(255)

holdings = Table(
    "holdings",
    metadata,
    Column("attempt_id", Id, primary_key=True),
    Column("part", Integer, primary_key=True),
    Column("number", Integer, nullable=False),  # of the attempt
    Column("job_id", Id, nullable=False),
    Column("job_name", NAME, nullable=False),
    Column("project_id", Id, nullable=False),
    Column("project_name", NAME, nullable=False),
    Column("user_id", Id, nullable=False),
    Column("user_name", NAME, nullable=False),
    Column("pool", NAME, nullable=False),
    Column("gpu_model", NAME, nullable=False),
    Column("nodes", Json, nullable=False),  # whose workers tell what this part uses
    Column("members", Integer, nullable=False),
    Column("cpus_milli", BigInteger, nullable=False),
    Column("memory_mib", BigInteger, nullable=False),
    Column("gpu_milli", BigInteger, nullable=False),
    Column("cost_limit", BigInteger),  # of the whole job
    Column("from_ms", Millis, nullable=False),
    Index("ix_holdings_job", "job_id"),
)

ledger = Table(
    "ledger",
    metadata,
    Column("id", AutoNumber, primary_key=True),
    Column("attempt_id", Id, nullable=False),
    Column("part", Integer, nullable=False),
    Column("kind", String(10), nullable=False),  # run | refund | grace | lost
    Column("from_ms", Millis, nullable=False),
    Column("to_ms", Millis, nullable=False),
    Column("project_id", Id, nullable=False),
    Column("cpu", BigInteger, nullable=False),
    Column("memory", BigInteger, nullable=False),
    Column("gpu", BigInteger, nullable=False),
    Column("used_cpu", BigInteger, nullable=False),
    Column("used_memory", BigInteger, nullable=False),
    Column("peak_bytes", BigInteger, nullable=False),
    Column("cost", BigInteger, nullable=False),
    UniqueConstraint("attempt_id", "part", "kind", "from_ms"),
    Index("ix_ledger_from", "from_ms"),
    Index("ix_ledger_project_from", "project_id", "from_ms"),
    sqlite_autoincrement=True,  # an id is a cursor: never used twice
)

days = Table(
    "usage_days",
    metadata,
    Column("day", Integer, primary_key=True, autoincrement=False),  # since 1970, UTC
    Column("project_id", Id, primary_key=True),
    Column("user_id", Id, primary_key=True),
    Column("pool", NAME, primary_key=True),
    Column("gpu_model", NAME, primary_key=True),
    Column("kind", String(10), primary_key=True),
    Column("project_name", NAME, nullable=False),
    Column("user_name", NAME, nullable=False),
    Column("cpu", BigInteger, nullable=False),
    Column("memory", BigInteger, nullable=False),
    Column("gpu", BigInteger, nullable=False),
    Column("used_cpu", BigInteger, nullable=False),
    Column("used_memory", BigInteger, nullable=False),
    Column("peak_bytes", BigInteger, nullable=False),
    Column("cost", BigInteger, nullable=False),
    Column("entries", BigInteger, nullable=False),
)

cursor = Table(
    "usage_cursor",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # one row: 1
    Column("ledger_id", BigInteger, nullable=False),
)

prices = Table(
    "prices",
    metadata,
    Column("id", AutoNumber, primary_key=True),
    Column("resource", String(80), nullable=False),  # cpu | memory | gpu | gpu:MODEL
    Column("from_ms", Millis, nullable=False),
    Column("price", BigInteger),  # for an hour of one; null: none any more
    Column("set_ms", Millis, nullable=False),
    Column("set_by", NAME, nullable=False),
    sqlite_autoincrement=True,
)

budgets = Table(
    "budgets",
    metadata,
    Column("kind", String(10), primary_key=True),  # project | user
    Column("subject_id", Id, primary_key=True),
    Column("name", NAME, nullable=False),
    Column("amount", BigInteger, nullable=False),
    Column("period", String(10), nullable=False),  # month | total
    Column("on_spent", String(10), nullable=False),  # hold | stop
    Column("spent", Boolean, nullable=False),  # nothing of it starts
    Column("changed_ms", Millis, nullable=False),
    Column("set_by", NAME, nullable=False),
)

marks = Table(
    "budget_marks",
    metadata,
    # A warning that was given: once for each amount of a budget in each period.
    Column("kind", String(10), primary_key=True),
    Column("subject_id", Id, primary_key=True),
    Column("period", String(10), primary_key=True),  # 2026-11, or total
    Column("amount", BigInteger, primary_key=True),
    Column("percent", Integer, primary_key=True),
    Column("cost", BigInteger, nullable=False),
    Column("at_ms", Millis, nullable=False),
)

APPEND_ONLY = (holdings, ledger, prices)
_ddl: Callable[[str], Any] = DDL  # SQLAlchemy leaves it untyped
_REFUSE = _ddl(
    "CREATE OR REPLACE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION '%% is append-only', TG_TABLE_NAME; END $$"
)
for _table in APPEND_ONLY:
    event.listen(_table, "after_create", _REFUSE.execute_if(dialect="postgresql"))
    event.listen(
        _table,
        "after_create",
        _ddl(
            "CREATE TRIGGER %(table)s_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE "
            "ON %(table)s FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"
        ).execute_if(dialect="postgresql"),
    )
    for _verb in ("UPDATE", "DELETE"):
        event.listen(
            _table,
            "after_create",
            _ddl(
                f"CREATE TRIGGER %(table)s_refuses_{_verb.lower()} BEFORE {_verb} ON %(table)s "
                "BEGIN SELECT RAISE(ABORT, '%(table)s is append-only'); END"
            ).execute_if(dialect="sqlite"),
        )
