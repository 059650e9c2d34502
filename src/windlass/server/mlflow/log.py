"""`runs/log-…`, `runs/…-tag`: what a script logs while it runs. The path of every metric.

Each call is one function on the store's writer; the calls that come together share its commit.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import Connection, Table, bindparam, delete, select

from windlass.server.mlflow import checks, rows
from windlass.server.mlflow.asked import Asked
from windlass.server.mlflow.errors import absent, invalid, missing, of_type
from windlass.server.mlflow.runs import RUN_NAME, rename
from windlass.server.runs import caps, latest
from windlass.server.runs.service import note
from windlass.server.runs.tables import latest as latest_rows
from windlass.server.runs.tables import logged_model_metrics, params, runs, tags
from windlass.server.store.prepared import Prepared
from windlass.server.store.upsert import insert_of

SOURCE = "mlflow"
_RUN = Prepared(
    select(runs.c.state, runs.c.job_id, runs.c.user).where(
        runs.c.id == bindparam("run_id"), runs.c.project_id == bindparam("project_id")
    )
)


async def log_metric(asked: Asked) -> dict[str, Any]:
    fields = await asked.json()
    run_id = checks.run_id_of(fields)
    checks.text(fields, "key", required=True)
    value = fields.get("value")
    if value is None or value == "":
        raise missing("value")
    if fields.get("timestamp") is None:
        raise missing("timestamp")
    point = _point(asked, run_id, fields, "")
    model = _model_metric(run_id, fields, point) if fields.get("model_id") else None

    def write(conn: Connection) -> None:
        _open(conn, asked, run_id)
        if model is not None:
            _keep_model_metrics(conn, asked, [model])
        _check_room(conn, latest_rows, run_id, (point["key"],))
        latest.add(conn, (point,), SOURCE)

    await asked.parts.tracking.write(write)
    asked.parts.pulse.logged(asked.project_id, run_id)
    return {}


async def log_batch(asked: Asked) -> dict[str, Any]:
    fields = await asked.json()
    run_id = checks.run_id_of(fields)
    metrics = checks.objects(fields, "metrics")
    given, tagged = checks.objects(fields, "params"), checks.objects(fields, "tags")
    found = [_point(asked, run_id, each, f"metrics[{i}]") for i, each in enumerate(metrics)]
    for name, items in (("params", given), ("tags", tagged)):
        for place, item in enumerate(items):
            if item.get("key") is None or item["key"] == "":
                raise missing(f"{name}[{place}].key")
    checks.check_run_id(run_id)
    new = [checks.param(each, f"params[{i}]") for i, each in enumerate(given)]
    names = [checks.tag(each, f"tags[{i}]") for i, each in enumerate(tagged)]
    checks.check_batch(len(found), len(new), len(names))
    _check_unique([key for key, _ in new])
    models = [
        _model_metric(run_id, each, point)
        for each, point in zip(metrics, found, strict=True)
        if each.get("model_id")
    ]

    def write(conn: Connection) -> None:
        _open(conn, asked, run_id)
        if new:
            _keep_params(conn, run_id, new, batch=True)
        _check_room(conn, latest_rows, run_id, {point["key"] for point in found})
        latest.add(conn, found, SOURCE)
        if models:
            _keep_model_metrics(conn, asked, models)
        _keep_tags(conn, run_id, dict(names))

    await asked.parts.tracking.write(write)
    if found:
        asked.parts.pulse.logged(asked.project_id, run_id)
    return {}


async def log_parameter(asked: Asked) -> dict[str, Any]:
    fields = await asked.json()
    run_id = checks.run_id_of(fields)
    checks.text(fields, "key", required=True)
    new = [checks.param(fields)]

    def write(conn: Connection) -> None:
        _open(conn, asked, run_id)
        _keep_params(conn, run_id, new, batch=False)

    await asked.parts.tracking.write(write)
    return {}


async def set_tag(asked: Asked) -> dict[str, Any]:
    fields = await asked.json()
    run_id = checks.run_id_of(fields)
    checks.text(fields, "key", required=True)
    key, value = checks.tag(fields)

    def write(conn: Connection) -> None:
        _open(conn, asked, run_id)
        _keep_tags(conn, run_id, {key: value})

    await asked.parts.tracking.write(write)
    return {}


async def delete_tag(asked: Asked) -> dict[str, Any]:
    fields = await asked.json()
    run_id = checks.run_id_of(fields)
    key = checks.text(fields, "key", required=True)

    def write(conn: Connection) -> None:
        _open(conn, asked, run_id)
        gone = delete(tags).where(tags.c.run_id == run_id, tags.c.key == key)
        if conn.execute(gone).rowcount == 0:
            raise absent(f"No tag with name: {key} in run with id {run_id}")

    await asked.parts.tracking.write(write)
    return {}


def _open(conn: Connection, asked: Asked, run_id: str) -> None:
    """The run is of the caller's project, its to write, and not deleted."""
    row = _RUN.run(conn, {"run_id": run_id, "project_id": asked.project_id}).fetchone()
    if row is None:
        raise absent(f"Run with id={run_id} not found")
    rows.check_writer(asked, row[1], row[2], run_id)
    rows.check_active(run_id, row[0])


