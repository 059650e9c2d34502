"""/api/v1/nodes: where gangs run."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from sqlalchemy import Connection, select

from windlass.core.access import Right
from windlass.core.jobs import LIVE
from windlass.core.resources import Resources
from windlass.core.strict import Strict
from windlass.server.access.calls import Call
from windlass.server.http.marks import require
from windlass.server.jobs.tables import attempts, jobs
from windlass.server.nodes import service
from windlass.server.parts import Parts, Wired

router = APIRouter(prefix="/api/v1/nodes", tags=["nodes"])


class NodeJob(Strict):
    id: str
    name: str
    members: int


class NodeView(Strict):
    name: str
    engine: str
    state: str
    reason: str
    capacity: Resources
    reserve: Resources
    free: Resources | None
    gpu_model: str
    rack: str
    block: str
    pool: str
    jobs: tuple[NodeJob, ...]


class NodePage(Strict):
    items: tuple[NodeView, ...]


@router.get("", response_model=NodePage)
async def listing(
    call: Annotated[Call, Depends(require(Right.NODE_READ))], parts: Wired
) -> NodePage:
    """Where gangs run: what each node offers, what is free, and the jobs on it."""
    return NodePage.model_construct(items=await every_node(parts))


async def every_node(parts: Parts) -> tuple[NodeView, ...]:
    rows, on = await parts.store.read(_look)
    free = parts.admit.free()
    return tuple(
        NodeView(
            name=row["name"],
            engine=row["engine"],
            state=row["state"],
            reason=row["reason"],
            capacity=Resources(**row["offer"]["capacity"]),
            reserve=Resources(**row["offer"]["reserve"]),
            free=free.get(row["name"]),
            gpu_model=row["offer"]["gpu_model"],
            rack=row["offer"].get("rack", ""),
            block=row["offer"].get("block", ""),
            pool=row["offer"].get("pool", ""),
            jobs=tuple(on.get(row["name"], {}).values()),
        )
        for row in rows
    )


def _look(conn: Connection) -> tuple[list[dict[str, Any]], dict[str, dict[str, NodeJob]]]:
    on: dict[str, dict[str, NodeJob]] = {}
    live = conn.execute(
        select(jobs.c.id, jobs.c.name, attempts.c.placement)
        .join(attempts, attempts.c.job_id == jobs.c.id)
        .where(attempts.c.number == jobs.c.fence, jobs.c.state.in_(sorted(LIVE)))
    )
    for job_id, name, placement in live:
        for node in {placed["node"] for placed in placement}:
            members = sum(placed["node"] == node for placed in placement)
            on.setdefault(node, {})[job_id] = NodeJob(id=job_id, name=name, members=members)
    return service.every(conn), on
