"""Another key-encryption key: rows are sealed anew under it, a page at a time.

May be cut short at any point and begun again: until the last page each row opens with the KEK it
names, and the file keeps every KEK that any row needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, select, update

from windlass.server.access import sealing
from windlass.server.access.sealing import Sealer
from windlass.server.store.base import Store

_PAGE = 200


@dataclass(frozen=True)
class Sealed:
    """A table whose rows hold something sealed."""

    table: Table
    column: str
    bound: Callable[[Any], tuple[str, ...]]
    """What a row's secret is bound to."""
    where: ColumnElement[bool] | None = None
    """Only these are ever opened again; the others may lose what they hold."""


async def rekey(
    store: Store, sealer: Sealer, path: Path, sealed: Sequence[Sealed], *, drop_old: bool
) -> int:
    """A new KEK, under which every row is sealed when this returns; how many were sealed anew.
    `drop_old`: no new one; the rows that the newest does not open are sealed anew, then every
    older KEK leaves the file."""
    if not drop_old:
        sealing.add_kek(path)
    sealer.reload()
    done = 0
    for each in sealed:
        done += await _rewrap(store, sealer, each, check=drop_old)
    if drop_old:
        sealing.drop_keks(path, sealer.keks[1:])
        sealer.reload()
    return done


async def _rewrap(store: Store, sealer: Sealer, sealed: Sealed, *, check: bool) -> int:
    """`check`: believe no row's word about its KEK, open it."""
    done = 0
    after: tuple[Any, ...] | None = None
    while True:
        found = await store.write(
            partial(_page, sealer=sealer, sealed=sealed, check=check, after=after)
        )
        done += found.done
        if found.last is None:
            return done
        after = found.last


@dataclass(frozen=True)
class _Page:
    done: int
    last: tuple[Any, ...] | None
    """The key of the last row looked at; None: there are no more."""


def _page(
    conn: Connection,
    sealer: Sealer,
    sealed: Sealed,
    check: bool,
    after: tuple[Any, ...] | None,
) -> _Page:
    table = sealed.table
    keys = list(table.primary_key.columns)
    query = select(table).order_by(*keys).limit(_PAGE).with_for_update()
    if not check:
        query = query.where(table.c.kek != sealer.kek)
    if sealed.where is not None:
        query = query.where(sealed.where)
    if after is not None:
        query = query.where(_beyond(keys, after))
    rows = conn.execute(query).all()
    done = 0
    for row in rows:
        bound = sealed.bound(row)
        content = getattr(row, sealed.column)
        if check and row.kek == sealer.kek and sealer.opens(content, sealer.kek, *bound):
            continue
        secret = sealer.unseal(content, row.kek, *bound)
        this = [key == getattr(row, key.name) for key in keys]
        fresh = {sealed.column: sealer.seal(secret, *bound), "kek": sealer.kek}
        conn.execute(update(table).where(*this).values(fresh))
        done += 1
    last = tuple(getattr(rows[-1], key.name) for key in keys) if len(rows) == _PAGE else None
    return _Page(done, last)


def _beyond(keys: list[Any], after: tuple[Any, ...]) -> ColumnElement[bool]:
    """Rows whose key comes after that one, column by column."""
    head, *rest = keys
    beyond: ColumnElement[bool] = head > after[0]
    if rest:
        beyond = beyond | ((head == after[0]) & _beyond(rest, after[1:]))
    return beyond
