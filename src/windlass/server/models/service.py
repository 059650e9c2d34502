"""Models by name, and from `NAME@ALIAS` to a version. Every function runs inside the caller's
transaction.

Whoever changes a model takes its row first: versions are numbered and aliases moved one after the
other, and the history of moves has no gap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, delete, func, insert, select, update

from windlass.core.access import CallerKind, Principal, Right
from windlass.core.errors import Conflict, Forbidden, NotFound
from windlass.core.modelrefs import parse_ref
from windlass.core.models import Stage
from windlass.server import feed
from windlass.server.access.tables import users
from windlass.server.artifacts.service import File
from windlass.server.jobs.tables import jobs
from windlass.server.models.tables import model_aliases, model_moves, model_versions, models
from windlass.server.store.upsert import insert_of

Row = dict[str, Any]
VersionFile = File
STAGES = frozenset(stage.value for stage in Stage)


@dataclass(frozen=True)
class Actor:
    """In whose name something is done: a user's, also when a job of that user does it."""

    project_id: str
    user_id: str
    user_name: str
    removes_any: bool = False


@dataclass(frozen=True)
class Version:
    """A version, for those who need its files."""

    model: str
    version: int
    digest: str
    run_id: str | None
    job_id: str | None
    files: tuple[VersionFile, ...]


def actor_of(conn: Connection, who: Principal) -> Actor:
    if who.kind is CallerKind.USER:
        removes_any = who.may(Right.MODEL_REMOVE_ANY)
        return Actor(who.project_id, who.user_id or "", who.user_name, removes_any)
    row = conn.execute(
        select(jobs.c.user_id, users.c.name)
        .join(users, users.c.id == jobs.c.user_id)
        .where(jobs.c.id == who.job_id)
    ).first()
    if row is None:
        raise NotFound("the job of this token is gone")
    return Actor(who.project_id, row.user_id, row.name)


def resolve(conn: Connection, project_id: str, ref: str) -> Version:
    """The version that `NAME@ALIAS`, `NAME@3` or `NAME` (the newest) names. Raises InvalidInput,
    NotFound."""
    name, which = parse_ref(ref)
    model = find(conn, project_id, name)
    row = find_version(conn, model, which)
    return Version(name, row["number"], row["digest"], row["run_id"], row["job_id"], files_of(row))


def find(conn: Connection, project_id: str, name: str, *, change: bool = False) -> Row:
    """A model by its name; `change`: nobody else changes it until this transaction ends."""
    query = select(models).where(models.c.project_id == project_id, models.c.name == name)
    row = conn.execute(query.with_for_update() if change else query).mappings().first()
    if row is None:
        raise NotFound(f"no model {name!r}", hint="`windlass model ls` lists the models there are")
    return dict(row)


def find_version(conn: Connection, model: Mapping[str, Any], which: str) -> Row:
    """A version of a model by its number, an alias, a stage, or "" (or latest) for the newest."""
    mine = select(model_versions).where(model_versions.c.model_id == model["id"])
    newest = mine.order_by(model_versions.c.number.desc()).limit(1)
    if which.isascii() and which.isdigit() and len(which) < 10:
        query = mine.where(model_versions.c.number == int(which))
    elif which in ("", "latest"):
        query = newest
    elif which in STAGES:
        query = newest.where(model_versions.c.stage == which)
    else:
        holder = select(model_aliases.c.number).where(
            model_aliases.c.model_id == model["id"], model_aliases.c.alias == which
        )
        query = mine.where(model_versions.c.number == holder.scalar_subquery())
    row = conn.execute(query).mappings().first()
    if row is None:
        known = ", ".join(sorted(aliases_of(conn, [model["id"]]).get(model["id"], {})))
        raise NotFound(
            f"model {model['name']} has no version {which or 'yet'}",
            hint=f"its aliases: {known}" if known else f"windlass model show {model['name']}",
        )
    return dict(row)


def files_of(row: Mapping[str, Any]) -> tuple[File, ...]:
    return tuple(File(file["path"], file["digest"], file["size"]) for file in row["files"])


def make(
    conn: Connection, actor: Actor, name: str, now_ms: int, *,
    description: str = "", tags: Mapping[str, str] | None = None, known: bool = False,
) -> Row:  # fmt: skip
    """A new model without versions. Raises Conflict when the name is taken; `known`: then it is
    that one, held as `find` with `change` does."""
    row = {
        "id": uuid4().hex, "project_id": actor.project_id, "name": name,
        "description": description, "tags": dict(tags or {}), "user_id": actor.user_id,
        "user_name": actor.user_name, "last": 0, "created_ms": now_ms, "changed_ms": now_ms,
    }  # fmt: skip
    upsert = insert_of(conn)(models)
    fresh = upsert.values(row).on_conflict_do_nothing().returning(models.c.id)
    if conn.execute(fresh).first() is not None:
        tell(conn, row, f"model {name} was made", now_ms)
    elif not known:
        raise Conflict(f"there is a model {name} already")
    return find(conn, actor.project_id, name, change=True)