def _point(asked: Asked, run_id: str, fields: checks.Fields, path: str) -> latest.Point:
    key, value, at_ms, step = checks.metric(fields, path)
    return {
        "run_id": run_id, "key": key, "rank": 0, "attempt": asked.attempt,
        "offset": latest.made_offset(at_ms, step, value), "step": step, "at_ms": at_ms,
        "value": value,
    }  # fmt: skip


def _keep_params(
    conn: Connection, run_id: str, new: list[tuple[str, str]], *, batch: bool
) -> None:
    """A parameter is set once; again with the same value is no mistake. What was only picked up
    (from the command line, say) gives way to what the script itself says."""
    keys = [key for key, _ in new]
    query = select(params.c.key, params.c.value, params.c.source)
    old = {
        row.key: row.value
        for row in conn.execute(query.where(params.c.run_id == run_id, params.c.key.in_(keys)))
        if row.source == SOURCE
    }
    changed = [(key, old[key], value) for key, value in new if old.get(key, value) != value]
    if changed and not batch:
        key, was, value = changed[0]
        raise checks.changed_params(run_id, key, was, value)
    if changed:
        told = [{"key": k, "old_value": was, "new_value": value} for k, was, value in changed]
        raise invalid(
            "Changing param values is not allowed. Params were already"
            f" logged='{told}' for run ID='{run_id}'."
        )
    fresh = {key: value for key, value in new if key not in old}
    _check_room(conn, params, run_id, fresh)
    note(conn, run_id, fresh, dict.fromkeys(fresh, SOURCE), {})


def _keep_tags(conn: Connection, run_id: str, tagged: dict[str, str]) -> None:
    if name := tagged.get(RUN_NAME):
        rename(conn, run_id, name)
    _check_room(conn, tags, run_id, tagged)
    note(conn, run_id, {}, {}, tagged)


def _check_room(conn: Connection, table: Table, run_id: str, keys: Collection[str]) -> None:
    if over := caps.excess(conn, table, run_id, keys):
        raise invalid(f"{caps.words(table, run_id, over)}.")


def _check_unique(keys: list[str]) -> None:
    twice = [key for place, key in enumerate(keys) if key in keys[:place]]
    if twice:
        raise invalid(
            f"Duplicate parameter keys have been submitted: {twice}. Please ensure "
            "the request contains only one param value per param key."
        )


def _model_metric(run_id: str, fields: checks.Fields, point: latest.Point) -> dict[str, Any]:
    model_id = fields["model_id"]
    if not isinstance(model_id, str):
        raise of_type("model_id", model_id)
    for name, most in (("dataset_name", checks.MAX_NAME), ("dataset_digest", 36)):
        checks.check_length(name, most, checks.text(fields, name))
    return {
        "model_id": model_id, "run_id": run_id, "key": point["key"], "step": point["step"],
        "at_ms": point["at_ms"], "value": point["value"],
        "dataset_name": checks.text(fields, "dataset_name") or None,
        "dataset_digest": checks.text(fields, "dataset_digest") or None,
    }  # fmt: skip


def _keep_model_metrics(conn: Connection, asked: Asked, found: list[dict[str, Any]]) -> None:
    for model_id in {each["model_id"] for each in found}:
        rows.logged_model_of(conn, asked, model_id, write=True)
    statement = insert_of(conn)(logged_model_metrics).on_conflict_do_nothing()
    conn.execute(statement, found)
