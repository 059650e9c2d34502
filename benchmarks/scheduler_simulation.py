"""Claims: a day of 500,000 jobs on 5,000 nodes is simulated in at most 120 s, with the invariants
checked on a sample of the ticks; no promise slips, and no invariant is found broken.

The simulator drives the real core. The day is generated (`scale` of the simulator): sizes and
tenants as in Philly's trace, ten times as many jobs in two bursts, sweeps of 10,000 equal jobs, a
gang over 1,000 nodes, elastic jobs, failures, cancels, three priorities, quotas that lend. The
slip is measured on a small full cluster where all state a limit and end by it.

It is one thread that waits for nothing, so its seconds are those of CPU: what it would take on a
machine that does nothing else. They are told apart: the core, the auditor, the simulator itself.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.measure import Row, below, script, seconds
from windlass.scheduler.simulate.generate import scale
from windlass.scheduler.simulate.run import Options, Simulation, real_audit, real_core
from windlass.scheduler.simulate.workload import Job, Workload

JOBS, NODES = 500_000, 5000
GOAL = 120.0


def measure(*, quick: bool = False) -> list[Row]:
    rows = []
    for load in (0.9, 1.1):
        jobs, nodes = (2000, 20) if quick else (JOBS, NODES)
        spent, result = simulated(load, jobs, nodes)
        what = f"load {load}, {nodes:,} nodes"
        ticks = result["tick_ms"]
        parts = ", ".join(f"{part} {spent[part]:,.1f} s" for part in ("core", "audit", "rest"))
        rows += [
            below(f"a day of {jobs:,} jobs simulated, {what}", spent["all"], GOAL, seconds),
            Row(f"of these: the core, the auditor, the rest; {what}", parts, "", "", "", None),
            Row(
                f"decisions/s; tick p50, p99, longest; {what}",
                f"{result['decisions'] / max(spent['core'], 0.001):,.0f}/s; "
                f"{ticks['p50']:.2f}, {ticks['p99']:.1f}, "
                f"{ticks['max']:.0f} ms", "", "", "", None,
            ),
            _none(f"invariants broken, {what}", result["invariant_violations"]),
        ]  # fmt: skip
    slip = sum(slipped(seed) for seed in range(2 if quick else 20))
    rows.append(_none("seconds that promises slipped, exact limits, 20 seeds", slip))
    return rows


def simulated(load: float, jobs: int, nodes: int) -> tuple[dict[str, float], dict[str, Any]]:
    """(seconds of CPU by part, the result)."""
    workload = scale(load, seed=1, nodes=nodes, per_day=jobs)
    spent = {"core": 0.0, "audit": 0.0}
    run = Simulation(
        workload,
        Options(audit="sampled"),
        new_core=lambda rules: _timed(real_core(rules), ("apply", "next_ms"), spent, "core"),
        new_audit=lambda level: _timed(
            real_audit(level), ("heard", "decided", "check", "quiet"), spent, "audit"
        ),
    )
    began = time.process_time()
    result = run.run().result
    spent["all"] = time.process_time() - began
    spent["rest"] = spent["all"] - spent["core"] - spent["audit"]
    return spent, result


def _timed(one: Any, verbs: Sequence[str], spent: dict[str, float], part: str) -> Any:
    """The same object; what these methods of it take is added up."""

    def timed(verb: Callable[..., Any]) -> Callable[..., Any]:
        def call(*words: Any) -> Any:
            began = time.thread_time()
            try:
                return verb(*words)
            finally:
                spent[part] += time.thread_time() - began

        return call

    for verb in verbs:
        setattr(one, verb, timed(getattr(one, verb)))
    return one


def slipped(seed: int) -> int:
    """Seconds by which promises slipped in a small cluster where all limits are exact."""
    workload = scale(1.3, seed=seed, nodes=8, per_day=400)
    exact = replace(
        workload,
        jobs=list(_exact(workload)),
        rules=replace(workload.rules, preemption=False, order="fifo"),
    )
    result = Simulation(exact, Options(audit="off")).run().result
    return int(result["reservation_slip_s"])


def _exact(workload: Workload) -> Iterator[Job]:
    for job in workload.jobs:
        if any(need.minimum for need in job.needs):
            continue  # how long an elastic job runs depends on its size
        yield replace(job, walltime_ms=job.duration_ms, cancel_ms=None, priority=50)


def _none(claim: str, count: int) -> Row:
    return Row(claim, f"{count:,}", "", "", "0", count == 0)


if __name__ == "__main__":
    script(lambda: measure(quick="--quick" in sys.argv))