def every(conn: Connection, project_id: str) -> list[Row]:
    """All models of a project by name, each with how many `versions` it has and its `newest`."""
    counted = (
        select(
            model_versions.c.model_id,
            func.count().label("versions"),
            func.max(model_versions.c.number).label("newest"),
        )
        .where(model_versions.c.project_id == project_id)
        .group_by(model_versions.c.model_id)
        .subquery()
    )
    query = (
        select(models, func.coalesce(counted.c.versions, 0).label("versions"), counted.c.newest)
        .outerjoin(counted, counted.c.model_id == models.c.id)
        .where(models.c.project_id == project_id)
    )
    rows = [dict(row) for row in conn.execute(query).mappings()]
    return sorted(rows, key=lambda row: row["name"])


def change(conn: Connection, model: Mapping[str, Any], now_ms: int, **values: Any) -> None:
    """Another description, tags or name, or another version or alias of it. Raises Conflict when
    the name is taken."""
    if "name" in values and values["name"] != model["name"]:
        taken = select(models.c.id).where(
            models.c.project_id == model["project_id"], models.c.name == values["name"]
        )
        if conn.execute(taken).first():
            raise Conflict(f"there is a model {values['name']} already")
    conn.execute(
        update(models).where(models.c.id == model["id"]).values(**values, changed_ms=now_ms)
    )
    named = {**model, **values}
    tell(conn, named, f"model {named['name']} changed", now_ms)


def tell(conn: Connection, model: Mapping[str, Any], reason: str, now_ms: int) -> None:
    """An event of no job: who follows the project hears of the model."""
    feed.append(
        conn, job_id=None, project_id=model["project_id"], seq=0, attempt=None, kind="model",
        at_ms=now_ms, state=None, reason=reason,
        data={"model": model["id"], "name": model["name"]},
    )  # fmt: skip


def remove(conn: Connection, actor: Actor, name: str, now_ms: int) -> None:
    """A model with its versions, aliases and their history. Raises Forbidden for another's."""
    model = find(conn, actor.project_id, name, change=True)
    check_owner(actor, model, f"model {name}")
    others = conn.execute(
        select(model_versions.c.user_id, model_versions.c.user_name).where(
            model_versions.c.model_id == model["id"], model_versions.c.user_id != actor.user_id
        )
    ).first()
    if others is not None:
        check_owner(actor, dict(others._mapping), f"a version of {name}")
    for table in (model_moves, model_aliases, model_versions):
        conn.execute(delete(table).where(table.c.model_id == model["id"]))
    conn.execute(delete(models).where(models.c.id == model["id"]))
    tell(conn, model, f"model {name} was removed", now_ms)


def check_owner(actor: Actor, row: Mapping[str, Any], what: str) -> None:
    if row["user_id"] != actor.user_id and not actor.removes_any:
        raise Forbidden(
            f"{what} is {row['user_name']}'s: a member removes its own only",
            hint="ask its owner, or a maintainer of the project",
            right=str(Right.MODEL_REMOVE_ANY),
        )


def aliases_of(conn: Connection, model_ids: list[str]) -> dict[str, dict[str, int]]:
    """By model, the aliases that were given, and the version each is at."""
    found: dict[str, dict[str, int]] = {}
    if not model_ids:
        return found
    rows = conn.execute(
        select(model_aliases.c.model_id, model_aliases.c.alias, model_aliases.c.number)
        .where(model_aliases.c.model_id.in_(model_ids))
        .order_by(model_aliases.c.alias)
    )
    for model_id, alias, number in rows:
        found.setdefault(model_id, {})[alias] = number
    return found


def note_move(
    conn: Connection, actor: Actor, model_id: str, alias: str,
    before: int | None, after: int | None, now_ms: int,
) -> None:  # fmt: skip
    """Write down that an alias moved; one that stayed where it was did not."""
    if before == after:
        return
    conn.execute(
        insert(model_moves).values(
            project_id=actor.project_id, model_id=model_id, alias=alias, before=before,
            after=after, user_id=actor.user_id, user_name=actor.user_name, at_ms=now_ms,
        )
    )  # fmt: skip
