"""What a simulation is about: jobs in the order they come, nodes, and the rules.

Everything is an integer here (milliseconds, milli-CPUs, bytes, milli-GPUs), as in the core.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from windlass.core.errors import InvalidInput
from windlass.scheduler.events import Need, Offer, Rules

UNLIMITED = 1 << 50
"""What a node offers of a resource that its file says nothing about."""
RESOURCES = ("gpus", "cpus", "memory")


@dataclass(slots=True)
class Job:
    """One job of a trace. 500,000 of them exist at once: what many share (needs, names) is one
    object."""

    name: str
    submit_ms: int
    duration_ms: int
    """How long it runs with `workers` members."""
    workers: int
    needs: tuple[Need, ...]
    tenant: str = "default"
    user: str = ""
    priority: int = 50
    walltime_ms: int | None = None
    kind: str = "train"
    level: str = ""
    required: bool = False
    fails: bool = False
    """It ends by failing; that takes it as long as `duration_ms` says."""
    cancel_ms: int | None = None
    """Its user takes it back so long after the submit, unless it ended before."""


@dataclass(slots=True)
class Workload:
    """Jobs sorted by submit time, the nodes, the rules, and how the fake engine treats them."""

    jobs: list[Job]
    offers: list[Offer]
    rules: Rules = field(default_factory=Rules)
    grace_ms: int = 10_000
    """How long a preempted job takes to save its state and end."""
    name: str = ""


class Shapes:
    """Needs by their amounts: equal ones are one object, so that the core can tell them apart by
    identity and half a million jobs share a few hundred."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], tuple[Need, ...]] = {}

    def needs(
        self,
        count: int,
        *,
        gpus: int = 0,
        gpu_milli: int = 0,
        cpus_milli: int = 0,
        memory_bytes: int = 0,
        models: tuple[str, ...] = (),
        minimum: int = 0,
    ) -> tuple[Need, ...]:
        key = (count, gpus, gpu_milli, cpus_milli, memory_bytes, models, minimum)
        found = self._known.get(key)
        if found is None:
            need = Need(
                "worker",
                count,
                cpus_milli=cpus_milli,
                memory_bytes=memory_bytes,
                gpus=gpus,
                gpu_milli=gpu_milli,
                gpu_models=models,
                minimum=minimum,
            )
            found = self._known[key] = (need,)
        return found


def member(need: Need, resource: str) -> int:
    """What one member of this role takes of a resource."""
    if resource == "gpus":
        return need.gpus * 1000 + need.gpu_milli
    return need.cpus_milli if resource == "cpus" else need.memory_bytes


def offered(offer: Offer, resource: str) -> int:
    """What a node has of a resource."""
    if resource == "gpus":
        return offer.gpus * 1000
    return offer.cpus_milli if resource == "cpus" else offer.memory_bytes


def capacity(offers: Iterable[Offer], resource: str) -> int:
    """What all nodes have of a resource; 0 when one of them has no stated limit."""
    total = 0
    for offer in offers:
        amount = offered(offer, resource)
        if amount >= UNLIMITED:
            return 0
        total += amount
    return total


def main_resource(offers: Sequence[Offer]) -> str:
    """The resource that utilisation is told in: GPUs where there are any."""
    for resource in RESOURCES:
        if capacity(offers, resource) > 0:
            return resource
    return "gpus"


def work(job: Job, resource: str) -> int:
    """Amount of a resource times milliseconds that the job takes in all."""
    need = job.needs[0]
    return member(need, resource) * job.workers * job.duration_ms


def offered_load(jobs: Sequence[Job], offers: Sequence[Offer]) -> float:
    """The work of all jobs as a share of what the nodes can do while they arrive: the largest
    over the resources. 0 when it cannot be told (all jobs come at once)."""
    if not jobs:
        return 0.0
    span = jobs[-1].submit_ms - jobs[0].submit_ms
    shares = [
        sum(work(job, resource) for job in jobs) / (there * span)
        for resource in RESOURCES
        if span > 0 and (there := capacity(offers, resource)) > 0
    ]
    return max(shares, default=0.0)


def at_load(workload: Workload, load: float) -> Workload:
    """The same jobs, arriving faster or slower, so that the offered load is `load`."""
    now = offered_load(workload.jobs, workload.offers)
    if now <= 0:
        raise InvalidInput(
            "--load: the offered load of these jobs cannot be told: they come all at once, take "
            "no time, or the nodes state no capacity"
        )
    first = workload.jobs[0].submit_ms
    jobs = [
        replace(job, submit_ms=first + round((job.submit_ms - first) * now / load))
        for job in workload.jobs
    ]
    return replace(workload, jobs=jobs)


def with_nodes(workload: Workload, factor: float) -> Workload:
    """The same cluster with `factor` times as many nodes, of every sort as near to that as whole
    nodes allow. New ones are twins of old ones, in the same rack."""
    groups: dict[tuple[object, ...], list[Offer]] = {}
    for offer in workload.offers:
        sort = (offer.cpus_milli, offer.memory_bytes, offer.gpus, offer.gpu_model, offer.pool)
        groups.setdefault(sort, []).append(offer)
    taken = {offer.name for offer in workload.offers}
    offers: list[Offer] = []
    seen = 0
    for group in groups.values():
        wanted = round((seen + len(group)) * factor) - round(seen * factor)
        seen += len(group)
        offers += group[:wanted]
        for extra in range(wanted - len(group)):
            twin = group[extra % len(group)]
            name = f"{twin.name}+{extra // len(group) + 1}"
            while name in taken:
                name += "+"
            taken.add(name)
            offers.append(replace(twin, name=name))
    if not offers:
        raise InvalidInput(
            f"{factor:g} times {len(workload.offers)} nodes leaves no node at all",
            hint="use a larger factor",
        )
    return replace(workload, offers=offers)
