"""/api/v1/nodes: where gangs run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from sqlalchemy import Connection, select

from windlass.core.access import Principal, Right
from windlass.core.errors import Unreadable
from windlass.core.jobs import LIVE
from windlass.core.resources import Node, Resources
from windlass.core.strict import Strict
from windlass.server.access.calls import Call
from windlass.server.http.marks import require
from windlass.server.jobs.tables import attempts, jobs
from windlass.server.nodes import devices, service
from windlass.server.parts import Parts, Wired
from windlass.server.reading import as_model, placement_of, spec_of
from windlass.server.runs import system

router = APIRouter(prefix="/api/v1/nodes", tags=["nodes"])
MOST_JOBS = 200
"""Whose samples are looked at; the newest ones."""


class NodeJob(Strict):
    id: str | None
    """None, as is the name: a job of another project."""
    name: str | None
    members: int


class NodeGpu(Strict):
    id: str
    jobs: tuple[NodeJob, ...]
    """Those that have it; several where it is shared."""
    percent: float | None = None
    """How busy it was last seen; None, as all below: nobody looked, or it does not tell."""
    memory_bytes: float | None = None
    watts: float | None = None
    celsius: float | None = None


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
    labels: tuple[str, ...]
    isolation: dict[str, str]
    jobs: tuple[NodeJob, ...]
    gpus: tuple[NodeGpu, ...]
    """One for each device."""
    used: dict[str, float]
    """What the whole machine was last seen using (`node_cpu_percent` of one CPU,
    `node_memory_bytes` …), where a job runs there."""


class NodePage(Strict):
    items: tuple[NodeView, ...]


@router.get("", response_model=NodePage)
async def listing(
    call: Annotated[Call, Depends(require(Right.NODE_READ))], parts: Wired
) -> NodePage:
    """Where gangs run: what each node offers, what is free, and the jobs on it."""
    return NodePage.model_construct(items=await every_node(parts, call.principal, samples=True))


async def every_node(
    parts: Parts, who: Principal, *, samples: bool = False
) -> tuple[NodeView, ...]:
    """The nodes as this caller sees them: jobs of other projects without name, unless it may
    change queues and so sees every line. `samples`: with what was last seen of their devices."""
    rows, live = await parts.store.read(_look)
    sampled: Mapping[str, devices.Values] = {}
    if samples:
        sampled = await parts.tracking.read(lambda conn: _sampled(conn, live))
    free = parts.admit.free()
    known = devices.devices(live, sampled)

    def shown(job: devices.Live, node: str) -> NodeJob:
        mine = job.project_id == who.project_id or who.may(Right.QUEUE_WRITE)
        members = sum(placed["node"] == node for placed in job.placement)
        return NodeJob(
            id=job.job_id if mine else None, name=job.name if mine else None, members=members
        )

    def gpu(node: str, name: str) -> NodeGpu:
        found = known.get((node, name), devices.Device((), {}))
        jobs_on = tuple(shown(job, node) for job in found.jobs)
        return NodeGpu(id=name, jobs=jobs_on, **found.seen)

    def view(row: Mapping[str, Any]) -> NodeView:
        name, reason = row["name"], row["reason"]
        try:
            offer = as_model(Node, row["offer"], "offer")
        except Unreadable as err:
            offer, reason = Node(name=name, engine=row["engine"], capacity=_NOTHING), err.message
        return NodeView(
            name=name,
            engine=row["engine"],
            state=row["state"],
            reason=reason,
            capacity=offer.capacity,
            reserve=offer.reserve,
            free=free.get(name),
            gpu_model=offer.gpu_model,
            rack=offer.rack,
            block=offer.block,
            pool=offer.pool,
            labels=offer.labels,
            isolation=dict(offer.isolation),
            jobs=tuple(shown(job, name) for job in live if _is_on(job, name)),
            gpus=tuple(gpu(name, each) for each in offer.gpu_ids),
            used=devices.of_node(live, sampled, name),
        )

    return tuple(view(row) for row in rows)


_NOTHING = Resources()


def _is_on(job: devices.Live, node: str) -> bool:
    return any(placed["node"] == node for placed in job.placement)


def _look(conn: Connection) -> tuple[list[dict[str, Any]], list[devices.Live]]:
    live = conn.execute(
        select(jobs.c.id, jobs.c.name, jobs.c.project_id, jobs.c.spec, attempts.c.placement)
        .join(attempts, attempts.c.job_id == jobs.c.id)
        .where(attempts.c.number == jobs.c.fence, jobs.c.state.in_(sorted(LIVE)))
        .order_by(jobs.c.number.desc())
    )
    found = []
    for row in live.mappings():
        with suppress(Unreadable):  # reconcile ends it; where it is cannot be told
            spec = spec_of(row)
            placed = placement_of(row, spec)
            found.append(devices.Live(row["id"], row["name"], row["project_id"], spec, placed))
    return service.every(conn), found


def _sampled(
    conn: Connection, live: Sequence[devices.Live]
) -> dict[str, dict[int, dict[str, float]]]:
    return {job.job_id: system.last_values(conn, job.job_id) for job in live[:MOST_JOBS]}
