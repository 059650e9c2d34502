"""`runs/…` and `metrics/…`: runs, their search, the history of a metric."""

from __future__ import annotations

import random
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, delete, insert, select, update

from windlass.server.jobs.naming import invent
from windlass.server.mlflow import checks, pages, rows, search_runs
from windlass.server.mlflow.asked import Asked
from windlass.server.mlflow.errors import invalid, of_type
from windlass.server.mlflow.shapes import locations, number, run_info, runs_told
from windlass.server.runs.tables import points, runs, tags

RUN_NAME = "mlflow.runName"
_STATUSES = {1: "RUNNING", 2: "SCHEDULED", 3: "FINISHED", 4: "FAILED", 5: "KILLED"}
_DEFAULT_RESULTS = 1000
_MOST_POINTS = 25_000
"""Of an answer, also where none were asked for: MLflow's own client asks for so many at a time,
and goes on where the answer has a token."""


async def create(asked: Asked) -> dict[str, Any]:
    fields = await asked.json()
    wanted = checks.text(fields, "experiment_id")
    started = checks.whole(fields, "start_time")
    name = checks.text(fields, "run_name")
    tagged = {
        checks.text(tag, "key"): checks.text(tag, "value")
        for tag in checks.objects(fields, "tags")
    }
    run_id = uuid4().hex

    def write(conn: Connection) -> dict[str, Any]:
        rows.ensure_default(conn, asked.project_id, asked.now_ms)
        experiment = rows.active(rows.experiment_of(conn, asked, wanted))
        said = tagged.get(RUN_NAME, "")
        if name and said and name != said:
            raise invalid(
                "Both 'run_name' argument and 'mlflow.runName' tag are specified, but with "
                f"different values (run_name='{name}', mlflow.runName='{said}')."
            )
        called = name or said or f"{invent(random.Random())}-{random.randrange(1000)}"
        for key, value in tagged.items():
            checks.tag({"key": key, "value": value})
        row = {
            "id": run_id, "project_id": asked.project_id, "experiment_id": experiment["id"],
            "name": called[: checks.MAX_KEY], "user": asked.who.user_name, "status": "RUNNING",
            "state": "active", "started_ms": started, "ended_ms": None, "source": "mlflow",
            "job_id": asked.who.job_id, "begun": asked.attempt,
        }  # fmt: skip
        conn.execute(insert(runs).values(row))
        conn.execute(
            insert(tags),
            [
                {"run_id": run_id, "key": key, "value": value[: checks.MAX_TAG]}
                for key, value in {RUN_NAME: called, **tagged}.items()
            ],
        )
        return runs_told(conn, asked.project_id, [row], model_inputs=True)[0]

    run = await asked.parts.tracking.write(write)
    del run["outputs"]
    return {"run": run}


async def get(asked: Asked) -> dict[str, Any]:
    run_id = checks.run_id_of(await asked.fields())

    def read(conn: Connection) -> dict[str, Any]:
        row = rows.run_of(conn, asked, run_id)
        return {"run": runs_told(conn, asked.project_id, [row], model_inputs=True)[0]}

    return await asked.parts.tracking.read(read)


async def update_(asked: Asked) -> dict[str, Any]:
    fields = await asked.json()
    run_id = checks.run_id_of(fields)
    values: dict[str, Any] = {}
    if fields.get("end_time") is not None:
        values["ended_ms"] = checks.whole(fields, "end_time")
    if fields.get("status") is not None:
        values["status"] = _status(fields["status"])
    name = checks.text(fields, "run_name")[: checks.MAX_KEY]

    def write(conn: Connection) -> dict[str, Any]:
        row = dict(rows.run_of(conn, asked, run_id, write=True))
        if name:
            rename(conn, run_id, name)
        if asked.attempt:  # a client has begun it: from now on it stays in its experiment
            values["begun"] = asked.attempt
        if values:
            conn.execute(update(runs).where(runs.c.id == run_id).values(**values))
        row.update(values, **({"name": name} if name else {}))
        places = locations(conn, asked.project_id, {row["experiment_id"]})
        return {"run_info": run_info(row, places[row["experiment_id"]])}

    return await asked.parts.tracking.write(write)


