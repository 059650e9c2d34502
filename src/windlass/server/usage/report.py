"""Who held what in a range of time: sums of days, entries at the edges, and what is held now.

    from ──┐ entries │ days …                     │ entries ┌── to
           └─────────┴─ and entries after the cursor ───────┘      + what no entry has yet

An entry lies within one hour and is the same all through it, so one that the range cuts counts for
the part inside: exactly, but for its cost and what was used, which are rounded down.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Select,
    String,
    and_,
    case,
    cast,
    func,
    or_,
    select,
)

from windlass.core.usage import LINE_OF, By
from windlass.server.settings import DAY_MS
from windlass.server.usage import open as opened
from windlass.server.usage import rollup
from windlass.server.usage.metering import HOUR_MS
from windlass.server.usage.tables import days, holdings, ledger

SUMS = ("cpu", "memory", "gpu", "used_cpu", "used_memory", "cost")
_JOINED = ledger.join(
    holdings, (holdings.c.attempt_id == ledger.c.attempt_id) & (holdings.c.part == ledger.c.part)
)


@dataclass(frozen=True)
class Asked:
    """What a report is about. `project_ids`, `user`, `job_id`: None for all."""

    by: By
    from_ms: int
    to_ms: int
    project_ids: tuple[str, ...] | None = None
    user: str | None = None
    job_id: str | None = None

    def wanted(self, table: FromClause) -> Iterator[ColumnElement[bool]]:
        if self.project_ids is not None:
            yield table.c.project_id.in_(self.project_ids)
        if self.user is not None:
            yield table.c.user_name == self.user
        if self.job_id is not None:
            yield table.c.job_id == self.job_id


@dataclass(slots=True)
class Sum:
    key: str
    line: str
    project: str | None = None
    user: str | None = None
    job: str | None = None
    cpu: int = 0
    memory: int = 0
    gpu: int = 0
    used_cpu: int = 0
    used_memory: int = 0
    cost: int = 0
    peak_bytes: int = 0

    def amounts(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in (*SUMS, "peak_bytes")}

    def add(self, row: Any) -> None:
        for name in SUMS:
            setattr(self, name, getattr(self, name) + int(row[name] or 0))
        self.peak_bytes = max(self.peak_bytes, int(row["peak_bytes"] or 0))


def report(conn: Connection, asked: Asked, now_ms: int) -> list[Sum]:
    """By cost, dearest first; days in their order."""
    found = _added(_rows(conn, asked, now_ms))
    if asked.by == "day":
        return sorted(found, key=lambda each: (each.key, each.line))
    return sorted(found, key=lambda each: (-each.cost, -each.gpu, -each.cpu, each.key, each.line))


def job_page(conn: Connection, asked: Asked, last: str, size: int, now_ms: int) -> JobPage:
    """The sums of the next `size` jobs after the id `last`, in order of their ids: for a report
    by job that is larger than memory."""
    ids = list(
        conn.scalars(
            select(holdings.c.job_id)
            .where(holdings.c.job_id > last, *asked.wanted(holdings))
            .distinct()
            .order_by(holdings.c.job_id)
            .limit(size)
        )
    )
    if not ids:
        return JobPage([], "")
    closed = conn.execute(_entries(asked, asked.from_ms, asked.to_ms, jobs=(last, ids[-1])))
    held = (row for row in _open(conn, asked, now_ms) if last < row["key"] <= ids[-1])
    found = _added(itertools.chain(closed.mappings(), held))
    found.sort(key=lambda each: (each.key, each.line))
    return JobPage(found, ids[-1] if len(ids) == size else "")


class JobPage(NamedTuple):
    sums: list[Sum]
    last: str
    """Where the next page begins; empty: there is none."""


def _added(rows: Iterable[Any]) -> list[Sum]:
    found: dict[tuple[str, str], Sum] = {}
    for row in rows:
        line = LINE_OF[row["kind"]]
        at = found.get((row["key"], line))
        if at is None:
            at = found[row["key"], line] = Sum(
                row["key"], line, row["project"], row["user"], row["job"]
            )
        at.add(row)
    return list(found.values())


def _rows(conn: Connection, asked: Asked, now_ms: int) -> Iterator[Any]:
    first, last = -(-asked.from_ms // DAY_MS), asked.to_ms // DAY_MS
    if asked.to_ms >= now_ms:  # nothing is later: today is a whole day too
        last = now_ms // DAY_MS + 1
    if asked.by == "job" or asked.job_id is not None or first >= last:
        yield from conn.execute(_entries(asked, asked.from_ms, asked.to_ms)).mappings()
    else:
        yield from conn.execute(_days(asked, first, last)).mappings()
        reached = rollup.reached(conn)
        tail = _entries(asked, first * DAY_MS, last * DAY_MS, after=reached)
        yield from conn.execute(tail).mappings()
        for since, until in (
            (asked.from_ms, first * DAY_MS),
            (last * DAY_MS, asked.to_ms),
        ):
            if since < until:
                yield from conn.execute(_entries(asked, since, until)).mappings()
    yield from _open(conn, asked, now_ms)


def _open(conn: Connection, asked: Asked, now_ms: int) -> Iterator[Any]:
    for held in opened.entries(conn, now_ms, *asked.wanted(holdings)):
        clipped = _clipped(held, asked)
        if clipped is not None:
            yield {**clipped, **_key_of(held, asked.by)}


def _days(asked: Asked, first: int, last: int) -> Select[Any]:
    query = select(
        *_keys(asked.by, days, days.c.day),
        days.c.kind,
        *(func.sum(days.c[name]).label(name) for name in SUMS),
        func.max(days.c.peak_bytes).label("peak_bytes"),
    ).where(days.c.day >= first, days.c.day < last)
    query = query.where(*asked.wanted(days))
    return query.group_by(*_grouped(asked.by, days, days.c.day), days.c.kind)


def _entries(
    asked: Asked,
    from_ms: int,
    to_ms: int,
    *,
    after: int | None = None,
    jobs: tuple[str, str] | None = None,
) -> Select[Any]:
    """Entries that begin in the hour of `from_ms` or later, each cut to the range. `after`: only
    those with a higher id; `jobs`: only of jobs after the one id, up to the other."""
    length = ledger.c.to_ms - ledger.c.from_ms
    inside = case((ledger.c.to_ms > to_ms, to_ms), else_=ledger.c.to_ms) - case(
        (ledger.c.from_ms < from_ms, from_ms), else_=ledger.c.from_ms
    )
    whole = and_(ledger.c.from_ms >= from_ms, ledger.c.to_ms <= to_ms)
    day = ledger.c.from_ms // DAY_MS
    # By time only where nothing else names few: a sum is no column with an index.
    begins = ledger.c.from_ms if after is None and jobs is None else ledger.c.from_ms + 0

    def part(name: str) -> ColumnElement[Any]:
        column = ledger.c[name]
        if name in ("cpu", "memory", "gpu"):  # a rate times a length: divides evenly
            cut = column // length * inside
        else:  # in two steps: at once the product may be too large for the database
            cut = column // length * inside + column % length * inside // length
        return func.sum(case((whole, column), else_=cut)).label(name)

    query = (
        select(
            *_keys(asked.by, holdings, day),
            ledger.c.kind,
            *(part(name) for name in SUMS),
            func.max(ledger.c.peak_bytes).label("peak_bytes"),
        )
        .select_from(_JOINED)
        .where(begins >= from_ms - from_ms % HOUR_MS, begins < to_ms, ledger.c.to_ms > from_ms)
    )
    if after is not None:
        query = query.where(ledger.c.id > after)
    elif jobs is not None:
        query = query.where(holdings.c.job_id > jobs[0], holdings.c.job_id <= jobs[1])
    elif asked.project_ids is not None:
        query = query.where(ledger.c.project_id.in_(asked.project_ids))
    query = query.where(*asked.wanted(holdings))
    return query.group_by(*_grouped(asked.by, holdings, day), ledger.c.kind)


_COLUMNS = {
    "project": ("project_name",), "user": ("user_name",), "gpu": ("gpu_model",), "pool": ("pool",),
    "job": ("job_id", "job_name", "project_name", "user_name"),
}  # fmt: skip


def _grouped(by: By, table: FromClause, day: ColumnElement[Any]) -> Sequence[ColumnElement[Any]]:
    return [day] if by == "day" else [table.c[name] for name in _COLUMNS[by]]


def _keys(by: By, table: FromClause, day: ColumnElement[Any]) -> Sequence[ColumnElement[Any]]:
    nothing = cast(None, String)
    key = day if by == "day" else table.c[_COLUMNS[by][0]]
    names = _COLUMNS.get(by, ())
    return [
        cast(key, String).label("key"),
        *(
            (table.c[column] if column in names else nothing).label(name)
            for name, column in (
                ("project", "project_name"), ("user", "user_name"), ("job", "job_name"),
            )
        ),
    ]  # fmt: skip


def _key_of(held: Any, by: By) -> dict[str, Any]:
    names = _COLUMNS.get(by, ())
    key = held["from_ms"] // DAY_MS if by == "day" else held[names[0]]
    return {
        "key": str(key),
        "project": held["project_name"] if "project_name" in names else None,
        "user": held["user_name"] if "user_name" in names else None,
        "job": held["job_name"] if "job_name" in names else None,
    }


def _clipped(entry: dict[str, Any], asked: Asked) -> dict[str, Any] | None:
    """An entry that is not written yet, cut to the range."""
    length = entry["to_ms"] - entry["from_ms"]
    inside = min(entry["to_ms"], asked.to_ms) - max(entry["from_ms"], asked.from_ms)
    if inside <= 0:
        return None
    if inside == length:
        return entry
    cut = {name: entry[name] // length * inside for name in ("cpu", "memory", "gpu")}
    cut |= {name: entry[name] * inside // length for name in ("used_cpu", "used_memory", "cost")}
    return {**entry, **cut}


def costs(
    conn: Connection, kind: str, ids: Sequence[str], from_day: int, held: Iterable[Any]
) -> dict[str, int]:
    """What each of these projects (or users) was charged since a day began, to this moment;
    `held`: what no entry has yet."""
    found = dict.fromkeys(ids, 0)
    if not ids:
        return found
    of_days = days.c[f"{kind}_id"]
    charged = ("run", "refund")
    for table_key, query in (
        (
            of_days,
            select(of_days, func.sum(days.c.cost)).where(
                days.c.day >= from_day, days.c.kind.in_(charged)
            ),
        ),
        (
            holdings.c[f"{kind}_id"],
            select(holdings.c[f"{kind}_id"], func.sum(ledger.c.cost))
            .select_from(_JOINED)
            .where(
                ledger.c.id > rollup.reached(conn),
                ledger.c.from_ms + 0 >= from_day * DAY_MS,  # by id, as above
                ledger.c.kind.in_(charged),
            ),
        ),
    ):
        for subject, cost in conn.execute(
            query.where(table_key.in_(ids)).group_by(table_key)
        ).all():
            found[subject] += int(cost or 0)
    for entry in held:
        subject = entry[f"{kind}_id"]
        if subject in found and entry["kind"] in charged and entry["from_ms"] >= from_day * DAY_MS:
            found[subject] += entry["cost"]
    return found


def job_costs(conn: Connection, job_ids: Sequence[str], now_ms: int) -> dict[str, int]:
    """What each of these jobs was charged, to this moment."""
    found = dict.fromkeys(job_ids, 0)
    query = (
        select(holdings.c.job_id, func.sum(ledger.c.cost))
        .select_from(_JOINED)
        .where(
            holdings.c.job_id.in_(job_ids),
            or_(ledger.c.kind == "run", ledger.c.kind == "refund"),
        )
        .group_by(holdings.c.job_id)
    )
    for job_id, cost in conn.execute(query).all():
        found[job_id] += int(cost or 0)
    for entry in opened.entries(conn, now_ms, holdings.c.job_id.in_(job_ids)):
        if entry["kind"] in ("run", "refund"):
            found[entry["job_id"]] += entry["cost"]
    return found
