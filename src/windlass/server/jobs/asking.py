"""Between the rows of the server and the words of the scheduler. Pure.

A tenant is a project, by its name. A pool of nodes is an engine: one engine starts a gang.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windlass.core.engines import IMAGES, label_of
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
            labels=labels_of(spec),
        )
        for name, role in spec.roles.items()
    )


def as_placed(placement: Sequence[Row]) -> JobSpec:
    """As much of a job as its placement tells, where its own spec cannot be read: who holds which
    seats, and nothing of what else it asked for."""
    roles = {
        placed["role"]: {
            "count": sum(each["role"] == placed["role"] for each in placement),
            "gpus": len(placed["gpu_ids"]),
        }
        for placed in placement
    }
    return JobSpec.model_validate({"run": ["-"], "roles": roles})


def labels_of(spec: JobSpec) -> tuple[str, ...]:
    """What a node must offer: to be of the engine that the job names, to run its image, and to
    keep it apart as it demands."""
    level, network = spec.isolation.level, spec.isolation.network
    return (
        *((label_of(spec.engine),) if spec.engine else ()),
        *((IMAGES,) if spec.environment.image else ()),
        *((f"isolation-{level}",) if level else ()),
        *((f"network-{network}",) if network != "host" else ()),
    )


def topology_of(spec: JobSpec) -> tuple[str, bool]:
    """(the level its members should share, whether they must): a gang without a network has
    nothing but one machine's loopback to meet on."""
    if spec.isolation.network == "none" and sum(role.count for role in spec.roles.values()) > 1:
        return "host", True
    return spec.placement.level or "", spec.placement.required


def submit_of(row: Row, spec: JobSpec, expected_ms: int | None) -> Submit:
    """`row`: a job's, with the names of its project and user."""
    level, required = topology_of(spec)
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
        level=level,
        required=required,
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
        labels=(label_of(node.engine), *node.labels),
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
