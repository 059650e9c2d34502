"""One simulation: the real core, driven by a timeline instead of a clock.

    1 take all that is due at this instant    4 let the core decide: one tick
    2 let the engine turn it into events      5 let the engine carry the decisions out
    3 add the jobs that arrive                6 count, check, sample; on to the next instant

replay: deciding takes no time. charged: the time it really took passes in the simulation, too, so
that a slow core shows as waiting. chaos: see `chaos`.
"""

from __future__ import annotations

import gc
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Protocol

from windlass.scheduler.events import (
    NEVER,
    Decision,
    Event,
    NodeUp,
    Preempt,
    Promise,
    Reason,
    Resize,
    Rules,
    Start,
    Submit,
)
from windlass.scheduler.predict import Histories
from windlass.scheduler.simulate.engine import Engine
from windlass.scheduler.simulate.faults import Faults
from windlass.scheduler.simulate.limits import Limits
from windlass.scheduler.simulate.live import PENDING, Live
from windlass.scheduler.simulate.loop import Timeline
from windlass.scheduler.simulate.metrics import DONE, FAILED, Ledger
from windlass.scheduler.simulate.workload import Job, Workload

SAMPLED_EVERY = 500
"""With sampled audit, the invariants are looked at once in so many ticks."""
MOST_VIOLATIONS = 1000
IDLE_TICKS = 1000
"""A core that asks for so many ticks in a minute (and some more for each job that waits) without
anything to hear or to do is not asked again before something happens."""
MINUTE_MS = 60_000


class Core(Protocol):
    """What is driven: see `windlass.scheduler.core`."""

    def apply(self, events: Sequence[Event], now_ms: int) -> list[Decision]: ...
    def next_ms(self) -> int | None: ...
    def why(self, job_id: str) -> Reason | None: ...
    def never_fits(self, submit: Submit) -> str | None: ...
    def holdings(self) -> Mapping[str, Any]: ...


class Audit(Protocol):
    """What watches: see `windlass.scheduler.audit`."""

    def heard(self, events: Sequence[Event], now_ms: int) -> Any: ...
    def decided(self, decisions: Sequence[Decision], now_ms: int) -> Any: ...
    def check(self, core: Any, now_ms: int) -> list[str]: ...
    def quiet(self, core: Any, now_ms: int) -> list[str]: ...
    def retold(self) -> list[Event]: ...


@dataclass(frozen=True, slots=True)
class Options:
    """How a workload is run."""

    mode: str = "replay"
    audit: str = "sampled"
    seed: int = 0
    faults: Faults = Faults()
    lost_work: float = 0.0
    """The share of an attempt's work that a preempted job loses."""
    soft_walltime: bool = False
    """Jobs may run past their time limit; it is then only what the core believes."""
    predict: bool = False
    limits: Limits = Limits()
    """How much the engine takes, and how fast."""
    crash_every: int = 0
    """Throw the core away after about so many events and build a new one from what is known."""


@dataclass(slots=True)
class Outcome:
    """A run that is over."""

    result: dict[str, Any]
    curves: dict[str, list[tuple[float, float]]]
    digests: list[tuple[int, str]]
    """(time, digest of what was decided then): what two runs are compared by."""
    log: list[tuple[int, list[Event]]]
    """What the core heard; kept only when asked for."""


