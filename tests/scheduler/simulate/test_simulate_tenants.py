"""Three tenants that lend to each other, and everything a job may ask for at once; every invariant
after every tick. Small clusters: what is scarce is fought for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from windlass.scheduler.events import Cap, Need, Offer, Queue, Quota, Rules
from windlass.scheduler.simulate.run import Options, Simulation
from windlass.scheduler.simulate.workload import Job, Shapes, Workload

POLICIES = ("backfill", "best-effort", "strict")
SORTS = ("plain", "borrow limit", "lend limit and cap", "reclaim any", "by model")
MODELS = ("a100", "v100")


def contested(seed: int, policy: str, order: str, jobs: int = 120) -> Workload:
    """GPU shares and whole ones, models, elastic gangs, priorities, topology, limits that are
    exact, wrong or absent, failures and cancels."""
    draw = np.random.default_rng(seed)
    offers = [
        Offer(
            f"n{at}", 32_000, 256 << 30, gpus=int(draw.choice([4, 8])) if at < 6 else 0,
            gpu_model=MODELS[at % 2] if at < 6 else "", rack=f"r{at // 2}", block=f"b{at // 4}",
        )
        for at in range(7)
    ]  # fmt: skip
    shapes, made, now = Shapes(), [], 0
    for number in range(jobs):
        now += int(draw.exponential(60)) * 1000
        made.append(_job(draw, shapes, number, now))
    rules = Rules(
        queues=(Queue("default", policy),),
        order=order,
        min_run_ms=int(draw.choice([0, 60_000])),
        starving_ms=int(draw.choice([600_000, 3_600_000])),
        **_shared(SORTS[seed % len(SORTS)], sum(offer.gpus for offer in offers)),
    )
    return Workload(made, offers, rules, grace_ms=int(draw.choice([1000, 10_000, 60_000])))


def _job(draw: np.random.Generator, shapes: Shapes, number: int, now: int) -> Job:
    duration = int(draw.lognormal(6, 1.3)) * 1000 + 1000
    workers = int(draw.choice([1, 1, 1, 2, 3, 4]))
    limit = draw.random()
    return Job(
        f"j{number}",
        now,
        duration,
        workers,
        _needs(draw, shapes, workers),
        str(draw.choice(["red", "green", "blue"])),
        user=f"u{draw.integers(2)}",
        priority=int(draw.choice([50, 50, 50, 70, 90])),
        walltime_ms=duration
        if limit < 0.4
        else int(duration * (0.5 + 3 * draw.random())) + 1
        if limit < 0.75
        else None,
        kind=str(draw.choice(["train", "train", "notebook", "serve"])),
        level=str(draw.choice(["", "", "rack", "block", "host"])),
        required=bool(draw.random() < 0.3),
        fails=bool(draw.random() < 0.2),
        cancel_ms=int(duration * draw.random() * 2) if draw.random() < 0.06 else None,
    )


def _needs(draw: np.random.Generator, shapes: Shapes, workers: int) -> tuple[Need, ...]:
    asks: dict[str, Any] = {}
    gpus = int(draw.choice([0, 1, 1, 2, 4]))
    if draw.random() < 0.25:
        asks["gpu_milli"] = int(draw.choice([100, 250, 500, 900]))
    elif gpus:
        asks["gpus"] = gpus
    if asks and draw.random() < 0.3:
        asks["models"] = (str(draw.choice(MODELS)),)
    if draw.random() < 0.25:
        asks["minimum"] = max(1, workers // 2)
        workers *= 2
    return shapes.needs(
        workers,
        cpus_milli=int(draw.choice([500, 1000, 4000])),
        memory_bytes=int(draw.choice([1, 4])) << 30,
        **asks,
    )


def _shared(sort: str, gpus: int) -> dict[str, Any]:
    models = {"gpus:a100": gpus * 200, "gpus:v100": gpus * 100} if sort == "by model" else {}
    quotas = (
        Quota("all"),
        Quota(
            "red", "all", nominal={"gpus": gpus * 400}, reclaim_any=sort == "reclaim any",
            borrow={"gpus": gpus * 200} if sort == "borrow limit" else {},
            lend={"gpus": gpus * 100} if sort == "lend limit and cap" else {},
        ),
        Quota("green", "all", nominal={"gpus": gpus * 300}, weight_milli=2000),
        Quota("blue", "all", nominal={"gpus": gpus * 300, **models}),
    )  # fmt: skip
    capped = (Cap("red", {"gpus": gpus * 150}, user="u0"),) if "cap" in sort else ()
    return {"quotas": quotas, "caps": capped}


def hold(seed: int, policy: str, order: str, jobs: int) -> None:
    run = Simulation(contested(seed, policy, order, jobs), Options(audit="all"))
    result = run.run().result
    assert run.violations == []
    assert result["details"]["unfinished"] == 0, result["details"]["waiting_for"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_no_invariant_breaks_among_tenants_that_lend(seed: int, policy: str) -> None:
    hold(seed, policy, "fair" if seed % 2 else "fifo", 40)


@pytest.mark.soak
@pytest.mark.parametrize("order", ["fair", "fifo"])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(60))
def test_no_invariant_breaks_in_long_fights(seed: int, policy: str, order: str) -> None:
    hold(seed, policy, order, 120)


def test_two_who_borrow_a_model_do_not_take_it_back_from_each_other() -> None:
    """Only blue owns GPUs of this model by name. Red and green own GPUs, but borrow the model:
    neither may end a job of the other for it, or they would take turns (S-I8)."""
    shapes = Shapes()
    share = shapes.needs(4, cpus_milli=1000, gpu_milli=900)
    pairs = shapes.needs(4, cpus_milli=500, gpus=2)
    jobs = [
        Job("first", 0, 3_000_000, 4, share, "red", walltime_ms=3_000_000),
        Job("second", 500_000, 190_000, 4, pairs, "green", walltime_ms=190_000),
    ]
    quotas = (
        Quota("all"),
        Quota("red", "all", nominal={"gpus": 19_200}),
        Quota("green", "all", nominal={"gpus": 14_400}),
        Quota("blue", "all", nominal={"gpus": 14_400, "gpus:a100": 9600}),
    )
    offers = [Offer("n0", 32_000, 256 << 30, gpus=8, gpu_model="a100")]
    rules = Rules(quotas=quotas, order="fifo", min_run_ms=0)
    simulation = Simulation(Workload(jobs, offers, rules), Options(audit="all"))
    result = simulation.run().result
    assert simulation.violations == []
    assert (result["finished"], result["preemptions"]) == (2, 0)
