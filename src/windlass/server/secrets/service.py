"""Secrets in the database: sealed when they come, opened only for the worker of an attempt.

A secret is the project's (`owner_id` is "") or one user's in it; a job of that user sees the
user's before the project's. Only the newest value is kept. What it belongs to (project, owner,
name, version) is bound to the sealed bytes: copied to another row they do not open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, delete, select

from windlass.core.access import Principal
from windlass.core.errors import Internal, InvalidInput, NotFound
from windlass.core.secrets import SecretPage, SecretView
from windlass.server.access.sealing import Sealer
from windlass.server.clock import stamp
from windlass.server.secrets.tables import secrets
from windlass.server.store.upsert import insert_of

Row = dict[str, Any]
_KEY = (secrets.c.project_id, secrets.c.owner_id, secrets.c.name)


def put(
    conn: Connection, sealer: Sealer, who: Principal, name: str, value: str, *, own: bool,
    now_ms: int,
) -> SecretView:  # fmt: skip
    """Make a secret or give it another value; attempts that start from now on get this one."""
    owner = _owner(who, own)
    mine = (secrets.c.project_id == who.project_id) & (secrets.c.owner_id == owner)
    old = conn.execute(
        select(secrets.c.version).where(mine, secrets.c.name == name).with_for_update()
    ).scalar()
    version = (old or 0) + 1
    row = {
        "project_id": who.project_id, "owner_id": owner, "name": name, "version": version,
        "sealed": sealer.seal(value, *bound(who.project_id, owner, name, version)),
        "kek": sealer.kek, "changed_ms": now_ms, "changed_by": who.user_name,
    }  # fmt: skip
    insert = insert_of(conn)(secrets)
    changed = {key: value for key, value in row.items() if key in _CHANGING}
    conn.execute(insert.values(row).on_conflict_do_update(index_elements=_KEY, set_=changed))
    return _view(row)


_CHANGING = ("version", "sealed", "kek", "changed_ms", "changed_by")


def remove(conn: Connection, who: Principal, name: str, *, own: bool) -> None:
    gone = conn.execute(
        delete(secrets).where(
            secrets.c.project_id == who.project_id,
            secrets.c.owner_id == _owner(who, own),
            secrets.c.name == name,
        )
    ).rowcount
    if not gone:
        raise NotFound(f"no secret {name!r}", hint="`windlass secret ls` lists them")


def page(conn: Connection, who: Principal) -> SecretPage:
    """The project's, and the caller's own: by name, the own ones last."""
    rows = conn.execute(
        select(secrets)
        .where(secrets.c.project_id == who.project_id)
        .where(secrets.c.owner_id.in_(["", who.user_id or ""]))
        .order_by(secrets.c.name, secrets.c.owner_id)
    ).mappings()
    return SecretPage(items=tuple(_view(dict(row)) for row in rows))


def require(conn: Connection, who: Principal, names: Sequence[str]) -> None:
    """Raise InvalidInput unless a job of this user may name all of these."""
    if not names:
        return
    known = {item.name for item in page(conn, who).items}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InvalidInput(
            f"environment.secrets: no secret {', '.join(unknown)} in project {who.project_name}; "
            f"known: {', '.join(sorted(known)) or 'none'}",
            hint=f"windlass secret set {unknown[0]}",
        )


def sealed_for(conn: Connection, job: Mapping[str, Any], names: Sequence[str]) -> list[Row]:
    """The rows that a job's attempt gets now; the user's own before the project's."""
    if not names:
        return []
    rows = conn.execute(
        select(secrets)
        .where(secrets.c.project_id == job["project_id"])
        .where(secrets.c.owner_id.in_(["", job["user_id"]]))
        .where(secrets.c.name.in_(list(names)))
        .order_by(secrets.c.owner_id)  # "" first: a later one takes its place
    ).mappings()
    return list({row["name"]: dict(row) for row in rows}.values())


def opened(sealer: Sealer, rows: Sequence[Row]) -> tuple[dict[str, str], list[str]]:
    """The values by name; and for those that do not open, in words, why: a server that was
    restored without its keys has their rows and cannot read them."""
    values, closed = {}, []
    for row in rows:
        try:
            values[row["name"]] = _open(sealer, row)
        except Internal as err:
            closed.append(f"the secret {row['name']} does not open: {err.message}; {err.hint}")
    return values, closed


def forget_project(conn: Connection, project_id: str) -> None:
    """With a project go its secrets."""
    conn.execute(delete(secrets).where(secrets.c.project_id == project_id))


def _open(sealer: Sealer, row: Row) -> str:
    belongs_to = bound(row["project_id"], row["owner_id"], row["name"], row["version"])
    return sealer.unseal(row["sealed"], row["kek"], *belongs_to)


def bound(project_id: str, owner_id: str, name: str, version: int) -> tuple[str, ...]:
    """What a sealed value belongs to: it opens nowhere else."""
    return ("secret", project_id, owner_id, name, str(version))


def _owner(who: Principal, own: bool) -> str:
    if own and not who.user_id:
        raise InvalidInput("a secret of one's own needs a user")
    return (who.user_id or "") if own else ""


def _view(row: Row) -> SecretView:
    return SecretView(
        name=row["name"], own=bool(row["owner_id"]), version=row["version"],
        changed=stamp(row["changed_ms"]), changed_by=row["changed_by"],
    )  # fmt: skip
