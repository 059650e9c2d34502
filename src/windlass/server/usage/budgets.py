"""Budgets: what a project, or a user, may cost in a month or in all. They warn, then hold.

A budget is looked at when it changes and by the meter's loop. Each percentage is told once; at
the last it is `spent`: admit lets nothing of it start, and with `on_spent: stop` what runs is
told to save and wait as well. A budget that is raised, or whose month is over, lets all go on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, delete, insert, select, text, update

from windlass.core.errors import NotFound
from windlass.core.jobs import JobState
from windlass.core.usage import (
    PERCENTS,
    BudgetBody,
    BudgetKind,
    BudgetPage,
    BudgetView,
    format_money,
)
from windlass.server import feed
from windlass.server.access.tables import memberships, projects, users
from windlass.server.clock import stamp
from windlass.server.jobs.tables import UNFINISHED, jobs
from windlass.server.settings import DAY_MS
from windlass.server.store.hints import touch
from windlass.server.usage import ledger, report
from windlass.server.usage import open as opened
from windlass.server.usage.tables import budgets, marks

Row = dict[str, Any]
TOPIC = "budgets"
ADVISORY_LOCK = 0x62756467  # "budg"
_SUBJECTS = {"project": projects, "user": users}
_MARK = text(
    "INSERT INTO budget_marks (kind, subject_id, period, amount, percent, cost, at_ms)"
    " VALUES (:kind, :subject_id, :period, :amount, :percent, :cost, :at_ms)"
    " ON CONFLICT DO NOTHING"
)


# Who was removed leaves its budget behind, and its name to another. A user's holds as long as
# its jobs go on.
_LIVE = (
    select(budgets)
    .where(
        budgets.c.subject_id.in_(select(projects.c.id).where(projects.c.removed_ms.is_(None)))
        | budgets.c.subject_id.in_(select(users.c.id).where(users.c.removed_ms.is_(None)))
        | budgets.c.subject_id.in_(select(jobs.c.user_id).where(UNFINISHED))
    )
    .order_by(budgets.c.kind, budgets.c.name)
)


@dataclass(frozen=True)
class Spent:
    """Who has spent its budget, by name, each with a sentence: admit asks it of waiting jobs."""

    projects: tuple[tuple[str, str], ...] = ()
    users: tuple[tuple[str, str], ...] = ()

    def why(self, project: str, user: str) -> str | None:
        if not self.projects and not self.users:
            return None
        return dict(self.projects).get(project) or dict(self.users).get(user)

    def names(self) -> tuple[set[str], set[str]]:
        return {name for name, _ in self.projects}, {name for name, _ in self.users}


def spent(conn: Connection) -> Spent:
    rows = conn.execute(_LIVE.where(budgets.c.spent)).mappings()
    found: dict[str, list[tuple[str, str]]] = {"project": [], "user": []}
    for row in rows:
        whole = "this month" if row["period"] == "month" else "in all"
        sentence = (
            f"the budget of {row['kind']} {row['name']} is spent "
            f"({format_money(row['amount'])} {whole})"
        )
        found[row["kind"]].append((row["name"], sentence))
    return Spent(tuple(found["project"]), tuple(found["user"]))


def news(conn: Connection, old: Spent) -> tuple[Spent, list[str]]:
    """Who has spent its budget now, and the queued jobs for which that is another answer."""
    new = spent(conn)
    whose = [sorted(a ^ b) for a, b in zip(old.names(), new.names(), strict=True)]
    if not any(whose):
        return new, []
    query = (
        select(jobs.c.id)
        .join(projects, projects.c.id == jobs.c.project_id)
        .join(users, users.c.id == jobs.c.user_id)
        .where(jobs.c.state == JobState.QUEUED)
        .where(projects.c.name.in_(whose[0]) | users.c.name.in_(whose[1]))
        .order_by(jobs.c.number)
    )
    return new, list(conn.scalars(query))


def put(
    conn: Connection, kind: BudgetKind, name: str, body: BudgetBody, *, by: str, now_ms: int
) -> None:
    """Make or change a budget; effective with this transaction. Raises NotFound."""
    _alone(conn)
    subject = _subject(conn, kind, name)
    values = {
        "name": name, "amount": body.amount, "period": body.period, "on_spent": body.on_spent,
        "changed_ms": now_ms, "set_by": by,
    }  # fmt: skip
    mine = (budgets.c.kind == kind, budgets.c.subject_id == subject)
    known = conn.execute(select(budgets.c.kind).where(*mine)).first()
    if known is None:
        conn.execute(insert(budgets).values(kind=kind, subject_id=subject, spent=False, **values))
    else:
        conn.execute(update(budgets).where(*mine).values(**values))
    _tell(conn, name, f"budget of {kind} {name} set by {by}", now_ms)
    settle(conn, now_ms)


def remove(conn: Connection, kind: BudgetKind, name: str, *, by: str, now_ms: int) -> None:
    """Raises NotFound. What it was warned of goes with it."""
    _alone(conn)
    mine = _LIVE.where(budgets.c.kind == kind, budgets.c.name == name)
    found = conn.scalar(mine.with_only_columns(budgets.c.subject_id))
    if found is None:
        raise NotFound(
            f"{kind} {name} has no budget", hint="`windlass usage budget ls` lists those there are"
        )
    for table in (marks, budgets):
        conn.execute(delete(table).where(table.c.kind == kind, table.c.subject_id == found))
    _tell(conn, name, f"budget of {kind} {name} removed by {by}", now_ms)


@dataclass(frozen=True)
class Standing:
    """A budget, and how far it is spent."""

    row: Row
    period: str
    cost: int
    warned: frozenset[int]

    @property
    def percent(self) -> int:
        if self.row["amount"] == 0:
            return 100
        return self.cost * 100 // int(self.row["amount"])

    @property
    def spent(self) -> bool:
        return self.percent >= 100

    @property
    def due(self) -> list[int]:
        """Percentages that are reached and were not told."""
        return [p for p in PERCENTS if self.percent >= p and p not in self.warned]

    @property
    def changes(self) -> bool:
        return bool(self.due) or self.spent != bool(self.row["spent"])


def standings(conn: Connection, now_ms: int, *, project_id: str | None = None) -> list[Standing]:
    """Every budget (or that of one project) with its cost up to now."""
    query = _LIVE
    if project_id is not None:
        query = query.where(budgets.c.kind == "project", budgets.c.subject_id == project_id)
    rows = [dict(row) for row in conn.execute(query).mappings()]
    if not rows:
        return []
    costs: dict[tuple[str, str, str], int] = {}
    held = list(opened.entries(conn, now_ms))
    for kind in _SUBJECTS:
        for period in ("month", "total"):
            ids = [r["subject_id"] for r in rows if (r["kind"], r["period"]) == (kind, period)]
            begins = _month_day(now_ms) if period == "month" else 0
            for subject, cost in report.costs(conn, kind, ids, begins, held).items():
                costs[kind, period, subject] = cost
    told: dict[tuple[str, ...], set[int]] = {}
    for mark in conn.execute(select(marks)).mappings():
        key = (mark["kind"], mark["subject_id"], mark["period"], str(mark["amount"]))
        told.setdefault(key, set()).add(mark["percent"])
    return [
        Standing(
            row,
            period := _period(row["period"], now_ms),
            costs[row["kind"], row["period"], row["subject_id"]],
            frozenset(told.get((row["kind"], row["subject_id"], period, str(row["amount"])), ())),
        )
        for row in rows
    ]


def settle(conn: Connection, now_ms: int) -> list[Standing]:
    """Tell what is due, and close or open each budget as it stands. Returns all of them."""
    _alone(conn)
    found = standings(conn, now_ms)
    for at in found:
        for percent in at.due:
            _warn(conn, at, percent, now_ms)
        if at.spent != bool(at.row["spent"]):
            row = at.row
            conn.execute(
                update(budgets)
                .where(budgets.c.kind == row["kind"], budgets.c.subject_id == row["subject_id"])
                .values(spent=at.spent)
            )
            word = "is spent: nothing of it starts" if at.spent else "has room again"
            _tell(conn, row["name"], f"budget of {row['kind']} {row['name']} {word}", now_ms)
    return found


def _alone(conn: Connection) -> None:
    """Nobody else changes a budget, or the sums by day, before this transaction ends."""
    if conn.dialect.name == "postgresql":
        conn.exec_driver_sql(f"SELECT pg_advisory_xact_lock({ADVISORY_LOCK})")
    ledger.steady(conn)


def page(
    conn: Connection, currency: str, now_ms: int, project_id: str | None = None
) -> BudgetPage:
    items = tuple(_view(at) for at in standings(conn, now_ms, project_id=project_id))
    return BudgetPage.model_construct(currency=currency, items=items)


def _view(at: Standing) -> BudgetView:
    row = at.row
    return BudgetView.model_construct(
        kind=row["kind"], name=row["name"], amount=format_money(row["amount"]),
        period=row["period"], on_spent=row["on_spent"], cost=format_money(at.cost),
        percent=at.percent, spent=at.spent, warned=tuple(sorted(at.warned)),
        changed=stamp(row["changed_ms"]), by=row["set_by"],
    )  # fmt: skip


def _warn(conn: Connection, at: Standing, percent: int, now_ms: int) -> None:
    row = at.row
    kept = conn.execute(
        _MARK,
        {
            "kind": row["kind"], "subject_id": row["subject_id"], "period": at.period,
            "amount": row["amount"], "percent": percent, "cost": at.cost, "at_ms": now_ms,
        },
    )  # fmt: skip
    if kept.rowcount != 1:
        return
    reason = f"{percent} % of the budget of {row['kind']} {row['name']} is spent"
    data = {"of": row["kind"], "name": row["name"], "percent": percent, "period": at.period}
    if row["kind"] == "project":  # what a user spends elsewhere is not its projects' to know
        reason += f": {format_money(at.cost)} of {format_money(row['amount'])}"
        data |= {"cost_micro": at.cost, "amount_micro": row["amount"]}
    for project_id in _concerned(conn, row):
        feed.append(
            conn, job_id=None, project_id=project_id, seq=0, attempt=None, kind="budget",
            at_ms=now_ms, state=None, reason=reason, data=data,
        )  # fmt: skip


def _concerned(conn: Connection, row: Row) -> list[str]:
    """The projects whose feeds are told: a user's are those it is in, or has jobs in."""
    if row["kind"] == "project":
        return [row["subject_id"]]
    inside = select(memberships.c.project_id).where(memberships.c.user_id == row["subject_id"])
    works = select(jobs.c.project_id).where(jobs.c.user_id == row["subject_id"], UNFINISHED)
    live = select(projects.c.id).where(projects.c.removed_ms.is_(None))
    which = projects.c.id.in_(inside) | projects.c.id.in_(works)
    return list(conn.scalars(live.where(which).order_by(projects.c.id)))