async def search(asked: Asked) -> dict[str, Any]:
    fields = await asked.json()
    wanted = checks.experiment_ids(fields)
    given = checks.text(fields, "filter")
    most = checks.results(fields, _DEFAULT_RESULTS, strict=True)
    order = checks.texts(fields, "order_by")
    states = checks.view_of(fields, "run_view_type")
    query = search_runs.query(given, order, asked.parts.tracking.dialect)
    offset = pages.offset_of(checks.text(fields, "page_token"))
    ids = [rows.experiment_id_of(each) for each in wanted]
    query = query.where(
        runs.c.project_id == asked.project_id,
        runs.c.experiment_id.in_(ids),
        runs.c.state.in_(states),
    )

    def read(conn: Connection) -> dict[str, Any]:
        found = conn.execute(query.offset(offset).limit(most + 1)).mappings().all()
        told: dict[str, Any] = {}
        if found:
            told["runs"] = runs_told(conn, asked.project_id, found[:most], model_inputs=False)
        if len(found) > most:
            told["next_page_token"] = pages.token_of(offset + most)
        return told

    return await asked.parts.tracking.read(read)


async def delete_(asked: Asked) -> dict[str, Any]:
    return await _move(asked, "deleted")


async def restore(asked: Asked) -> dict[str, Any]:
    return await _move(asked, "active")


async def metric_history(asked: Asked) -> dict[str, Any]:
    fields = await asked.fields()
    run_id = checks.run_id_of(fields)
    key = checks.text(fields, "metric_key", required=True)
    most = _MOST_POINTS
    if fields.get("max_results") is not None:
        most = checks.whole(fields, "max_results")
        if most <= 0:
            raise invalid(
                f"Invalid value {most} for parameter 'max_results' supplied. "
                "It must be a positive integer."
            )
        most = min(most, _MOST_POINTS)
    offset = pages.offset_of(checks.text(fields, "page_token"))

    def read(conn: Connection) -> dict[str, Any]:
        rows.run_of(conn, asked, run_id)
        query = (
            select(points.c.value, points.c.at_ms, points.c.step)
            .where(points.c.run_id == run_id, points.c.key == key)
            .order_by(points.c.at_ms, points.c.step, points.c.value)
            .offset(offset)
        )
        found = conn.execute(query.limit(most + 1)).all()
        told: dict[str, Any] = {}
        if found:
            told["metrics"] = [
                {"key": key, "value": number(row[0]), "timestamp": row[1], "step": row[2] or 0}
                for row in found[:most]
            ]
        if len(found) > most:
            told["next_page_token"] = pages.token_of(offset + most)
        return told

    return await asked.parts.tracking.read(read)


def rename(conn: Connection, run_id: str, name: str) -> None:
    """A run's name is a column and a tag, and both say the same."""
    conn.execute(update(runs).where(runs.c.id == run_id).values(name=name[: checks.MAX_KEY]))
    conn.execute(delete(tags).where(tags.c.run_id == run_id, tags.c.key == RUN_NAME))
    conn.execute(insert(tags).values(run_id=run_id, key=RUN_NAME, value=name))


async def _move(asked: Asked, state: str) -> dict[str, Any]:
    run_id = checks.run_id_of(await asked.json())

    def check(conn: Connection) -> None:
        row = rows.run_of(conn, asked, run_id)
        rows.check_writer(asked, row["job_id"], row["user"], run_id)

    await asked.parts.tracking.read(check)
    await asked.audit("runs.remove" if state == "deleted" else "runs.restore", run_id)
    change = update(runs).where(runs.c.id == run_id, runs.c.project_id == asked.project_id)
    await asked.parts.tracking.write(
        lambda conn: conn.execute(change.values(state=state)).rowcount
    )
    return {}


def _status(value: Any) -> str:
    if isinstance(value, str) and value in _STATUSES.values():
        return value
    if isinstance(value, int) and value in _STATUSES:
        return _STATUSES[value]
    raise of_type("status", value)
