"""Between the rows of the server and the words of the scheduler. Pure.

A tenant is a project, by its name. A pool of nodes is an engine: one engine starts a gang.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windlass.core.jobs import JobSpec, Placed
from windlass.core.resources import Node
from windlass.scheduler.events import Need, Offer, Seat, Submit

Row = Mapping[str, Any]


def needs_of(spec: JobSpec) -> tuple[Need, ...]:
    return tuple(
        Need(
            role=name,
            count=role.count,
            cpus_milli=role.per_member.cpus_milli,
            memory_bytes=role.memory,
            gpus=role.gpus,
            gpu_milli=role.gpu_milli,
            slots=role.per_member.slots,
            gpu_models=tuple(sorted(role.gpu_model)),
            minimum=role.min if role.min is not None and role.min < role.count else 0,
        )
        for name, role in spec.roles.items()
    )


def submit_of(row: Row, spec: JobSpec, expected_ms: int | None) -> Submit:
    """`row`: a job's, with the names of its project and user."""
    return Submit(
        job_id=row["id"],
        tenant=row["project"],
        needs=needs_of(spec),
        order_ms=row["order_ms"],
        number=row["number"],
        priority=row["priority"],
        queue=row["queue"],
        kind=row["kind"],
        user=row["user"],
        expected_ms=expected_ms,
        preemptible=spec.queue.preemptible,
        level=spec.placement.level or "",
        required=spec.placement.required,
        preemptions=row["preemptions"],
    )


def offer_of(node: Node) -> Offer:
    """Without a rack or block of its own a node is near nobody but its engine's."""
    return Offer(
        name=node.name,
        cpus_milli=node.capacity.cpus_milli,
        memory_bytes=node.capacity.memory_bytes,
        gpus=node.capacity.gpus,
        slots=node.capacity.slots,
        gpu_model=node.gpu_model,
        rack=node.rack,
        block=node.block,
        pool=node.pool or node.engine,
    )


def placed_of(seats: Sequence[Seat], gpu_ids: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """A placement as it is stored: devices by the names their node gives them."""
    return [
        Placed(
            role=seat.role,
            index=seat.index,
            node=seat.node,
            gpu_ids=tuple(gpu_ids[seat.node][number] for number in seat.gpus),
        ).model_dump()
        for seat in seats
    ]


def seats_of(placement: Sequence[Row], gpu_ids: Mapping[str, Sequence[str]]) -> tuple[Seat, ...]:
    """The same back. A device that its node no longer has holds nothing there."""
    numbers = {
        node: {name: number for number, name in enumerate(names)}
        for node, names in gpu_ids.items()
    }
    return tuple(
        Seat(
            placed["role"],
            placed["index"],
            placed["node"],
            tuple(
                numbers[placed["node"]][name]
                for name in placed["gpu_ids"]
                if name in numbers.get(placed["node"], {})
            ),
        )
        for placed in placement
    )
