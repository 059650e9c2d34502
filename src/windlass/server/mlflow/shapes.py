"""Rows as MLflow's JSON has them: a field that was never set is left out, 64 bits are numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, select

from windlass.server.runs.tables import (
    datasets,
    experiment_tags,
    experiments,
    latest,
    logged_model_metrics,
    logged_model_notes,
    params,
    run_models,
    tags,
)

Row = Any
"""A row as a mapping; those of SQLAlchemy are no `Mapping` of texts to mypy."""
_CHUNK = 500
"""So many ids in one question: a database takes a bounded number of values."""

NAN = float("nan")


def number(value: float | None) -> float:
    """A stored value as it was; infinities and NaN become their names when JSON is written."""
    return NAN if value is None else value


def experiments_told(
    conn: Connection, project_id: str, rows: Sequence[Row]
) -> list[dict[str, Any]]:
    tagged: dict[str, list[dict[str, str]]] = {}
    for some in _chunks([row["id"] for row in rows]):
        query = select(
            experiment_tags.c.experiment_id, experiment_tags.c.key, experiment_tags.c.value
        ).where(
            experiment_tags.c.project_id == project_id, experiment_tags.c.experiment_id.in_(some)
        )
        for experiment_id, key, value in conn.execute(query.order_by(experiment_tags.c.key)):
            tagged.setdefault(experiment_id, []).append({"key": key, "value": value})
    told = []
    for row in rows:
        each: dict[str, Any] = {
            "experiment_id": row["id"],
            "name": row["name"],
            "artifact_location": row["artifact_location"],
            "lifecycle_stage": row["state"],
            "last_update_time": row["updated_ms"],
            "creation_time": row["created_ms"],
            "workspace": "default",
        }
        if row["id"] in tagged:
            each["tags"] = tagged[row["id"]]
        told.append(each)
    return told


def run_info(row: Row, artifact_location: str) -> dict[str, Any]:
    info = {
        "run_uuid": row["id"],
        "experiment_id": row["experiment_id"],
        "run_name": row["name"],
        "user_id": row["user"],
        "status": row["status"],
        "start_time": row["started_ms"],
        "end_time": row["ended_ms"],
        "artifact_uri": f"{artifact_location}/{row['id']}/artifacts",
        "lifecycle_stage": row["state"],
        "run_id": row["id"],
    }
    return {name: value for name, value in info.items() if value is not None}


def runs_told(
    conn: Connection, project_id: str, rows: Sequence[Row], *, model_inputs: bool
) -> list[dict[str, Any]]:
    """Whole runs, by a handful of questions however many they are."""
    ids = [row["id"] for row in rows]
    places = locations(conn, project_id, {row["experiment_id"] for row in rows})
    data: dict[str, dict[str, Any]] = {run_id: {} for run_id in ids}
    inputs: dict[str, dict[str, Any]] = {run_id: {} for run_id in ids}
    outputs: dict[str, dict[str, Any]] = {run_id: {} for run_id in ids}
    for some in _chunks(ids):
        measured = select(latest.c.run_id, latest.c.key, latest.c.value, latest.c.at_ms,
                          latest.c.step).where(latest.c.run_id.in_(some))  # fmt: skip
        for run_id, key, value, at_ms, step in conn.execute(
            measured.order_by(latest.c.run_id, latest.c.key)
        ):
            data[run_id].setdefault("metrics", []).append(
                {"key": key, "value": number(value), "timestamp": at_ms, "step": step or 0}
            )
        for table, name in ((params, "params"), (tags, "tags")):
            noted = select(table.c.run_id, table.c.key, table.c.value)
            noted = noted.where(table.c.run_id.in_(some)).order_by(table.c.run_id, table.c.key)
            for run_id, key, value in conn.execute(noted):
                data[run_id].setdefault(name, []).append({"key": key, "value": value})
        read = select(datasets).where(datasets.c.run_id.in_(some)).order_by(datasets.c.place)
        for row in conn.execute(read).mappings():
            inputs[row["run_id"]].setdefault("dataset_inputs", []).append(_dataset(row))
        linked = select(run_models).where(run_models.c.run_id.in_(some))
        for row in conn.execute(linked.order_by(run_models.c.step)).mappings():
            if row["direction"] == "out":
                outputs[row["run_id"]].setdefault("model_outputs", []).append(
                    {"model_id": row["model_id"], "step": row["step"]}
                )
            elif model_inputs:
                inputs[row["run_id"]].setdefault("model_inputs", []).append(
                    {"model_id": row["model_id"]}
                )
    return [
        {
            "info": run_info(row, places[row["experiment_id"]]),
            "data": data[row["id"]],
            "inputs": inputs[row["id"]],
            "outputs": outputs[row["id"]],
        }
        for row in rows
    ]


def locations(conn: Connection, project_id: str, ids: set[str]) -> dict[str, str]:
    """Where experiments keep their files."""
    found = {each: f"mlflow-artifacts:/{each}" for each in ids}
    for some in _chunks(sorted(ids)):
        query = select(experiments.c.id, experiments.c.artifact_location).where(
            experiments.c.project_id == project_id, experiments.c.id.in_(some)
        )
        found.update({experiment_id: place for experiment_id, place in conn.execute(query)})
    return found


def models_told(conn: Connection, project_id: str, rows: Sequence[Row]) -> list[dict[str, Any]]:
    places = locations(conn, project_id, {row["experiment_id"] for row in rows})
    notes: dict[tuple[str, str], list[dict[str, str]]] = {}
    measured: dict[str, list[dict[str, Any]]] = {}
    for some in _chunks([row["id"] for row in rows]):
        query = select(logged_model_notes).where(logged_model_notes.c.model_id.in_(some))
        for row in conn.execute(query.order_by(logged_model_notes.c.key)).mappings():
            notes.setdefault((row["model_id"], row["kind"]), []).append(
                {"key": row["key"], "value": row["value"]}
            )
        values = select(logged_model_metrics).where(logged_model_metrics.c.model_id.in_(some))
        for row in conn.execute(values.order_by(logged_model_metrics.c.key)).mappings():
            measured.setdefault(row["model_id"], []).append(_model_metric(row))
    return [
        _model(row, places[row["experiment_id"]], notes, measured.get(row["id"], []))
        for row in rows
    ]


def _model(
    row: Row, place: str, notes: Mapping[tuple[str, str], Any], measured: list[dict[str, Any]]
) -> dict[str, Any]:
    info: dict[str, Any] = {
        "model_id": row["id"],
        "experiment_id": row["experiment_id"],
        "name": row["name"],
        "creation_timestamp_ms": row["created_ms"],
        "last_updated_timestamp_ms": row["updated_ms"],
        "artifact_uri": f"{place}/models/{row['id']}/artifacts",
        "status": row["status"],
        "model_type": row["model_type"] or "",
        "source_run_id": row["run_id"] or "",
    }
    if (row["id"], "tag") in notes:
        info["tags"] = notes[row["id"], "tag"]
    data: dict[str, Any] = {}
    if (row["id"], "param") in notes:
        data["params"] = notes[row["id"], "param"]
    if measured:
        data["metrics"] = measured
    return {"info": info, "data": data}


def _model_metric(row: Row) -> dict[str, Any]:
    told = {
        "key": row["key"],
        "value": number(row["value"]),
        "timestamp": row["at_ms"],
        "step": row["step"],
        "dataset_name": row["dataset_name"],
        "dataset_digest": row["dataset_digest"],
        "model_id": row["model_id"],
        "run_id": row["run_id"],
    }
    return {name: value for name, value in told.items() if value is not None}


def _dataset(row: Row) -> dict[str, Any]:
    told = {name: row[name] for name in ("name", "digest", "source_type", "source")}
    told |= {name: row[name] for name in ("schema", "profile") if row[name] is not None}
    noted = [{"key": key, "value": value} for key, value in json.loads(row["tags"])]
    return {"dataset": told, **({"tags": noted} if noted else {})}


def _chunks(ids: Sequence[str]) -> list[Sequence[str]]:
    return [ids[first : first + _CHUNK] for first in range(0, len(ids), _CHUNK)]
