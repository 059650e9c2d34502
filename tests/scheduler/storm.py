"""A storm: a seeded random driver that treats a core as a hard day would, with the auditor
looking over its shoulder after every tick.

    python tests/scheduler/storm.py --steps 1000000 --seed 1

A step is one thing that happens (a job comes, fails, is cancelled; a node dies, returns, changes;
quotas and queues are edited; the server restarts); between steps jobs end, and those that were
told to end do. What goes wrong is made small: `shrink` leaves out all that is not needed for it.
"""

from __future__ import annotations

import argparse
import heapq
import random
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from storm_history import History, digest, kind, shrink, tell
from storm_weather import HAPPENINGS, PROFILES, Profile, Weather

from windlass.scheduler.audit import Auditor
from windlass.scheduler.core import Core
from windlass.scheduler.events import (
    Decision,
    Event,
    NodeUp,
    Offer,
    Preempt,
    Release,
    Resize,
    Resized,
    Start,
    Submit,
    Withdraw,
)


@dataclass
class Tally:
    counts: ClassVar = (
        "steps",
        "ticks",
        "starts",
        "preemptions",
        "resizes",
        "promises",
        "slips",
        "quiets",
    )
    steps: int = 0
    ticks: int = 0
    starts: int = 0
    preemptions: int = 0
    resizes: int = 0
    promises: int = 0
    slips: int = 0
    quiets: int = 0
    violations: list[str] = field(default_factory=list)


