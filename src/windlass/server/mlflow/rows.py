"""Experiments, runs and logged models of the caller's project: what is another's is not there."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import Connection, select

from windlass.core.access import Right
from windlass.server.mlflow.asked import Asked
from windlass.server.mlflow.errors import MlflowError, absent, invalid
from windlass.server.runs.tables import experiments, logged_models, runs
from windlass.server.store.upsert import insert_of

DEFAULT = "0"
Row = Any
"""A row as a mapping; those of SQLAlchemy are no `Mapping` of texts to mypy."""
_NUMBER = re.compile(r"\s*[+-]?[0-9]{1,30}\s*")


def experiment_id_of(value: str) -> str:
    if _NUMBER.fullmatch(value) is None:
        raise invalid(f"Invalid experiment ID '{value}'. Experiment ID must be a valid integer.")
    return str(int(value))


def ensure_default(conn: Connection, project_id: str, now_ms: int) -> None:
    """Each project has an experiment Default with the id 0, from the first look at it."""
    row = {
        "project_id": project_id, "id": DEFAULT, "name": "Default", "state": "active",
        "artifact_location": f"mlflow-artifacts:/{DEFAULT}", "created_ms": now_ms,
        "updated_ms": now_ms,
    }  # fmt: skip
    conn.execute(insert_of(conn)(experiments).values(row).on_conflict_do_nothing())


def default_row(now_ms: int) -> Row:
    """What Default is while nobody has written to it."""
    return {
        "id": DEFAULT, "name": "Default", "state": "active",
        "artifact_location": f"mlflow-artifacts:/{DEFAULT}", "created_ms": now_ms,
        "updated_ms": now_ms,
    }  # fmt: skip


def experiment_of(conn: Connection, asked: Asked, value: str) -> Row:
    """The experiment with that id, deleted or not."""
    wanted = experiment_id_of(value or DEFAULT)
    row = (
        conn.execute(
            select(experiments).where(
                experiments.c.project_id == asked.project_id, experiments.c.id == wanted
            )
        )
        .mappings()
        .first()
    )
    if row is not None:
        return row
    if wanted == DEFAULT:
        return default_row(asked.now_ms)
    raise absent(f"No Experiment with id={wanted} exists")


def active(experiment: Row) -> Row:
    if experiment["state"] != "active":
        raise invalid(
            f"The experiment {experiment['id']} must be in the 'active' state. "
            f"Current state is {experiment['state']}."
        )
    return experiment


def run_of(conn: Connection, asked: Asked, run_id: str, *, write: bool = False) -> Row:
    """The run with that id. `write`: it must be living, and the caller's to change."""
    row = (
        conn.execute(
            select(runs).where(runs.c.id == run_id, runs.c.project_id == asked.project_id)
        )
        .mappings()
        .first()
    )
    if row is None:
        raise absent(f"Run with id={run_id} not found")
    if write:
        check_writer(asked, row["job_id"], row["user"], run_id)
        check_active(run_id, row["state"])
    return row


def check_active(run_id: str, state: str) -> None:
    if state != "active":
        raise invalid(f"The run {run_id} must be in the 'active' state. Current state is {state}.")


def check_writer(asked: Asked, job_id: str | None, user: str | None, run_id: str) -> None:
    """An attempt's token changes runs of its own job; a member those of its own jobs, and runs
    that no job made."""
    if not asked.attempt:
        theirs = job_id is not None and user != asked.who.user_name
        if theirs and not asked.who.may(Right.JOB_WRITE_ANY):
            raise MlflowError(
                "PERMISSION_DENIED", f"{run_id} is of a job of {user}: a member changes its own."
            )
    elif job_id != asked.who.job_id:
        raise MlflowError(
            "PERMISSION_DENIED", f"The token of a job writes runs of that job alone, not {run_id}."
        )


def logged_model_of(
    conn: Connection, asked: Asked, model_id: str, *, write: bool = False, deleted: bool = False
) -> Row:
    row = (
        conn.execute(
            select(logged_models, runs.c.job_id, runs.c.user)
            .outerjoin(runs, runs.c.id == logged_models.c.run_id)
            .where(logged_models.c.id == model_id, logged_models.c.project_id == asked.project_id)
        )
        .mappings()
        .first()
    )
    if row is None or (row["state"] != "active" and not deleted):
        raise absent(f"Logged model with ID '{model_id}' not found.")
    if write:
        check_writer(asked, row["job_id"], row["user"], model_id)
    return row
