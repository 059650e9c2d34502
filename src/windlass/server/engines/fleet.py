"""The engines of this server that run: the local one, and those of the database.

One that cannot be reached is kept and tried again: its nodes stay as they were last seen until it
answers, since the gangs on them go on whether we reach it or not.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from windlass.core.engines import LOCAL
from windlass.core.errors import InvalidInput, WindlassError
from windlass.core.resources import Node
from windlass.engines import registry
from windlass.engines.base import Engine, Removable
from windlass.server.clock import Clock
from windlass.server.engines import service
from windlass.server.nodes import service as node_service
from windlass.server.store.base import Store
from windlass.server.troubles import TURN, Troubles

log = logging.getLogger("windlass.server.engines")
_AGAIN_SECONDS = 15.0


def make(
    kind: str, name: str, home: Path, command: list[str], options: dict[str, str], url: str
) -> Engine:
    """`url`: this server's, as it knows it itself. Raises InvalidInput that names the option, its
    value and the choices."""
    if kind == LOCAL:
        raise InvalidInput("kind: local is this machine, and there already")
    maker = registry.load(kind)
    checked = getattr(maker, "options_of", None)
    if checked is None:
        if options:
            raise InvalidInput(f"options: engines of kind {kind} take none")
        return maker(home, command, name=name)
    return maker(home, command, name=name, own_url=url, **checked(options))


class Fleet(Mapping[str, Engine]):
    def __init__(
        self,
        local: Engine,
        store: Store,
        clock: Clock,
        home: Path,
        command: list[str],
        url: str,
        *,
        offers: bool = True,
        changed: Callable[[], None] = lambda: None,
        troubles: Troubles | None = None,
    ) -> None:
        self._handling = (troubles or Troubles(clock)).of("engines")
        self._engines: dict[str, Engine] = {local.name: local}
        self._rows: dict[str, dict[str, Any]] = {}
        self.reasons: dict[str, str] = {}
        """Of those that did not answer when they were last asked for their nodes."""
        self._store, self._clock = store, clock
        self._home, self._command, self._url = home, command, url
        self._offers, self._changed = offers, changed
        self._hint: Callable[[str], None] = lambda attempt_id: None
        self._stale = asyncio.Event()
        self._offering: set[str] = set()
        self._tending: asyncio.Task[None] | None = None

    def __getitem__(self, name: str) -> Engine:
        return self._engines[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict(self._engines))

    def __len__(self) -> int:
        return len(self._engines)

    async def start(self, hint: Callable[[str], None]) -> None:
        self._hint = hint
        await self._start_one(LOCAL, self._engines[LOCAL])
        await self._follow()
        self._store.listen(service.TOPIC, self._stale.set)
        self._tending = asyncio.create_task(self._tend(), name="tend engines")

    async def stop(self) -> None:
        if self._tending is not None:
            self._tending.cancel()
            await asyncio.gather(self._tending, return_exceptions=True)
        for engine in self._engines.values():
            await engine.stop()

    async def offer(self) -> None:
        """Write down what this machine offers, and soon what the others do: one that does not
        answer holds nobody up."""
        await self._offer(LOCAL, self._engines[LOCAL])
        self._offering |= set(self._rows)
        self._stale.set()

    async def _offer(self, name: str, engine: Engine) -> None:
        try:
            offers = await engine.nodes()
        except Exception as err:
            if name == LOCAL:
                raise
            self.reasons[name] = str(err) or type(err).__name__
            self._handling.waits(f"engine {name}", err)
            return
        self.reasons.pop(name, None)
        self._handling.well(f"engine {name}")
        now = self._clock.now_ms()

        def write(conn: Connection) -> bool:
            return node_service.record(conn, name, _unlike(conn, name, offers), now)

        if await self._store.write(write):
            self._changed()

    async def _start_one(self, name: str, engine: Engine) -> None:
        def hint(attempt_id: str) -> None:
            if attempt_id:
                self._hint(attempt_id)
            else:
                self._offering.add(name)
                self._stale.set()

        await engine.start(hint)

    async def _follow(self) -> None:
        """Run what the database says, and no more."""
        rows = {row["name"]: row for row in await self._store.read(service.every)}
        for name in [each for each in self._rows if each not in rows]:
            engine = self._engines.pop(name)
            del self._rows[name]
            self.reasons.pop(name, None)
            await engine.stop()
            if isinstance(engine, Removable):
                await engine.remove()
        for name, row in rows.items():
            if name in self._rows:
                continue
            try:
                engine = make(
                    row["kind"], name, self._home, self._command, row["options"], self._url
                )
                await self._start_one(name, engine)
            except WindlassError as err:
                self.reasons[name] = str(err)
                self._handling.waits(f"engine {name}", err)
                continue
            self._engines[name] = engine
            self._rows[name] = row
            self._offering.add(name)

    async def _tend(self) -> None:
        while True:
            try:
                await self._follow()
                for name in [*self._offering, *self.reasons]:
                    self._offering.discard(name)
                    if self._offers and name in self._engines:
                        await self._offer(name, self._engines[name])
            except Exception as err:
                self._handling.waits(TURN, err)
            else:
                self._handling.well(TURN)
            try:
                async with asyncio.timeout(_AGAIN_SECONDS if self.reasons else None):
                    await self._stale.wait()
            except TimeoutError:
                pass
            self._stale.clear()


def _unlike(conn: Connection, engine: str, offers: list[Node]) -> list[Node]:
    """Those whose names are not taken by another engine's: jobs know nodes by name alone."""
    taken = {
        row["name"]: row["engine"]
        for row in node_service.every(conn)
        if row["engine"] != engine and row["state"] != "gone"
    }
    for offer in offers:
        if offer.name in taken:
            log.error(
                "engine %s: node %s is left out, engine %s has one of that name",
                engine, offer.name, taken[offer.name],
            )  # fmt: skip
    return [offer for offer in offers if offer.name not in taken]
