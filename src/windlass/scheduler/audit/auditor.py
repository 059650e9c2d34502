"""The auditor: books of its own, kept from what the core was told and what it decided, and every
invariant (S-I1 to S-I20) that can be seen in them.

For each tick call `heard`, let the core decide, call `decided`; then `check` tells what is wrong,
and `quiet` what is wrong when nothing more is decided. Each violation is one sentence that starts
with the label of its invariant. Nothing inside the core is believed: it is only compared.

At level "cheap" decisions are judged one by one and nothing is recomputed: for long simulations,
where `check` is called for a sample of the ticks. At "all" every decision is judged against the
alternatives there were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from windlass.scheduler.audit import decided as judge
from windlass.scheduler.audit import preemption, rest
from windlass.scheduler.audit.books import Books, Held, Promised, shape
from windlass.scheduler.audit.ground import WHOLE
from windlass.scheduler.audit.tenants import Amounts, add
from windlass.scheduler.events import (
    NEVER,
    Decision,
    Event,
    Preempt,
    Promise,
    Reason,
    Release,
    Resize,
    Restore,
    Rules,
    Seat,
    Start,
    Submit,
)

Ints = NDArray[np.int64]
FEW = 500
"""Up to so many jobs are compared one by one after every tick."""


class Holding(Protocol):
    """What the core says of a job that holds seats."""

    @property
    def job(self) -> Submit: ...
    @property
    def seats(self) -> Sequence[Seat]: ...
    @property
    def started_ms(self) -> int: ...
    @property
    def leaving(self) -> bool: ...


class Columns(Protocol):
    cpus: Ints
    memory: Ints
    slots: Ints
    gpu: Ints
    whole: Ints


class Nodes(Protocol):
    index: dict[str, int]
    now: Columns
    up: NDArray[np.bool_]


class Core(Protocol):
    """What of the core is looked at."""

    nodes: Nodes

    def holdings(self) -> Mapping[str, Holding]: ...
    def why(self, job_id: str) -> Reason | None: ...
    def line(self, queue: str = "") -> list[str]: ...
    def promise(self, job_id: str) -> Promise | None: ...


class Auditor:
    def __init__(self, level: str = "all") -> None:
        if level not in ("all", "cheap"):
            raise ValueError(f"level: {level!r} is neither all nor cheap")
        self.books = Books()
        self._all = level == "all"
        self._found: list[str] = []
        self._excess: dict[tuple[str, str], int] = {}
        self._touched: set[str] = set()
        self._shaken = False
        self._pending_since: dict[str, int] = {}
        self._metered_ms = 0
        self._cluster: Amounts = {}
        self._open: dict[str, tuple[int, Amounts]] = {}
        self.ledger: Amounts = {}
        """What was used over time, from every span in which a job held the same seats."""
        self._checks = 0
        self._unserved_since: dict[str, int] = {}
        self.preemptions = 0
        self.slips = 0

    # Each tick

    def heard(self, events: Sequence[Event], now_ms: int) -> None:
        """What the core was told. Call it before the core is told, or after: before `decided`."""
        self._meter(now_ms)
        books = self.books
        self._shaken = False
        books.hear(events, now_ms)
        pending, since = books.pending, self._pending_since
        for event in events:
            kind = type(event)
            if kind is Submit or kind is Release:  # nearly all of what is heard is these two
                job_id = event.job_id  # type: ignore[union-attr]
            else:
                self._shaken = self._shaken or kind is Rules or kind is Restore
                job_id = event.job.job_id if isinstance(event, Restore) else _job_id(event)
            if job_id:
                self._settle(job_id, now_ms)
                if job_id in pending:
                    since.setdefault(job_id, now_ms)
                else:
                    since.pop(job_id, None)
        if self._shaken:
            self._excess = self._now_beyond(None)
        elif self._excess:
            # What ended lowers what is beyond the law; it does not come back with a decision.
            self._excess = self._now_beyond({where for where, _ in self._excess})

    def decided(self, decisions: Sequence[Decision], now_ms: int) -> None:
        """What the core made of it, in its order."""
        self._meter(now_ms)
        books = self.books
        books.now_ms = now_ms
        judged: set[str] = set()
        grown: list[Start] = []
        for decision in decisions if books.promised else ():
            if isinstance(decision, Start) and decision.job_id in books.pending:
                self._excuse_who_is_passed(books.pending[decision.job_id], decision.seats)
        for number, decision in enumerate(decisions):
            match decision:
                case Start():
                    # A start tells of members that were added when all else had been decided.
                    first = judge.at_its_fewest(books, decision)
                    self._start(first)
                    if len(first.seats) < len(decision.seats):
                        grown.append(decision)
                case Preempt():
                    self._group(decision.beneficiary, decisions[number:], judged)
                    self._preempt(decision)
                case Resize():
                    if decision.beneficiary:
                        self._group(decision.beneficiary, decisions[number:], judged)
                    self._resize(decision)
                case Promise():
                    self._promise(decision)
            self._settle(decision.job_id, now_ms)
        for start in grown:
            self._grown(start)
            self._settle(start.job_id, now_ms)
        if self._all:
            self._lawful()
        self._holds()
        if self._all and books.promised:
            moved = {seat.node for one in decisions for seat in getattr(one, "seats", ())}
            new = {one.job_id for one in decisions if isinstance(one, Promise)}
            names = [
                job_id
                for job_id, promised in books.promised.items()
                if job_id in new or not moved.isdisjoint(promised.nodes)
            ]
            self._found += rest.delayed(books, names)

    def check(self, core: Core, now_ms: int) -> list[str]:
        """All that was found wrong since the last call, and where the core's state is another."""
        self._meter(now_ms)
        self._checks += 1
        self._lawful()
        found, self._found = self._found, []
        # With many jobs or nodes, compare those that moved; all of them now and then.
        books, all_of_it = self.books, self._checks % FEW == 0
        if all_of_it or len(books.held) <= FEW:
            found += self._compare_holdings(core)
            found += self._balance(now_ms)
        rows = None if all_of_it or len(books.ground) <= FEW else sorted(books.ground.moved)
        found += self._compare_nodes(core, rows)
        books.ground.moved.clear()
        return found

    def quiet(self, core: Core, now_ms: int) -> list[str]:
        """What is wrong if the core decides nothing more at this time."""
        books = self.books
        books.now_ms = now_ms
        found = rest.idle_room(books) + self._unserved() + rest.broken_promises(books)
        found += rest.delayed(books, list(books.promised))
        found += self._compare_pending(core)
        seen = set()
        for job in books.pending.values():
            reason = core.why(job.job_id)
            key = (shape(job), job.tenant, job.kind, job.user, reason.code if reason else "")
            if key not in seen or job.job_id in books.nominated:
                seen.add(key)
                found += rest.unexplained(books, job, reason)
        found += self._recount()
        found += self._balance(now_ms)
        return found

    def retold(self) -> list[Event]:
        """What a restarted driver would tell a new core; its plans may then be others."""
        self.books.restarted()
        return self.books.retold()

    # Single decisions

    def _start(self, start: Start) -> None:
        books, found = self.books, self._found
        job = books.pending.get(start.job_id)
        if start.job_id in books.held:
            found.append(f"S-I16: {start.job_id} is started twice")
            return
        if job is None:
            found.append(f"S-I16: {start.job_id} is started and does not wait")
            return
        wrong = judge.malformed(books, job, start.seats)
        if wrong:
            found += wrong
            books.forget(job.job_id)
            return
        found += judge.partial(job, start.seats)
        if self._all:
            # Nodes are kept for who starves without a word, so that others may have to spread.
            alone = not books.claimed(job.job_id)
            found += judge.scattered(books, job, start.seats, exact=alone)
            found += judge.out_of_turn(books, job)
            found += judge.passed_over(books, job)
        promised = books.promised.get(job.job_id)
        if promised and books.now_ms > promised.start_ms and not books.excused(promised):
            late = books.now_ms - promised.start_ms
            found.append(f"S-I9: {job.job_id} starts {late} ms later than promised")
        self._excuse_who_lent(job)
        books.exchange(job)
        books.forget(job.job_id)
        books.hold(job, start.seats, books.now_ms)
        self._touched.add(job.tenant)
        self._pending_since.pop(job.job_id, None)
        found += judge.unseated(books, job, start.seats)
        if self._all:
            made_ms = promised.made_ms if promised else None
            found += rest.starved(books, job, self._pending_since, made_ms)

    def _grown(self, start: Start) -> None:
        """S-I17: what a job starts with above its fewest, when all else is decided."""
        books, found = self.books, self._found
        held = books.held.get(start.job_id)
        if held is None:
            return
        wrong = judge.malformed(books, held.job, start.seats)
        if wrong:
            found += wrong
            return
        found += judge.partial(held.job, start.seats)
        found += judge.scattered(books, held.job, start.seats, exact=False)
        gained, _ = books.resize(held, start.seats, "")
        held.resized_ms = None  # it was not resized, it started so
        self._touched.add(held.job.tenant)
        found += judge.unseated(books, held.job, gained)

    def _excuse_who_is_passed(self, job: Submit, seats: Sequence[Seat]) -> None:
        """Who comes with a higher priority and starts at once may take what was promised."""
        books, nodes = self.books, {seat.node for seat in seats}
        if books.told_ms[job.job_id] < books.now_ms:
            return
        for job_id, promised in books.promised.items():
            if job.priority > books.pending[job_id].priority:
                if not nodes.isdisjoint(promised.nodes):
                    promised.excuses.add(f"{job.job_id} came and ranks before it")

    def _excuse_who_lent(self, job: Submit) -> None:
        """Who stays within what it owns takes it back, also from who was promised to borrow it."""
        tenants = self.books.tenants
        for job_id, promised in self.books.promised.items():
            other = self.books.pending[job_id]
            if other.tenant != job.tenant and tenants.same_cohort(other.tenant, job.tenant):
                if tenants.within_nominal(job) and not tenants.within_nominal(other):
                    promised.excuses.add(f"{job.job_id} takes what its tenant owns")

    def _group(self, job_id: str, decisions: Sequence[Decision], judged: set[str]) -> None:
        """Judge all that gives way to one job in this tick, before any of it is entered."""
        if job_id in judged:
            return
        judged.add(job_id)
        books, found = self.books, self._found
        job = books.pending.get(job_id)
        if job is None:
            found.append(f"S-I7: others give way to {job_id}, which does not wait")
            return
        if books.queue(job.queue).paused:
            found.append(f"S-I7: others give way to {job_id}, whose queue is paused")
        victims: list[Held] = []
        gone: list[preemption.Gone] = []
        for one in decisions:
            held = books.held.get(one.job_id)
            if held is None or getattr(one, "beneficiary", "") != job_id:
                continue
            if isinstance(one, Preempt):
                victims.append(held)
                gone.append(preemption.whole(held))
            elif isinstance(one, Resize):
                keeps = set(one.seats)
                lost = [seat for seat in held.seats if seat not in keeps]
                gone.append(preemption.surplus(books, held, lost))
        found += preemption.illegal(books, job, victims)
        if self._all:
            found += preemption.not_minimal(books, job, gone)
            found += preemption.straddling(books, job, victims)
            found += preemption.insufficient(books, job, gone)
            if victims and preemption.surplus_would_do(books, job):
                found.append(f"S-I7d: {job_id} preempts, though shrinking others would do")

    def _preempt(self, preempt: Preempt) -> None:
        books = self.books
        held = books.held.get(preempt.job_id)
        job = books.pending.get(preempt.beneficiary)
        if held is None:
            self._found.append(f"S-I7: {preempt.job_id} is told to end and holds nothing")
            return
        if job is None or held.leaving:
            return
        self.preemptions += 1
        books.tell_to_end(held, job)
        self._touched.update((held.job.tenant, job.tenant))
        loop = _way(books.told_to_end, job.job_id, held.job.job_id)
        if loop:
            self._found.append(f"S-I8: {' gave way to '.join((*loop, loop[0]))}: a loop")

    def _resize(self, resize: Resize) -> None:
        books, found = self.books, self._found
        held = books.held.get(resize.job_id)
        if held is None:
            found.append(f"S-I17: {resize.job_id} is resized and holds nothing")
            return
        wrong = judge.malformed(books, held.job, resize.seats)
        if wrong:
            found += wrong
            return
        found += judge.resized(books, held, resize.seats)
        found += judge.scattered(books, held.job, resize.seats, exact=False)
        gained, lost = books.resize(held, resize.seats, resize.beneficiary)
        self._touched.add(held.job.tenant)
        found += judge.unseated(books, held.job, gained)
        if gained and lost:
            found.append(f"S-I17: {resize.job_id} grows and shrinks at once")

    def _promise(self, promise: Promise) -> None:
        books, found = self.books, self._found
        job = books.pending.get(promise.job_id)
        if job is None:
            found.append(f"S-I9: {promise.job_id} is promised a start and does not wait")
            return
        unknown = [name for name in promise.nodes if name not in books.ground.index]
        if unknown:
            found.append(f"S-I9: {promise.job_id} is promised {unknown[0]}, which is not there")
            return
        old = books.promised.get(promise.job_id)
        if old is not None and promise.start_ms > old.start_ms:
            self.slips += 1
            excuses = books.excused(old)
            if not promise.slipped:
                found.append(
                    f"S-I9: {promise.job_id} was promised {old.start_ms}, "
                    f"now {promise.start_ms}, without a word"
                )
            elif not excuses:
                found.append(
                    f"S-I9: {promise.job_id} slips from {old.start_ms} to {promise.start_ms} "
                    f"({promise.slipped}), and nothing happened that may delay it"
                )
        if promise.start_ms >= NEVER:
            books.promised.pop(promise.job_id, None)  # taken back
            return
        books.promised[promise.job_id] = Promised(promise.start_ms, promise.nodes, books.now_ms)

    # After all decisions of a tick

    def _lawful(self) -> None:
        """S-I4, S-I5: no decision made any excess, or made it larger."""
        tenants = self.books.tenants
        if not tenants.quotas and not tenants.caps:
            self._touched.clear()
            return
        names = {name for name in self._touched if name in tenants.quotas or name in tenants.caps}
        self._touched.clear()
        if not names:
            return
        for where, beyond in self._now_beyond(names).items():
            if beyond > self._excess.get(where, 0):
                self._found.append(f"S-I4: {where[0]} uses {beyond} {where[1]} more than it may")
                self._excess[where] = beyond

    def _now_beyond(self, names: set[str] | None) -> dict[tuple[str, str], int]:
        tenants = self.books.tenants
        if names is None:
            return {**tenants.excess(), **tenants.over_caps()}
        if not names:
            return {}
        names = {name.split("/")[0] for name in names}
        roots = sorted({tenants.root(name) for name in names if name in tenants.quotas})
        return {**tenants.excess(roots), **tenants.over_caps(sorted(names))}

    def _holds(self) -> None:
        """S-I7f: what was freed for a job is still there for it; when all of it is free, the job
        starts."""
        books = self.books
        for job_id, nomination in books.nominated.items():
            if nomination.soft:
                continue
            job = books.pending[job_id]
            if not nomination.waits_for:
                self._found.append(f"S-I7f: all made room for {job_id}, and it does not start")
                nomination.soft = True
                books.tenants.charge(job, nomination.charged, -1)
            elif self._all and preemption.can_still_start(books, job) is False:
                self._found.append(f"S-I7f: what was freed for {job_id} went to others")
                nomination.soft = True
                books.tenants.charge(job, nomination.charged, -1)

    def _unserved(self) -> list[str]:
        """S-I6: not at once, but within the time that a plan may be put off, from when the job
        waits and the other could go."""
        books = self.books
        waiting = rest.unserved(books)
        self._unserved_since = {
            job_id: self._unserved_since.get(job_id, books.now_ms) for job_id in waiting
        }
        grace = max(1000, books.rules.min_run_ms)
        may_go = {
            name: books.held[other].started_ms + books.rules.min_run_ms
            for name, other in waiting.items()
        }
        return [
            f"S-I6: {job_id} is within nominal and waits, though {waiting[job_id]} could go"
            for job_id, since in self._unserved_since.items()
            if books.now_ms - max(since, may_go[job_id]) > grace
        ]

    # The core against the books

    def _compare_holdings(self, core: Core) -> list[str]:
        books, found = self.books, []
        said = core.holdings()
        if said.keys() != books.held.keys():
            for job_id in sorted(said.keys() ^ books.held.keys()):
                where = "the core alone" if job_id in said else "the books alone"
                found.append(f"S-I16: {job_id} holds seats according to {where}")
        for job_id, held in books.held.items():
            other = said.get(job_id)
            if other is None:
                continue
            seats = set(other.seats)
            if seats != set(held.seats) and seats != {*held.seats, *held.losing}:
                found.append(f"S-I16: {job_id} holds other seats in the core than in the books")
            if other.started_ms != held.started_ms or other.leaving != held.leaving:
                found.append(f"S-I16: {job_id} started or leaves otherwise in the core")
        return found

    def _compare_pending(self, core: Core) -> list[str]:
        said, own = core.line(), self.books.pending
        found = []
        if len(set(said)) != len(said):
            found.append("S-I16: a job waits twice in the core")
        for job_id in sorted(set(said) ^ own.keys()):
            where = "the core alone" if job_id in said else "the books alone"
            found.append(f"S-I16: {job_id} waits according to {where}")
        return found

    def _compare_nodes(self, core: Core, rows: list[int] | None = None) -> list[str]:
        """S-I1: the core's index is what there is less what is held, on these nodes or all."""
        ground, nodes = self.books.ground, core.nodes
        if not len(ground) or rows == []:
            return []
        names = ground.names if rows is None else [ground.names[row] for row in rows]
        missing = [name for name in names if name not in nodes.index]
        if missing:
            return [f"S-I1: the core does not know node {missing[0]}"]
        there = np.array([nodes.index[name] for name in names])
        here = np.arange(len(ground)) if rows is None else np.array(rows)
        up = ground.up[here]
        found = [
            f"S-I1: {names[row]} is {'down' if up[row] else 'up'} in the core only"
            for row in np.flatnonzero(np.asarray(nodes.up)[there] != up)
        ]
        columns = ("cpus", "memory", "slots", "gpu")
        for word, have, used in zip(columns, ground.capacity(), ground.used(), strict=True):
            said, have, used = np.asarray(getattr(nodes.now, word))[there], have[here], used[here]
            if word == "gpu":
                width = min(said.shape[1], have.shape[1])
                if (have[:, width:] >= 0).any() or (said[:, width:] > 0).any():
                    found.append("S-I1: the core counts other devices than there are")
                said, have, used = said[:, :width], have[:, :width], used[:, :width]
            # What is owed, and devices that are gone, offer nothing: how is the core's affair.
            truth = np.where(have < 0, 0, have - used)
            right = (said == truth) | ((truth <= 0) & (said <= 0))
            wrong = ~right & (up[:, None] if word == "gpu" else up)
            for place in np.argwhere(wrong)[:3]:
                where = tuple(int(number) for number in place)
                found.append(
                    f"S-I1: {names[where[0]]} has {truth[where]} {word} free, "
                    f"the core says {said[where]}"
                )
        free = ((ground.capacity()[3][here] == WHOLE) & (ground.used()[3][here] == 0)).sum(axis=1)
        said = np.asarray(nodes.now.whole)[there]
        for row in np.flatnonzero((said != free) & up)[:3]:
            found.append(
                f"S-I1: {names[row]} has {free[row]} devices free, the core says {said[row]}"
            )
        return found

    # S-I14: what was used over time, counted twice

    def _meter(self, now_ms: int) -> None:
        """By the clock: what is taken of the nodes."""
        span, self._metered_ms = now_ms - self._metered_ms, now_ms
        if span > 0:
            _add_times(self._cluster, self.books.ground.total, span)

    def _settle(self, job_id: str, now_ms: int) -> None:
        """By the job: close its span, and open the next if it still holds anything."""
        entry = self._open.pop(job_id, None)
        if entry is not None:
            _add_times(self.ledger, entry[1], now_ms - entry[0])
        held = self.books.held.get(job_id)
        if held is not None:
            self._open[job_id] = (now_ms, _amounts(held))

    def _balance(self, now_ms: int) -> list[str]:
        total = dict(self.ledger)
        for since, amounts in self._open.values():
            _add_times(total, amounts, now_ms - since)
        return [
            f"S-I14: jobs used {total.get(name, 0)} of {name} over time, the nodes {amount}"
            for name, amount in self._cluster.items()
            if total.get(name, 0) != amount
        ]

    def _recount(self) -> list[str]:
        """S-I4: what tenants are charged, counted anew from every job (no quota leaks)."""
        books = self.books
        truth: dict[tuple[str, str, str], Amounts] = {}
        charged = [(held.job, held.charged) for held in books.held.values() if not held.leaving]
        charged += [
            (books.pending[job_id], nomination.charged)
            for job_id, nomination in books.nominated.items()
            if not nomination.soft
        ]
        for job, amounts in charged:
            add(truth.setdefault((job.tenant, job.kind, job.user), {}), amounts)
        found = []
        for key, amounts in books.tenants.used.items():
            for name, amount in amounts.items():
                if amount != truth.get(key, {}).get(name, 0):
                    found.append(f"S-I4: the books charge {key[0]} {amount} {name}")
        return found


def _amounts(held: Held) -> Amounts:
    total = {"cpus": 0, "memory": 0, "gpus": 0}
    for role, members in held.members().items():
        need = held.needs[role]
        total["cpus"] += members * need.cpus_milli
        total["memory"] += members * need.memory_bytes
        total["gpus"] += members * (need.gpus * WHOLE or need.gpu_milli)
    return total


def _add_times(total: Amounts, amounts: Amounts, span: int) -> None:
    for name, amount in amounts.items():
        if amount:
            total[name] = total.get(name, 0) + amount * span


def _job_id(event: Event) -> str:
    return str(getattr(event, "job_id", ""))


def _way(edges: Mapping[str, set[str]], start: str, end: str) -> tuple[str, ...]:
    """A way along the edges; empty if there is none."""
    ways: list[tuple[str, ...]] = [(start,)]
    seen = {start}
    while ways:
        way = ways.pop()
        if way[-1] == end:
            return way
        for name in sorted(edges.get(way[-1], ())):
            if name not in seen:
                seen.add(name)
                ways.append((*way, name))
    return ()
