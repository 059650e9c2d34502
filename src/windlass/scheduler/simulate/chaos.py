"""A run in which everything goes wrong that may, and the core is killed again and again.

Twice the same faults: once with a core that lives through it, once with one that is thrown away
after every k events and built anew from what the server would know (nodes, jobs that hold seats,
jobs that wait). No decision may differ (S-I16). And what the first one heard, told again to a
third, must lead to the same decisions (S-I20).
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b
from typing import Any

from windlass.scheduler.events import Event, Promise, Rules
from windlass.scheduler.simulate.engine import CHAOS, Faults
from windlass.scheduler.simulate.run import Options, Outcome, Simulation, real_core
from windlass.scheduler.simulate.workload import Workload

CRASH_EVERY = 200


def chaos(workload: Workload, options: Options, **how: Any) -> Outcome:
    """The outcome of the run with crashes; differences are among its violations."""
    every = options.crash_every or CRASH_EVERY
    faults = CHAOS if options.faults == Faults() else options.faults
    calm = Simulation(
        workload, replace(options, faults=faults, crash_every=0), keep_log=True, **how
    ).run()
    run = Simulation(workload, replace(options, faults=faults, crash_every=every), **how)
    outcome = run.run()
    found = []
    difference = first_difference(calm.digests, outcome.digests)
    if difference is not None:
        found.append(f"S-I16: the decisions after a crash differ from {difference} ms on")
    told_again = replayed(workload.rules, calm.log, how.get("new_core") or real_core)
    difference = first_difference(calm.digests, told_again)
    if difference is not None:
        found.append(f"S-I20: the same events lead to other decisions from {difference} ms on")
    result = outcome.result
    result["invariant_violations"] += len(found) + calm.result["invariant_violations"]
    details = result["details"]
    details["violations"] = (found + details["violations"] + calm.result["details"]["violations"])[
        :20
    ]
    details["crashes"] = run.crashes
    details["digest"] = blake2b(repr(outcome.digests).encode(), digest_size=16).hexdigest()
    details["digest_without_crash"] = blake2b(
        repr(calm.digests).encode(), digest_size=16
    ).hexdigest()
    return outcome


def replayed(rules: Rules, log: list[tuple[int, list[Event]]], new_core: Any) -> list[Any]:
    """The digests of what a new core decides when it hears the same."""
    core = new_core(rules)
    digests = []
    for now, events in log:
        kept = [each for each in core.apply(events, now) if not isinstance(each, Promise)]
        if kept:
            digests.append((now, blake2b(repr(kept).encode(), digest_size=8).hexdigest()))
    return digests


def first_difference(one: list[tuple[int, str]], other: list[tuple[int, str]]) -> int | None:
    """When two runs began to decide differently; None: never."""
    for mine, yours in zip(one, other, strict=False):
        if mine != yours:
            return min(mine[0], yours[0])
    if len(one) != len(other):
        longer = one if len(one) > len(other) else other
        return longer[min(len(one), len(other))][0]
    return None
