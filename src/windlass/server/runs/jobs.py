"""The run of a job: it has the job's id, lasts over all its attempts, and ends with the job.

Its row is made by whoever needs it first, and again changes nothing. It lives in another database
than the job, so what a crash leaves between the two is mended later, by `closing`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, select, update

from windlass.core.jobs import JobState
from windlass.server.runs import caps
from windlass.server.runs.tables import experiments, params, runs
from windlass.server.store.upsert import insert_of

STATUS = {
    JobState.SUCCEEDED: "FINISHED",
    JobState.FAILED: "FAILED",
    JobState.CANCELLED: "KILLED",
}
"""What a job's end is called in MLflow's words."""
DEFAULT = "0"
_MOST_NAME = 500
JOB_FILE = "job file"
"""Where the parameters of the job's own spec come from."""


def ensure(
    conn: Connection,
    run_id: str,
    *,
    project_id: str,
    name: str,
    user: str,
    started_ms: int,
    source: str = "job",
    experiment_id: str = DEFAULT,
) -> bool:
    """Make the row of a run where there is none; whether it was made."""
    upsert = insert_of(conn)
    row = {
        "id": run_id, "project_id": project_id, "experiment_id": experiment_id, "name": name,
        "user": user, "status": "RUNNING", "state": "active", "started_ms": started_ms,
        "ended_ms": None, "source": source, "job_id": run_id if source == "job" else None,
        "begun": 0,
    }  # fmt: skip
    # Not by `rowcount`, which an INSERT in PostgreSQL does not have here.
    fresh = upsert(runs).values(row).on_conflict_do_nothing().returning(runs.c.id)
    return conn.execute(fresh).first() is not None


def begin(
    conn: Connection, job: Mapping[str, Any], *, user: str, experiment: str, now_ms: int
) -> None:
    """An attempt of the job runs: its run is there, and open. `experiment`: the name that the
    job's own variables give, if they do."""
    home = _home(conn, job["project_id"], experiment, now_ms)
    if home is None:
        most = caps.MOST_EXPERIMENTS
        words = f"experiment {experiment[:80]!r}: the project has {most}, and takes no more"
        caps.tell(conn, job["id"], words)
        home = DEFAULT
    made = ensure(
        conn, job["id"], project_id=job["project_id"], name=job["name"], user=user,
        started_ms=job["started_ms"] or now_ms, experiment_id=home,
    )  # fmt: skip
    if made:
        _give(conn, job["id"], job["spec"].get("params") or {})
    else:
        conn.execute(
            update(runs)
            .where(runs.c.id == job["id"], runs.c.status != "RUNNING")
            .values(status="RUNNING", ended_ms=None)
        )


def _give(conn: Connection, run_id: str, given: Mapping[str, Any]) -> None:
    """What the job file gives; what the script itself says of a parameter stands before it."""
    upsert = insert_of(conn)
    rows = [
        {"run_id": run_id, "key": key[:250], "value": str(value)[:6000], "source": JOB_FILE}
        for key, value in given.items()
    ]
    if rows:
        conn.execute(upsert(params).on_conflict_do_nothing(), rows)


def end(conn: Connection, run_id: str, status: str, at_ms: int) -> None:
    """The job is over. What its script said of the run's end is overruled: the script may have
    ended its run well and died afterwards."""
    conn.execute(update(runs).where(runs.c.id == run_id).values(status=status, ended_ms=at_ms))
    # What it began inside itself and left open did not end by itself either.
    conn.execute(
        update(runs)
        .where(runs.c.job_id == run_id, runs.c.id != run_id, runs.c.status == "RUNNING")
        .values(status=status, ended_ms=at_ms)
    )


def open_ones(conn: Connection, after: str, most: int) -> list[str]:
    """Jobs whose runs are open, in the order of their ids."""
    query = select(runs.c.id).where(runs.c.status == "RUNNING", runs.c.id > after)
    query = query.where(runs.c.source == "job", runs.c.job_id == runs.c.id)
    return list(conn.execute(query.order_by(runs.c.id).limit(most)).scalars())


def end_all(conn: Connection, over: Iterable[tuple[str, str, int]]) -> None:
    for run_id, state, at_ms in over:
        end(conn, run_id, STATUS[JobState(state)], at_ms)


def move(conn: Connection, run_id: str, experiment_id: str, attempt: int) -> None:
    """Into another experiment, while no client has begun the run in this attempt."""
    conn.execute(
        update(runs)
        .where(runs.c.id == run_id, runs.c.begun < attempt)
        .values(experiment_id=experiment_id)
    )


def _home(conn: Connection, project_id: str, experiment: str, now_ms: int) -> str | None:
    """The experiment of that name, made where it is not there; Default for no name. None: there
    is none, and no room for one."""
    experiment = experiment.replace("\0", "")[:_MOST_NAME]
    if not experiment or experiment == "Default":
        return DEFAULT
    there = select(experiments.c.id).where(
        experiments.c.project_id == project_id, experiments.c.name == experiment
    )
    found = conn.execute(there).scalar()
    if found is None and caps.full_of_experiments(conn, project_id):
        return None
    if found is None:  # another server may make it at this moment: either's is good
        made = new_experiment_id()
        row = {
            "project_id": project_id, "id": made, "name": experiment, "state": "active",
            "artifact_location": f"mlflow-artifacts:/{made}", "created_ms": now_ms,
            "updated_ms": now_ms,
        }  # fmt: skip
        upsert = insert_of(conn)
        conn.execute(upsert(experiments).values(row).on_conflict_do_nothing())
        found = conn.execute(there).scalar_one()
    return str(found)


def new_experiment_id() -> str:
    """Digits, as MLflow's; random, so that one project's say nothing of another's."""
    return str(secrets.randbelow(9 * 10**17) + 10**17)
