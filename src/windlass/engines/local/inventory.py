"""The nodes of this machine: one called `local`, or several fake ones for trying things out.

Fake nodes share the real machine: each is offered an equal part of its CPUs and memory, and its
GPUs are **ids only**. They exercise placement, rendezvous and `CUDA_VISIBLE_DEVICES`; nothing
can compute on them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import psutil

from windlass.core.errors import InvalidInput
from windlass.core.resources import Node, Resources
from windlass.engines.local import container, gpus
from windlass.engines.local.isolation import Able
from windlass.engines.processes import boot_id

SLOTS_PER_CORE = 4
LEAST_SLOTS = 4
_NOTHING = Able()
_RESERVE_CPUS_MILLI = 500
_RESERVE_MEMORY_BYTES = 512 * 2**20


@dataclass(frozen=True)
class Machine:
    """What is there, before anything is set aside."""

    cpus_milli: int
    memory_bytes: int
    gpus: tuple[gpus.Gpu, ...] = ()


def look() -> Machine:
    """Ask this machine; may take a second where a GPU driver has to wake up."""
    return Machine(_cpus_milli(), _memory_bytes(), tuple(gpus.find()))


def reserve_of(machine: Machine) -> Resources:
    """Set aside for the system and the server: half a CPU where there are two, and the larger of
    512 MiB and 5% of the memory, but never more than half of it."""
    return Resources(
        cpus_milli=_RESERVE_CPUS_MILLI if machine.cpus_milli >= 2000 else 0,
        memory_bytes=min(
            max(_RESERVE_MEMORY_BYTES, machine.memory_bytes // 20), machine.memory_bytes // 2
        ),
    )


def nodes_of(
    machine: Machine,
    *,
    engine: str = "local",
    reserve: Resources | None = None,
    fake_nodes: int = 0,
    fake_gpus: int = 0,
    able: Able = _NOTHING,
) -> list[Node]:
    """The node `local`, or with `fake_nodes` K > 0 `fake-0` … `fake-(K-1)`, each with
    `fake_gpus` GPU ids. Raises InvalidInput when the reserve leaves nothing."""
    if fake_nodes < 0 or fake_gpus < 0:
        raise InvalidInput(f"{fake_nodes} fake nodes with {fake_gpus} fake GPUs: below zero")
    reserve = reserve_of(machine) if reserve is None else reserve
    parts = max(1, fake_nodes)
    is_fake = fake_nodes > 0 or fake_gpus > 0
    gpu_ids = _fake_ids(fake_gpus) if is_fake else tuple(gpu.id for gpu in machine.gpus)
    capacity = Resources(
        cpus_milli=_left(machine.cpus_milli, reserve.cpus_milli, "cpus_milli") // parts,
        memory_bytes=_left(machine.memory_bytes, reserve.memory_bytes, "memory_bytes") // parts,
        gpus=len(gpu_ids),
        slots=max(LEAST_SLOTS, SLOTS_PER_CORE * -(-machine.cpus_milli // 1000) // parts),
    )
    names = [f"fake-{index}" for index in range(fake_nodes)] or ["local"]
    return [
        Node(
            name=name,
            engine=engine,
            capacity=capacity,
            reserve=Resources(
                cpus_milli=reserve.cpus_milli // parts, memory_bytes=reserve.memory_bytes // parts
            ),
            gpu_ids=gpu_ids,
            gpu_model="fake" if is_fake and gpu_ids else _model(machine),
            boot_id=boot_id(),
            labels=able.labels,
            isolation={"level": str(able.level), **able.parts},
        )
        for name in names
    ]


def _cpus_milli() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    limit = container.cpu_limit_milli()
    return max(1, min(cores * 1000, limit if limit is not None else cores * 1000))


def _memory_bytes() -> int:
    total = int(psutil.virtual_memory().total)
    limit = container.memory_limit_bytes()
    return total if limit is None else min(total, limit)


def _left(total: int, reserved: int, kind: str) -> int:
    if reserved >= total > 0:
        raise InvalidInput(
            f"the reserve of {kind} ({reserved}) leaves nothing of this machine's {total}",
            hint="set a smaller reserve",
        )
    return max(0, total - reserved)


def _fake_ids(count: int) -> tuple[str, ...]:
    return tuple(str(index) for index in range(count))


def _model(machine: Machine) -> str:
    return ", ".join(sorted({gpu.model for gpu in machine.gpus}))
