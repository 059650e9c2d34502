"""Runs in which everything goes wrong that may, and the core is killed again and again.

The same faults each time, drawn from the seed:

    calm      the core lives through it; what it heard is kept: the log
    log       after a crash a new core hears the whole log. It must know the same, to the last
              promise, and no decision may differ from the calm run's (S-I16, S-I20)
    rows      after a crash a new core hears what a server finds in its tables: nodes, who holds
              seats, who waits. It must know the same of those, and start nothing twice

What the tables do not hold is forgotten with the core: promises, what tenants used lately, when
an elastic job was last resized. Where there was any of that, decisions after it may be others,
which is told (`differs_from_s`); where there was none, they must be the same (S-I16).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from random import Random
from typing import Any

from windlass.scheduler.events import Decision, Event, Promise, Rules
from windlass.scheduler.simulate.faults import CHAOS, Faults
from windlass.scheduler.simulate.live import PENDING
from windlass.scheduler.simulate.run import Options, Outcome, Simulation, real_core
from windlass.scheduler.simulate.workload import Workload

CRASH_EVERY = 200
MOST_REPLAYS = 8
"""A replay of the log takes as long as all that was simulated: no more than so many of them."""


def chaos(workload: Workload, options: Options, **how: Any) -> Outcome:
    """The outcome of the run with crashes and tables; all that was found is in it."""
    every = options.crash_every or CRASH_EVERY
    faults = CHAOS if options.faults == Faults() else options.faults
    options = replace(options, faults=faults)
    calm = Simulation(workload, options, keep_log=True, **how).run()
    heard = sum(len(events) for _, events in calm.log)
    seldom = max(every, heard // MOST_REPLAYS)
    log = Crashing(workload, options, seldom, from_log=True, **how)
    outcomes = [calm, log.run()]
    rows = Crashing(workload, options, every, from_log=False, **how)
    outcomes.append(rows.run())
    found = []
    for word, other in (
        ("S-I16: after a replay of the log the decisions", outcomes[1].digests),
        ("S-I20: the same events told again: the decisions", _told_again(workload, calm, how)),
    ):
        difference = first_difference(calm.digests, other)
        if difference is not None:
            found.append(f"{word} differ from {difference} ms on")
    difference = first_difference(calm.digests, rows.digests)
    if difference is not None and not rows.forgot:
        found.append(f"S-I16: the decisions after a crash differ from {difference} ms on")
    return _summed(outcomes, found, log, rows, difference)


class Crashing(Simulation):
    """A run whose core is thrown away about every so many events."""

    def __init__(
        self, workload: Workload, options: Options, every: int, *, from_log: bool, **how: Any
    ) -> None:
        super().__init__(workload, options, keep_log=from_log, **how)
        self._keep_digests = True
        self._from_log = from_log
        self._every = max(1, every)
        self._draw = Random(options.seed)
        self._heard = 0
        self._crash_at = self._next()
        self.crashes = 0
        self.decided_at_once = 0
        """What rebuilt cores decided because they had forgotten why not to."""
        self.forgot: list[str] = []

    @property
    def digests(self) -> list[tuple[int, str]]:
        return self._digests

    def _next(self) -> int:
        return self._heard + self._draw.randint(1, 2 * self._every - 1)

    def _tick(self, events: list[Event], now: int) -> tuple[int, int]:
        ticked = super()._tick(events, now)
        self._heard += len(events)
        if self._heard >= self._crash_at and self._may_crash():
            self._crash_at = self._next()
            self.crashes += 1
            if self._from_log:
                self._replay(now)
            else:
                self._rebuild(now)
        return ticked

    def _may_crash(self) -> bool:
        """A shrink under way cannot be told to a core from the tables: wait until it is over."""
        return self._from_log or not any(
            live.held > len(live.seats) for live in self.engine.live.values()
        )

    def _replay(self, now: int) -> None:
        """A new core that hears the whole log must know the same as the old one."""
        old, self.core = self.core, self._new_core(self.workload.rules)
        for when, events in self._log:
            self.core.apply(events, when)
        for word, one, other in zip(
            ("holds", "waits", "promises", "wish"), _state(old), _state(self.core), strict=True
        ):
            if one != other:
                self._violated([f"S-I16 at {now} ms: after a replay {word} differ"])

    def _rebuild(self, now: int) -> None:
        """A new core that is told what is in the tables must know the same of it."""
        forgets = self._forgets()
        self.forgot += [word for word in forgets if word not in self.forgot]
        old = {key: sorted(value.seats) for key, value in self.core.holdings().items()}
        self.core = self._new_core(self.workload.rules)
        if self._audit is not None:
            self._audit.retold()
        decisions = self.core.apply(self.engine.restore(), now)
        acts = [each for each in decisions if not isinstance(each, Promise)]
        if forgets:
            self.decided_at_once += len(acts)
        else:
            self._violated([f"S-I16 at {now} ms: a rebuilt core decides {each}" for each in acts])
        self._same_holders(old, acts, now)
        if self._audit is not None:
            self._audit.decided(decisions, now)
        self._obey(decisions, now, now)

    def _same_holders(self, old: dict[str, Any], acts: Sequence[Decision], now: int) -> None:
        new = {key: sorted(value.seats) for key, value in self.core.holdings().items()}
        moved = {each.job_id for each in acts}
        for key in {**old, **new}:
            if old.get(key) != new.get(key) and key not in moved:
                self._violated([f"S-I16 at {now} ms: a rebuilt core knows {key} otherwise"])
        for key in old.keys() - new.keys():
            self._violated([f"S-I16 at {now} ms: a rebuilt core has lost {key}"])

    def _forgets(self) -> list[str]:
        """What a core that is rebuilt from the tables now will not know."""
        found = []
        live = self.engine.live
        waiting = [name for name, each in live.items() if each.state == PENDING]
        promise = getattr(self.core, "promise", None)
        if promise is not None and any(promise(name) is not None for name in waiting):
            found.append("promises")
        if self.workload.rules.order == "fair" and len(self.ledger.accounts) > 1:
            found.append("recent use")
        if self.ledger.resizes:
            found.append("times of resizes")
        return found


def _state(core: Any) -> tuple[Any, ...]:
    holds = {key: (each.seats, each.started_ms) for key, each in core.holdings().items()}
    line = core.line() if hasattr(core, "line") else []
    return holds, line, [core.promise(name) for name in line], core.next_ms()


def _summed(
    outcomes: list[Outcome],
    found: list[str],
    log: Crashing,
    rows: Crashing,
    difference: int | None,
) -> Outcome:
    """The last outcome, with what all of them found."""
    calm, last = outcomes[0], outcomes[-1]
    result = last.result
    result["invariant_violations"] = len(found) + sum(
        each.result["invariant_violations"] for each in outcomes
    )
    details = result["details"]
    told = [line for each in reversed(outcomes) for line in each.result["details"]["violations"]]
    details["violations"] = (found + told)[:20]
    details["crashes"] = rows.crashes
    details["replays"] = log.crashes
    details["rebuilt"] = {
        "forgot": rows.forgot,
        "decided_at_once": rows.decided_at_once,
        "differs_from_s": None if difference is None else difference / 1000,
    }
    for word, outcome in (("digest", last), ("digest_without_crash", calm)):
        details[word] = blake2b(repr(outcome.digests).encode(), digest_size=16).hexdigest()
    return last


def _told_again(workload: Workload, calm: Outcome, how: dict[str, Any]) -> list[tuple[int, str]]:
    return replayed(workload.rules, calm.log, how.get("new_core") or real_core)


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
