"""Workloads that are made, not read: `--generate NAME`. The same seed makes the same jobs.

kueue-baseline, kueue-large, kueue-topology   the configurations that Kueue publishes
mmc, mg1                                      queues whose waits are known in theory
scale                                         500,000 jobs a day on 5,000 nodes, after Philly
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from windlass.core.errors import InvalidInput
from windlass.scheduler.events import Offer, Queue, Quota, Rules
from windlass.scheduler.simulate import marginals
from windlass.scheduler.simulate.traces import GIB, split
from windlass.scheduler.simulate.workload import Job, Shapes, Workload

DAY_MS = 86_400_000
KUEUE = {
    # per queue: count, every ms, runs ms, priority, workers, milli-CPUs of each
    "kueue-baseline": (5, 6, ((350, 100, 200, 50, 1, 1000), (100, 500, 500, 100, 1, 5000),
                              (50, 1200, 1000, 200, 1, 20000))),
    "kueue-large": (10, 100, ((35, 60, 150, 50, 1, 1000), (11, 300, 350, 100, 1, 5000),
                              (4, 700, 700, 200, 1, 20000))),
    "kueue-topology": (5, 6, ((350, 100, 200, 50, 2, 500), (100, 500, 500, 100, 4, 1250),
                              (50, 1200, 1000, 200, 8, 2500))),
}  # fmt: skip


def generate(
    name: str, *, seed: int = 0, limit: int | None = None, load: float | None = None
) -> Workload:
    """The workload of a name. `load` is the offered load where the name leaves it open."""
    makers: dict[str, Callable[[], Workload]] = {
        **{each: lambda each=each: kueue(each) for each in KUEUE},  # type: ignore[misc]
        "mmc": lambda: markov(4, 0.7 if load is None else load, seed=seed),
        "mg1": lambda: markov(1, 0.6 if load is None else load, seed=seed, general=True),
        "scale": lambda: scale(0.9 if load is None else load, seed=seed, limit=limit),
    }
    if name not in makers:
        raise InvalidInput(f"--generate: {name!r} is not one of {', '.join(makers)}")
    made = makers[name]()
    if limit is not None:
        made.jobs = made.jobs[:limit]
    made.name = name
    return made


NAMES = (*KUEUE, "mmc", "mg1", "scale")
LOADED = ("mmc", "mg1", "scale")
"""Those that are made for a load, and need no stretching afterwards."""


def kueue(name: str) -> Workload:
    """One resource, queues of quota 20 that may borrow 100, preemption of lower priority inside a
    queue, reclaim within the cohort of any.

    Of kueue-topology a third must share a rack and the others should. Kueue's own third kind, pods
    spread evenly over racks in slices ("balanced"), has no counterpart here: those prefer a rack.
    """
    cohorts, queues, classes = KUEUE[name]
    shapes = Shapes()
    jobs: list[Job] = []
    quotas: list[Quota] = []
    number = 0
    for cohort in range(cohorts):
        quotas.append(Quota(f"cohort-{cohort}"))
        for queue in range(queues):
            tenant = f"cohort-{cohort}-queue-{queue}"
            quotas.append(
                Quota(
                    tenant,
                    f"cohort-{cohort}",
                    nominal={"cpus": 20_000},
                    borrow={"cpus": 100_000},
                    reclaim_any=True,
                )
            )
            for label, (count, every, runs, priority, workers, cpus) in zip(
                ("small", "medium", "large"), classes, strict=True
            ):
                needs = shapes.needs(workers, cpus_milli=cpus)
                for at in range(count):
                    job = Job(
                        f"{tenant}-{label}-{at}", at * every, runs, workers, needs, tenant,
                        priority=priority,
                    )  # fmt: skip
                    if name == "kueue-topology":
                        job.level, job.required = "rack", number % 3 == 0
                    number += 1
                    jobs.append(job)
    jobs.sort(key=lambda job: job.submit_ms)
    if name == "kueue-topology":
        offers = [
            Offer(f"r{rack}n{node}", 96_000, 256 * GIB, rack=f"rack-{rack}", block="block-0")
            for rack in range(10)
            for node in range(64)
        ]
    else:
        offers = [Offer("all", cpus_milli=cohorts * queues * 20_000, memory_bytes=1 << 50)]
    # Jobs of Kueue's runner end at once when they are evicted, and may be as soon as they run.
    rules = Rules(quotas=tuple(quotas), min_run_ms=0)
    return Workload(jobs, offers, rules, grace_ms=1)


def markov(
    servers: int, load: float, *, jobs: int = 100_000, seed: int = 0, general: bool = False
) -> Workload:
    """Poisson arrivals at `servers` equal GPUs, served in turn: M/M/c, or M/G/1 with times that
    vary more than exponential ones (two phases; squared coefficient of variation 4)."""
    random = np.random.default_rng(seed)
    mean_ms = 100_000
    gaps = random.exponential(mean_ms / (servers * load), jobs)
    submit = np.cumsum(gaps).round().astype(np.int64)
    if general:
        times = random.exponential(1, jobs) * np.where(random.random(jobs) < P_SHORT, SHORT, LONG)
    else:
        times = random.exponential(1, jobs)
    duration = np.maximum(1, (times * mean_ms).round().astype(np.int64))
    needs = Shapes().needs(1, gpus=1)
    made = [Job(f"j{at}", int(submit[at]), int(duration[at]), 1, needs) for at in range(jobs)]
    offers = [Offer(f"n{at}", 1 << 50, 1 << 50, gpus=1) for at in range(servers)]
    return Workload(made, offers, Rules(order="fifo", queues=(Queue("default", "strict"),)))


VARIATION = 4.0
"""The squared coefficient of variation of the service times of `mg1`."""
P_SHORT = 0.5 * (1 + math.sqrt((VARIATION - 1) / (VARIATION + 1)))
SHORT, LONG = 0.5 / P_SHORT, 0.5 / (1 - P_SHORT)


def scale(
    load: float = 0.9,
    *,
    seed: int = 0,
    limit: int | None = None,
    nodes: int = 5000,
    per_day: int = 500_000,
    days: int = 1,
) -> Workload:
    """A day of a large cluster: sizes and tenants as in Philly, times compressed to the load.

    With bursts (ten times as many jobs for ten minutes, twice a day), one gang over a fifth of all
    nodes each day, two sweeps of identical one-GPU jobs, 35 % failures, 5 % cancelled, 20 %
    elastic, priorities 50, 70 and 90 for 70, 25 and 5 %. Two thirds state a time limit.
    """
    random = np.random.default_rng(seed)
    sweep = max(1, min(10_000, per_day // 50))
    count = per_day * days - 2 * days * sweep - days
    submit = _arrivals(random, count, days)
    tenants, sizes = _who(random, count)
    seconds = _durations(random, sizes)
    gang = max(1, nodes // 5)
    for day in range(days):
        for hour in (3, 15):  # the sweeps come at once
            when = np.full(sweep, day * DAY_MS + hour * 3_600_000)
            submit = np.concatenate([submit, when])
            tenants = np.concatenate([tenants, np.full(sweep, hour % len(marginals.SIZES))])
            sizes = np.concatenate([sizes, np.ones(sweep, dtype=np.int64)])
            seconds = np.concatenate([seconds, np.full(sweep, 1800.0)])
        submit = np.append(submit, day * DAY_MS + 12 * 3_600_000)
        tenants, sizes = np.append(tenants, 5), np.append(sizes, gang * 8)
        seconds = np.append(seconds, 14_400.0)
    capacity_ms = nodes * 8 * days * DAY_MS
    offered = float((seconds * 1000 * sizes).sum()) / capacity_ms
    milliseconds = np.maximum(1000, seconds * 1000 * load / offered).round().astype(np.int64)
    order = np.argsort(submit, kind="stable")[:limit]
    marks = random.random((len(submit), 5))
    names = list(marginals.SIZES)
    shapes = Shapes()
    jobs = []
    for number, at in enumerate(order.tolist()):
        fate, elastic, rank, limited, factor = marks[at].tolist()
        gpus, duration = int(sizes[at]), int(milliseconds[at])
        each = split(gpus, 8)
        workers = gpus // each
        needs = shapes.needs(workers, gpus=each, cpus_milli=4000 * each)
        if elastic < 0.2 and workers < gang:
            least = max(1, workers // 2)
            needs = shapes.needs(workers * 2, gpus=each, cpus_milli=4000 * each, minimum=least)
        jobs.append(
            Job(
                f"j{number}",
                int(submit[at]),
                duration,
                workers,
                needs,
                names[int(tenants[at])],
                priority=50 if rank < 0.7 else 70 if rank < 0.95 else 90,
                walltime_ms=int(duration * (1 + 2 * factor)) if limited < 0.67 else None,
                fails=fate < 0.35,
                cancel_ms=int(duration * factor * 2) if fate > 0.95 else None,
            )
        )
    return Workload(jobs, racks(nodes), Rules(quotas=_owned(nodes)), grace_ms=30_000)


def racks(nodes: int, *, per_rack: int = 32, blocks: int = 10) -> list[Offer]:
    """Nodes of 8 GPUs in racks of 32 in blocks; each has slots for 20 workers."""
    count = -(-nodes // per_rack)
    per_block = -(-count // blocks)
    return [
        Offer(
            f"n{at}",
            cpus_milli=96_000,
            memory_bytes=768 * GIB,
            gpus=8,
            slots=20,
            rack=f"rack-{at // per_rack}",
            block=f"block-{at // per_rack // per_block}",
        )
        for at in range(nodes)
    ]


def _owned(nodes: int) -> tuple[Quota, ...]:
    """The cluster shared out as Philly's was; who has no nodes there lives on what is lent."""
    total = sum(marginals.NODES.values())
    quotas = [Quota("philly")]
    left = nodes
    for tenant in marginals.SIZES:
        own = marginals.NODES.get(tenant, 0) * nodes // total
        left -= own
        quotas.append(Quota(tenant, "philly", nominal={"gpus": own * 8000}))
    quotas[0] = replace(quotas[0], nominal={"gpus": left * 8000})
    return tuple(quotas)