def _tell(conn: Connection, name: str, reason: str, now_ms: int) -> None:
    """Admit hears it and looks at its waiting jobs again, the meter at those that run."""
    touch(conn, TOPIC)
    feed.append(
        conn, job_id=None, project_id="", seq=0, attempt=None, kind="rules", at_ms=now_ms,
        state=None, reason=reason, data={"of": "budgets", "names": [name], "count": 1},
    )  # fmt: skip


def _subject(conn: Connection, kind: str, name: str) -> str:
    table = _SUBJECTS[kind]
    query = select(table.c.id).where(table.c.name == name, table.c.removed_ms.is_(None))
    found = conn.execute(query).scalar()
    if found is None:
        raise NotFound(f"no {kind} {name}")
    return str(found)


def _period(period: str, now_ms: int) -> str:
    return "total" if period == "total" else f"{datetime.fromtimestamp(now_ms / 1000, UTC):%Y-%m}"


def _month_day(now_ms: int) -> int:
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    return int(datetime(now.year, now.month, 1, tzinfo=UTC).timestamp() * 1000) // DAY_MS


def closed_with_stop(found: Sequence[Standing]) -> Iterator[Standing]:
    """Those whose running jobs are to save and wait."""
    return (at for at in found if at.spent and at.row["on_spent"] == "stop")
