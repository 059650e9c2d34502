"""How many names one run may have. A name costs a row that every table of runs reads: a script
that puts a step into the names of its metrics would make millions.

Who asks over the wire is refused in words. What comes in spools was logged long ago and nobody
waits for an answer: it is cut, and the run says so in a tag.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, Table, func, select

from windlass.server.runs.tables import experiments, latest, tags
from windlass.server.store.upsert import insert_of

MOST = 10_000
"""Keys of metrics, parameters, and tags; of each so many."""
MOST_EXPERIMENTS = 10_000
"""Of a project."""
LEFT_OUT = "windlass.left_out"
"""The tag that says what was cut."""
WHAT = {"latest": "metric keys", "params": "parameters", "tags": "tags"}
_REMEMBERED = 100_000
_TOGETHER = 500
_LONGEST = 4000


class Known:
    """Keys of metrics that a run has: most points have one of these, and need no look at the
    table. Of the runs that were written to last; who forgets looks again."""

    def __init__(self, most: int = _REMEMBERED) -> None:
        self._runs: OrderedDict[str, set[str]] = OrderedDict()
        self._most = most
        self._count = 0

    def missing(self, run_id: str, keys: Collection[str]) -> list[str]:
        known = self._runs.get(run_id)
        return list(keys) if known is None else [key for key in keys if key not in known]

    def add(self, run_id: str, keys: Collection[str]) -> None:
        known = self._runs.setdefault(run_id, set())
        self._runs.move_to_end(run_id)
        before = len(known)
        known.update(keys)
        self._count += len(known) - before
        while self._count > self._most and len(self._runs) > 1:
            _, gone = self._runs.popitem(last=False)
            self._count -= len(gone)


def _known(conn: Connection) -> Known:
    """Kept with the connection of the writer: it is of one database."""
    found: Known = conn.info.setdefault("known_keys", Known())
    return found


def excess(conn: Connection, table: Table, run_id: str, keys: Collection[str]) -> list[str]:
    """Those of the keys for which the run has no room, in order."""
    asked = list(dict.fromkeys(keys))
    if table is latest:
        asked = _known(conn).missing(run_id, asked)
    if not asked:
        return []
    mine = table.c.run_id == run_id
    there: set[str] = set()
    for at in range(0, len(asked), _TOGETHER):
        some = select(table.c.key).where(mine, table.c.key.in_(asked[at : at + _TOGETHER]))
        there.update(conn.execute(some).scalars())
    new = [key for key in asked if key not in there]
    over: list[str] = []
    if new:
        others = (mine, table.c.key != LEFT_OUT)
        count = conn.execute(select(func.count()).select_from(table).where(*others)).scalar_one()
        over = new[max(0, MOST - int(count)) :]
    if table is latest:
        refused = set(over)
        _known(conn).add(run_id, [key for key in asked if key not in refused])
    return over


def words(table: Table, run_id: str, over: Sequence[str]) -> str:
    """Why they are not kept."""
    shown = ", ".join(repr(key[:80]) for key in over[:3]) + (", …" if len(over) > 3 else "")
    return f"run {run_id} has {MOST} {WHAT[table.name]}, the most that one may have: {shown}"


def tell(conn: Connection, run_id: str, text: str) -> None:
    """Write down with the run that something of it was cut; each once."""
    there = conn.execute(
        select(tags.c.value).where(tags.c.run_id == run_id, tags.c.key == LEFT_OUT)
    ).scalar()
    if there is not None and (text in there.split("\n") or len(there) + len(text) > _LONGEST):
        return
    value = text if there is None else f"{there}\n{text}"
    row = insert_of(conn)(tags).values(run_id=run_id, key=LEFT_OUT, value=value)
    conn.execute(
        row.on_conflict_do_update(
            index_elements=["run_id", "key"], set_={"value": row.excluded.value}
        )
    )


def cut(conn: Connection, run_id: str, table: Table, given: dict[str, Any]) -> None:
    """Take away what the run has no room for, and tell so."""
    over = excess(conn, table, run_id, given)
    for key in over:
        del given[key]
    if over:
        tell(conn, run_id, f"{WHAT[table.name]} past {MOST} are left out, such as {over[0][:80]}")


def full_of_experiments(conn: Connection, project_id: str) -> bool:
    mine = select(func.count()).select_from(experiments)
    count = conn.execute(mine.where(experiments.c.project_id == project_id)).scalar_one()
    return int(count) >= MOST_EXPERIMENTS
