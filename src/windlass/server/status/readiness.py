"""Whether this server does its work: its database answers, and the loops that schedule turn.

Alive is less: the process answers. One that is alive and not ready is worth a look, not a restart.
"""

from __future__ import annotations

import asyncio

from sqlalchemy import Connection, text

from windlass.core.errors import WindlassError
from windlass.server.parts import Parts
from windlass.server.troubles import BEGIN

SCHEDULING = (BEGIN, "admit", "reconcile")
"""Without these no job starts or ends; what the others put off waits."""
_SECONDS = 2.0


async def why_not(parts: Parts) -> list[str]:
    """In words; nothing: it is ready. One that does not lead (another does) has no loops."""
    why = parts.troubles.dead(SCHEDULING) if parts.settings.loops else []
    try:
        async with asyncio.timeout(_SECONDS):
            await parts.store.read(_answers)
    except TimeoutError:
        why.append(f"the database has not answered for {_SECONDS:.0f} s")
    except WindlassError:  # why is in the log: whoever asks needs no key
        why.append("the database does not answer")
    return why


def _answers(conn: Connection) -> None:
    conn.execute(text("SELECT 1"))