class World(Weather):
    """One core, its auditor, and everything that happens to them."""

    def __init__(
        self,
        seed: int | random.Random,
        profile: Profile,
        make: Callable[[], Core] = Core,
        *,
        audit: bool = True,
        twin: bool = False,
    ) -> None:
        self.random = random.Random(seed) if isinstance(seed, int) else seed
        self.profile = profile
        self.make = make
        self.core = make()
        self.twin = make() if twin else None
        """Told the same; must decide the same (S-I20)."""
        self.auditor = Auditor("all") if audit else None
        self.now_ms = 0
        self.history: History = []
        self.log: list[tuple[int, Decision]] = []
        self.tally = Tally()
        self.error: Exception | None = None
        self.due: list[tuple[int, int, str, str]] = []
        """(when, sequence, what, job)"""
        self.jobs: dict[str, Submit] = {}
        self.waiting: dict[str, None] = {}
        self.running: dict[str, int] = {}
        """Job to the number of its start."""
        self.leaving: set[str] = set()
        self.offers: dict[str, Offer] = {}
        self.down: set[str] = set()
        self.sequence = 0
        self.rules = self._rules()
        self.tick([self.rules])
        self.tick([self._node(f"n{number}") for number in range(self.random.randint(2, 6))])

    def step(self) -> None:
        """One thing happens, after a while in which jobs end."""
        self.tally.steps += 1
        pause = self.random.choice((0, 0, 1, 100, 1000, 1000, 5000, 20_000))
        self.pass_time(self.now_ms + pause)
        events = self._happening()
        self.tick(events)
        if self.random.random() < 0.3:
            self.quiet()

    def pass_time(self, until_ms: int) -> None:
        asked = -1
        while True:
            times = [until_ms + 1]
            if self.due:
                times.append(self.due[0][0])
            wanted = self.core.next_ms()
            if wanted is not None and wanted > asked:
                times.append(max(wanted, self.now_ms))
            when = min(times)
            if when > until_ms:
                break
            self.now_ms = max(self.now_ms, when)
            if wanted is not None and wanted <= when:
                asked = when
            self.tick(self._ending())
        self.now_ms = max(self.now_ms, until_ms)

    def drain(self, limit_ms: int = 10_000_000) -> None:
        """Nothing new happens; everything that can end does. S-I8, S-I10: it comes to rest, and
        who still waits could not start on an empty cluster."""
        self.tick([NodeUp(self.offers[name]) for name in sorted(self.down)])
        self.down.clear()
        unpaused = tuple(replace(queue, paused=False) for queue in self.rules.queues)
        self.rules = replace(self.rules, queues=unpaused)
        self.tick([self.rules])
        deadline = self.now_ms + limit_ms
        while self.due and self.now_ms < deadline and not self.tally.violations:
            self.pass_time(max(self.now_ms, self.due[0][0]))
        for _ in range(20):
            if self.running or not self.waiting:
                break
            self.pass_time(self.now_ms + 20_000)
        self.quiet()
        for job_id in self.waiting:
            job = self.jobs[job_id]
            if not self.running and not self._blocked(job) and not self.core.never_fits(job):
                self.tally.violations.append(
                    f"S-I10: {job_id} never starts on an empty cluster: {self.core.why(job_id)}"
                )
        if self.now_ms >= deadline:
            self.tally.violations.append("S-I8: it does not come to rest")

    def _blocked(self, job: Submit) -> bool:
        """Whether it may wait for ever behind one that never fits, in a strict queue."""
        return job.queue == "strict" and any(
            self.jobs[other].queue == "strict" and self.core.never_fits(self.jobs[other])
            for other in self.waiting
        )

    def quiet(self) -> None:
        """Ask again until nothing more is decided, then look at what is left waiting."""
        for _ in range(50):
            if not self.tick([]) and self.core.next_ms() != self.now_ms:
                break
        else:
            if self.core.next_ms() != self.now_ms:
                self.tally.violations.append("S-I8: the core decides for ever")
        self.tally.quiets += 1
        if self.auditor is not None:
            self.tally.violations += self.auditor.quiet(self.core, self.now_ms)

    def tick(self, events: Sequence[Event]) -> list[Decision]:
        self.history.append((self.now_ms, tuple(events)))
        self.tally.ticks += 1
        if self.auditor is not None:
            self.auditor.heard(events, self.now_ms)
        decisions = self._apply(events)
        if self.auditor is not None:
            self.auditor.decided(decisions, self.now_ms)
            self.tally.violations += self.auditor.check(self.core, self.now_ms)
        for decision in decisions:
            self.log.append((self.now_ms, decision))
            self._obey(decision)
        return decisions

    def _apply(self, events: Sequence[Event]) -> list[Decision]:
        decisions = self.core.apply(events, self.now_ms)
        if self.twin is not None and self.twin.apply(events, self.now_ms) != decisions:
            self.tally.violations.append("S-I20: told the same, another core decides otherwise")
        return decisions

    def restart(self) -> None:
        """The server dies and comes back: a new core, told what the database knows."""
        assert self.auditor is not None
        if any(held.losing for held in self.auditor.books.held.values()):
            return
        self.history.append((self.now_ms, None))
        self.core = self.make()
        self.twin = self.make() if self.twin is not None else None
        decisions = self._apply(self.auditor.retold())
        self.auditor.decided(decisions, self.now_ms)
        self.tally.violations += self.auditor.check(self.core, self.now_ms)
        for decision in decisions:
            self.log.append((self.now_ms, decision))
            self._obey(decision)

    # What happens of itself

    def _obey(self, decision: Decision) -> None:
        match decision:
            case Start():
                self.tally.starts += 1
                job = self.jobs[decision.job_id]
                self.waiting.pop(job.job_id, None)
                self.sequence += 1
                self.running[job.job_id] = self.sequence
                self._later(self._runs(job), "end", job.job_id)
            case Preempt():
                self.tally.preemptions += 1
                self.leaving.add(decision.job_id)
                self._later(self.random.choice((0, 500, 3000)), "gone", decision.job_id)
            case Resize():
                self.tally.resizes += 1
                self._later(self.random.choice((0, 500, 2000)), "resized", decision.job_id)
            case _:
                self.tally.promises += 1
                self.tally.slips += bool(decision.slipped)

    def _runs(self, job: Submit) -> int:
        if job.expected_ms is None:
            return self.random.choice((5000, 30_000, 200_000))
        if self.profile.exact:
            return job.expected_ms
        return max(1, job.expected_ms * self.random.choice((10, 50, 100, 100, 130)) // 100)

    def _later(self, after_ms: int, what: str, job_id: str) -> None:
        self.sequence += 1
        number = self.running.get(job_id, 0)
        heapq.heappush(
            self.due, (self.now_ms + after_ms, self.sequence, f"{what} {number}", job_id)
        )

    def _ending(self) -> list[Event]:
        events: list[Event] = []
        while self.due and self.due[0][0] <= self.now_ms:
            _, _, what, job_id = heapq.heappop(self.due)
            verb, number = what.split()
            if self.running.get(job_id) != int(number):
                continue
            if verb == "resized":
                events.append(Resized(job_id))
            elif verb == "gone":
                events += self._come_back(job_id, preempted=True)
            else:
                events += self._end(job_id)
        return events

    def _end(self, job_id: str) -> list[Event]:
        self.running.pop(job_id, None)
        self.leaving.discard(job_id)
        return [Release(job_id)]

    def _come_back(self, job_id: str, *, preempted: bool) -> list[Event]:
        events = self._end(job_id)
        job = self.jobs[job_id]
        if preempted:
            job = replace(job, preemptions=job.preemptions + 1)
        self.jobs[job_id] = job
        self.waiting[job_id] = None
        return [*events, job]

    # What happens from outside

    def _happening(self) -> list[Event]:
        roll = self.random.random()
        for chance, what in HAPPENINGS:
            if roll < chance:
                return list(getattr(self, what)())
            roll -= chance
        return []

    def submits(self) -> list[Event]:
        if len(self.waiting) >= (30 if self.profile.alike else 12):
            return []
        return [self._submit() for _ in range(self.random.choice((1, 1, 1, 2, 3)))]

    def fails(self) -> list[Event]:
        """A job ends and comes back with the turn it had."""
        if not self.running:
            return []
        job_id = self._pick(self.running)
        return self._come_back(job_id, preempted=job_id in self.leaving)

    def ends(self) -> list[Event]:
        return self._end(self._pick(self.running)) if self.running else []

    def cancels(self) -> list[Event]:
        if not self.waiting:
            return []
        job_id = self._pick(self.waiting)
        del self.waiting[job_id]
        return [Withdraw(job_id)]

    def retells(self) -> list[Event]:
        """A waiting job gets another priority."""
        if not self.waiting:
            return []
        job_id = self._pick(self.waiting)
        priority = self.random.choice((10, 50, 90))
        self.jobs[job_id] = replace(self.jobs[job_id], priority=priority)
        return [self.jobs[job_id]]

    def changes_nodes(self) -> list[Event]:
        return self._nodes_change() if self.profile.nodes_change else []

    def edits_rules(self) -> list[Event]:
        if not self.profile.rules_change:
            return []
        self.rules = self._edited()
        return [self.rules]

    def restarts(self) -> list[Event]:
        if self.profile.restarts and self.auditor is not None:
            self.restart()
        return []

    def _pick(self, names: Sequence[str] | dict[str, int] | dict[str, None]) -> str:
        return self.random.choice(list(names))


def run(seed: int, steps: int, profile: Profile, make: Callable[[], Core] = Core) -> World:
    """A storm of so many steps, and its end; it stops at the first thing that is wrong, which may
    be an error of the core."""
    world = World(seed, profile, make)
    try:
        for _ in range(steps):
            world.step()
            if world.tally.violations:
                return world
        world.drain()
    except Exception as error:
        world.tally.violations.append(f"{type(error).__name__}: {error}")
        world.error = error
    return world


def storms(seeds: Sequence[int], steps: int, names: Sequence[str]) -> tuple[Tally, list[str]]:
    """Several storms, one after the other: what happened in all, and what went wrong."""
    total, wrong = Tally(), []
    for seed in seeds:
        profile = PROFILES[names[seed % len(names)]]
        tally = run(seed, steps, profile).tally
        for name in Tally.counts:
            setattr(total, name, getattr(total, name) + getattr(tally, name))
        wrong += [f"seed {seed} ({profile.name}), step {tally.steps}: {tally.violations[:3]}"][
            : len(tally.violations)
        ]
    return total, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--length", type=int, default=400, help="steps of one storm")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--profile", choices=sorted(PROFILES), action="append")
    parser.add_argument("--shrink", action="store_true", help="show the smallest failing history")
    parser.add_argument("--keep-going", action="store_true", help="after a failure too")
    parser.add_argument("--expect", default="", help="succeed when this is violated, only then")
    parser.add_argument("--digest", action="store_true", help="print a digest of all decisions")
    options = parser.parse_args()
    names = options.profile or sorted(PROFILES)
    total, began, seed, bad = Tally(), time.monotonic(), options.seed, 0
    while total.steps < options.steps:
        profile = PROFILES[names[seed % len(names)]]
        world = run(seed, options.length, profile)
        wrong = world.tally.violations
        for name in Tally.counts:
            setattr(total, name, getattr(total, name) + getattr(world.tally, name))
        if options.digest:
            print(seed, digest(world.log))
        if options.expect and any(re.match(options.expect, what) for what in wrong):
            print(f"seed {seed} ({profile.name}), step {world.tally.steps}: {wrong[0]}")
            return 0
        if wrong and not options.expect:
            bad += 1
            where = f"seed {seed} ({profile.name}), step {world.tally.steps}:"
            print(where, *wrong[:4], sep="\n  ")
            if options.shrink:
                label = type(world.error).__name__ if world.error else kind(wrong[0])
                tell(shrink(world.history, label))
            if not options.keep_going:
                return 1
        seed += 1
    print(f"{total} in {time.monotonic() - began:.0f} s; {bad} storms with violations")
    return 1 if bad or options.expect else 0


if __name__ == "__main__":
    sys.exit(main())
