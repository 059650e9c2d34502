"""What a run is made of: nodes, jobs, what users do when, and the faults until it heals.

`SCENARIOS` are small and without chance in what happens; they are for crashing a server at each
of its points. `storm` draws everything from a seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from windlass.core.jobs import JobSpec
from windlass.core.resources import Resources
from windlass.testing.simulated.cluster import Fate
from windlass.testing.simulated.network import Weather


@dataclass(frozen=True)
class Wish:
    """A user's wish, so long after the job was accepted."""

    after: float
    what: str
    """cancel, restart, release; remove (once it has ended)."""
    at_once: bool = False


@dataclass(frozen=True)
class JobPlan:
    key: str
    spec: JobSpec
    at: float = 0.1
    wishes: tuple[Wish, ...] = ()


@dataclass(frozen=True)
class Plan:
    name: str
    seed: int
    nodes: dict[str, Resources]
    jobs: tuple[JobPlan, ...]
    fate: Callable[[dict[str, Any]], Fate]
    servers: int = 1
    slow: float = 0.004
    """A point takes up to this long."""
    weather: Weather = field(default_factory=Weather)
    away: float = 0.0
    """Chance of a write to find the database away, or to lose it in COMMIT."""
    launch_fails: float = 0.0
    end_fails: float = 0.0
    crash_every: float | None = None
    stop_every: float | None = None
    """A server is stopped for a while (SIGSTOP) and wakes up."""
    reboots: tuple[tuple[float, str], ...] = ()
    heals_at: float = 0.0
    patience: float = 900.0
    """Seconds after healing in which every job must have ended."""


def _spec(name: str, **fields: Any) -> JobSpec:
    base: dict[str, Any] = {
        "name": name, "run": ["python", "train.py"], "limits": {"grace": "3s"},
        "retry": {"backoff": "1s", "backoff_cap": "8s"},
    }  # fmt: skip
    for key, value in fields.items():
        base[key] = {**base[key], **value} if isinstance(base.get(key), dict) else value
    return JobSpec.model_validate(base)


def _nodes(count: int, *, gpus: int = 2, slots: int = 4) -> dict[str, Resources]:
    each = Resources(cpus_milli=8000, memory_bytes=2**34, gpus=gpus, slots=slots)
    return {f"n{index}": each for index in range(1, count + 1)}


def _one(name: str, nodes: int, job: JobPlan, fate: Callable[[dict[str, Any]], Fate]) -> Plan:
    return Plan(name=name, seed=0, nodes=_nodes(nodes), jobs=(job,), fate=fate)


def one_job() -> Plan:
    return _one("one_job", 1, JobPlan("solo", _spec("solo")), lambda launch: Fate(run=2))


def gang() -> Plan:
    spec = _spec("pair", roles={"worker": {"count": 2, "gpus": 2}})
    return _one("gang", 2, JobPlan("pair", spec), lambda launch: Fate(run=2, saves=0.8))


def retried() -> Plan:
    """One node's rank fails in the first attempt; the gang is restarted as a whole."""
    spec = _spec("again", roles={"worker": {"count": 2, "gpus": 2}}, retry={"on": ["failed"]})

    def fate(launch: dict[str, Any]) -> Fate:
        bad = launch["attempt"] == 1 and launch["node"] == "n1"
        return Fate(run=1, exit=3) if bad else Fate(run=4)

    return _one("retried", 2, JobPlan("again", spec), fate)


def cancelled() -> Plan:
    """Cancel comes while the gang starts."""
    spec = _spec("gone", roles={"worker": {"count": 2, "gpus": 2}})
    job = JobPlan("gone", spec, wishes=(Wish(0.4, "cancel"),))
    return _one("cancelled", 2, job, lambda launch: Fate(boot=0.6, run=30))


def worker_dies() -> Plan:
    """The worker is killed, its ranks live on: they must be ended before the next attempt."""

    def fate(launch: dict[str, Any]) -> Fate:
        return Fate(run=20, dies=2.0) if launch["attempt"] == 1 else Fate(run=2)

    return _one("worker_dies", 1, JobPlan("orphan", _spec("orphan")), fate)


