"""Quotas: read, changed one by one or as a whole file. Every function runs inside the caller's
transaction.

A quota makes jobs wait, it never ends one: lowered below what is in use, it lets nothing more
start until enough has ended. A change takes effect with its commit, by its event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from pydantic_core import PydanticCustomError
from sqlalchemy import Connection, delete, insert, select, update

from windlass.core.errors import Conflict, InvalidInput, NotFound, Unreadable
from windlass.core.jobs import LIVE
from windlass.core.quotas import (
    CapSpec,
    Entry,
    QuotaBody,
    QuotaFileBody,
    QuotaPage,
    QuotaView,
    check_tree,
)
from windlass.server import feed
from windlass.server.access.tables import projects
from windlass.server.clock import stamp
from windlass.server.jobs.tables import attempts, jobs
from windlass.server.nodes.tables import nodes
from windlass.server.quotas.tables import changes, quotas
from windlass.server.reading import or_else, placement_of, spec_of
from windlass.server.store.upsert import insert_for

Row = dict[str, Any]
_NAMED = 100
"""So many names at most stand in an event."""


@cache
def _take(dialect: str) -> Any:
    row = insert_for(dialect)(changes).values(id=1, revision=0)
    return row.on_conflict_do_update(
        index_elements=["id"], set_={"revision": changes.c.revision}
    ).returning(changes.c.revision)


def put(conn: Connection, name: str, body: QuotaBody, *, by: str, now_ms: int) -> None:
    """Make one quota so. Raises InvalidInput, Conflict."""
    entry = Entry(
        name=name, cohort=body.cohort, parent=body.parent, nominal=body.nominal,
        borrow=body.borrow, lend=body.lend, weight=body.weight, reclaim_any=body.reclaim_any,
        caps=body.caps,
    )  # fmt: skip
    revision = _lock(conn)
    known = {found.name: found for found in _entries(conn)}
    if known.get(name) == entry:
        return  # it is so already: a call that is repeated changes nothing
    _check_seen(revision, body.revision)
    _check([*(other for other in known.values() if other.name != name), entry])
    _write(conn, [entry], now_ms, revision + 1, new=name not in known)
    _tell(conn, [name], f"quota of {name} changed by {by}", now_ms, revision + 1)


def replace(conn: Connection, body: QuotaFileBody, *, by: str, now_ms: int) -> None:
    """Make all quotas as the file says; what it does not name goes."""
    revision = _lock(conn)
    known = {entry.name: entry for entry in _entries(conn)}
    wanted = {entry.name: entry for entry in body.entries()}
    gone = [name for name in known if name not in wanted]
    fresh = [entry for name, entry in wanted.items() if name not in known]
    other = [entry for name, entry in wanted.items() if name in known and known[name] != entry]
    if not (gone or fresh or other):
        return
    _check_seen(revision, body.revision)
    for at in range(0, len(gone), 500):
        conn.execute(delete(quotas).where(quotas.c.name.in_(gone[at : at + 500])))
    _write(conn, fresh, now_ms, revision + 1, new=True)
    _write(conn, other, now_ms, revision + 1, new=False)
    names = sorted([*gone, *(entry.name for entry in [*fresh, *other])])
    _tell(conn, names, f"{len(names)} quotas changed by {by}", now_ms, revision + 1)


def remove(conn: Connection, name: str, *, by: str, now_ms: int) -> None:
    """Take a quota away. Raises NotFound, Conflict for a cohort that has members."""
    revision = _lock(conn)
    find(conn, name)
    members = list(conn.scalars(select(quotas.c.name).where(quotas.c.parent == name).limit(6)))
    if members:
        listed = ", ".join(sorted(members)[:5]) + (" …" if len(members) > 5 else "")
        raise Conflict(
            f"cohort {name} has members: {listed}",
            hint="remove them, or give them another cohort, first",
        )
    conn.execute(delete(quotas).where(quotas.c.name == name))
    _tell(conn, [name], f"quota of {name} removed by {by}", now_ms, revision + 1)


def find(conn: Connection, name: str) -> Row:
    row = conn.execute(select(quotas).where(quotas.c.name == name)).mappings().first()
    if row is None:
        raise _unknown(name)
    return dict(row)


def _unknown(name: str) -> NotFound:
    return NotFound(f"no quota {name!r}", hint="`windlass quota ls` lists the quotas there are")


def _above(rows: Sequence[Row], project: str) -> set[str]:
    """A project, and the cohorts that it belongs to."""
    parents = {row["name"]: row["parent"] for row in rows}
    found: set[str] = set()
    name: str | None = project if project in parents else None
    while name is not None and name not in found:
        found.add(name)
        name = parents.get(name)
    return found


def page(conn: Connection, name: str | None = None, *, seen_by: str | None = None) -> QuotaPage:
    """Every quota, cohorts first, with what is in use; or one alone. Raises NotFound. `seen_by`:
    only that project's and those of the cohorts that it is in."""
    query = select(quotas).order_by(quotas.c.cohort.desc(), quotas.c.name)
    rows = [dict(row) for row in conn.execute(query).mappings()]
    shown = {row["name"] for row in rows} if seen_by is None else _above(rows, seen_by)
    if name is not None and name not in shown:
        raise _unknown(name)
    used = _used(conn, rows)
    there = set(conn.scalars(select(projects.c.name).where(projects.c.removed_ms.is_(None))))
    revision = conn.execute(select(changes.c.revision)).scalar() or 0
    return QuotaPage.model_construct(
        revision=revision,
        items=tuple(
            _view(row, used.get(row["name"], Counter()), there)
            for row in rows
            if row["name"] in shown and name in (None, row["name"])
        ),
    )


