"""What ranks used, second by second, as their workers saw it from outside.

A row is a minute of one rank: a line of JSON with the names, then 60 little-endian float32 for
each of them (NaN where nothing was seen), deflated. A worker sends the minute whole each time, so
a repeat changes nothing, and the last one is the fullest.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, delete, func, select

from windlass.server.clock import iso
from windlass.server.runs.tables import system_minutes
from windlass.server.store.upsert import insert_of

SECONDS = 60
MAX_NAMES = 128
MAX_MINUTES = 10_000
"""Of all ranks together, in an answer: a week of one."""
_STRIDE = 4 * SECONDS
_FAR_MS = 1 << 45


def keep(conn: Connection, run_id: str, attempt: int, minutes: Iterable[Any]) -> None:
    """Store minutes as a worker sends them; what has another form is left out."""
    rows = [row for row in (_row(run_id, attempt, each) for each in minutes) if row is not None]
    if not rows:
        return
    upsert = insert_of(conn)
    row = upsert(system_minutes)
    conn.execute(
        row.on_conflict_do_update(
            index_elements=["run_id", "attempt", "rank", "minute_ms"],
            set_={"blob": row.excluded.blob},
        ),
        rows,
    )


def series(
    conn: Connection,
    run_id: str,
    *,
    names: Sequence[str] = (),
    rank: int | None = None,
    since_ms: int = 0,
    until_ms: int | None = None,
    points: int = 1000,
) -> tuple[list[dict[str, Any]], str]:
    """By name and rank: `{"key", "rank", "points": [[ms, value], …]}`, in order of time. Where
    there are more seconds than so many points, they are averaged over equal spans. The second
    value says what was left out of it; "": nothing."""
    mine = [system_minutes.c.run_id == run_id, system_minutes.c.minute_ms > since_ms - 60_000]
    if rank is not None:
        mine.append(system_minutes.c.rank == rank)
    if until_ms is not None:
        mine.append(system_minutes.c.minute_ms <= until_ms)
    ends = select(func.min(system_minutes.c.minute_ms), func.max(system_minutes.c.minute_ms))
    first, last = conn.execute(ends.where(*mine)).one()
    if first is None:
        return [], ""
    # A week has half a million seconds for each name: no more of them are held than are answered.
    span = max(1000, math.ceil((last + 60_000 - first) / points))
    order = (system_minutes.c.rank, system_minutes.c.minute_ms, system_minutes.c.attempt)
    query = select(system_minutes).where(*mine).order_by(*order).limit(MAX_MINUTES + 1)
    found: dict[tuple[str, int], dict[int, tuple[float, int]]] = {}
    left_out = ""
    with conn.execute(query, execution_options={"yield_per": 100}) as result:
        for at, row in enumerate(result.mappings()):
            if at == MAX_MINUTES:
                left_out = (
                    f"only the first {MAX_MINUTES} minutes are told: nothing of rank "
                    f"{row['rank']} from {iso(row['minute_ms'])} on, and of those after it; ask "
                    "with `rank`, `from` or `to`"
                )
                break
            for name, values in opened(row["blob"]).items():
                if names and name not in names:
                    continue
                line = found.setdefault((name, row["rank"]), {})
                for second, value in enumerate(values):
                    at_ms = row["minute_ms"] + 1000 * second
                    wanted = at_ms >= since_ms and (until_ms is None or at_ms <= until_ms)
                    if wanted and not math.isnan(value):
                        place = (at_ms - first) // span
                        total, count = line.get(place, (0.0, 0))
                        line[place] = (total + value, count + 1)
    told = [
        {
            "key": name, "rank": number,
            "points": [
                (first + place * span, total / count) for place, (total, count) in line.items()
            ],
        }
        for (name, number), line in sorted(found.items())
    ]  # fmt: skip
    return told, left_out


def last_values(conn: Connection, run_id: str) -> dict[int, dict[str, float]]:
    """By rank: the last value of each name in its newest minute."""
    query = (
        select(system_minutes)
        .where(system_minutes.c.run_id == run_id)
        .order_by(system_minutes.c.minute_ms.desc(), system_minutes.c.attempt.desc())
        .limit(256)
    )
    found: dict[int, dict[str, float]] = {}
    for row in conn.execute(query).mappings():
        if row["rank"] not in found:
            found[row["rank"]] = {
                name: seen[-1]
                for name, values in opened(row["blob"]).items()
                if (seen := [value for value in values if not math.isnan(value)])
            }
    return found


def forget(conn: Connection, run_ids: Iterable[str]) -> None:
    conn.execute(delete(system_minutes).where(system_minutes.c.run_id.in_(list(run_ids))))


def opened(blob: bytes) -> dict[str, tuple[float, ...]]:
    """By name, 60 values."""
    header, _, data = zlib.decompress(blob).partition(b"\n")
    return {
        name: struct.unpack_from(f"<{SECONDS}f", data, place * _STRIDE)
        for place, name in enumerate(json.loads(header))
    }


def _row(run_id: str, attempt: int, minute: Any) -> dict[str, Any] | None:
    if not isinstance(minute, Mapping):
        return None
    rank, minute_ms, names = minute.get("rank"), minute.get("minute_ms"), minute.get("names")
    if type(rank) is not int or type(minute_ms) is not int or not isinstance(names, list):
        return None
    if not (0 <= rank < 2**31 and 0 <= minute_ms < _FAR_MS and 0 < len(names) <= MAX_NAMES):
        return None
    if not all(isinstance(name, str) and 0 < len(name) <= 64 for name in names):
        return None
    try:
        data = base64.b64decode(minute.get("data") or "", validate=True)
    except (binascii.Error, ValueError, TypeError):
        return None
    if len(data) != len(names) * _STRIDE or len(set(names)) != len(names):
        return None
    blob = zlib.compress(json.dumps(names).encode() + b"\n" + data, 6)
    return {
        "run_id": run_id, "attempt": attempt, "rank": rank, "minute_ms": minute_ms, "blob": blob,
    }  # fmt: skip
