"""The GPUs of nodes, one by one: which jobs have each, and what it was last seen doing. Pure.

A device is sampled by the workers whose ranks have it, so one that nobody has says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windlass.contracts.base import ROLE_ORDER
from windlass.core.jobs import JobSpec

Values = Mapping[int, Mapping[str, float]]
"""By rank: its last sampled values, by name."""
KINDS = ("percent", "memory_bytes", "watts", "celsius")


@dataclass(frozen=True)
class Live:
    """An attempt that holds places."""

    job_id: str
    name: str
    project_id: str
    spec: JobSpec
    placement: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Device:
    jobs: tuple[Live, ...]
    seen: Mapping[str, float]


def devices(live: Iterable[Live], sampled: Mapping[str, Values]) -> dict[tuple[str, str], Device]:
    """By node and GPU id, those that a job has; `sampled` is by job."""
    found: dict[tuple[str, str], Device] = {}
    for job in live:
        values = sampled.get(job.job_id, {})
        for placed, ranks in _ranks(job):
            for place, gpu in enumerate(placed["gpu_ids"]):
                where = (placed["node"], gpu)
                before = found.get(where, Device((), {}))
                seen = _seen(values, ranks, place)
                found[where] = Device((*before.jobs, job), {**before.seen, **seen})
    return found


def of_node(live: Iterable[Live], sampled: Mapping[str, Values], node: str) -> dict[str, float]:
    """What the whole machine was last seen using, as one of the ranks there told it."""
    for job in live:
        for placed, ranks in _ranks(job):
            for rank in ranks if placed["node"] == node else ():
                told = sampled.get(job.job_id, {}).get(rank, {})
                if "node_memory_bytes" in told:
                    return {k: v for k, v in told.items() if k.startswith("node_")}
    return {}


def _seen(values: Values, ranks: range, place: int) -> dict[str, float]:
    for rank in ranks:
        told = values.get(rank, {})
        named = {kind: told.get(f"gpu{place}_{kind}") for kind in KINDS}
        found = {kind: value for kind, value in named.items() if value is not None}
        if found:
            return found
    return {}


def _ranks(job: Live) -> list[tuple[Mapping[str, Any], range]]:
    """Each member with the numbers of its ranks: by role, then by index."""

    def order(placed: Mapping[str, Any]) -> tuple[int, str, int]:
        known = placed["role"] in ROLE_ORDER
        at = ROLE_ORDER.index(placed["role"]) if known else len(ROLE_ORDER)
        return at, placed["role"], placed["index"]

    found = []
    first = 0
    for placed in sorted(job.placement, key=order):
        count = job.spec.roles[placed["role"]].ranks_per_member
        found.append((placed, range(first, first + count)))
        first += count
    return found