def restarted() -> Plan:
    job = JobPlan("twice", _spec("twice"), wishes=(Wish(2.0, "restart"),))
    return _one("restarted", 1, job, lambda launch: Fate(run=9 if launch["attempt"] == 1 else 2))


def deaf() -> Plan:
    """Cancelled, and its worker does not listen: the engine has to end it."""
    job = JobPlan("deaf", _spec("deaf"), wishes=(Wish(2.0, "cancel"),))
    return _one("deaf", 1, job, lambda launch: Fate(run=60, deaf=True))


SCENARIOS: dict[str, Callable[[], Plan]] = {
    made.__name__: made
    for made in (one_job, gang, retried, cancelled, worker_dies, restarted, deaf)
}


def storm(seed: int, *, servers: int | None = None) -> Plan:
    """Several jobs, and every fault there is, until it heals."""
    draw = random.Random(f"storm {seed}")
    nodes = _nodes(draw.choice((1, 2, 2, 3)), slots=draw.choice((2, 4)))
    jobs = tuple(_drawn_job(draw, index, len(nodes)) for index in range(draw.randint(2, 4)))
    heals = draw.uniform(10, 30)
    drawn = draw.choice((1, 1, 1, 2, 2))
    count = drawn if servers is None else servers
    rough = draw.random()
    return Plan(
        name="storm",
        seed=seed,
        nodes=nodes,
        jobs=jobs,
        fate=lambda launch: _drawn_fate(seed, launch),
        servers=count,
        slow=draw.choice((0.002, 0.02, 0.2)),
        weather=Weather(lose=0.15 * rough, repeat=0.2 * rough, late=0.08 * rough),
        away=draw.choice((0.0, 0.05)),
        launch_fails=draw.choice((0.0, 0.0, 0.1)),
        end_fails=draw.choice((0.0, 0.3)),
        crash_every=draw.choice((4.0, 10.0, 30.0)),
        stop_every=draw.choice((None, 6.0, 6.0)),
        reboots=tuple(
            (draw.uniform(1, heals), draw.choice(sorted(nodes))) for _ in range(draw.randint(0, 2))
        ),
        heals_at=heals,
    )


def _drawn_job(draw: random.Random, index: int, nodes: int) -> JobPlan:
    key = f"job-{index}"
    gpus = draw.choice((0, 1, 2))
    count = draw.randint(1, 2 * nodes if gpus == 1 else nodes)
    limits: dict[str, Any] = {"grace": f"{draw.choice((0, 2, 5))}s"}
    if draw.random() < 0.2:
        limits["time"] = "6s"
    spec = _spec(
        key,
        roles={"worker": {"count": count, "gpus": gpus}},
        limits=limits,
        retry={
            "times": draw.randint(0, 3), "on": ["lost", "signal", "failed"], "stale_restarts": 9,
        },
        hold=draw.random() < 0.1,
    )  # fmt: skip
    wishes = []
    if spec.hold:
        wishes.append(Wish(draw.uniform(0.5, 5), "release"))
    for _ in range(draw.choice((0, 0, 1, 1, 2))):
        what = draw.choice(("cancel", "restart", "restart", "release"))
        wishes.append(Wish(draw.uniform(0, 15), what, draw.random() < 0.3))
    if draw.random() < 0.3:
        wishes.append(Wish(draw.uniform(1, 20), "remove"))
    return JobPlan(key, spec, at=draw.uniform(0, 6), wishes=tuple(wishes))


def _drawn_fate(seed: int, launch: dict[str, Any]) -> Fate:
    draw = random.Random(f"{seed} {launch['job_name']} {launch['attempt']} {launch['node']}")
    if launch["attempt"] > 5:  # a job that is lost for ever would prove nothing
        return Fate(run=1.0)
    return Fate(
        boot=draw.choice((0.05, 0.5, 3.0)) * draw.random(),
        run=draw.choice((0.5, 4, 12)) * (0.2 + draw.random()),
        exit=0 if draw.random() < 0.75 else 1,
        obeys=draw.choice((0.1, 1.0, 10.0)),
        deaf=draw.random() < 0.1,
        dies=draw.uniform(0.05, 8) if draw.random() < 0.15 else None,
        saves=draw.uniform(0.5, 3) if draw.random() < 0.3 else None,
    )
