"""`logged-models/…`: the models that runs logged, since MLflow 3 things of their own.

What is kept here is what a client says of them; their files are artifacts, and whether they
become versions in the registry is another matter.
"""

from __future__ import annotations

import random
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, and_, case, delete, exists, insert, or_, select, update

from windlass.server.jobs.naming import invent
from windlass.server.mlflow import checks, filters, pages, rows
from windlass.server.mlflow.asked import Asked
from windlass.server.mlflow.errors import absent, invalid, missing, of_type
from windlass.server.mlflow.filters import ATTRIBUTE, METRIC, PARAM, TAG, Comparison
from windlass.server.mlflow.shapes import models_told
from windlass.server.runs.tables import logged_model_metrics as metrics
from windlass.server.runs.tables import logged_model_notes as notes
from windlass.server.runs.tables import logged_models as models
from windlass.server.store.upsert import insert_of

_STATUSES = {
    1: "LOGGED_MODEL_PENDING",
    2: "LOGGED_MODEL_READY",
    3: "LOGGED_MODEL_UPLOAD_FAILED",
}
_COLUMNS: dict[str, Any] = {
    "name": models.c.name, "model_id": models.c.id, "model_type": models.c.model_type,
    "status": models.c.status, "source_run_id": models.c.run_id,
    **dict.fromkeys(
        ("creation_timestamp", "creation_time", "creation_timestamp_ms"), models.c.created_ms
    ),
    **dict.fromkeys(
        ("last_updated_timestamp", "last_updated_time", "last_updated_timestamp_ms"),
        models.c.updated_ms,
    ),
}  # fmt: skip
NAMES = filters.Names(
    kinds=(ATTRIBUTE, METRIC, PARAM, TAG),
    numeric=frozenset(name for name in _COLUMNS if "time" in name),
    attributes=frozenset(_COLUMNS),
    lists=frozenset(_COLUMNS),
    null=(),
)
_DEFAULT_RESULTS = 100


async def create(asked: Asked) -> dict[str, Any]:
    fields = await asked.json()
    wanted = checks.text(fields, "experiment_id", required=True)
    name = checks.text(fields, "name")
    run_id = checks.text(fields, "source_run_id")
    noted = [("param", *_pair(each)) for each in checks.objects(fields, "params")]
    noted += [("tag", *_pair(each)) for each in checks.objects(fields, "tags")]
    if any(letter in name for letter in "/:.%\"'"):
        raise invalid(
            f"Invalid model name ({name!r}) provided. Model name must be a non-empty string "
            "and cannot contain the following characters: ('/', ':', '.', '%', '\"', \"'\")"
        )
    checks.check_length("name", checks.MAX_NAME, name)
    checks.check_length("model_type", checks.MAX_NAME, checks.text(fields, "model_type"))
    model_id, now_ms = f"m-{uuid4().hex}", asked.now_ms

    def write(conn: Connection) -> dict[str, Any]:
        rows.ensure_default(conn, asked.project_id, now_ms)
        experiment = rows.active(rows.experiment_of(conn, asked, wanted))
        if run_id:
            rows.run_of(conn, asked, run_id, write=True)
        row = {
            "id": model_id, "project_id": asked.project_id, "experiment_id": experiment["id"],
            "name": name or invent(random.Random()), "run_id": run_id or None,
            "status": _STATUSES[1], "message": None,
            "model_type": checks.text(fields, "model_type") or None,
            "created_ms": now_ms, "updated_ms": now_ms, "state": "active",
        }  # fmt: skip
        conn.execute(insert(models).values(row))
        _note(conn, model_id, noted)
        return models_told(conn, asked.project_id, [row])[0]

    return {"model": await asked.parts.tracking.write(write)}


async def get(asked: Asked) -> dict[str, Any]:
    deleted = asked.query.get("allow_deleted", "").lower() == "true"

    def read(conn: Connection) -> dict[str, Any]:
        row = rows.logged_model_of(conn, asked, asked.params["model_id"], deleted=deleted)
        return {"model": models_told(conn, asked.project_id, [row])[0]}

    return await asked.parts.tracking.read(read)


async def finish(asked: Asked) -> dict[str, Any]:
    fields = await asked.json()
    status = fields.get("status")
    if status is None or status == "":
        raise missing("status")
    status = _STATUSES.get(status, status) if isinstance(status, int) else status
    if not isinstance(status, str) or status not in _STATUSES.values():
        raise of_type("status", status)

    def write(conn: Connection) -> dict[str, Any]:
        model_id = asked.params["model_id"]
        rows.logged_model_of(conn, asked, model_id, write=True)
        values = {"status": status, "updated_ms": asked.now_ms}
        conn.execute(update(models).where(models.c.id == model_id).values(**values))
        row = rows.logged_model_of(conn, asked, model_id)
        return {"model": models_told(conn, asked.project_id, [row])[0]}

    return await asked.parts.tracking.write(write)


async def delete_(asked: Asked) -> dict[str, Any]:
    def write(conn: Connection) -> None:
        row = rows.logged_model_of(conn, asked, asked.params["model_id"], write=True)
        gone = update(models).where(models.c.id == row["id"])
        conn.execute(gone.values(state="deleted", updated_ms=asked.now_ms))

    await asked.parts.tracking.write(write)
    return {}


async def set_tags(asked: Asked) -> dict[str, Any]:
    fields = await asked.json()
    return await _add(asked, [("tag", *_pair(each)) for each in checks.objects(fields, "tags")])


async def add_params(asked: Asked) -> dict[str, Any]:
    fields = await asked.json()
    found = [("param", *_pair(each)) for each in checks.objects(fields, "params")]
    return await _add(asked, found)


