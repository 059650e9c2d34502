"""What runs told: /api/v1/jobs/…/metrics, the series of one job, and /api/v1/runs, the table of
many."""

from __future__ import annotations

import json
import sys
from array import array
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response
from fastapi.responses import StreamingResponse

from windlass.core.access import Right
from windlass.core.errors import InvalidInput
from windlass.core.strict import Strict
from windlass.server.access.calls import Call
from windlass.server.artifacts.owners import owner
from windlass.server.http.marks import require
from windlass.server.http.openapi import answers
from windlass.server.http.query import QueryLine, QueryWords, WholeNumber, moment
from windlass.server.jobs.routes import JobRef
from windlass.server.parts import Wired
from windlass.server.runs import export, series, table
from windlass.server.runs.thinning import Axis, spelled

router = APIRouter(prefix="/api/v1", tags=["runs"])
Read = Annotated[Call, Depends(require(Right.JOB_READ))]

MAX_POINTS = 100_000
MAX_PAGE = 1000
NEWEST_RUNS, MOST_KEYS = 1000, 5000


class Series(Strict):
    key: str
    rank: int
    source: str
    thinned: bool
    points: tuple[tuple[int | None, int, float | str], ...]


class SeriesPage(Strict):
    series: tuple[Series, ...]


class RunPage(Strict):
    items: tuple[dict[str, Any], ...]
    total: int
    next: int | None
    more_columns: int


class KeyPage(Strict):
    params: tuple[str, ...]
    metrics: tuple[str, ...]


@router.get(
    "/jobs/{ref}/metrics",
    response_model=SeriesPage,
    responses=answers("application/octet-stream", "application/x-ndjson"),
)
async def metrics(
    call: Read,
    parts: Wired,
    ref: JobRef,
    key: QueryLine | None = None,
    rank: WholeNumber | None = None,
    points: WholeNumber = 10_000,
    by: QueryLine = "step",
    low: Annotated[QueryLine | None, Query(alias="from")] = None,
    high: Annotated[QueryLine | None, Query(alias="to")] = None,
    format: QueryLine = "json",
) -> Any:
    """What the job logged: a series for each key and rank, points as [step, ms, value]. `key` may
    name several, with commas. `ref` may be a run that no job made, by its id.

    A series with more than `points` comes as the smallest and the largest value of so many
    stretches of steps or of time (`by`), with its first and last point and a NaN where there is
    one: no peak is lost. `from` and `to` are steps, or times (ISO-8601). A value that is no
    number is "NaN", "Infinity" or "-Infinity".

    `format=binary`: a line of JSON that names the series and how many points each has, blanks up
    to a multiple of 8 bytes, then for each its steps, its milliseconds and its values as
    little-endian doubles. `format=jsonl`: every point, unthinned, a line each.
    """
    if not 4 <= points <= MAX_POINTS:
        raise InvalidInput(f"points: from 4 to {MAX_POINTS} (found {points})")
    if format not in ("json", "jsonl", "binary"):
        raise InvalidInput(f"format: json, jsonl or binary (found {format!r})")
    axis = _axis(by)
    wanted = series.Wanted(
        tuple(key.split(",")) if key else (), rank, axis,
        _place("from", low, axis), _place("to", high, axis), points,
    )  # fmt: skip
    of = await owner(parts, call.principal, ref)
    run_id = of.run_id or of.id
    if format == "jsonl":
        told = export.lines(parts.tracking, run_id, wanted)
        return StreamingResponse(told, media_type="application/x-ndjson")
    found = await series.read(parts.tracking, run_id, wanted)
    if format == "binary":
        return Response(as_binary(found), media_type="application/octet-stream")
    # Written here: FastAPI would check each of our own points once more.
    return Response(as_json(found), media_type="application/json")


@router.get("/runs", response_model=RunPage)
async def listing(
    call: Read,
    parts: Wired,
    filter: QueryLine = "",
    sort: QueryLine = "",
    columns: QueryWords = "",
    id: QueryWords = "",
    offset: WholeNumber = 0,
    limit: WholeNumber = 50,
) -> Any:
    """The project's runs, a row each with parameters and metrics (`last`, `min`, `max`, where they
    were picked up), newest first.

    `filter`: `metrics.loss < 0.3 and params.lr = 0.1 and name like 'res%'`; kinds are `metrics`
    (the latest value), `min`, `max`, `params`, `tags` and none for the run's own facts. `sort`:
    `metrics.loss`, `-max.acc`, `params.lr`, `started`. `columns`: `params.lr,metrics.loss`, or `*`
    for all; by default the most common. `id`: only these runs, with commas."""
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidInput(f"limit: from 1 to {MAX_PAGE} (found {limit})")
    if offset < 0:
        raise InvalidInput(f"offset: from 0 on (found {offset})")
    asked = table.Asked(filter, sort, _words(columns), _words(id), offset, limit)
    project = call.principal.project_id
    if not project:
        raise InvalidInput("name a project: X-Wl-Project, --project")
    found = await parts.tracking.read(lambda conn: table.page(conn, project, asked))
    return Response(json.dumps(found, separators=(",", ":")), media_type="application/json")


@router.get("/runs/keys", response_model=KeyPage)
async def names(call: Read, parts: Wired) -> KeyPage:
    """What may stand in `columns`: the names that the newest runs of the project have, the most
    common first."""
    project = call.principal.project_id
    if not project:
        raise InvalidInput("name a project: X-Wl-Project, --project")
    found = await parts.tracking.read(
        lambda conn: table.keys(conn, project, NEWEST_RUNS, MOST_KEYS)
    )
    return KeyPage(params=tuple(found["params"]), metrics=tuple(found["metrics"]))


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _axis(word: str) -> Axis:
    if word == "step":
        return "step"
    if word == "time":
        return "time"
    raise InvalidInput(f"by: step or time (found {word!r})")


def _place(name: str, text: str | None, axis: Axis) -> int | None:
    if text is None:
        return None
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) < 19:
        return int(text)
    if axis == "step":
        raise InvalidInput(f"{name}: a step, a whole number (found {text!r})")
    return moment(name, text)


def as_json(found: list[series.Series]) -> str:
    return json.dumps(
        {
            "series": [
                {
                    "key": each.key, "rank": each.rank, "source": each.source,
                    "thinned": each.thinned,
                    "points": [(step, ms, spelled(value)) for step, ms, value in each.points],
                }
                for each in found
            ]
        },
        separators=(",", ":"), allow_nan=False,
    )  # fmt: skip


def as_binary(found: list[series.Series]) -> bytes:
    head = json.dumps(
        {
            "series": [
                {
                    "key": each.key, "rank": each.rank, "source": each.source,
                    "thinned": each.thinned, "count": len(each.points),
                }
                for each in found
            ]
        },
        separators=(",", ":"),
    ).encode()  # fmt: skip
    head += b" " * (-(len(head) + 1) % 8) + b"\n"
    columns = [head]
    for each in found:
        for at in range(3):
            column = array("d", (_double(point[at]) for point in each.points))
            if sys.byteorder == "big":
                column.byteswap()
            columns.append(column.tobytes())
    return b"".join(columns)


def _double(value: float | int | None) -> float:
    return float("nan") if value is None else float(value)
