"""What workers say that their ranks use: columns of a worker's row, in the report's own write.

CPU time is a sum that only rises. Memory is taken at each beat, and counts for the time since the
beat before; its peak is the most that all ranks of a node had at a beat, or at their ends. What a
worker says is held to sane numbers: nothing is paid for by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import ColumnElement, case

from windlass.server.jobs.tables import workers
from windlass.server.usage.metering import MIB

_MOST = 1 << 50
_GAP_MS = 3_600_000
"""A beat counts for no more than this, however long nothing was heard before it."""


def by_beat(ranks: Iterable[Mapping[str, Any]], now_ms: int) -> dict[str, ColumnElement[int]]:
    cpu = rss = 0
    for rank in ranks:
        cpu += _whole(rank.get("cpu_ms"))
        rss += _whole(rank.get("rss_bytes"))
    since = now_ms - workers.c.beat_ms
    gap = case((since > _GAP_MS, _GAP_MS), (since > 0, since), else_=0)
    return {
        "used_cpu": _at_least(workers.c.used_cpu, cpu),
        "used_memory": workers.c.used_memory + gap * (rss // MIB),
        "peak_bytes": _at_least(workers.c.peak_bytes, rss),
    }


def by_record(record: Mapping[str, Any]) -> dict[str, ColumnElement[int]]:
    ranks = [rank for rank in record.get("ranks") or () if isinstance(rank, Mapping)]
    return {
        "used_cpu": _at_least(workers.c.used_cpu, sum(_whole(r.get("cpu_ms")) for r in ranks)),
        "peak_bytes": _at_least(
            workers.c.peak_bytes, sum(_whole(rank.get("peak_bytes")) for rank in ranks)
        ),
    }


def _at_least(column: ColumnElement[int], value: int) -> ColumnElement[int]:
    return case((column < min(value, _MOST), min(value, _MOST)), else_=column)


def _whole(value: Any) -> int:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return min(value, _MOST) if whole and value > 0 else 0
