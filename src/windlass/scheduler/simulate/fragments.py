"""Fragmentation: what is free and yet of no use to the jobs that come.

For each kind of member that the workload asks for, weighted by how often it does: the free GPUs on
nodes that cannot take one such member, and on the others the devices that it could not use. As a
share of all that is free (the measure of FGD, USENIX ATC 2023). Without GPUs: the same of CPUs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from windlass.scheduler.events import Need, Offer
from windlass.scheduler.simulate.workload import Job

if TYPE_CHECKING:
    from windlass.scheduler.simulate.live import Live

KINDS = 16
"""So many of the most frequent kinds of member are looked at."""


class Demand:
    """The kinds of member that a workload asks for, the most frequent ones, with their shares."""

    def __init__(self, jobs: Sequence[Job], resource: str) -> None:
        self.resource = resource
        shapes: Counter[int] = Counter(id(job.needs) for job in jobs)
        needs = {id(job.needs): job.needs[0] for job in jobs}
        members: Counter[tuple[Any, ...]] = Counter()
        for key, times in shapes.items():
            need = needs[key]
            if resource == "gpus" and not (need.gpus or need.gpu_milli):
                continue  # it wants no GPU: no free GPU is lost on it
            amounts = (need.cpus_milli, need.memory_bytes, need.gpus, need.gpu_milli)
            members[(*amounts, need.gpu_models)] += times
        common = sorted(members.items(), key=lambda item: (-item[1], item[0]))[:KINDS]
        total = sum(times for _, times in common) or 1
        self.kinds = [(kind, times / total) for kind, times in common]
        self._offers: Sequence[Offer] | None = None

    def layout(self, offers: Sequence[Offer]) -> None:
        """What does not change during a run: made once."""
        if self._offers is offers:
            return
        self._offers = offers
        self.index = {offer.name: at for at, offer in enumerate(offers)}
        self.cpus = np.array([offer.cpus_milli for offer in offers], dtype=np.int64)
        self.memory = np.array([offer.memory_bytes for offer in offers], dtype=np.int64)
        widest = max((offer.gpus for offer in offers), default=0)
        gpus = np.array([offer.gpus for offer in offers], dtype=np.int64)
        self.devices = np.where(np.arange(widest)[None, :] < gpus[:, None], 1000, 0)
        models = np.array([offer.gpu_model for offer in offers])
        self.allowed = [
            np.isin(models, kind[4]) if kind[4] else np.ones(len(offers), dtype=bool)
            for kind, _ in self.kinds
        ]


def fragmented(demand: Demand, offers: Sequence[Offer], holders: Sequence[Live]) -> float:
    """The share of what is free now that is of no use; -1 when nothing is free."""
    if not demand.kinds or not offers or demand.resource == "memory":
        return -1.0
    demand.layout(offers)
    cpus, memory, devices = _free(demand, holders)
    if demand.resource == "cpus":
        free = cpus
    else:
        free = devices.sum(axis=1)
    total = int(free.sum())
    if total <= 0:
        return -1.0
    lost = 0.0
    for (kind, share), allowed in zip(demand.kinds, demand.allowed, strict=True):
        needs_cpus, needs_memory, gpus, milli, _ = kind
        fits = (cpus >= needs_cpus) & (memory >= needs_memory) & allowed
        useless = np.zeros_like(free)
        if demand.resource == "gpus":
            usable = devices == 1000 if gpus else devices >= milli
            fits &= usable.sum(axis=1) >= (gpus or 1)
            useless = np.where(usable, 0, devices).sum(axis=1)
        lost += share * int(np.where(fits, useless, free).sum())
    return lost / total


def _free(
    demand: Demand, holders: Sequence[Live]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """CPUs, memory and devices that are free on each node, from the seats that are held."""
    nodes: list[int] = []
    cpus: list[int] = []
    memory: list[int] = []
    places: list[int] = []
    milli: list[int] = []
    index, widest = demand.index, demand.devices.shape[1]
    for live in holders:
        need: Need = live.job.needs[0]
        each = need.gpu_milli or 1000
        for seat in live.seats:
            at = index[seat.node]
            nodes.append(at)
            cpus.append(need.cpus_milli)
            memory.append(need.memory_bytes)
            for device in seat.gpus:
                places.append(at * widest + device)
                milli.append(each)
    where = np.array(nodes, dtype=np.int64)
    taken_cpus = np.zeros_like(demand.cpus)
    np.add.at(taken_cpus, where, np.array(cpus, dtype=np.int64))
    taken_memory = np.zeros_like(demand.memory)
    np.add.at(taken_memory, where, np.array(memory, dtype=np.int64))
    taken = np.zeros(demand.devices.size, dtype=np.int64)
    np.add.at(taken, np.array(places, dtype=np.int64), np.array(milli, dtype=np.int64))
    devices = demand.devices - taken.reshape(demand.devices.shape)
    return demand.cpus - taken_cpus, demand.memory - taken_memory, np.maximum(devices, 0)
