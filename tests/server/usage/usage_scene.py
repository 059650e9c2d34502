"""Attempts that begin and end at given times, in a real database of either kind."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from sqlalchemy import insert, select, update

from windlass.core.jobs import AttemptState, JobState
from windlass.core.usage import BudgetBody, PriceBody
from windlass.server.jobs import moves
from windlass.server.jobs.tables import attempts, checkpoints, jobs, workers
from windlass.server.usage import budgets, ledger, prices, rollup
from windlass.server.usage.report import Asked, report
from windlass.server.usage.tables import ledger as entries

PLACES = {"n1": ("local", "H200"), "n2": ("local", "A100"), "n3": ("cloud", "")}
HOUR = 3_600_000
DAY = 24 * HOUR
BASE = 20_000 * DAY
"""Midnight, UTC: 2024-10-04."""


class Metered:
    def __init__(self, tenancy: Any) -> None:
        self.tenancy = tenancy
        self.write, self.read = tenancy.write, tenancy.read
        self._ids = count(1)

    def start(
        self, name: str, at_ms: int, *, nodes: tuple[str, ...] = ("n1",), **role: Any
    ) -> str:
        """A job of one role that holds its seats from then on; its id."""
        limits = {"cost": role.pop("cost")} if "cost" in role else {}
        shape = {"count": len(nodes), **({"gpus": 1} if not role else role)}
        job_id = self.tenancy.submit(
            name, at_ms=at_ms, roles={"worker": shape}, limits=limits, retry={"times": 0}
        )
        return self.begin(job_id, at_ms, nodes)

    def begin(self, job_id: str, at_ms: int, nodes: tuple[str, ...] = ("n1",)) -> str:
        number = next(self._ids)

        def write(conn: Any) -> None:
            attempt = {
                "id": f"a{number:031x}", "worker_hash": f"w{number}", "run_hash": f"r{number}",
                "tokens": b"", "kek": "", "engine": "local",
                "placement": [
                    {"role": "worker", "index": i, "node": n, "gpu_ids": []}
                    for i, n in enumerate(nodes)
                ],
            }  # fmt: skip
            job = moves.load(conn, job_id)
            moves.start_attempt(conn, job, attempt, reason="", now_ms=at_ms, places=PLACES)

        self.write(write)
        return job_id

    def tell(self, job_id: str, at_ms: int, wish: str | None = None) -> None:
        """It is told to end."""

        def write(conn: Any) -> None:
            job = moves.load(conn, job_id)
            attempt = moves.load_attempt(conn, job_id, job["fence"])
            moves.move_attempt(
                conn, job, attempt, AttemptState.ENDING, reason="", now_ms=at_ms, grace_ms=1,
                ending_outcome="preempted", ending_wish=wish,
            )  # fmt: skip

        self.write(write)

    def over(
        self, job_id: str, at_ms: int, outcome: str = "succeeded", to: str = "failed"
    ) -> None:
        def write(conn: Any) -> None:
            job = moves.load(conn, job_id)
            attempt = moves.load_attempt(conn, job_id, job["fence"])
            job, _ = moves.move_attempt(
                conn, job, attempt, AttemptState.OVER, reason="", now_ms=at_ms, outcome=outcome
            )
            moves.move(conn, job, JobState(to), owner="reconcile", reason="", now_ms=at_ms)

        self.write(write)

    def cut(self, job_id: str, at_ms: int) -> None:
        def write(conn: Any) -> None:
            job = moves.load(conn, job_id)
            ledger.cut(conn, moves.load_attempt(conn, job_id, job["fence"])["id"], at_ms)

        self.write(write)

    def saved(self, job_id: str, at_ms: int, attempt: int = 1) -> None:
        self.write(
            lambda conn: conn.execute(
                insert(checkpoints).values(
                    job_id=job_id, path=str(at_ms), attempt=attempt, step=at_ms, digest="",
                    bytes=0, registered_ms=at_ms,
                )
            )
            and None
        )  # fmt: skip

    def used(self, job_id: str, **columns: int) -> None:
        live = select(attempts.c.id).where(attempts.c.job_id == job_id)
        self.write(
            lambda conn: (
                conn.execute(
                    update(workers).where(workers.c.attempt_id.in_(live)).values(**columns)
                )
                and None
            )
        )

    def entries(self) -> list[dict[str, Any]]:
        rows = self.read(
            lambda conn: conn.execute(select(entries).order_by(entries.c.id)).mappings().all()
        )
        return [dict(row) for row in rows]

    def lines(self) -> list[tuple[str, int, int]]:
        return [
            (row["kind"], row["from_ms"] - BASE, row["to_ms"] - BASE) for row in self.entries()
        ]

    def price(self, resource: str, price: Any, at_ms: int, effective: str | None = None) -> None:
        body = PriceBody.model_validate(
            {"resource": resource, "price": price, "effective": effective}
        )
        self.write(lambda conn: prices.put(conn, body, by="owner", now_ms=at_ms))

    def budget(self, name: str, at_ms: int, *, kind: str = "project", **fields: Any) -> None:
        body = BudgetBody.model_validate(fields)
        self.write(lambda conn: budgets.put(conn, kind, name, body, by="owner", now_ms=at_ms))

    def settle(self, at_ms: int) -> list[budgets.Standing]:
        return self.write(lambda conn: budgets.settle(conn, at_ms))

    def roll(self, batch: int = 1000) -> None:
        while self.write(lambda conn: rollup.add(conn, batch)):
            pass

    def report(self, by: str, since: int, until: int, now: int | None = None, **of: Any) -> Any:
        asked = Asked(by, since, until, **of)
        return self.read(lambda conn: report(conn, asked, until if now is None else now))

    def job(self, job_id: str) -> dict[str, Any]:
        row = self.read(lambda conn: conn.execute(select(jobs).where(jobs.c.id == job_id)).one())
        return dict(row._mapping)


@pytest.fixture
def metered(tenancy: Any) -> Metered:
    return Metered(tenancy)