def _view(row: Row, used: Mapping[str, int], there: set[str]) -> QuotaView:
    return QuotaView.model_construct(
        name=row["name"], cohort=bool(row["cohort"]), parent=row["parent"],
        nominal=or_else(row["nominal"], {}), borrow=or_else(row["borrow"], {}),
        lend=or_else(row["lend"], {}),
        weight=row["weight_milli"], reclaim_any=bool(row["reclaim_any"]),
        caps=tuple(CapSpec.model_construct(**cap) for cap in or_else(row["caps"], ())),
        used={kind: amount for kind, amount in used.items() if amount},
        exists=bool(row["cohort"]) or row["name"] in there,
        revision=row["revision"], changed=stamp(row["changed_ms"]),
    )  # fmt: skip


def _used(conn: Connection, rows: Sequence[Row]) -> dict[str, Counter[str]]:
    """What the live jobs of each project hold, and of each cohort all that belong to it."""
    live = conn.execute(
        select(projects.c.name, jobs.c.spec, attempts.c.placement)
        .join(projects, projects.c.id == jobs.c.project_id)
        .join(attempts, (attempts.c.job_id == jobs.c.id) & (attempts.c.number == jobs.c.fence))
        .where(jobs.c.state.in_(sorted(LIVE)))
    )
    models = {
        row.name: (or_else(row.offer, {}) or {}).get("gpu_model", "")
        for row in conn.execute(select(nodes.c.name, nodes.c.offer))
    }
    used: dict[str, Counter[str]] = {}
    for row in live.mappings():
        held = used.setdefault(row["name"], Counter())
        try:
            roles = spec_of(row).roles
            placement = placement_of(row, spec_of(row))
        except Unreadable:
            continue  # what it holds cannot be told; it is being ended
        for placed in placement:
            role = roles[placed["role"]]
            gpus = role.gpus * 1000 + role.gpu_milli
            held["gpus"] += gpus
            held["cpus"] += role.per_member.cpus_milli
            held["memory"] += role.memory
            if gpus and models.get(placed["node"]):
                held[f"gpus:{models[placed['node']]}"] += gpus
    parents = {row["name"]: row["parent"] for row in rows}
    named = {kind for row in rows for kind in or_else(row["nominal"], ())}
    named |= {"gpus", "cpus", "memory"}
    for name in [row["name"] for row in rows if not row["cohort"]]:
        own = Counter({kind: n for kind, n in used.get(name, Counter()).items() if kind in named})
        used[name] = own
        above = parents[name]
        while above is not None:
            used.setdefault(above, Counter()).update(own)
            above = parents.get(above)
    return used


def _lock(conn: Connection) -> int:
    """The revision of all quotas; nobody else changes one before this transaction ends."""
    return int(conn.execute(_take(conn.dialect.name)).scalar_one())


def _check_seen(revision: int, seen: int | None) -> None:
    if seen is not None and seen != revision:
        raise Conflict(
            f"the quotas have changed meanwhile: they are at revision {revision}, you saw {seen}",
            hint="look at them again: windlass quota ls",
            revision=revision,
        )


def _check(entries: list[Entry]) -> None:
    try:
        check_tree(entries)
    except PydanticCustomError as err:
        raise InvalidInput(err.message()) from None


def _entries(conn: Connection) -> list[Entry]:
    return [
        Entry.model_construct(
            name=row["name"], cohort=bool(row["cohort"]), parent=row["parent"],
            nominal=row["nominal"], borrow=row["borrow"], lend=row["lend"],
            weight=row["weight_milli"], reclaim_any=bool(row["reclaim_any"]),
            caps=tuple(CapSpec.model_construct(**cap) for cap in or_else(row["caps"], ())),
        )
        for row in conn.execute(select(quotas)).mappings()
    ]  # fmt: skip


def _write(
    conn: Connection, entries: Sequence[Entry], now_ms: int, revision: int, *, new: bool
) -> None:
    if not entries:
        return
    rows = [
        {
            "name": entry.name, "cohort": entry.cohort, "parent": entry.parent,
            "nominal": entry.nominal, "borrow": entry.borrow, "lend": entry.lend,
            "weight_milli": entry.weight, "reclaim_any": entry.reclaim_any,
            "caps": [
                {"kind": cap.kind, "user": cap.user, "limits": cap.limits} for cap in entry.caps
            ],
            "revision": revision, "changed_ms": now_ms,
        }
        for entry in entries
    ]  # fmt: skip
    if not new:
        changed = [entry.name for entry in entries]
        for at in range(0, len(changed), 500):
            conn.execute(delete(quotas).where(quotas.c.name.in_(changed[at : at + 500])))
    conn.execute(insert(quotas), rows)


def _tell(conn: Connection, names: Sequence[str], reason: str, now_ms: int, revision: int) -> None:
    conn.execute(update(changes).where(changes.c.id == 1).values(revision=revision))
    feed.append(
        conn, job_id=None, project_id="", seq=0, attempt=None, kind="rules", at_ms=now_ms,
        state=None, reason=reason,
        data={"of": "quotas", "names": list(names[:_NAMED]), "count": len(names)},
    )  # fmt: skip
