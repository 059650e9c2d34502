"""The loops of a server: who leads runs them; a turn that fails is logged and tried again.

Leadership is a lease row with an epoch. Every write of a loop checks the epoch in its own
transaction (`guard`), so a leader that was stopped and woke up late writes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from sqlalchemy import Connection

from windlass.core.errors import Fenced, Unavailable
from windlass.server import leases
from windlass.server.store.base import Store
from windlass.server.troubles import BEGIN, TURN, Troubles

log = logging.getLogger("windlass.loops")

OFFICE = "loops"
LEASE_MS = 15_000


class Leadership:
    """This process's claim to the loops. `home` names the folder that this process alone uses:
    whoever led from there before is dead, and its lease is not waited for."""

    def __init__(
        self, store: Store, holder: str, home: str = "", lease_ms: int = LEASE_MS
    ) -> None:
        self._store = store
        self._lease_ms = lease_ms
        self._home = f"{home}/" if home else ""
        self._holder = self._home + holder
        self.epoch: int | None = None

    def guard(self, conn: Connection) -> None:
        """Raise Fenced unless this process leads, in the transaction that wants to act."""
        if self.epoch is None:
            raise Fenced("this server does not lead")
        leases.check(conn, OFFICE, self.epoch)

    async def gain(self) -> None:
        """Wait until this process leads."""
        while True:
            with suppress(Unavailable):
                self.epoch = await leases.try_lead(
                    self._store, OFFICE, self._holder, self._lease_ms, dead=self._home
                )
                if self.epoch is not None:
                    return
            # A leader that died is followed within its lease and this.
            await asyncio.sleep(min(1.0, self._lease_ms / 3000))

    async def keep(self) -> None:
        """Renew; returns when another leads."""
        while True:
            await asyncio.sleep(self._lease_ms / 3000)
            try:
                if self.epoch is None or not await leases.renew(
                    self._store, OFFICE, self.epoch, self._lease_ms
                ):
                    return
            except Unavailable as err:
                log.warning("cannot renew the lease: %s", err)

    async def resign(self) -> None:
        if self.epoch is not None:
            epoch, self.epoch = self.epoch, None
            with suppress(Unavailable):
                await leases.release(self._store, OFFICE, epoch)


class Bell:
    """Rung by whoever knows of work; a loop waits for it, or for its time. Rung all the time, it
    is heard once in `apart_seconds`: one look then serves many."""

    def __init__(self, apart_seconds: float = 0.0) -> None:
        self._event = asyncio.Event()
        self._apart_seconds = apart_seconds
        self._heard = 0.0

    def ring(self, *_: object) -> None:
        self._event.set()

    async def wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), seconds)
        if self._apart_seconds:
            now = asyncio.get_running_loop().time()
            early = self._heard + self._apart_seconds - now
            if early > 0:
                await asyncio.sleep(early)
            self._heard = now + max(0.0, early)
        self._event.clear()


async def run(
    name: str,
    turn: Callable[[], Awaitable[int | None]],
    bell: Bell,
    *,
    at_most_seconds: float,
    troubles: Troubles,
) -> None:
    """Turns for ever. A turn answers with the milliseconds until it is due again. What fails a
    whole turn concerns all: it is told of, and tried again soon."""
    delay = 0.2
    while True:
        troubles.begins(name)
        try:
            due_ms = await turn()
            delay = 0.2
        except Exception as err:
            troubles.failed(name, TURN, err)
            await asyncio.sleep(delay)
            delay = min(5.0, delay * 2)
            continue
        finally:
            troubles.ends(name)
        troubles.well(name, TURN)
        seconds = at_most_seconds if due_ms is None else min(at_most_seconds, due_ms / 1000)
        await bell.wait(seconds)


async def lead(
    leadership: Leadership,
    begin: Callable[[], Awaitable[None]],
    turns: Mapping[str, tuple[Callable[[], Awaitable[int | None]], Bell, float]],
    lost: Callable[[], None] = lambda: None,
    *,
    troubles: Troubles,
) -> None:
    """Gain the office, run the loops while it lasts, tell `lost` when it is another's, begin
    again."""
    while True:
        await leadership.gain()
        log.info("leading with epoch %s", leadership.epoch)
        tasks: list[asyncio.Task[None]] = []
        try:
            await begin()
            tasks = [
                asyncio.create_task(
                    run(name, turn, bell, at_most_seconds=most, troubles=troubles), name=name
                )
                for name, (turn, bell, most) in turns.items()
            ]
            troubles.well(BEGIN, TURN)
            await leadership.keep()
            log.warning("another server leads now")
        except Exception as err:  # nobody else would begin: it is tried again, whatever it is
            troubles.failed(BEGIN, TURN, err)
            await asyncio.sleep(1)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            troubles.forget()
            lost()