def _arrivals(random: np.random.Generator, count: int, days: int) -> NDArray[np.int64]:
    """Times of submit: even, but for two bursts of ten minutes a day at ten times the rate."""
    minutes = np.ones(days * 1440)
    for day in range(days):
        for hour in (9, 14):
            begin = day * 1440 + hour * 60
            minutes[begin : begin + 10] = 10
    each = random.choice(len(minutes), size=count, p=minutes / minutes.sum())
    times: NDArray[np.int64] = each * 60_000 + random.integers(0, 60_000, count)
    return times


def _who(random: np.random.Generator, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Tenant and GPUs of each job, as often together as in the trace."""
    cells = [
        (at, size, times)
        for at, sizes in enumerate(marginals.SIZES.values())
        for size, times in sizes.items()
    ]
    shares = np.array([times for *_, times in cells], dtype=float)
    drawn = random.choice(len(cells), size=count, p=shares / shares.sum())
    tenants = np.array([cell[0] for cell in cells], dtype=np.int64)
    sizes = np.array([cell[1] for cell in cells], dtype=np.int64)
    return tenants[drawn], sizes[drawn]


def _durations(random: np.random.Generator, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Seconds, by the quantiles of jobs of that size; evenly in the logarithm between two."""
    seconds = np.zeros(len(sizes))
    least = sorted(marginals.DURATIONS)
    for low, high in zip(least, [*least[1:], 1 << 40], strict=True):
        mine = (sizes >= low) & (sizes < high)
        known = np.log(marginals.DURATIONS[low])
        drawn = np.interp(random.random(int(mine.sum())), marginals.SHARES, known)
        seconds[mine] = np.exp(drawn)
    return seconds