async def delete_tag(asked: Asked) -> dict[str, Any]:
    model_id, key = asked.params["model_id"], asked.params["key"]

    def write(conn: Connection) -> None:
        rows.logged_model_of(conn, asked, model_id, write=True)
        tag = and_(notes.c.model_id == model_id, notes.c.kind == "tag", notes.c.key == key)
        if conn.execute(delete(notes).where(tag)).rowcount == 0:
            raise absent(f"No tag with key {key!r} found for model with ID {model_id!r}.")

    await asked.parts.tracking.write(write)
    return {}


async def search(asked: Asked) -> dict[str, Any]:
    fields = await asked.json()
    ids = [rows.experiment_id_of(each) for each in checks.experiment_ids(fields)]
    if not ids:
        raise missing("experiment_ids")
    given = checks.text(fields, "filter")
    most = checks.results(fields, _DEFAULT_RESULTS)
    offset = pages.offset_of(checks.text(fields, "page_token"))
    on = _on_datasets(checks.objects(fields, "datasets"))
    comparisons = filters.parse(given, NAMES)
    dialect = asked.parts.tracking.dialect
    query = select(models).where(
        models.c.project_id == asked.project_id,
        models.c.experiment_id.in_(ids),
        models.c.state == "active",
        *(_clause(each, on, dialect) for each in comparisons),
    )
    if on is not None and not any(each.kind == METRIC for each in comparisons):
        query = query.where(exists().where(metrics.c.model_id == models.c.id, on))
    query = _ordered(query, checks.objects(fields, "order_by"))

    def read(conn: Connection) -> dict[str, Any]:
        found = conn.execute(query.offset(offset).limit(most + 1)).mappings().all()
        told: dict[str, Any] = {}
        if found:
            told["models"] = models_told(conn, asked.project_id, found[:most])
        if len(found) > most:
            told["next_page_token"] = pages.token_of(offset + most)
        return told

    return await asked.parts.tracking.read(read)


async def _add(asked: Asked, found: list[tuple[str, str, str]]) -> dict[str, Any]:
    def write(conn: Connection) -> None:
        row = rows.logged_model_of(conn, asked, asked.params["model_id"], write=True)
        _note(conn, row["id"], found)

    await asked.parts.tracking.write(write)
    return {}


def _note(conn: Connection, model_id: str, found: list[tuple[str, str, str]]) -> None:
    upsert = insert_of(conn)(notes)
    changed = upsert.on_conflict_do_update(
        index_elements=["model_id", "kind", "key"], set_={"value": upsert.excluded.value}
    )
    given = {(kind, key): value for kind, key, value in found}
    if given:
        conn.execute(
            changed,
            [
                {"model_id": model_id, "kind": kind, "key": key, "value": given[kind, key]}
                for kind, key in sorted(given)
            ],
        )


def _pair(fields: checks.Fields) -> tuple[str, str]:
    key, value = checks.text(fields, "key", required=True), checks.text(fields, "value")
    checks.check_length("key", checks.MAX_KEY, key)
    return key, value


def _on_datasets(given: list[checks.Fields]) -> Any:
    said = []
    for each in given:
        if not checks.text(each, "dataset_name"):
            raise invalid("`dataset_name` in the `datasets` clause must be specified.")
        one = metrics.c.dataset_name == each["dataset_name"]
        if digest := checks.text(each, "dataset_digest"):
            one = and_(one, metrics.c.dataset_digest == digest)
        said.append(one)
    return or_(*said) if said else None


def _clause(comparison: Comparison, on: Any, dialect: str) -> Any:
    value, comparator = comparison.value, comparison.comparator
    if comparison.kind == ATTRIBUTE:
        return filters.compare(_COLUMNS[comparison.key], comparator, value, dialect)
    if comparison.kind == METRIC:
        mine = and_(metrics.c.model_id == models.c.id, metrics.c.key == comparison.key)
        said = filters.compare(metrics.c.value, comparator, value, dialect)
        return exists().where(mine, said, *([] if on is None else [on]))
    kind = "tag" if comparison.kind == TAG else "param"
    mine = and_(
        notes.c.model_id == models.c.id, notes.c.kind == kind, notes.c.key == comparison.key
    )
    return exists().where(mine, filters.compare(notes.c.value, comparator, value, dialect))


def _ordered(query: Any, order_by: list[checks.Fields]) -> Any:
    seen = set()
    for each in order_by[:16]:
        name = checks.text(each, "field_name", required=True)
        ascending = each.get("ascending", True) is not False
        kind, _, key = name.partition(".")
        if kind == "metrics" and key:
            newest = select(metrics.c.value).where(
                metrics.c.model_id == models.c.id, metrics.c.key == key
            )
            if dataset := checks.text(each, "dataset_name"):
                newest = newest.where(metrics.c.dataset_name == dataset)
            if digest := checks.text(each, "dataset_digest"):
                newest = newest.where(metrics.c.dataset_digest == digest)
            newest = newest.order_by(
                metrics.c.at_ms.desc(), metrics.c.step.desc(), metrics.c.run_id
            )
            column: Any = newest.limit(1).scalar_subquery()
        elif name in _COLUMNS:
            column = _COLUMNS[name]
        else:
            raise invalid(f"Invalid order by field name: {name}")
        seen.add(id(column))
        query = query.order_by(
            case((column.is_(None), 1), else_=0), column.asc() if ascending else column.desc()
        )
    if id(models.c.created_ms) not in seen:
        query = query.order_by(models.c.created_ms.desc())
    return query.order_by(models.c.id)
