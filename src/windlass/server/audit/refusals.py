"""Refused attempts in the audit log: who was not let in, and what they wanted.

A refusal is written in a transaction of its own, since the one that was refused is undone. So
that a flood cannot fill the disk, one row stands for all that are alike (who, from where, what,
why) within a minute: the first is written at once, the others are counted and written when the
minute is over. Of different ones a minute takes so many; the rest is counted in one row,
`refused.many`.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from windlass.core import signing
from windlass.core.errors import (
    Forbidden,
    LimitExceeded,
    NotFound,
    Unauthenticated,
    WindlassError,
)
from windlass.server.access.calls import Call, entry_of
from windlass.server.audit import record
from windlass.server.audit.naming import action_of, source_of
from windlass.server.audit.record import Entry
from windlass.server.store.base import Store
from windlass.server.troubles import TURN, Troubles

WINDOW_SECONDS = 60.0
DIFFERENT = 60
"""Rows for refusals that differ, in one minute."""
MANY = "refused.many"

_WATCHED = (Unauthenticated, Forbidden, NotFound, LimitExceeded)
_STATE = "windlass_refusals"


class Refusals:
    """Counts and writes. `note` is called on the event loop, and never waits."""

    def __init__(
        self,
        store: Store,
        seconds: Callable[[], float] = time.monotonic,
        room: int = DIFFERENT,
        troubles: Troubles | None = None,
    ) -> None:
        self._store = store
        self._handling = (troubles or Troubles()).of("refusals")
        self._seconds = seconds
        self._room = room
        self._counts: dict[tuple[str, ...], tuple[Entry, int]] = {}
        self._until = 0.0
        self._outbox: list[Entry] = []
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="refusals")

    async def close(self) -> None:
        """What was counted is written first."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None
        self._turn_over()
        with suppress(Exception):
            await self._write()

    def note(self, scope: Mapping[str, Any], call: Call | None, error: Exception) -> None:
        """A call was answered with this error."""
        if not isinstance(error, _WATCHED):
            return
        if isinstance(error, NotFound) and not (call.about if call else _project(scope)):
            return  # no such address: nobody's object was asked for
        self.count(_entry(scope, call, error))

    def count(self, entry: Entry) -> None:
        if self._seconds() >= self._until:
            self._turn_over()
        key: tuple[str, ...] = (
            entry.project_id, entry.user_id, entry.credential, entry.source, entry.action,
            entry.object, entry.outcome,
        )  # fmt: skip
        if key not in self._counts and len(self._counts) >= self._room:
            entry = Entry(MANY, outcome=entry.outcome)
            key = (MANY, entry.outcome)
        first, more = self._counts.get(key, (entry, -1))
        self._counts[key] = (first, more + 1)
        if more < 0:
            self._outbox.append(entry)
            self._wake.set()

    def _turn_over(self) -> None:
        """A minute is over: what was counted beyond the first is told."""
        self._outbox += [
            replace(first, times=more, request_id="")
            for first, more in self._counts.values()
            if more
        ]
        self._counts = {}
        self._until = self._seconds() + WINDOW_SECONDS
        if self._outbox:
            self._wake.set()

    async def _run(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(WINDOW_SECONDS if self._counts else None):
                    await self._wake.wait()
            self._wake.clear()
            if self._counts and self._seconds() >= self._until:
                self._turn_over()
            try:
                await self._write()
            except Exception as error:
                # Kept for the next turn; the outbox is bounded as the counts are.
                self._handling.waits(TURN, error)
                del self._outbox[: -4 * self._room]
                await asyncio.sleep(1)
                self._wake.set()
            else:
                self._handling.well(TURN)

    async def _write(self) -> None:
        entries = list(self._outbox)
        if not entries:
            return

        def write(conn: Connection) -> None:
            for entry in entries:
                record.write(conn, entry)

        await self._store.write(write)
        del self._outbox[: len(entries)]


def note(scope: Mapping[str, Any], call: Call | None, error: Exception) -> None:
    """Tell the refusals of the application that answers, where it has some."""
    app = scope.get("app")
    found = getattr(app.state, _STATE, None) if app is not None else None
    if isinstance(found, Refusals):
        found.note(scope, call, error)


def install(app: Any, refusals: Refusals) -> None:
    setattr(app.state, _STATE, refusals)


def _entry(scope: Mapping[str, Any], call: Call | None, error: WindlassError) -> Entry:
    if call is not None and not isinstance(error, Unauthenticated):
        return entry_of(call, outcome=error.code)
    if call is not None and call.principal.project_id:  # a signature that was used before
        return entry_of(call, outcome=error.code)
    params = "/".join(map(str, (scope.get("path_params") or {}).values()))
    if isinstance(error, NotFound):
        params = _project(scope)
    return Entry(
        action_of(scope),
        credential=_claimed(scope),
        source=source_of(scope),
        object=call.about if call is not None else params,  # at a login: the name that was given
        outcome=error.code,
    )


def _project(scope: Mapping[str, Any]) -> str:
    """The project that a call named and its caller does not see."""
    for name, value in scope["headers"]:
        if name == b"x-wl-project":
            return str(value.decode("latin-1"))
    return str((scope.get("path_params") or {}).get("name", "")) if "route" in scope else ""


def _claimed(scope: Mapping[str, Any]) -> str:
    """Who the caller says it is. Of a bearer token only the beginning of its hash."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            if value[:7].lower() == b"bearer ":
                return "bearer:" + hashlib.sha256(value[7:].strip()).hexdigest()[:12]
            claim = signing.parse(value)
            return claim.access_key if claim is not None else "unknown form"
    return "none"
