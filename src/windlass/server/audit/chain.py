"""The chain's end: where rows get their place (PostgreSQL), and where it is noted outside.

    write      number null                 any number of transactions, in any order
    link       number = last + 1, hash     one transaction at a time, under an advisory lock
    note       `audit-heads.json` in the server's home: the last number and hash of each chain

The same pattern as the positions of events (`server/feed.py`). The note is what a truncation is
measured against: a chain that no longer has the row that was noted was cut short or written anew.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, bindparam, select, text, update

from windlass.core.audit import BEGINNING, link
from windlass.core.errors import Unavailable
from windlass.server.access.tables import projects
from windlass.server.audit import record
from windlass.server.audit.tables import audit
from windlass.server.private import write_private
from windlass.server.store.base import Store
from windlass.server.troubles import TURN, Troubles

log = logging.getLogger("windlass.audit")

ADVISORY_LOCK = 0x61756474  # "audt"
PAGE = 500
LINK_SECONDS = 2.0
"""What a server that died left unlinked is linked by another after this."""
NOTE_SECONDS = 5.0

Heads = dict[str, tuple[int, str]]
_LAST = (
    select(audit.c.number, audit.c.hash)
    .where(audit.c.project_id == bindparam("chain"), audit.c.number.is_not(None))
    .order_by(audit.c.number.desc())
    .limit(1)
)
_WAITING = text("SELECT EXISTS (SELECT 1 FROM audit WHERE number IS NULL)")
_PLACE = (
    update(audit)
    .where(audit.c.id == bindparam("row_id"))
    .values(number=bindparam("place"), hash=bindparam("digest"))
)


def link_page(conn: Connection) -> int:
    """Give places to committed rows that have none; how many got one. 0 also when another
    server is at it: it, or the next turn, takes what is left."""
    if conn.dialect.name == "sqlite":
        return 0
    if not conn.execute(text(f"SELECT pg_try_advisory_xact_lock({ADVISORY_LOCK})")).scalar():
        return 0
    rows = conn.execute(
        select(audit).where(audit.c.number.is_(None)).order_by(audit.c.id).limit(PAGE)
    ).mappings()
    ends: Heads = {}
    places = []
    for found in rows:
        row = dict(found)
        chain = row["project_id"]
        number, previous = ends[chain] if chain in ends else head(conn, chain)
        row["number"] = number + 1
        digest = link(previous, record.shown(row))
        ends[chain] = (number + 1, digest)
        places.append({"row_id": row["id"], "place": number + 1, "digest": digest})
    if places:
        conn.execute(_PLACE, places)
    return len(places)


def waiting(conn: Connection) -> bool:
    """Whether there is a committed row without a place."""
    return bool(conn.execute(_WAITING).scalar())


def head(conn: Connection, chain: str) -> tuple[int, str]:
    """The last number and hash of a chain; (0, zeros) of an empty one."""
    found = conn.execute(_LAST, {"chain": chain}).first()
    return (int(found[0]), str(found[1])) if found else (0, BEGINNING)


def heads(conn: Connection) -> Heads:
    chains = ["", *conn.execute(select(projects.c.id)).scalars()]
    found = {chain: head(conn, chain) for chain in chains}
    return {chain: end for chain, end in found.items() if end[0]}


class Note:
    """The heads in a file of the server's home."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.heads: Heads = {}
        self.lost: list[dict[str, Any]] = []
        with suppress(OSError, ValueError, KeyError, TypeError):
            found = json.loads(path.read_text())
            self.heads = {
                chain: (int(end["number"]), str(end["hash"]))
                for chain, end in found["chains"].items()
            }
            self.lost = list(found["lost"])

    def missing(self, conn: Connection) -> list[dict[str, Any]]:
        """Heads that were noted and are in the chain no more."""
        gone = []
        for chain, (number, digest) in self.heads.items():
            found = conn.execute(
                select(audit.c.hash).where(audit.c.project_id == chain, audit.c.number == number)
            ).scalar()
            if found != digest:
                gone.append({"project_id": chain, "number": number, "hash": digest})
        return gone

    def keep(self, ends: Heads) -> None:
        self.heads = {**self.heads, **ends}
        chains = {
            chain: {"number": number, "hash": digest}
            for chain, (number, digest) in sorted(self.heads.items())
        }
        write_private(
            self._path, json.dumps({"chains": chains, "lost": self.lost}, indent=1) + "\n"
        )


class Chain:
    """The chain's keeper in one server. `start` it on the loop."""

    def __init__(self, store: Store, home: Path, troubles: Troubles | None = None) -> None:
        self._store = store
        self._handling = (troubles or Troubles()).of("audit chain")
        self.note = Note(home / "audit-heads.json")
        self._stirred = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._unlisten: Callable[[], None] = lambda: None

    async def start(self) -> None:
        """Looks first whether what was noted is still there; says so, in the log and in the
        chain of the server, when it is not."""
        gone = await self._store.read(self.note.missing)
        known = [each for each in gone if each not in self.note.lost]
        for each in known:
            log.error("the audit log was cut short or changed: %s is not there any more", each)
            self.note.lost.append(each)
            del self.note.heads[each["project_id"]]
            entry = record.Entry(
                "audit.lost", outcome="broken", object=f"{each['project_id']}:{each['number']}",
                details={"hash": each["hash"]},
            )  # fmt: skip
            await self._store.write(partial(record.write, entry=entry))
        self._unlisten = self._store.listen(record.TOPIC, self._stirred.set)
        self._stirred.set()
        self._task = asyncio.create_task(self._run(), name="audit")

    async def close(self) -> None:
        if self._task is None:
            return
        self._unlisten()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None
        with suppress(Exception):  # the database may be away: the next start links and notes
            await self._settle()

    async def _settle(self) -> None:
        while await self._store.write(link_page) == PAGE:
            pass
        ends = await self._store.read(heads)
        if ends != self.note.heads:
            await asyncio.to_thread(self.note.keep, ends)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        alone = self._store.dialect == "sqlite"
        noted = -NOTE_SECONDS
        owed = False
        while True:
            patience: float | None = None if alone else LINK_SECONDS
            if owed:
                patience = max(0.05, noted + NOTE_SECONDS - loop.time())
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await self._stirred.wait()
            owed = owed or self._stirred.is_set()
            self._stirred.clear()
            try:
                while not alone and await self._store.read(waiting):
                    owed = True
                    if not await self._store.write(link_page):
                        break  # another server is at it
                if owed and loop.time() >= noted + NOTE_SECONDS:
                    ends = await self._store.read(heads)
                    if ends != self.note.heads:
                        await asyncio.to_thread(self.note.keep, ends)
                    noted, owed = loop.time(), False
                elif alone:
                    await asyncio.sleep(0.2)  # rung by every write: once in a while will do
                else:
                    await asyncio.sleep(0.05)
            except Unavailable as error:
                log.info("the audit log's chain waits for the database: %s", error)
                await asyncio.sleep(1)
            except Exception as error:
                self._handling.waits(TURN, error)
                await asyncio.sleep(1)
            else:
                self._handling.well(TURN)
