"""Reading the audit log. Every function names the chain: nobody reads across them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, select

from windlass.core.audit import AuditRow
from windlass.core.errors import NotFound
from windlass.server.audit import record
from windlass.server.audit.tables import audit

PAGE = 500
_BEHIND = audit.c.number.is_not(None)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which rows; None: any."""

    chain: str
    user: str | None = None
    action: str | None = None
    object: str | None = None
    outcome: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    def query(self) -> Select[Any]:
        found = select(audit).where(audit.c.project_id == self.chain, _BEHIND)
        if self.user is not None:
            found = found.where(audit.c.user_name == self.user)
        if self.action is not None:
            found = found.where(
                audit.c.action.startswith(self.action, autoescape=True)
                if self.action.endswith(".")
                else audit.c.action == self.action
            )
        if self.object is not None:
            found = found.where(audit.c.object == self.object)
        if self.outcome == "refused":
            found = found.where(audit.c.outcome.not_in((record.OK, record.REPLAYED)))
        elif self.outcome is not None:
            found = found.where(audit.c.outcome == self.outcome)
        if self.since_ms is not None:
            found = found.where(audit.c.at_ms >= self.since_ms)
        if self.until_ms is not None:
            found = found.where(audit.c.at_ms < self.until_ms)
        return found


def newest(
    conn: Connection, wanted: Wanted, before: int | None, limit: int
) -> tuple[list[AuditRow], int | None]:
    """Newest first; the second value is the `before` of the next page."""
    query = wanted.query()
    if before is not None:
        query = query.where(audit.c.number < before)
    rows = conn.execute(query.order_by(audit.c.number.desc()).limit(limit + 1)).mappings().all()
    shown = [view(dict(row)) for row in rows[:limit]]
    return shown, (shown[-1].number if len(rows) > limit else None)


def one(conn: Connection, chain: str, number: int) -> AuditRow:
    row = (
        conn.execute(select(audit).where(audit.c.project_id == chain, audit.c.number == number))
        .mappings()
        .first()
    )
    if row is None:
        raise NotFound(f"no audit row {number}", hint="`windlass audit ls` lists them")
    return view(dict(row))


def following(conn: Connection, wanted: Wanted, after: int) -> Sequence[dict[str, Any]]:
    """The next page in the chain's order, as it is exported."""
    query = wanted.query().where(audit.c.number > after).order_by(audit.c.number).limit(PAGE)
    return [line(dict(row)) for row in conn.execute(query).mappings()]


def line(row: dict[str, Any]) -> dict[str, Any]:
    return {**record.shown(row), "hash": row["hash"]}


def view(row: dict[str, Any]) -> AuditRow:
    return AuditRow.model_construct(**line(row))


def csv_cell(value: Any) -> Any:
    """A text that no spreadsheet takes for a formula."""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + value
    return value
