"""The two bearer tokens of an attempt: the worker's, and the one its user code may hold.

The database keeps their hashes to recognise them and both sealed, since a launch that was cut
short by a crash is repeated with the same ones. They die with the attempt.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, or_, select

from windlass.core.access import CallerKind, Principal, rights_of
from windlass.core.errors import Fenced
from windlass.core.jobs import AttemptState
from windlass.server.access.sealing import Sealer
from windlass.server.access.service import new_token
from windlass.server.jobs.tables import attempts, jobs
from windlass.server.store.base import Store


class AttemptTokens:
    def __init__(self, sealer: Sealer, new_id: Callable[[], str] = lambda: uuid4().hex) -> None:
        self._sealer = sealer
        self._new_id = new_id

    def new_attempt(self) -> dict[str, Any]:
        """The columns of a new attempt that only this module fills."""
        attempt_id = self._new_id()
        worker, worker_hash = new_token(CallerKind.WORKER)
        run, run_hash = new_token(CallerKind.RUN)
        return {
            "id": attempt_id,
            "worker_hash": worker_hash,
            "run_hash": run_hash,
            "tokens": self._sealer.seal(f"{worker} {run}", "attempt", attempt_id),
            "kek": self._sealer.kek,
        }

    def worker_token(self, attempt: Mapping[str, Any]) -> str:
        return self._open(attempt)[0]

    def run_token(self, attempt: Mapping[str, Any]) -> str:
        return self._open(attempt)[1]

    def _open(self, attempt: Mapping[str, Any]) -> tuple[str, str]:
        both = self._sealer.unseal(attempt["tokens"], attempt["kek"], "attempt", attempt["id"])
        worker, run = both.split(" ")
        return worker, run


def finder(store: Store) -> Callable[[str], Awaitable[Principal | None]]:
    """Whom a token's hash stands for. A worker is found after its attempt too, to be told that it
    is fenced rather than unknown: every call of a worker looks at its fence. What user code may
    do is spread over many calls, so it is refused here (Fenced), whatever it asks."""

    def look(conn: Connection, token_hash: str) -> Principal | None:
        row = (
            conn.execute(
                select(
                    attempts.c.id,
                    attempts.c.job_id,
                    attempts.c.worker_hash,
                    attempts.c.number,
                    attempts.c.state,
                    jobs.c.fence,
                    jobs.c.project_id,
                )
                .join(jobs, jobs.c.id == attempts.c.job_id)
                .where(
                    or_(attempts.c.worker_hash == token_hash, attempts.c.run_hash == token_hash)
                )
            )
            .mappings()
            .first()
        )
        if row is None:
            return None
        kind = CallerKind.WORKER if row["worker_hash"] == token_hash else CallerKind.RUN
        over = row["state"] == AttemptState.OVER or row["number"] != row["fence"]
        if over and kind is CallerKind.RUN:
            raise Fenced(f"attempt {row['number']} is over: the newest is {row['fence']}")
        return Principal(
            kind=kind,
            project_id=row["project_id"],
            job_id=row["job_id"],
            attempt_id=row["id"],
            rights=rights_of(kind),
        )

    async def find(token_hash: str) -> Principal | None:
        return await store.read(lambda conn: look(conn, token_hash))

    return find


def job_of(conn: Connection, attempt_id: str) -> str | None:
    """The job that an attempt is of."""
    return conn.execute(select(attempts.c.job_id).where(attempts.c.id == attempt_id)).scalar()
