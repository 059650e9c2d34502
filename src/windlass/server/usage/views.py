"""Reports and entries as they leave: JSON for programs, CSV (RFC 4180) for spreadsheets."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from windlass.core.usage import LINE_OF, UsageReport, UsageRow, format_money
from windlass.server.clock import stamp
from windlass.server.settings import DAY_MS
from windlass.server.usage.metering import MIB
from windlass.server.usage.report import Asked, Sum

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_AMOUNTS = (
    "cpu_seconds", "memory_byte_seconds", "gpu_seconds", "used_cpu_seconds",
    "used_memory_byte_seconds", "peak_memory_bytes", "cost",
)  # fmt: skip
_REPORT_HEAD = ("project", "user", "job", "line", *_AMOUNTS, "currency")
ENTRY_HEAD = (
    "id", "from", "to", "kind", "line", "project", "user", "job", "job_id", "attempt", "pool",
    "gpu_model", *_AMOUNTS, "currency",
)  # fmt: skip


def report_view(
    asked: Asked, sums: Sequence[Sum], currency: str, limit: int, until_ms: int
) -> UsageReport:
    total, platform = Sum("total", "charged"), Sum("platform", "free")
    for each in sums:
        into = total if each.line == "charged" else platform
        into.add(each.amounts())
    rows = tuple(row_view(each, asked.by) for each in sums[:limit])
    return UsageReport.model_construct(
        by=asked.by, since=stamp(asked.from_ms), until=stamp(until_ms), currency=currency,
        rows=rows, left_off=max(0, len(sums) - limit), total=row_view(total, "project"),
        platform=row_view(platform, "project"),
    )  # fmt: skip


def row_view(each: Sum, by: str) -> UsageRow:
    key = stamp(int(each.key) * DAY_MS)[:10] if by == "day" else each.key
    return UsageRow.model_construct(
        key=key, line=each.line, project=each.project, user=each.user, job=each.job,
        cost_micro=each.cost, **_amounts(each.amounts()),
    )  # fmt: skip


def report_csv(
    asked: Asked, sums: Iterable[Sum], currency: str, *, head: bool = True
) -> Iterator[bytes]:
    """Line by line. Only the columns that the report is by are filled."""
    columns = [name for name in _REPORT_HEAD if name not in ("project", "user", "job")]
    names = ["project", "user", "job"] if asked.by == "job" else []
    if head:
        yield csv_line([asked.by if asked.by != "job" else "job_id", *names, *columns])
    for each in sums:
        row = row_view(each, asked.by).model_dump(mode="json") | {"currency": currency}
        yield csv_line([_text(row["key"]), *(_text(row[n]) for n in names)] + _cells(row, columns))


def entry_csv(row: Mapping[str, Any], currency: str) -> bytes:
    view = {
        "id": row["id"], "from": stamp(row["from_ms"]), "to": stamp(row["to_ms"]),
        "kind": row["kind"], "line": LINE_OF[row["kind"]], "project": _text(row["project_name"]),
        "user": _text(row["user_name"]), "job": _text(row["job_name"]), "job_id": row["job_id"],
        "attempt": row["number"], "pool": _text(row["pool"]),
        "gpu_model": _text(row["gpu_model"]), **_amounts(row), "currency": currency,
    }  # fmt: skip
    return csv_line(_cells(view, ENTRY_HEAD))


def entry_view(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": row["id"], "from": stamp(row["from_ms"]), "to": stamp(row["to_ms"]),
        "kind": row["kind"], "line": LINE_OF[row["kind"]], "project": row["project_name"],
        "user": row["user_name"], "job": row["job_name"], "job_id": row["job_id"],
        "attempt": row["number"], "pool": row["pool"], "gpu_model": row["gpu_model"],
        **_amounts(row), "cost_micro": row["cost"],
    }  # fmt: skip


def csv_line(cells: Sequence[Any]) -> bytes:
    made = io.StringIO()
    csv.writer(made, lineterminator="\r\n").writerow(cells)
    return made.getvalue().encode()


def _amounts(row: Mapping[str, Any]) -> dict[str, Any]:
    """To the second outside, exact to the millisecond inside."""
    return {
        "cpu_seconds": round(row["cpu"] / 1_000_000, 3),
        "memory_byte_seconds": row["memory"] * MIB // 1000,
        "gpu_seconds": round(row["gpu"] / 1_000_000, 3),
        "used_cpu_seconds": round(row["used_cpu"] / 1000, 3),
        "used_memory_byte_seconds": row["used_memory"] * MIB // 1000,
        "peak_memory_bytes": row["peak_bytes"],
        "cost": format_money(row["cost"]),
    }


def _cells(row: Mapping[str, Any], names: Iterable[str]) -> list[Any]:
    return ["" if row[name] is None else row[name] for name in names]


def _text(value: str | None) -> str:
    """A name that a spreadsheet would take for a formula is told to be text."""
    value = value or ""
    return "'" + value if value.startswith(_FORMULA) else value
