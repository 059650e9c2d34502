"""What tenants used lately, and when an elastic job was last resized, outlive a core."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from sqlalchemy import Connection, select

from windlass.core.resources import Node, Resources
from windlass.scheduler.events import Used
from windlass.server.clock import SystemClock
from windlass.server.jobs import lately
from windlass.server.jobs.admit import Admit
from windlass.server.jobs.tables import jobs
from windlass.server.nodes import service as node_service
from windlass.server.store.base import Store

_numbers = itertools.count(1)
NODE = Node(
    name="n1", engine="local", capacity=Resources(gpus=2, slots=8), gpu_ids=("0", "1"), boot_id="b"
)


def admitting(store: Store) -> Admit:
    return Admit(
        store, SystemClock(), guard=lambda conn: None, new_attempt=new_attempt,
        started=lambda job_id: None, ttl_ms=1000,
    )  # fmt: skip


def new_attempt() -> dict[str, Any]:
    name = f"{next(_numbers):032x}"
    return {
        "id": name, "worker_hash": "w" + name, "run_hash": "r" + name, "tokens": b"", "kek": "",
    }  # fmt: skip


def test_what_is_written_again_is_what_is_read(store: Store) -> None:
    first = [Used("b", 7, 2900), Used("a", 10**40, 2900)]

    async def story() -> list[Used]:
        await store.write(lambda conn: lately.save(conn, first))
        await store.write(lambda conn: lately.save(conn, [Used("b", 8, 2901)]))
        return await store.read(lately.remembered)

    assert asyncio.run(story()) == [Used("a", 10**40, 2900), Used("b", 8, 2901)]


def test_the_next_server_counts_on_from_what_was_used(tenancy: Any) -> None:
    tenancy.write(lambda conn: node_service.record(conn, "local", [NODE], 1))
    tenancy.submit("one", roles={"worker": {"gpus": 1}})

    async def started(admit: Admit) -> list[Used]:
        await admit.turn()
        return await tenancy.store.read(lately.remembered)

    one = asyncio.run(started(admitting(tenancy.store)))
    assert [used.tenant for used in one] == ["default"] and one[0].amount > 0
    tenancy.submit("two", roles={"worker": {"gpus": 1}})
    two = asyncio.run(started(admitting(tenancy.store)))
    assert two[0].amount > one[0].amount * 3 // 2  # of one more start, which counts like a minute


def test_a_resize_is_noted_in_the_jobs_row(tenancy: Any) -> None:
    tenancy.write(lambda conn: node_service.record(conn, "local", [NODE], 1))
    first = tenancy.submit("rigid", roles={"worker": {"gpus": 1}})
    grows = tenancy.submit("grows", roles={"worker": {"gpus": 1}})
    admit = admitting(tenancy.store)
    asyncio.run(admit.turn())
    assert tenancy.read(lambda conn: resized(conn, grows)) is None
    tenancy.write(lambda conn: admit._wish(conn, grows, "resize", "there is room", ""))
    assert tenancy.read(lambda conn: resized(conn, grows)) is not None
    assert tenancy.read(lambda conn: resized(conn, first)) is None


def resized(conn: Connection, job_id: str) -> int | None:
    return conn.scalar(select(jobs.c.resized_ms).where(jobs.c.id == job_id))
