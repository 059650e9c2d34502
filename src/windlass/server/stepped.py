"""A wall clock that was set while no server ran: what waits for a time waits on as it did.

A running server reads the wall clock once (`clock.py`); a restarted one reads it anew. How far it
was moved meanwhile tells the machine's own clock, which counts since boot: this server's start is
written down by both, and the next one compares. Only what was to happen *after* a time moves
along, a backoff or the end of a ttl; a date that somebody named (`begin`) means the wall clock.

Nobody can tell after a restart of the machine, nor on PostgreSQL, whose clock is everybody's.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from sqlalchemy import Connection, update

from windlass.engines.processes import boot_id, boot_seconds
from windlass.server.jobs.tables import jobs
from windlass.server.private import write_private
from windlass.server.store.base import Store

log = logging.getLogger("windlass.clock")
FILE = "clock.json"
_LEAST_MS = 5_000
"""What is less is no step, but how clocks are kept right."""


async def follow(store: Store, home: Path, now_ms: int) -> int:
    """Move along with the wall clock what waits, before anything looks at it. The step in
    milliseconds."""
    step = 0 if store.dialect != "sqlite" else since_the_last(home, now_ms)
    if step:
        ahead = "ahead" if step > 0 else "back"
        seconds = abs(step) / 1000
        log.warning("the wall clock was set %.0f s %s while no server ran", seconds, ahead)
        await store.write(lambda conn: move(conn, step))
    return step


def since_the_last(home: Path, now_ms: int) -> int:
    """How far the wall clock has moved against the machine's own since the last server of this
    home started; 0 where that is not known. The present is written down first: a crash before the
    move leaves timers a step off, one that moved them twice would too."""
    path = home / FILE
    boot_ms = int(boot_seconds() * 1000)
    try:
        known = json.loads(path.read_text())
    except (OSError, ValueError):
        known = {}
    present = {"boot_id": boot_id(), "boot_ms": boot_ms, "now_ms": now_ms}
    try:
        write_private(path, json.dumps(present))
    except OSError as err:
        log.warning("%s cannot be written, so no step of the clock is followed: %s", path, err)
        return 0
    if not isinstance(known, dict) or known.get("boot_id") != boot_id():
        return 0
    then_ms, then_boot_ms = known.get("now_ms"), known.get("boot_ms")
    if type(then_ms) is not int or type(then_boot_ms) is not int:
        return 0
    step = now_ms - (then_ms + boot_ms - then_boot_ms)
    return step if abs(step) >= _LEAST_MS else 0


def move(conn: Connection, step: int) -> None:
    for column in (jobs.c.expires_ms, jobs.c.not_before_ms):
        conn.execute(update(jobs).where(column > 0).values({column: column + step}))
