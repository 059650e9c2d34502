"""Aliases: names that move between the versions of a model, and the history of their moves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, delete, select

from windlass.core.errors import NotFound
from windlass.core.models import MoveView
from windlass.server.clock import stamp
from windlass.server.models import service
from windlass.server.models.service import Actor
from windlass.server.models.tables import model_aliases, model_moves
from windlass.server.store.upsert import insert_of

MAX_MOVES = 1000


def move(
    conn: Connection, actor: Actor, model: Mapping[str, Any], alias: str, number: int, now_ms: int
) -> None:
    """Put an alias at a version that is there. The model was taken with `change`."""
    before = holder(conn, model, alias)
    row = {
        "model_id": model["id"], "alias": alias, "project_id": actor.project_id,
        "number": number, "moved_ms": now_ms, "user_name": actor.user_name,
    }  # fmt: skip
    upsert = insert_of(conn)(model_aliases)
    fresh = {name: row[name] for name in ("number", "moved_ms", "user_name")}
    conn.execute(
        upsert.values(row).on_conflict_do_update(index_elements=["model_id", "alias"], set_=fresh)
    )
    service.note_move(conn, actor, model["id"], alias, before, number, now_ms)
    service.change(conn, model, now_ms)


def drop(
    conn: Connection, actor: Actor, model: Mapping[str, Any], alias: str, now_ms: int
) -> None:
    """Take an alias away. Raises NotFound."""
    before = holder(conn, model, alias)
    if before is None:
        raise NotFound(f"model {model['name']} has no alias {alias}")
    conn.execute(
        delete(model_aliases).where(
            model_aliases.c.model_id == model["id"], model_aliases.c.alias == alias
        )
    )
    service.note_move(conn, actor, model["id"], alias, before, None, now_ms)
    service.change(conn, model, now_ms)


def holder(conn: Connection, model: Mapping[str, Any], alias: str) -> int | None:
    """The version that an alias is at."""
    found: int | None = conn.execute(
        select(model_aliases.c.number).where(
            model_aliases.c.model_id == model["id"], model_aliases.c.alias == alias
        )
    ).scalar()
    return found


def history(conn: Connection, model_id: str) -> tuple[MoveView, ...]:
    """Who moved which alias when, newest first."""
    rows = conn.execute(
        select(model_moves)
        .where(model_moves.c.model_id == model_id)
        .order_by(model_moves.c.id.desc())
        .limit(MAX_MOVES)
    )
    return tuple(
        MoveView(
            alias=row.alias, before=row.before, after=row.after, user=row.user_name,
            at=stamp(row.at_ms),
        )
        for row in rows
    )  # fmt: skip
