"""A core that does as it is told, for tests of the engine; and small workloads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from windlass.scheduler.events import (
    Decision,
    Event,
    Offer,
    Reason,
    Rules,
    Seat,
    Start,
    Submit,
)
from windlass.scheduler.simulate.faults import Faults
from windlass.scheduler.simulate.run import Options, Simulation
from windlass.scheduler.simulate.workload import Job, Shapes, Workload

Script = Callable[[Sequence[Event], int], list[Decision]]


def seats(count: int, node: str = "n0") -> tuple[Seat, ...]:
    return tuple(Seat("worker", at, node) for at in range(count))


class Scripted:
    """Starts what is submitted at once, unless the script says otherwise."""

    def __init__(self, script: Script | None = None) -> None:
        self.script = script
        self.heard: list[tuple[int, Event]] = []
        self.wish: int | None = None

    def apply(self, events: Sequence[Event], now_ms: int) -> list[Decision]:
        self.heard += [(now_ms, event) for event in events]
        if self.script is not None:
            return self.script(events, now_ms)
        return [
            Start(event.job_id, seats(event.needs[0].count))
            for event in events
            if isinstance(event, Submit)
        ]

    def next_ms(self) -> int | None:
        return self.wish

    def why(self, job_id: str) -> Reason | None:
        return Reason("waiting-nodes", "")

    def never_fits(self, submit: Submit) -> str | None:
        return "too large" if submit.needs[0].gpus > 8 else None

    def holdings(self) -> Mapping[str, Any]:
        return {}


def job(name: str, submit_ms: int, duration_ms: int, workers: int = 1, **more: Any) -> Job:
    count, least = more.pop("most", workers), more.pop("least", 0)
    needs = more.pop("needs", None) or Shapes().needs(count, gpus=1, minimum=least)
    return Job(name, submit_ms, duration_ms, workers, needs, **more)


def cluster(jobs: Sequence[Job], nodes: int = 2, gpus: int = 8, **more: Any) -> Workload:
    offers = [Offer(f"n{at}", 1 << 50, 1 << 50, gpus=gpus) for at in range(nodes)]
    rules = more.pop("rules", Rules())
    return Workload(sorted(jobs, key=lambda each: each.submit_ms), offers, rules, **more)


def scripted(
    workload: Workload, core: Scripted, faults: Faults | None = None, **options: Any
) -> Simulation:
    asked = Options(audit="off", faults=faults or Faults(), **options)
    return Simulation(workload, asked, new_core=lambda rules: core)
