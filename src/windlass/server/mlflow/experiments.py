"""`experiments/…`: a project's experiments."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, and_, delete, insert, select, update

from windlass.server.mlflow import checks, pages, rows, search_experiments
from windlass.server.mlflow.asked import Asked
from windlass.server.mlflow.errors import MlflowError, absent, invalid
from windlass.server.mlflow.shapes import experiments_told
from windlass.server.runs import caps, jobs
from windlass.server.runs.tables import experiment_tags, experiments, runs
from windlass.server.store.upsert import insert_of


async def create(asked: Asked) -> dict[str, Any]:
    fields = await asked.json()
    name = checks.text(fields, "name", required=True)
    location = checks.text(fields, "artifact_location")
    tagged = [checks.experiment_tag(tag) for tag in checks.objects(fields, "tags")]
    checks.check_length("name", checks.MAX_NAME, name)
    checks.check_length("artifact_location", 2048, location)
    experiment_id, now_ms = jobs.new_experiment_id(), asked.now_ms

    def write(conn: Connection) -> None:
        rows.ensure_default(conn, asked.project_id, now_ms)
        if caps.full_of_experiments(conn, asked.project_id):
            raise invalid(
                f"The project has {caps.MOST_EXPERIMENTS} experiments, the most that one may "
                "have, deleted ones among them."
            )
        row = {
            "project_id": asked.project_id, "id": experiment_id, "name": name, "state": "active",
            "artifact_location": location or f"mlflow-artifacts:/{experiment_id}",
            "created_ms": now_ms, "updated_ms": now_ms,
        }  # fmt: skip
        statement = insert_of(conn)(experiments).values(row).on_conflict_do_nothing()
        if conn.execute(statement.returning(experiments.c.id)).first() is None:
            raise _taken(name)
        for key, value in dict(tagged).items():
            _tag(conn, asked, experiment_id, key, value)
        _rehome(conn, asked, experiment_id)

    await asked.parts.tracking.write(write)
    return {"experiment_id": experiment_id}


async def get(asked: Asked) -> dict[str, Any]:
    fields = await asked.fields()
    wanted = checks.text(fields, "experiment_id", required=True)

    def read(conn: Connection) -> dict[str, Any]:
        row = rows.experiment_of(conn, asked, wanted)
        return {"experiment": experiments_told(conn, asked.project_id, [row])[0]}

    return await asked.parts.tracking.read(read)


async def get_by_name(asked: Asked) -> dict[str, Any]:
    fields = await asked.fields()
    name = checks.text(fields, "experiment_name", required=True)

    def look(conn: Connection) -> dict[str, Any]:
        row = _by_name(conn, asked, name)
        if row is None and name == "Default":
            row = rows.default_row(asked.now_ms)
        if row is None:
            raise absent(f"Could not find experiment with name '{name}'")
        if row["state"] == "active":
            _rehome(conn, asked, row["id"])
        return {"experiment": experiments_told(conn, asked.project_id, [row])[0]}

    if asked.attempt:  # `mlflow.set_experiment` in a job: its run belongs there then
        return await asked.parts.tracking.write(look)
    return await asked.parts.tracking.read(look)


async def search(asked: Asked) -> dict[str, Any]:
    fields = await asked.fields("order_by")
    most = checks.results(fields, 0)
    states = checks.view_of(fields, "view_type")
    given, order = checks.text(fields, "filter"), checks.texts(fields, "order_by")
    query = search_experiments.query(
        asked.project_id, given, order, states, asked.parts.tracking.dialect
    )
    offset = pages.offset_of(checks.text(fields, "page_token"))
    await asked.parts.tracking.write(
        lambda conn: rows.ensure_default(conn, asked.project_id, asked.now_ms)
    )

    def read(conn: Connection) -> dict[str, Any]:
        found = conn.execute(query.offset(offset).limit(most + 1)).mappings().all()
        told: dict[str, Any] = {}
        if found:
            told["experiments"] = experiments_told(conn, asked.project_id, found[:most])
        if len(found) > most:
            told["next_page_token"] = pages.token_of(offset + most)
        return told

    return await asked.parts.tracking.read(read)


async def update_(asked: Asked) -> dict[str, Any]:
    fields = await asked.json()
    wanted = checks.text(fields, "experiment_id", required=True)
    name = checks.text(fields, "new_name", required=True)
    checks.check_length("name", checks.MAX_NAME, name)

    def write(conn: Connection) -> None:
        row = _stored(conn, asked, wanted)
        if row["state"] != "active":
            # INVALID_STATE is a 500 there; a caller's mistake is none here.
            raise MlflowError("INVALID_STATE", "Cannot rename a non-active experiment.", 400)
        other = _by_name(conn, asked, name)
        if other is not None and other["id"] != row["id"]:
            raise _taken(name)
        _change(conn, asked, row["id"], name=name)

    await asked.parts.tracking.write(write)
    return {}


async def delete_(asked: Asked) -> dict[str, Any]:
    return await _move(asked, "active", "deleted")


async def restore(asked: Asked) -> dict[str, Any]:
    return await _move(asked, "deleted", "active")


async def set_tag(asked: Asked) -> dict[str, Any]:
    fields = await asked.json()
    wanted = checks.text(fields, "experiment_id", required=True)
    checks.text(fields, "key", required=True)
    key, value = checks.experiment_tag(fields)

    def write(conn: Connection) -> None:
        row = rows.active(_stored(conn, asked, wanted))
        _tag(conn, asked, row["id"], key, value)

    await asked.parts.tracking.write(write)
    return {}


async def delete_tag(asked: Asked) -> dict[str, Any]:
    fields = await asked.json()
    wanted = checks.text(fields, "experiment_id", required=True)
    key = checks.text(fields, "key", required=True)

    def write(conn: Connection) -> None:
        row = rows.active(_stored(conn, asked, wanted))
        tag = and_(
            experiment_tags.c.project_id == asked.project_id,
            experiment_tags.c.experiment_id == row["id"],
            experiment_tags.c.key == key,
        )
        if conn.execute(delete(experiment_tags).where(tag)).rowcount == 0:
            raise absent(f"No tag with name: {key} in experiment with id {row['id']}")

    await asked.parts.tracking.write(write)
    return {}


async def _move(asked: Asked, before: str, after: str) -> dict[str, Any]:
    fields = await asked.json()
    wanted = checks.text(fields, "experiment_id", required=True)

    def check(conn: Connection) -> rows.Row:
        row = rows.experiment_of(conn, asked, wanted)
        if asked.attempt:
            raise MlflowError("PERMISSION_DENIED", "The token of a job removes no experiment.")
        if row["state"] != before:
            raise absent(f"No Experiment with id={row['id']} exists")
        return row

    def write(conn: Connection) -> None:
        _stored(conn, asked, wanted)
        row = check(conn)
        _change(conn, asked, row["id"], state=after)
        conn.execute(
            update(runs)
            .where(runs.c.project_id == asked.project_id, runs.c.experiment_id == row["id"])
            .values(state=after)
        )

    row = await asked.parts.tracking.read(check)
    await asked.audit(
        "experiments.remove" if after == "deleted" else "experiments.restore", row["name"]
    )
    await asked.parts.tracking.write(write)
    return {}


def _stored(conn: Connection, asked: Asked, wanted: str) -> rows.Row:
    """The experiment, its row made where it is a Default that nobody wrote to yet."""
    rows.ensure_default(conn, asked.project_id, asked.now_ms)
    return rows.experiment_of(conn, asked, wanted)


def _by_name(conn: Connection, asked: Asked, name: str) -> rows.Row | None:
    query = select(experiments).where(
        experiments.c.project_id == asked.project_id, experiments.c.name == name
    )
    return conn.execute(query).mappings().first()


def _change(conn: Connection, asked: Asked, experiment_id: str, **values: Any) -> None:
    conn.execute(
        update(experiments)
        .where(experiments.c.project_id == asked.project_id, experiments.c.id == experiment_id)
        .values(updated_ms=asked.now_ms, **values)
    )


def _tag(conn: Connection, asked: Asked, experiment_id: str, key: str, value: str) -> None:
    conn.execute(
        delete(experiment_tags).where(
            experiment_tags.c.project_id == asked.project_id,
            experiment_tags.c.experiment_id == experiment_id,
            experiment_tags.c.key == key,
        )
    )
    conn.execute(
        insert(experiment_tags).values(
            project_id=asked.project_id, experiment_id=experiment_id, key=key, value=value
        )
    )


def _rehome(conn: Connection, asked: Asked, experiment_id: str) -> None:
    """The run of the calling attempt goes into the experiment that its script has just set. An
    MLflow client refuses to begin a run of another experiment than the one it set; once it has
    begun the run, a look at other experiments moves nothing any more."""
    if asked.attempt:
        jobs.move(conn, asked.who.job_id or "", experiment_id, asked.attempt)


def _taken(name: str) -> MlflowError:
    return MlflowError("RESOURCE_ALREADY_EXISTS", f"Experiment(name={name}) already exists.")
