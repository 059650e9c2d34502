"""What ranks report through their spools: metrics, parameters, tags, progress, checkpoints.

Lines arrive with their offset in the rank's spool, so a batch that is sent twice is kept once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, delete, select

from windlass.server.runs import caps, latest
from windlass.server.runs.tables import (
    blocks,
    datasets,
    logged_model_metrics,
    logged_model_notes,
    logged_models,
    params,
    points,
    run_marks,
    run_models,
    spools,
    system_minutes,
    tags,
)
from windlass.server.runs.tables import latest as latest_rows
from windlass.server.runs.tables import runs as run_rows
from windlass.server.store.upsert import insert_of

_MAX_KEY = 255
_MAX_NAME = 250
_MAX_PARAM = 6000
_MAX_TAG = 8000
_MAX_SOURCE = 120
LOGGED = "windlass.log"
"""Where a metric was picked up whose line does not say."""
_WORDS = {"NaN": None, "Infinity": math.inf, "-Infinity": -math.inf}
"""Numbers that JSON has none for. NaN is stored as NULL."""


@dataclass
class Batch:
    """Spool lines, sorted by what they mean."""

    points: list[dict[str, Any]] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)
    """By key: where its points were picked up."""
    params: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By key: the value, and where it was picked up."""
    tags: dict[str, str] = field(default_factory=dict)
    checkpoints: list[dict[str, Any]] = field(default_factory=list)
    step: int | None = None
    done: int | None = None
    total: int | None = None


def sort(lines: Sequence[Any], *, job_id: str, attempt: int, rank: int, offset: int) -> Batch:
    """What is in a batch. A line of user code may hold anything: what is not understood is
    left out, nothing here raises."""
    batch = Batch()
    for place, line in enumerate(lines):
        if not isinstance(line, dict):
            continue
        kind, step = line.get("kind"), _whole(line.get("step"))
        if step is not None:
            batch.step = max(step, batch.step or 0)
        if kind == "metric" and isinstance(line.get("values"), dict):
            at = {"step": step, "at_ms": _whole(line.get("t")) or 0}
            names = {"run_id": job_id, "attempt": attempt, "rank": rank, "offset": offset + place}
            source = _source(line, LOGGED)
            for key, value in line["values"].items():
                number = _number(value)
                if number is not None or (isinstance(value, str) and value in _WORDS):
                    if number is None:
                        number = _WORDS[value]
                    short = str(key)[:_MAX_KEY]
                    batch.points.append({**names, **at, "key": short, "value": number})
                    batch.sources[short] = source
        elif kind == "param" and isinstance(line.get("values"), dict):
            source = _source(line, "")
            for key, value in line["values"].items():
                batch.params[str(key)[:_MAX_NAME]] = (_text(value)[:_MAX_PARAM], source)
        elif kind == "tag" and isinstance(line.get("values"), dict):
            for key, value in line["values"].items():
                batch.tags[str(key)[:_MAX_NAME]] = _text(value)[:_MAX_TAG]
        elif kind == "progress":
            batch.done, batch.total = _whole(line.get("done")), _whole(line.get("total"))
        elif kind == "checkpoint":
            batch.checkpoints.append(line)
    return batch


def known_offset(conn: Connection, job_id: str, attempt: int, rank: int) -> int:
    found = conn.execute(
        select(spools.c.offset).where(
            spools.c.job_id == job_id, spools.c.attempt == attempt, spools.c.rank == rank
        )
    ).scalar()
    return int(found or 0)


def keep(
    conn: Connection, batch: Batch, *, job_id: str, attempt: int, rank: int, end: int
) -> None:
    """Store the points and how far the spool was read; a repeat changes nothing."""
    upsert = insert_of(conn)
    for table, given in (
        (latest_rows, batch.sources), (params, batch.params), (tags, batch.tags),
    ):  # fmt: skip
        caps.cut(conn, job_id, table, given)
    found = [point for point in batch.points if point["key"] in batch.sources]
    latest.add(conn, found, lambda point: batch.sources[point["key"]])
    note(
        conn,
        job_id,
        {key: value for key, (value, _) in batch.params.items()},
        {key: source for key, (_, source) in batch.params.items()},
        batch.tags,
    )
    row = upsert(spools).values(job_id=job_id, attempt=attempt, rank=rank, offset=end)
    conn.execute(
        row.on_conflict_do_update(
            index_elements=["job_id", "attempt", "rank"],
            set_={"offset": row.excluded.offset},
            where=spools.c.offset < row.excluded.offset,
        )
    )


def note(
    conn: Connection,
    run_id: str,
    given: Mapping[str, str],
    sources: Mapping[str, str],
    tagged: Mapping[str, str],
) -> None:
    """Parameters and tags of a run: the last word for each stands."""
    upsert = insert_of(conn)
    if given:
        param = upsert(params)
        changed = {name: param.excluded[name] for name in ("value", "source")}
        conn.execute(
            param.on_conflict_do_update(index_elements=["run_id", "key"], set_=changed),
            [
                {"run_id": run_id, "key": key, "value": given[key], "source": sources[key]}
                for key in sorted(given)
            ],
        )
    if tagged:
        tag = upsert(tags)
        conn.execute(
            tag.on_conflict_do_update(
                index_elements=["run_id", "key"], set_={"value": tag.excluded.value}
            ),
            [{"run_id": run_id, "key": key, "value": tagged[key]} for key in sorted(tagged)],
        )


def forget(conn: Connection, job_ids: Sequence[str]) -> None:
    """All that is known of these jobs' runs, and of the runs that were made inside them."""
    made = select(run_rows.c.id).where(run_rows.c.job_id.in_(job_ids))
    ids = {*job_ids, *conn.execute(made).scalars()}
    models = select(logged_models.c.id).where(logged_models.c.run_id.in_(ids))
    for table in (logged_model_notes, logged_model_metrics):
        conn.execute(delete(table).where(table.c.model_id.in_(models)))
    for table in (
        logged_models, logged_model_metrics, points, blocks, latest_rows, params, tags, datasets,
        run_models, run_marks, system_minutes,
    ):  # fmt: skip
        conn.execute(delete(table).where(table.c.run_id.in_(ids)))
    conn.execute(delete(spools).where(spools.c.job_id.in_(job_ids)))
    conn.execute(delete(run_rows).where(run_rows.c.id.in_(ids)))


def _source(line: Mapping[str, Any], otherwise: str) -> str:
    found = line.get("source")
    return found[:_MAX_SOURCE] if isinstance(found, str) and found else otherwise


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _whole(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    number = int(value)
    return number if -(2**63) <= number < 2**63 else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return float(value)
    if not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
