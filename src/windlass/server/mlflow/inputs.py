"""`runs/log-inputs`, `runs/outputs`: the data that a run read, the models it read and made."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, func, select

from windlass.server.mlflow import checks, rows
from windlass.server.mlflow.asked import Asked
from windlass.server.mlflow.errors import invalid, missing
from windlass.server.runs.tables import datasets, run_models
from windlass.server.store.upsert import insert_of

_MOST = 1000
_LIMITS = (
    ("name", 500), ("digest", 36), ("source", 65_535), ("schema", 1_048_575),
    ("profile", 16_777_215),
)  # fmt: skip


async def log_inputs(asked: Asked) -> dict[str, Any]:
    fields = await asked.json()
    run_id = checks.run_id_of(fields)
    found = [_dataset(each) for each in checks.objects(fields, "datasets")]
    models = [
        (checks.text(each, "model_id", required=True), 0)
        for each in checks.objects(fields, "models")
    ]
    if len(found) > _MOST:
        raise invalid(f"A request can contain at most {_MOST} datasets. Got {len(found)}.")

    def write(conn: Connection) -> None:
        rows.run_of(conn, asked, run_id, write=True)
        mine = datasets.c.run_id == run_id
        count = conn.execute(select(func.count()).select_from(datasets).where(mine)).scalar_one()
        upsert = insert_of(conn)(datasets)
        for place, each in enumerate(found):
            row = {**each, "run_id": run_id, "place": count + place}
            # The same data again, with the same words: the first stands, as there.
            conn.execute(upsert.values(row).on_conflict_do_nothing())
        _link(conn, asked, run_id, "in", models)

    await asked.parts.tracking.write(write)
    return {}


async def log_outputs(asked: Asked) -> dict[str, Any]:
    fields = await asked.json()
    run_id = checks.run_id_of(fields)
    models = [
        (checks.text(each, "model_id", required=True), checks.whole(each, "step"))
        for each in checks.objects(fields, "models", required=True)
    ]

    def write(conn: Connection) -> None:
        rows.run_of(conn, asked, run_id, write=True)
        _link(conn, asked, run_id, "out", models)

    await asked.parts.tracking.write(write)
    return {}


def _link(
    conn: Connection, asked: Asked, run_id: str, direction: str, models: list[tuple[str, int]]
) -> None:
    upsert = insert_of(conn)(run_models)
    for model_id, step in models:
        rows.logged_model_of(conn, asked, model_id)
        row = {"run_id": run_id, "direction": direction, "model_id": model_id, "step": step}
        conn.execute(upsert.values(row).on_conflict_do_nothing())


def _dataset(fields: checks.Fields) -> dict[str, Any]:
    told = fields.get("dataset")
    if not isinstance(told, dict):
        raise missing("dataset")
    row: dict[str, Any] = {
        name: checks.text(told, name, required=True)
        for name in ("name", "digest", "source_type", "source")
    }
    row |= {name: checks.text(told, name) or None for name in ("schema", "profile")}
    for name, most in _LIMITS:
        if row[name] is not None:
            checks.check_length(name, most, row[name])
    noted = []
    for tag in checks.objects(fields, "tags"):
        key, value = checks.text(tag, "key", required=True), checks.text(tag, "value")
        checks.check_length("key", 255, key)
        checks.check_length("value", 500, value)
        noted.append([key, value])
    return {**row, "tags": json.dumps(noted, ensure_ascii=False)}