class Simulation:
    """A run that can be looked into; `simulate` is the short way."""

    def __init__(
        self,
        workload: Workload,
        options: Options,
        *,
        new_core: Callable[[Rules], Core] | None = None,
        new_audit: Callable[[str], Audit] | None = None,
        progress: Callable[[int, int], None] | None = None,
        keep_log: bool = False,
    ) -> None:
        self.workload, self.options = workload, options
        self._new_core = new_core or real_core
        self.core = self._new_core(workload.rules)
        self._audit: Audit | None = None
        if options.audit != "off":
            self._audit = (new_audit or real_audit)(options.audit)
        self._progress = progress
        self.ledger = Ledger(workload.jobs, workload.offers, workload.rules.quotas)
        self.timeline = Timeline(workload.jobs)
        self.engine = Engine(
            self.timeline,
            self.ledger,
            workload.offers,
            faults=options.faults,
            grace_ms=workload.grace_ms,
            lost_work=options.lost_work,
            soft_walltime=options.soft_walltime,
            seed=options.seed,
            limits=options.limits,
            ended=self._ended if options.predict else None,
        )
        self._histories = Histories()
        self._fits: dict[tuple[Any, ...], str | None] = {}
        self._ticks = array("q")
        self._decisions = 0
        self.violations: list[str] = []
        self._broken = 0
        self._digests: list[tuple[int, str]] = []
        self._keep_digests = keep_log
        self._log: list[tuple[int, list[Event]]] = []
        self._keep_log = keep_log
        self._deaf = False

    def run(self) -> Outcome:
        """All of it. Ends when every job is over, or none that waits can ever start."""
        begin = self.workload.jobs[0].submit_ms if self.workload.jobs else 0
        gc.collect()
        gc.freeze()
        gc.disable()
        try:
            if self._audit is not None:
                self._audit.heard([self.workload.rules], begin)
            self._tick([NodeUp(offer) for offer in self.workload.offers], begin)
            self._loop(begin)
        finally:
            gc.enable()
            gc.unfreeze()
        now = self.ledger.last_ms
        if self._audit is not None:
            self._violated(self._audit.check(self.core, now))
            self._violated(self._audit.quiet(self.core, now))
        self.ledger.sample(now, self._holders())
        return Outcome(self._result(), self.ledger.curves(), self._digests, self._log)

    def _loop(self, begin: int) -> None:
        charged = self.options.mode == "charged"
        timeline, engine, ledger = self.timeline, self.engine, self.ledger
        jobs = self.workload.jobs
        now, idle, acted, told, patience = begin, 0, 0, 0, IDLE_TICKS
        idle_since = begin
        busy_ns = 0
        while engine.live or not timeline.arrivals_over:
            due = timeline.next_ms()
            wish = self._wish()
            if due is None and wish is None:
                return
            if wish is not None and (due is None or wish < due):
                due = wish
            assert due is not None
            if due < now:
                due = now
            if charged and busy_ns > due * 1_000_000:
                due = -(-busy_ns // 1_000_000)
            if due > now:
                ledger.advance(due)
            now = due
            before, arrivals, after = timeline.take(now)
            events: list[Event] = []
            for each in before:
                engine.happen(each, now, events)
            for number in arrivals:
                self._arrive(jobs[number], number, now, events)
            for each in after:
                engine.happen(each, now, events)
            if not events and (wish is None or wish > now):
                continue  # something inside the engine alone
            spent, decided = self._tick(events, now)
            if charged:
                busy_ns = max(busy_ns, now * 1_000_000) + spent
            if events or self._decisions > acted:
                acted, idle, self._deaf = self._decisions, 0, False
            else:
                if now - idle_since >= MINUTE_MS:
                    idle, idle_since = 0, now
                idle += 1
                if idle > patience + 4 * ledger.pending * (patience == IDLE_TICKS):
                    self._violated([f"the core wants to be called at {now} ms without end"])
                    idle, patience, self._deaf = 0, 20, True
            if self._progress is not None and timeline.arrived - told >= 1000:
                told = timeline.arrived
                self._progress(told - len(engine.live), len(jobs))
            if not decided and timeline.arrivals_over and self._stuck():
                return

    def _stuck(self) -> bool:
        """Nothing holds anything, no node is to come back, and the core waits for no time."""
        if self.engine.holding or self.engine.down:
            return False
        return self._wish() is None

    def _wish(self) -> int | None:
        """When the core wants to be called though nothing happens."""
        wish = None if self._deaf else self.core.next_ms()
        return None if wish is None or wish >= NEVER else wish

    def _arrive(self, job: Job, number: int, now: int, events: list[Event]) -> None:
        live = Live(job, number, now)
        # In charged time a job may be heard of later than it came: that is waiting, too.
        live.since_ms = job.submit_ms
        expected = job.walltime_ms
        if expected is None and self.options.predict:
            expected = self._histories.expect(job.tenant, job.user, _likeness(job))
        live.submit = submit = Submit(
            job.name,
            job.tenant,
            job.needs,
            job.submit_ms,
            number,
            job.priority,
            "default",
            job.kind,
            job.user,
            expected,
            True,
            job.level,
            job.required,
        )
        key = (job.tenant, id(job.needs), job.kind, job.user, job.level, job.required)
        try:
            never = self._fits[key]
        except KeyError:
            never = self._fits[key] = self.core.never_fits(submit)
        if never is not None or self._too_large(job):
            self.ledger.rejected(job)
            return
        events.append(self.engine.arrive(live, now))

    def _too_large(self, job: Job) -> bool:
        """More members than the engine takes at all."""
        need, most = job.needs[0], self.options.limits.members
        return most > 0 and (need.minimum or need.count) > most

    def _ended(self, live: Live) -> None:
        if live.ending in (DONE, FAILED):
            job = live.job
            self._histories.ended(job.tenant, job.user, _likeness(job), live.ran_ms)

    def _tick(self, events: list[Event], now: int) -> tuple[int, int]:
        """The core decides and the engine obeys. Returns (nanoseconds it took, decisions)."""
        if self._keep_log:
            self._log.append((now, events))
        begin = time.perf_counter_ns()
        decisions = self.core.apply(events, now)
        spent = time.perf_counter_ns() - begin
        self._ticks.append(spent)
        audit = self._audit
        if audit is not None:
            audit.heard(events, now)
            audit.decided(decisions, now)
            if self.options.audit == "all" or len(self._ticks) % SAMPLED_EVERY == 0:
                self._violated(audit.check(self.core, now))
        when = now
        if self.options.mode == "charged":
            when += spent // 1_000_000
        if decisions:
            self._obey(decisions, now, when)
        self.ledger.settle(now, self._holders)
        return spent, len(decisions)

    def _obey(self, decisions: Sequence[Decision], now: int, when: int) -> None:
        engine, ledger = self.engine, self.ledger
        if when > now:
            ledger.advance(when)
        acts = 0
        for decision in decisions:
            if isinstance(decision, Start):
                live = engine.live[decision.job_id]
                if live.promised_ms >= 0:
                    ledger.kept(live, now)
                engine.start(decision, when)
                acts += 1
            elif isinstance(decision, Preempt):
                engine.preempt(decision, when)
                acts += 1
            elif isinstance(decision, Resize):
                engine.resize(decision, when)
                ledger.resizes += 1
                acts += 1
            else:
                assert isinstance(decision, Promise)
                ledger.promised(engine.live[decision.job_id], decision.start_ms, decision.slipped)
        self._decisions += acts
        if acts and self._keep_digests:
            kept = [each for each in decisions if not isinstance(each, Promise)]
            digest = blake2b(repr(kept).encode(), digest_size=8).hexdigest()
            self._digests.append((now, digest))

    def _holders(self) -> list[Live]:
        return [live for live in self.engine.live.values() if live.state != PENDING]

    def _violated(self, found: Sequence[str]) -> None:
        self._broken += len(found)
        if len(self.violations) < MOST_VIOLATIONS:
            self.violations += found

    def _result(self) -> dict[str, Any]:
        result = self.ledger.result(
            ticks_ns=self._ticks, decisions=self._decisions, violations=self._broken
        )
        details = result["details"]
        details["mode"] = self.options.mode
        details["audit"] = self.options.audit
        details["nodes"] = len(self.workload.offers)
        if self.engine.gate is not None:
            details["engine"] = self.engine.gate.told()
        details["violations"] = self.violations[:20]
        details["waiting_for"] = self._reasons()
        details["without_quota"], details["without_jobs"] = self._unmatched()
        return result

    def _unmatched(self) -> tuple[list[str], list[str]]:
        """Tenants of jobs that no quota names, though there are quotas; and the other way."""
        quotas = self.workload.rules.quotas
        cohorts = {quota.parent for quota in quotas}
        named = {quota.name for quota in quotas if quota.name not in cohorts}
        seen = set(self.ledger.accounts)
        return (sorted(seen - named) if quotas else []), sorted(named - seen)

    def _reasons(self) -> dict[str, int]:
        """Why those wait that never started: the words of the core, counted."""
        found: dict[str, int] = {}
        for name, live in list(self.engine.live.items())[:10_000]:
            if live.state == PENDING:
                reason = self.core.why(name)
                word = reason.code if reason is not None else "unknown"
                found[word] = found.get(word, 0) + 1
        return found


def simulate(workload: Workload, options: Options, **how: Any) -> Outcome:
    """Run a workload. In chaos, twice: with and without crashes of the core, which must not
    change a single decision."""
    if options.mode == "chaos":
        from windlass.scheduler.simulate.chaos import chaos

        return chaos(workload, options, **how)
    return Simulation(workload, options, **how).run()


def _likeness(job: Job) -> str:
    need = job.needs[0]
    return f"{job.kind} {job.workers}x{need.gpus}.{need.gpu_milli}.{need.cpus_milli}"


def real_core(rules: Rules) -> Core:
    from windlass.scheduler.core import Core as Real

    made: Core = Real(rules)
    return made


def real_audit(level: str) -> Audit:
    from windlass.scheduler.audit import Auditor

    made: Audit = Auditor("all" if level == "all" else "cheap")
    return made
