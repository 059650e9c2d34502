"""The scheduler's core: events in, decisions out.

No clock, no thread, no I/O, no randomness: the same events give the same decisions, in the server
from a loop, in the simulator from a heap. It is a cache of what the driver told; a restarted
driver builds it anew by telling all again.

One tick (`apply`):

    1. hear        the events; free what was released; wake who may be helped by it
    2. late        who runs past the end that was counted on is thought to run as long again
    3. promised    start those with a reservation whose nodes are ready; what came too late for
                   its time is promised anew
    4. starving    who was passed for too long has nodes or quota kept for it
    5. waiting     the best of those that fit, again and again: quota, place, charge, start; one
                   that does not fit may preempt, and gets a reservation before others pass it
    6. grow        elastic gangs, with what is left
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from windlass.scheduler import reserve, why
from windlass.scheduler.bars import Bars
from windlass.scheduler.columns import Columns
from windlass.scheduler.entries import Entry, Stage, amounts_of, member_amounts
from windlass.scheduler.events import (
    NEVER,
    Decision,
    Event,
    NodeDown,
    NodeUp,
    Offer,
    Preempt,
    Promise,
    Queue,
    Reason,
    Release,
    Resize,
    Resized,
    Restore,
    Rules,
    Seat,
    Start,
    Submit,
    Withdraw,
)
from windlass.scheduler.nodes import Form, Nodes
from windlass.scheduler.pending import ENDLESS, Group, Key, Name, Pending
from windlass.scheduler.preempt import Plan, Planner
from windlass.scheduler.quota import Amounts, Tree
from windlass.scheduler.reserve import Reservation, Reservations
from windlass.scheduler.running import Running

_ATTEMPTS = 1000
"""Jobs looked at in one tick at most; `next_ms` then says to come back at once."""
_HEADS = 8
"""Jobs that cannot start looked at in one tick at most, in vain, to promise them something."""
_MANY_GROUPS = 24
_MISSES = 64
_LEAST: Key = (-1, 0, 0, 0, 0)
"""Before all others: who it is is not known yet."""
_PLAN_AGAIN_MS = 10_000
_FORMS_KNOWN = 4096
_ASKING = 32
"""New jobs for which others may be told to end in one tick, past those before them."""
_BY_HALF_LIFE = 1 << 16

Way = tuple[list[str] | None, Amounts]
"""The GPU models to start on (None: any), and what is charged."""


@dataclass(frozen=True, slots=True)
class Holding:
    """A job that holds seats."""

    job: Submit
    seats: tuple[Seat, ...]
    started_ms: int
    leaving: bool
    losing: tuple[Seat, ...] = ()


class Core:
    def __init__(self, rules: Rules | None = None) -> None:
        self.rules = rules or Rules()
        self.tree = Tree(self.rules.quotas, self.rules.caps)
        self.nodes = Nodes()
        self.running = Running(self.nodes)
        self.reservations = Reservations()
        self.now_ms = 0
        self.waiting: dict[str, Entry] = {}
        """All that do not hold seats: waiting, promised, or in a paused queue."""
        self._pending = self._new_pending()
        self._queues: dict[str, Queue] = {}
        self._members: dict[str, list[str]] = {}
        self._by_user = False
        self._models_metered = False
        self._lately: dict[str, int] = {}
        self._half_lives: int | None = None
        self._tick = 0
        self._decisions: list[Decision] = []
        self._started_now: dict[str, int] = {}
        self._freed = False
        self._capacity_changed = False
        self._more = False
        self._asking: list[Entry] = []
        self._first_of: dict[str, Entry] = {}
        """Of each strict queue the one that was looked at last."""
        self._again = False
        """Something was given up while the waiting were looked at: another may be next."""
        self._orphans: dict[str, list[Entry]] = {}
        self._tried: dict[str, int] = {}
        self._retry: list[tuple[int, int, str]] = []
        self._unplanned: dict[Form, int] = {}
        self._said: dict[str, tuple[int, str]] = {}
        """What a waiting job was told last of its start, and why that is no longer kept."""
        self._aside: dict[Form, dict[str, Entry]] = {}
        """Jobs that can never start on the nodes and quotas there are: in nobody's way."""
        self._placeless: dict[tuple[Form, str], bool] = {}
        """Whether a form has no place even on empty nodes; good until the nodes change."""
        self._starving: list[tuple[int, int, str]] = []
        self._hungry: dict[Form, dict[str, Entry]] = {}
        self._rested: list[int] = []
        self._look_for_old_ms = 0
        self._bars = Bars(self.nodes, self.reservations)
        self._index_rules()

    # What others ask

    def apply(self, events: Sequence[Event], now_ms: int) -> list[Decision]:
        """One tick: take the events in, answer with what to do now. Every event may be told
        again. Time never goes back."""
        self._tick += 1
        self.now_ms = max(self.now_ms, now_ms)
        self._decisions, self._started_now = [], {}
        self._more = False
        for event in events:
            self._hear(event)
        if self._capacity_changed:
            self._count_capacity()
            self._look_again_at_aside()
        self._adopt_claims()
        self._start_promised(self._mark_late())
        self._promise_starving()
        self._start_waiting()
        while self._again:
            self._start_promised([])
            self._start_waiting()
        self._grow()
        self._freed = self._more
        self._pending.forget_read()
        self._bars.forget_read()
        return self._decisions

    def next_ms(self) -> int | None:
        """When to call `apply` again though nothing is heard; None: no need."""
        if self._more:
            return self.now_ms
        due = NEVER
        if self._retry:
            due = min(due, self._retry[0][0])
        while self._starving and self._starving[0][2] not in self.waiting:
            heapq.heappop(self._starving)
        if self._starving:
            due = min(due, self._starving[0][0])
        for reservation in self.reservations.all.values():
            if not reservation.claim:
                start_ms = reservation.start_ms
                due = min(due, start_ms if start_ms > self.now_ms else start_ms + 1)
        while self._rested and self._rested[0] <= self.now_ms:
            heapq.heappop(self._rested)
        if self._rested and self._hungry:
            due = min(due, self._rested[0])
        return None if due >= NEVER else max(due, self.now_ms + 1)

    def why(self, job_id: str) -> Reason | None:
        """Why a job waits; None when it does not wait here."""
        entry = self.waiting.get(job_id)
        return None if entry is None else why.reason(self, entry)

    def line(self, queue: str = "") -> list[str]:
        """The jobs that wait (in one queue), in the order in which they would be looked at."""
        kept = [r.entry for r in self.reservations.all.values()]
        idle = [e for e in self.waiting.values() if e.stage is Stage.WAITING and e.lane is None]
        entries = [*kept, *self._pending.in_order(), *sorted(idle, key=lambda e: e.rank)]
        return [e.told.job_id for e in entries if queue in ("", e.told.queue)]

    def first_of(self, queue: str) -> Entry | None:
        """Whom the others of a strict queue wait for."""
        kept = [k.entry for k in self.reservations.all.values() if k.entry.told.queue == queue]
        return min(kept, key=lambda e: e.rank, default=None) or self._pending.first_of(queue)

    def could_start(self, job: Submit) -> bool:
        """Whether such a job would start now, were it submitted."""
        entry = self._entry(job)
        if self.queue(job.queue).paused or not self.has_quota(entry):
            return False
        if self.queue(job.queue).policy == "strict" and self.first_of(job.queue) is not None:
            return False
        return self.seats_for(entry) is not None

    def never_fits(self, job: Submit) -> str | None:
        """Why such a job could not start even if nobody else were there; None when it could."""
        return why.never(self, self._entry(job))

    def promise(self, job_id: str) -> Promise | None:
        """What a waiting job was promised."""
        kept = self.reservations.all.get(job_id)
        return None if kept is None else Promise(job_id, kept.start_ms, tuple(kept.names))

    def holdings(self) -> Mapping[str, Holding]:
        return {
            job_id: Holding(
                entry.told, entry.seats, entry.started_ms, entry.stage is Stage.LEAVING,
                entry.losing,
            )
            for job_id, entry in self.running.entries.items()
        }  # fmt: skip

    # 1. Hear

    def _hear(self, event: Event) -> None:
        match event:
            case Submit():
                self._submit(event)
            case Release(job_id):
                self._withdraw(job_id)
                self._release(job_id)
            case Withdraw(job_id):
                self._withdraw(job_id)
            case Restore():
                self._restore(event)
            case Resized(job_id):
                self._resized(job_id)
            case NodeUp(offer):
                at = self.nodes.index.get(offer.name)
                before = None if at is None else self.nodes.offers[at]
                self.nodes.node_up(offer)
                self._capacity_changed = self._freed = True
                if before is not None and not _no_less(offer, before):
                    self._placeless.clear()
                    self._lose_node(offer.name, f"node {offer.name} shrank")
            case NodeDown(name):
                self.nodes.node_down(name)
                self._capacity_changed = True
                self._lose_node(name, f"node {name} was lost")
            case Rules():
                self._set_rules(event)

    def _submit(self, job: Submit) -> None:
        if job.job_id in self.running.entries:
            return
        known = self.waiting.get(job.job_id)
        if known is not None:
            if known.told == job:
                return
            self._withdraw(job.job_id)
        entry = self._entry(job)
        self.waiting[job.job_id] = entry
        self.nodes.wanted(entry.form, 1)
        self._queue_up(entry)
        self._asking.append(entry)

    def _queue_up(self, entry: Entry) -> None:
        queue = self.queue(entry.told.queue)
        entry.stage = Stage.WAITING
        entry.paused = queue.paused
        if not queue.paused:
            self._pending.add(entry, strict=queue.policy == "strict", by_user=self._by_user)
            told = entry.told
            due = max(told.order_ms + self.rules.starving_ms, self.now_ms)
            heapq.heappush(self._starving, (due, told.number, told.job_id))

    def _withdraw(self, job_id: str) -> None:
        entry = self.waiting.pop(job_id, None)
        if entry is None:
            return
        self.nodes.wanted(entry.form, -1)
        self._tried.pop(job_id, None)
        self._said.pop(job_id, None)
        if entry.stage is Stage.PROMISED:
            self._drop(job_id)
        elif entry.lane is not None:
            self._pending.remove(entry)
        else:
            self._not_aside(entry)
        # Who ranked behind it in a strict queue may be next.
        self._freed = True

    def _release(self, job_id: str) -> None:
        entry = self.running.entries.get(job_id)
        if entry is None:
            return
        self.running.remove(entry)
        self._not_hungry(entry)
        self.nodes.give(entry.told.needs, entry.seats + entry.losing)
        if entry.stage is not Stage.LEAVING:
            self._discharge(entry, entry.charged)
        self._use_lately(entry, self.now_ms - entry.started_ms)
        self._freed = True

    def _restore(self, event: Restore) -> None:
        job = event.job
        self._withdraw(job.job_id)
        if job.job_id in self.running.entries:
            return
        entry = self._entry(job)
        entry.seats = event.seats
        entry.started_ms = event.started_ms
        entry.ends_ms = entry.end_if_started(event.started_ms)
        entry.stage = Stage.LEAVING if event.leaving else Stage.RUNNING
        entry.charged = self._charge_of(entry, entry.seats)
        self.nodes.take(job.needs, event.seats)
        if event.leaving:
            entry.beneficiary = event.leaving_for
            entry.ends_ms = self.now_ms
            if event.leaving_for:
                self._orphans.setdefault(event.leaving_for, []).append(entry)
        else:
            self._charge(entry, entry.charged)
        self.running.add(entry)
        self._maybe_hungry(entry)

    def _resized(self, job_id: str) -> None:
        entry = self.running.entries.get(job_id)
        if entry is not None and entry.losing:
            self.nodes.give(entry.told.needs, entry.losing)
            entry.losing = ()
            self.running.changed(entry)
            self._freed = True
            self._maybe_hungry(entry)

    def _set_rules(self, rules: Rules) -> None:
        """All that was charged is charged anew, and everybody queues up again. The same rules
        told again change nothing."""
        if rules == self.rules:
            return
        tree = Tree(rules.quotas, rules.caps)  # raises before anything is changed
        self.rules, self.tree = rules, tree
        self._index_rules()
        self._pending = self._new_pending()
        self._count_capacity()
        for entry in self.running.entries.values():
            entry.amounts = amounts_of(entry.told.needs, self.tree)
            entry.charged = self._charge_of(entry, entry.seats)
            if entry.stage is not Stage.LEAVING:
                self._charge(entry, entry.charged)
        self._aside.clear()
        for entry in self.waiting.values():
            entry.amounts = amounts_of(entry.told.needs, self.tree)
            entry.lane = None
            kept = self.reservations.all.get(entry.told.job_id)
            if kept is not None and kept.claim and not self._lost_its_claim(kept):
                entry.charged = self._charge_of(entry, kept.seats)
                self._charge(entry, entry.charged)
            else:
                self.reservations.remove(entry.told.job_id)
                self._queue_up(entry)
        self._said = {
            job_id: (start_ms, "the rules changed") for job_id, (start_ms, _) in self._said.items()
        }
        self._bars.clear()
        self._freed = True

    def _lost_its_claim(self, kept: Reservation) -> bool:
        """Nothing is kept for a job of a paused queue, nor for one without quota."""
        entry = kept.entry
        return self.queue(entry.told.queue).paused or self._never(entry) or not self._fits(entry)

    def _index_rules(self) -> None:
        self._queues = {queue.name: queue for queue in self.rules.queues}
        self._by_user = any(cap.user for cap in self.rules.caps)
        self._members = {}
        for tenant in self.tree.tenants():
            self._members.setdefault(self.tree.cohort(tenant), []).append(tenant)
        self._reclaims_any = {quota.name for quota in self.rules.quotas if quota.reclaim_any}
        self._models_metered = any(column.startswith("gpus:") for column in self.tree.columns)

    def _count_capacity(self) -> None:
        """Shares are of what the cluster has; with it, everybody's place may change."""
        capacity = self.nodes.capacity
        self.tree.capacity(
            {
                "cpus": int(capacity.cpus.sum()),
                "memory": int(capacity.memory.sum()),
                "gpus": int(capacity.gpu.sum()),
            }
        )
        self._capacity_changed = False
        self._pending.resort()
        self._placeless.clear()

    def _look_again_at_aside(self) -> None:
        """The nodes are others: some may have a place now, and some none any more."""
        for kept in [k for k in self.reservations.all.values() if not k.seats]:
            if self._never(kept.entry):
                self._drop(kept.entry.told.job_id)
                self._queue_up(kept.entry)
        for entries in list(self._aside.values()):
            for entry in list(entries.values()):
                if not self._never(entry):
                    self._not_aside(entry)
                    self._queue_up(entry)

    def _lose_node(self, name: str, why_later: str) -> None:
        """What was promised on this node is promised anew."""
        for kept in list(self.reservations.on.get(name, ())):
            self._promise_again(kept, why_later)

    # Those that can never start

    def _never(self, entry: Entry) -> bool:
        """It could not start even if nobody else were there."""
        told, form = entry.told, entry.form
        for models, amounts in self.ways(entry):
            if self.tree.never(told.tenant, told.kind, told.user, amounts):
                continue
            key = (form, models[0] if models else "")
            known = self._placeless.get(key)
            if known is None:
                if len(self._placeless) > _FORMS_KNOWN:
                    self._placeless.clear()
                known = self.nodes.place_when_empty(form, models=models) is None
                self._placeless[key] = known
            if not known:
                return False
        return True

    def _set_aside(self, entry: Entry) -> bool:
        """Take it out of its lane if it can never start; it is looked at again when the nodes or
        the rules are others."""
        if not self._never(entry):
            return False
        self._pending.remove(entry)
        self._aside.setdefault(entry.form, {})[entry.told.job_id] = entry
        return True

    def _not_aside(self, entry: Entry) -> None:
        entries = self._aside.get(entry.form)
        if entries is not None and entry.told.job_id in entries:
            del entries[entry.told.job_id]
            if not entries:
                del self._aside[entry.form]

    def _adopt_claims(self) -> None:
        """After a restart: those that are ending make place for somebody; it gets its claim."""
        orphans, self._orphans = self._orphans, {}
        for job_id, leaving in orphans.items():
            entry = self.waiting.get(job_id)
            leaving = [e for e in leaving if e.told.job_id in self.running.entries]
            if entry is None:
                if leaving:
                    self._orphans[job_id] = leaving  # it may still be told of
                continue
            if entry.stage is not Stage.WAITING or entry.paused:
                continue
            if not self.has_quota(entry):
                continue  # the rules were changed meanwhile: it waits like all others
            columns = self.nodes.now.copy()
            self.running.held.shift(columns, leaving, 1)
            limit = self.reservations.limit(entry.form, NEVER, self.nodes)
            for models in self._models_for(entry, None) if self._models_metered else [None]:
                seats = self.nodes.place(entry.form, columns=columns, limit=limit, models=models)
                if seats is not None:
                    columns.take(entry.told.needs, seats)
                    self._claim(entry, Plan(seats, columns))
                    break

    # 2. Late

    def _mark_late(self) -> list[Entry]:
        if not self.reservations.all or self.running.first_end_ms() >= self.now_ms:
            return []
        return self.running.overran(self.now_ms)

    # 3. Promised

    def _start_promised(self, late: Sequence[Entry]) -> None:
        """Start whom it can be kept to; promise anew whose time has passed."""
        kept_all = list(self.reservations.all.values())
        due = [k for k in kept_all if k.start_ms <= self.now_ms and not k.claim]
        if self._freed or due:
            while self._start_ready(kept_all):
                pass
        for kept in due:
            job_id = kept.entry.told.job_id
            if kept.start_ms < self.now_ms and self.reservations.all.get(job_id) is kept:
                names = ", ".join(entry.told.job_id for entry in late[:3])
                self._promise_again(
                    kept,
                    f"{names} ran past its time" if late else "what it counted on is still used",
                )

    def _start_ready(self, kept_all: Sequence[Reservation]) -> bool:
        """True: one started elsewhere than planned, so that others may have a second look."""
        refused = again = False
        for number, kept in enumerate(kept_all):
            entry = kept.entry
            if self.reservations.all.get(entry.told.job_id) is not kept:
                continue
            passing = self._outranks_a_promise(entry)
            due = kept.start_ms <= self.now_ms and not kept.claim
            if not self.nodes.could(entry.form):
                continue
            barred = not due and kept.start_ms < NEVER
            if barred and self._bars.holds_for(kept, self.now_ms, passing=passing):
                continue
            lawful = self._promised_quota(kept, kept_all[number + 1 :])
            if not lawful:
                continue
            seats = self.seats_for(entry, own=kept, lawful=lawful)
            if seats is not None:
                entry = self._first_alike(kept)
                self._drop(entry.told.job_id)
                self._start(entry, seats, "its turn: it had a reservation", planned=kept)
                again = again or refused
                continue
            refused = True
            if not kept.seats:
                self._drop(entry.told.job_id)
                self._keep_for_starving(entry)
            elif not self._models_metered:
                self._bars.put_up_for(kept, self.now_ms, passing=passing)
        return again

    def _first_alike(self, kept: Reservation) -> Entry:
        """What is ready is taken by the first of those that differ in nothing and have something
        kept for them; they exchange it."""
        mine, first = kept, kept
        for other in self.reservations.all.values():
            if (
                other.entry.rank < first.entry.rank
                and other.entry.form is mine.entry.form
                and _class_of(other.entry.told) == _class_of(mine.entry.told)
                and _may_exchange(mine, other)
            ):
                first = other
        if first is mine:
            return mine.entry
        one, two = mine.entry, first.entry
        for leaving in self.running.entries.values() if mine.claim or first.claim else ():
            if leaving.beneficiary in (one.told.job_id, two.told.job_id):
                mirrored = leaving.beneficiary == one.told.job_id
                leaving.beneficiary = (two if mirrored else one).told.job_id
        self.reservations.exchange(mine, first)
        self._bars.exchanged()
        return two

    def _promised_quota(
        self, kept: Reservation, after: Sequence[Reservation]
    ) -> list[list[str] | None]:
        """On which GPU models may what it was promised be charged? (None: any; empty: not at
        all.) What is charged for those behind it does not count against it; nor, where its tenant
        owns what it wants, what is kept for borrowers. For whose sake others were told to end has
        had their quota since."""
        entry = kept.entry
        ways = self.ways(entry)
        if kept.seats:
            ways = [way for way in ways if way[1] == entry.charged] or [(None, entry.charged)]
        if kept.claim and kept.start_ms < NEVER:
            return [models for models, _ in ways]
        self._discharge(entry, entry.charged, quiet=True)
        lawful = self._lawful(entry, ways)
        if not lawful:
            cohort = self.tree.cohort(entry.told.tenant)
            aside = [
                other.entry
                for other in after
                if not other.claim
                and self.tree.cohort(other.entry.told.tenant) == cohort
                and other.entry.told.job_id in self.reservations.all
            ]
            aside += [
                e for e in self._borrowed_promises(entry) if e not in aside and e is not entry
            ]
            for other in aside:
                self._discharge(other, other.charged, quiet=True)
            lawful = self._lawful(entry, ways)
            for other in aside:
                self._charge(other, other.charged)
        self._charge(entry, entry.charged)
        return lawful

    def _lawful(self, entry: Entry, ways: Sequence[Way]) -> list[list[str] | None]:
        told, fits = entry.told, self.tree.fits
        return [m for m, amounts in ways if fits(told.tenant, told.kind, told.user, amounts)]

    def missing(self, entry: Entry) -> dict[str, int]:
        """What of its quota is lacking for it now."""
        told = entry.told
        kept = told.job_id in self.reservations.all
        if kept:
            self._discharge(entry, entry.charged, quiet=True)
        lacks = [
            self.tree.missing(told.tenant, told.kind, told.user, amounts)
            for _, amounts in self.ways(entry)
        ]
        if kept:
            self._charge(entry, entry.charged)
        return min(lacks, key=lambda lack: sum(lack.values()))

    # 4. Starving

    def _promise_starving(self) -> None:
        """Who is passed by others for too long has what it waits for kept for it: nodes, or its
        quota."""
        due: dict[str, Entry] = {}
        while self._starving and self._starving[0][0] <= self.now_ms:
            _, number, job_id = heapq.heappop(self._starving)
            entry = self.waiting.get(job_id)
            if entry is not None and entry.told.number == number:
                due[job_id] = entry
        for entry in sorted(due.values(), key=lambda entry: entry.rank):
            if entry.lane is None:
                continue
            if entry.lane.booth.group.form is None or self._never(entry):
                continue
            if not entry.lane.parked and self.has_quota(entry):
                seats = self.seats_for(entry) if self._may_fit(entry) else None
                if seats is not None:
                    self._pending.remove(entry)
                    self._start(entry, seats, "its turn: it waited long")
                elif len(self.reservations.all) < 2 * self.rules.reservations:
                    self._promise(entry, starving=True)
            elif not any(
                kept.entry.told.tenant == entry.told.tenant and not kept.seats
                for kept in self.reservations.all.values()
            ):
                self._keep(entry, NEVER, (), reserve.spare_on((), self.nodes.now, self.nodes))

    def _keep_for_starving(self, entry: Entry) -> None:
        """There is quota for it now: nodes are kept for it as well."""
        entry.stage = Stage.WAITING
        if not self._promise(entry, starving=True):
            self._keep(entry, NEVER, (), reserve.spare_on((), self.nodes.now, self.nodes))

    def _promise(self, entry: Entry, *, starving: bool = False) -> bool:
        """Keep nodes and quota for it, from the earliest time at which it can be done."""
        ahead = self.reservations
        found, models = self._plan(entry)
        if found is None and starving:
            seats = reserve.drain(entry, self.nodes, ahead, models)
            if seats is None and not any(k.start_ms >= NEVER for k in ahead.all.values()):
                # One at a time may have to wait for those that have something kept for them.
                seats = reserve.drain(entry, self.nodes, None, models)
            if seats is not None:
                columns = self.nodes.now.copy()
                columns.take(entry.told.needs, seats)
                found = (NEVER, seats, reserve.spare_on(seats, columns, self.nodes))
        if found is None:
            self._unplanned[entry.form] = self.now_ms + _PLAN_AGAIN_MS
            return False
        start_ms, seats, spare = found
        if start_ms <= self.now_ms:
            # Not sure enough to start it: what is kept for others may still change places.
            if not starving:
                self._unplanned[entry.form] = self.now_ms + _PLAN_AGAIN_MS
                return False
            start_ms = NEVER
        self._keep(entry, start_ms, seats, spare)
        if start_ms < NEVER:
            job_id = entry.told.job_id
            names = tuple(self.reservations.all[job_id].names)
            before_ms, why_later = self._said.get(job_id, (NEVER, ""))
            slipped = (why_later or "others came before it") if start_ms > before_ms else ""
            self._said[job_id] = (start_ms, "")
            self._decisions.append(Promise(job_id, start_ms, names, slipped))
        return True

    def _plan(self, entry: Entry) -> tuple[reserve.Found | None, list[str] | None]:
        """The earliest start there is quota for, and on which models."""
        nodes, running, ahead = self.nodes, self.running, self.reservations
        if not self._models_metered:
            return reserve.plan(entry, nodes, running, ahead, self.now_ms), None
        ways = self.ways(entry)
        lawful = [models for models, amounts in ways if self._may_charge(entry, amounts)]
        best: tuple[reserve.Found | None, list[str] | None] = (None, None)
        for models in lawful or [models for models, _ in ways]:
            found = reserve.plan(entry, nodes, running, ahead, self.now_ms, models)
            if best[1] is None or (found and (best[0] is None or found[0] < best[0][0])):
                best = (found, models)
        return best

    def _keep(self, entry: Entry, start_ms: int, seats: tuple[Seat, ...], spare: Columns) -> None:
        """Take it out of its lane; nodes and quota are kept for it from now on. Nobody knows when
        a drain ends, so that it is kept from everybody, like a claim."""
        self._pending.remove(entry)
        entry.stage = Stage.PROMISED
        entry.charged = self._charge_of(entry, seats) if seats else entry.amounts
        self._charge(entry, entry.charged)
        drains = start_ms >= NEVER and bool(seats)
        self.reservations.add(
            Reservation(entry, start_ms, seats, spare, self.nodes, claim=drains, tick=self._tick)
        )

    def _promise_again(self, kept: Reservation, why_later: str) -> None:
        """Plan it anew, on top of what the others were promised."""
        entry = kept.entry
        self._drop(entry.told.job_id)
        if kept.claim:
            self._queue_up(entry)
            self._freed = self._again = True
            return
        entry.stage = Stage.WAITING
        if kept.start_ms < NEVER:
            self._said[entry.told.job_id] = (kept.start_ms, why_later)
        if self._never(entry) or not self._promise(entry):
            self._queue_up(entry)
            self._freed = self._again = True

    def _drop(self, job_id: str) -> None:
        """Keep nothing for it any more."""
        kept = self.reservations.remove(job_id)
        if kept is not None:
            self._bars.removed(kept)
            self._discharge(kept.entry, kept.entry.charged)
            self._freed = True

    # 5. Waiting

    def _start_waiting(self) -> None:
        self._again = False
        pending = self._pending
        groups = dict(pending.touched)
        pending.touched.clear()
        while self._retry and self._retry[0][0] <= self.now_ms:
            _, number, job_id = heapq.heappop(self._retry)
            entry = self.waiting.get(job_id)
            if entry is not None and entry.told.number == number and entry.lane is not None:
                pending.wake(entry)
                group = entry.lane.booth.group
                groups[group.name] = group
                self._asking.append(entry)
        heap: list[tuple[Key, int, Group | Form, Entry | None]] = []
        fitting = 0
        heads = _HEADS
        old = self.now_ms >= self._look_for_old_ms
        if self._freed:
            pending.wake_quota_bound()
        candidates, forms = self._worth_a_look(groups)
        attempts = 0
        if not self.reservations.all:
            attempts = self._start_in_order(candidates, groups)
        numbers = 0
        for group in candidates:
            least = pending.least(group)
            if least is not None:
                fits = group.form is None or self.nodes.could(group.form)
                fitting += fits
                numbers += 2
                heap.append((least, numbers + fits, group, None))
        # Those that do not fit matter as long as somebody that ranks behind them may start.
        fresh_left = sum(group.name in groups for group in candidates)
        for form in forms:
            numbers += 2
            fitting += 1
            heap.append((_LEAST, numbers + 1, form, None))
        heapq.heapify(heap)
        while heap and (fitting or fresh_left):
            key, number, source, entry = heap[0]
            fresh = isinstance(source, Group) and source.name in groups
            if not (old or fresh) and self._all_kept_from(source):
                heapq.heappop(heap)
                fitting -= number & 1
                if isinstance(source, Form):
                    for group in self._shorter(source, groups):
                        numbers += 2
                        fitting += 1
                        heapq.heappush(heap, (_LEAST, numbers + 1, group, None))
                continue
            if entry is None or entry.lane is None or self._key(entry) > key:
                # Nobody knows yet who it is, it was looked at as a head, or its tenant has
                # started something since.
                found = self._best(source)
                if found is not None:
                    heapq.heapreplace(heap, (found[0], number, source, found[1]))
                else:
                    heapq.heappop(heap)
                    fitting -= number & 1
                    fresh_left -= fresh
                continue
            fits = self._may_fit(entry)
            if not (fits or old or fresh) and isinstance(source, Group):
                heapq.heappop(heap)
                fitting -= number & 1
                continue
            if fits and heads and len(self.reservations.all) < self.rules.reservations:
                head = self._next_head(key)
                if head is not None:
                    lane = head.lane
                    assert lane is not None
                    if self._look_at(head, lane.booth.group, passed=True, fresh=False):
                        pending.heads.push(lane)
                    else:
                        heads -= 1
                    if not self._again:
                        continue
            heapq.heappop(heap)
            fitting -= number & 1
            attempts += 1
            lane = entry.lane
            assert lane is not None
            group = lane.booth.group
            if attempts > _ATTEMPTS:
                self._more = True
                pending.touched[group.name] = group
                for _, _, rest, _ in heap:
                    if isinstance(rest, Group):
                        pending.touched[rest.name] = rest
                break
            fresh_left -= fresh
            goes_on = not self._again and self._look_at(
                entry, group, passed=fitting > 0, fresh=fresh
            )
            if self._again:
                pending.touched.update(
                    (name, left) for name, left in groups.items() if name in pending.groups
                )
                self._look_for_old_ms = self.now_ms if old else self._look_for_old_ms
                break
            if not goes_on:
                # Nothing more of this group in this tick; of this form, what ends sooner.
                if isinstance(source, Form):
                    for group in self._shorter(source, groups):
                        numbers += 2
                        fitting += 1
                        heapq.heappush(heap, (_LEAST, numbers + 1, group, None))
                continue
            found = self._best(source)
            if found is not None:
                fresh_left += fresh
                fits = self._may_fit(found[1])
                fitting += fits
                heapq.heappush(heap, (found[0], (number | 1) - 1 + fits, source, found[1]))
        pending.heads.put_back()
        if not (self._again or self._more):
            asking, self._asking = self._asking, []
            self._ask_for_others(asking)
        if self._first_of and self._started_now and not self._more:
            self._look_for_other_firsts()

    def _ask_for_others(self, asking: Sequence[Entry]) -> None:
        """Who has just come may take back what its tenant lent, though another that asks for the
        same and may not is before it."""
        for entry in asking[:_ASKING]:
            lane = entry.lane
            if lane is None or lane.booth.group.form is None or lane.first() is not entry:
                continue
            if self._borrowers(entry) and self._preempt_for(entry):
                return

    def _look_for_other_firsts(self) -> None:
        """With what has been started, shares have changed: another may be first in a strict
        queue than the one that was looked at."""
        for queue, looked_at in list(self._first_of.items()):
            first = self._pending.first_of(queue)
            if first is None:
                del self._first_of[queue]
            elif first is not looked_at:
                self._first_of[queue] = first
                self._pending.touched[queue] = self._pending.groups[queue]
                self._again = True

    def _best(self, source: Group | Form) -> tuple[Key, Entry] | None:
        if isinstance(source, Group):
            return self._pending.best(source)
        heads = self._pending.of_form.get(source)
        return None if heads is None else heads.peek()

    def _shorter(self, form: Form, touched: dict[Name, Group]) -> list[Group]:
        """The groups of a form of which some may start though its first may not."""
        least = self._bars.least(form)
        if not self.nodes.could(form):
            return []
        return [
            group
            for bucket, group in self._pending.forms.get(form, {}).items()
            if (1 << bucket >> 1 < least or least > NEVER) and group.name not in touched
        ]

    def _next_head(self, before: Key) -> Entry | None:
        """The first of all that surely cannot start now, if it ranks before that."""
        pending = self._pending
        pending.wake_quota_bound()
        while (entry := pending.heads.next(before)) is not None:
            if not self._may_fit(entry):
                return entry
        return None

    def _start_in_order(self, candidates: list[Group], touched: dict[Name, Group]) -> int:
        """Where most of those that wait may start, the quickest way is to take all of them in
        order, as long as few are met that cannot. Takes the groups that are through out of
        `candidates`; returns how many jobs were looked at."""
        pending = self._pending
        closed: set[Name] = set()
        attempts = missed = 0
        if len(pending.groups) <= _MANY_GROUPS:
            return 0
        while attempts < _ATTEMPTS and missed < _MISSES and not self.reservations.all:
            entry = pending.heads.next()
            if entry is None:
                break
            lane = entry.lane
            assert lane is not None
            group = lane.booth.group
            if group.name in closed:
                missed += 1
                continue
            attempts += 1
            if self._look_at(entry, group, passed=True, fresh=group.name in touched):
                pending.heads.push(lane)
            else:
                closed.add(group.name)
            if self._again:
                break
        pending.heads.put_back()
        candidates[:] = [group for group in candidates if group.name not in closed]
        return attempts

    def _worth_a_look(self, touched: dict[Name, Group]) -> tuple[list[Group], list[Form]]:
        """Groups and whole forms of which somebody may start, or may be passed by somebody who
        starts."""
        if not self._freed and not touched:
            return [], []
        pending = self._pending
        if self.now_ms >= self._look_for_old_ms:
            self._look_for_old_ms = self.now_ms + max(1000, self.rules.starving_ms // 8)
            return list(pending.groups.values()), []
        if not self._freed:
            return list(touched.values()), []
        could = self.nodes.could
        groups = dict(touched)
        for name in self._queues:
            if name in pending.groups:
                groups[name] = pending.groups[name]
        return list(groups.values()), [form for form in pending.forms if could(form)]

    def _look_at(self, entry: Entry, group: Group, *, passed: bool, fresh: bool) -> bool:
        """Start it if it may be; else park it, preempt for it, or promise it something. False:
        nobody else of its group can be helped either."""
        told = entry.told
        if group.form is None:
            self._first_of[told.queue] = entry
            if self._behind_a_claim(entry):
                return False
        if not self.has_quota(entry):
            if self._set_aside(entry) or self._preempt_for(entry):
                return True
            if group.form is None:
                return False  # strict: nobody passes
            self._park(entry)
            return True
        fits = self.nodes.could(entry.form)
        seats = None
        if fits and not self._kept_from(entry):
            seats = self.seats_for(entry)
            if seats is not None:
                self._pending.remove(entry)
                self._start(entry, seats, "its turn")
                return True
            if not self._models_metered:
                self._bars.put_up(
                    entry.form, told.expected_ms, self.now_ms,
                    passing=self._outranks_a_promise(entry),
                )  # fmt: skip
        if self._set_aside(entry):
            return True
        if (fresh or fits) and self._preempt_for(entry):
            return True
        return group.form is not None and passed and self._promise_if_due(entry)

    def _behind_a_claim(self, entry: Entry) -> bool:
        """In a strict queue, who has a claim or a promise is still before those behind it."""
        return any(
            kept.entry.told.queue == entry.told.queue and kept.entry.rank < entry.rank
            for kept in self.reservations.all.values()
        )

    def _all_kept_from(self, source: Group | Form) -> bool:
        """Nobody of this group finds seats now, or nobody of this form that runs for long; those
        that have just come aside, who are looked at anyway."""
        form = source.form if isinstance(source, Group) else source
        if form is None:
            return False
        least = None
        if isinstance(source, Group) and source.bucket != ENDLESS:
            least = 1 << source.bucket >> 1
        return not self.nodes.could(form) or self._bars.holds(
            form, least, self.now_ms, passing=False
        )

    def _may_fit(self, entry: Entry) -> bool:
        """False: it surely finds no seats now."""
        return self.nodes.could(entry.form) and not self._kept_from(entry)

    def _kept_from(self, entry: Entry) -> bool:
        """Another of this form was found to have no seats that ends no later than this one, and
        nothing has changed since that could help it; what a job must leave alone only grows with
        its end."""
        return self._bars.holds(
            entry.form, entry.told.expected_ms, self.now_ms,
            passing=self._outranks_a_promise(entry),
        )  # fmt: skip

    def _outranks_a_promise(self, entry: Entry) -> bool:
        if entry.heard != self._tick:
            return False
        if entry.told.priority <= self.reservations.lowest_priority():
            return False
        return any(self._may_pass(entry, kept) for kept in self.reservations.all.values())

    def _may_pass(self, entry: Entry, kept: Reservation) -> bool:
        """A job of higher priority that comes after the promise was made may pass it, if it can
        start at once."""
        return (
            entry.heard == self._tick
            and not kept.claim
            and entry.told.priority > kept.entry.told.priority
            and entry.heard > kept.made
        )

    def _park(self, entry: Entry) -> None:
        self._pending.park(entry)
        told = entry.told
        due = max(told.order_ms + self.rules.starving_ms, self.now_ms + 1000)
        heapq.heappush(self._starving, (due, told.number, told.job_id))

    def _promise_if_due(self, entry: Entry) -> bool:
        """It is about to be passed: it gets a reservation, if there are any left to give, or if
        it waited so long that it gets one anyway."""
        count = len(self.reservations.all)
        starving = entry.told.order_ms + self.rules.starving_ms <= self.now_ms
        if count >= self.rules.reservations and not (
            starving and count < 2 * self.rules.reservations
        ):
            return False
        if self.queue(entry.told.queue).policy != "backfill" and not starving:
            return False
        if self._unplanned.get(entry.form, -1) > self.now_ms and not starving:
            return False
        return self._promise(entry, starving=starving)

    def _fits(self, entry: Entry) -> bool:
        """May it be charged now, as it was planned if it has seats kept for it?"""
        told = entry.told
        kept = self.reservations.all.get(told.job_id)
        ways = [entry.charged] if kept and kept.seats else [way[1] for way in self.ways(entry)]
        return any(self.tree.fits(told.tenant, told.kind, told.user, way) for way in ways)

    def ways(self, entry: Entry) -> list[Way]:
        """How it may be started: where its quota is kept by GPU model, on one model or another;
        with what is charged then."""
        if not self._models_metered or not entry.form.gpu_milli:
            return [(None, entry.amounts)]
        if not self.tree.by_model(entry.told.tenant):
            return [(None, entry.amounts)]
        models = list(self.nodes.models)
        for need in entry.told.needs:
            if need.gpu_models and (need.gpus or need.gpu_milli):
                models = [model for model in models if model in need.gpu_models]
        ways: list[Way] = [([m], self.tree.on_model(entry.amounts, m)) for m in models]
        return ways or [(None, entry.amounts)]

    def has_quota(self, entry: Entry) -> bool:
        """May it be charged now, in one way or another?"""
        return any(self._may_charge(entry, amounts) for _, amounts in self.ways(entry))

    def _may_charge(self, entry: Entry, amounts: Amounts) -> bool:
        """May it be charged this now? What is charged for jobs that only wait for their promise
        may be used by those that end before, and by those that stay within what their tenant
        owns."""
        told, tree = entry.told, self.tree
        if tree.fits(told.tenant, told.kind, told.user, amounts):
            return True
        if not self.reservations.all:
            return False
        end_ms = entry.end_if_started(self.now_ms)
        own = tree.owns(told.tenant, entry.amounts)
        passed = []
        for kept in self.reservations.all.values():
            other = kept.entry
            if other is entry or kept.claim and kept.start_ms < NEVER:
                continue
            binds = kept.start_ms >= NEVER or kept.binds(end_ms)
            if binds and not (own and other.told.tenant != told.tenant):
                continue
            if tree.cohort(other.told.tenant) == tree.cohort(told.tenant):
                passed.append(other)
        if not passed:
            return False
        for other in passed:
            self._discharge(other, other.charged, quiet=True)
        fits = tree.fits(told.tenant, told.kind, told.user, amounts)
        for other in passed:
            self._charge(other, other.charged)
        return fits

    def seats_for(
        self,
        entry: Entry,
        own: Reservation | None = None,
        lawful: Sequence[list[str] | None] | None = None,
    ) -> tuple[Seat, ...] | None:
        """Seats it may have now, leaving alone what is kept for others. `lawful`: on these GPU
        models; not told: on those that it has quota for."""
        if not self._models_metered:
            return self._seats_on(entry, own, None)
        for models in self._models_for(entry, own) if lawful is None else lawful:
            seats = self._seats_on(entry, own, models)
            if seats is not None:
                return seats
        return None

    def _seats_on(
        self, entry: Entry, own: Reservation | None, models: list[str] | None
    ) -> tuple[Seat, ...] | None:
        nodes, kept = self.nodes, self.reservations
        end_ms = entry.end_if_started(self.now_ms)
        passing = [] if own is None else kept.own_and_drains_after(own)
        if self._outranks_a_promise(entry):
            passing += [other for other in kept.all.values() if self._may_pass(entry, other)]
        seats = nodes.place(entry.form, models=models)
        if seats is None:
            return None
        if not kept.trespass(seats, end_ms, passing):
            return seats
        limit = kept.limit_now(entry.form, end_ms, nodes, passing)
        if limit is None:
            return seats
        if own is not None and own.start_ms <= self.now_ms:
            # Its time has come: what it was promised is there beside what others were. Before
            # that it may only have what nobody counts on.
            limit = own.with_its_own(limit)
        return nodes.place(entry.form, limit=limit, models=models)

    def models_of(self, entry: Entry) -> list[list[str] | None]:
        """The models on which it may start now, as far as quota goes; None: any."""
        return self._models_for(entry, self.reservations.all.get(entry.told.job_id))

    def _models_for(self, entry: Entry, own: Reservation | None) -> list[list[str] | None]:
        """The ways for which it has quota; with seats kept for it, the one that was planned."""
        ways = self.ways(entry)
        if own is not None and own.seats:
            return [models for models, amounts in ways if amounts == entry.charged] or [None]
        if own is not None:
            self._discharge(entry, entry.charged, quiet=True)
        found = [models for models, amounts in ways if self._may_charge(entry, amounts)]
        if own is not None:
            self._charge(entry, entry.charged)
        return found

    def _start(
        self,
        entry: Entry,
        seats: tuple[Seat, ...],
        reason: str,
        planned: Reservation | None = None,
    ) -> None:
        told = entry.told
        self.waiting.pop(told.job_id, None)
        self.nodes.wanted(entry.form, -1)
        self._tried.pop(told.job_id, None)
        self._said.pop(told.job_id, None)
        entry.stage = Stage.RUNNING
        entry.seats = seats
        entry.started_ms = self.now_ms
        entry.ends_ms = entry.end_if_started(self.now_ms)
        entry.charged = self._charge_of(entry, seats)
        self.nodes.take(told.needs, seats)
        self._charge(entry, entry.charged)
        self.running.add(entry)
        self._pass_promises(entry)
        if planned is not None and planned.start_ms > self.now_ms:
            planned = None  # early: on what nobody counts on
        self.reservations.started(told.needs, seats, entry.ends_ms, planned)
        self._use_lately(entry, 0)
        self._started_now[told.job_id] = len(self._decisions)
        self._decisions.append(Start(told.job_id, seats, reason))
        self._maybe_hungry(entry)

    def _pass_promises(self, entry: Entry) -> None:
        """It came with a higher priority and took what was kept for others: they get a later
        promise."""
        if not self.reservations.on:
            return
        passed = {
            kept.entry.told.job_id: kept
            for seat in entry.seats
            for kept in self.reservations.on.get(seat.node, ())
            if self._may_pass(entry, kept) and kept.binds(entry.ends_ms)
        }
        for kept in passed.values():
            self._promise_again(kept, f"{entry.told.job_id} came with a higher priority")

    # Preemption

    def _preempt_for(self, entry: Entry) -> bool:
        """Tell others to end for it, if that is lawful and enough."""
        rules, told = self.rules, entry.told
        if not rules.preemption or self._tried.get(told.job_id, -1) > self.now_ms:
            return False
        borrowers = self._borrowers(entry)
        if not (
            borrowers
            or self.running.elastic
            or self.running.lowest_priority(told.tenant) < told.priority
        ):
            return False
        passed = self._borrowed_promises(entry)
        for other in passed:
            self._discharge(other, other.charged, quiet=True)
        # As if it had no end: nobody knows when those that are told to end will have done so.
        limit = self.reservations.limit(entry.form, NEVER, self.nodes)
        planner = Planner(
            entry, self.nodes, self.running, self.tree, rules, self.now_ms, limit,
            self.ways(entry), self._charge_of,
        )  # fmt: skip
        plan = planner.plan(told.tenant in self._reclaims_any, borrowers)
        for other in passed:
            self._charge(other, other.charged)
        if plan is None:
            if rules.min_run_ms:
                again = self.now_ms + max(1000, rules.min_run_ms // 4)
                self._tried[told.job_id] = again
                heapq.heappush(self._retry, (again, told.number, told.job_id))
            return False
        self._carry_out(entry, plan)
        self._freed = self._again = True
        kept = self.reservations.all[told.job_id]
        seats = self.seats_for(entry, own=kept)
        if seats is not None:  # it was short of quota alone, and has it now
            self._drop(told.job_id)
            self._start(entry, seats, "its turn", planned=kept)
        return True

    def _borrowers(self, entry: Entry) -> list[str]:
        """Tenants of its cohort that use more than they own, if it may take from them."""
        tree, tenant = self.tree, entry.told.tenant
        others = self._members.get(tree.cohort(tenant), ())
        if len(others) < 2 or not tree.owns(tenant, entry.amounts):
            return []
        wanted = tree.of_any_model(entry.amounts) if self._models_metered else entry.amounts
        over = [name for name in others if name != tenant and tree.borrows(name, wanted)]
        return sorted(over, key=lambda name: (-tree.share(name), name))

    def _borrowed_promises(self, entry: Entry) -> list[Entry]:
        """Waiting jobs whose promise is on borrowed quota: not in the way of who owns it."""
        tree, told = self.tree, entry.told
        if not tree.owns(told.tenant, entry.amounts):
            return []
        wanted = tree.of_any_model(entry.amounts) if self._models_metered else entry.amounts
        return [
            kept.entry
            for kept in self.reservations.all.values()
            if kept.entry.told.tenant != told.tenant
            and not (kept.claim and kept.start_ms < NEVER)
            and tree.cohort(kept.entry.told.tenant) == tree.cohort(told.tenant)
            and tree.borrows(kept.entry.told.tenant, wanted)
        ]

    def _carry_out(self, entry: Entry, plan: Plan) -> None:
        told = entry.told
        whole = {v.entry.told.job_id: v.entry for v in plan.victims if v.whole}
        parts: dict[str, list[Seat]] = {}
        for victim in plan.victims:
            if not victim.whole and victim.entry.told.job_id not in whole:
                parts.setdefault(victim.entry.told.job_id, []).extend(victim.seats)
        for job_id, seats in parts.items():
            self._shrink(self.running.entries[job_id], seats, told.job_id)
        for job_id, victim_entry in whole.items():
            self._discharge(victim_entry, victim_entry.charged)
            self.running.remove(victim_entry)
            victim_entry.stage = Stage.LEAVING
            victim_entry.beneficiary = told.job_id
            victim_entry.ends_ms = self.now_ms
            self.running.add(victim_entry)
            self._not_hungry(victim_entry)
            mine = victim_entry.told.tenant == told.tenant
            reason = (
                f"priority {told.priority} of {told.job_id} is higher"
                if mine
                else f"{told.tenant} takes back what it lent, for {told.job_id}"
            )
            self._decisions.append(Preempt(job_id, told.job_id, reason))
        self._claim(entry, plan)

    def _claim(self, entry: Entry, plan: Plan) -> None:
        """Its seats are kept from everybody until those who hold them are gone."""
        self._pending.remove(entry)
        entry.stage = Stage.PROMISED
        entry.charged = self._charge_of(entry, plan.seats)
        self._charge(entry, entry.charged)
        self.reservations.add(
            Reservation(
                entry,
                self.now_ms,
                plan.seats,
                reserve.spare_on(plan.seats, plan.at_start, self.nodes),
                self.nodes,
                claim=True,
                tick=self._tick,
            )  # fmt: skip
        )

    # 6. Grow and shrink

    def _maybe_hungry(self, entry: Entry) -> None:
        need = entry.elastic
        if need is None or entry.stage is not Stage.RUNNING:
            return
        if sum(seat.role == need.role for seat in entry.seats) < need.count:
            form = self.nodes.form((replace(need, count=1, minimum=0),))
            self._hungry.setdefault(form, {})[entry.told.job_id] = entry

    def _not_hungry(self, entry: Entry) -> None:
        if entry.elastic is not None:
            form = self.nodes.form((replace(entry.elastic, count=1, minimum=0),))
            hungry = self._hungry.get(form)
            if hungry is not None:
                hungry.pop(entry.told.job_id, None)
                if not hungry:
                    del self._hungry[form]

    def _grow(self) -> None:
        if self._more:
            return
        for form in list(self._hungry):
            if not self.nodes.could(form):
                continue
            for entry in list(self._hungry.get(form, {}).values()):
                if entry.losing or entry.resized_ms + self.rules.cool_down_ms > self.now_ms:
                    continue
                self._grow_one(entry, form)
                if not self.nodes.could(form):
                    break

    def _grow_one(self, entry: Entry, form: Form) -> None:
        need, told = entry.elastic, entry.told
        assert need is not None
        have = sum(seat.role == need.role for seat in entry.seats)
        each = member_amounts(need, self.tree)
        model = self._model_of(entry) if self._models_metered else None
        if model is not None:
            each = self.tree.on_model(each, model)
        extra = need.count - have
        while extra and not self.tree.fits(told.tenant, told.kind, told.user, _times(each, extra)):
            extra //= 2
        if not extra:
            return
        limit = self.reservations.limit(form, entry.ends_ms, self.nodes)
        if model is not None:
            limit = self.nodes.only_model(model, limit)
        seats = self.nodes.extend(entry.form, entry.seats, extra, limit=limit)
        if not seats:
            return
        self.nodes.take(told.needs, seats)
        more = self._charge_of(entry, seats)
        self._charge(entry, more)
        entry.charged = tuple(a + b for a, b in zip(entry.charged, more, strict=True))
        self.reservations.started((need,), seats, entry.ends_ms)
        entry.seats = _in_order(told, entry.seats + seats)
        self.running.changed(entry)
        at = self._started_now.get(told.job_id)
        if at is not None:
            begun = self._decisions[at]
            assert isinstance(begun, Start)
            self._decisions[at] = replace(begun, seats=entry.seats)
        else:
            self._mark_resized(entry)
            self._decisions.append(
                Resize(told.job_id, entry.seats, reason="there is room for more")
            )
        if have + len(seats) >= need.count:
            self._not_hungry(entry)

    def _shrink(self, entry: Entry, seats: Sequence[Seat], beneficiary: str) -> None:
        need = entry.elastic
        assert need is not None
        gone = set(seats)
        each = self._charge_of(entry, seats)
        self._discharge(entry, each)
        entry.charged = tuple(a - b for a, b in zip(entry.charged, each, strict=True))
        entry.losing = tuple(seats)
        entry.seats = tuple(seat for seat in entry.seats if seat not in gone)
        self._mark_resized(entry)
        self._decisions.append(
            Resize(
                entry.told.job_id,
                entry.seats,
                beneficiary=beneficiary,
                reason=f"{len(seats)} of its members make place for {beneficiary}",
            )  # fmt: skip
        )

    def _model_of(self, entry: Entry) -> str | None:
        """The GPU model it runs on, if its quota is kept by model."""
        if not self.tree.by_model(entry.told.tenant):
            return None
        for seat in entry.seats:
            if seat.gpus:
                return self.nodes.offers[self.nodes.index[seat.node]].gpu_model
        return None

    def _mark_resized(self, entry: Entry) -> None:
        entry.resized_ms = self.now_ms
        heapq.heappush(self._rested, self.now_ms + self.rules.cool_down_ms)

    # Charging

    def _charge(self, entry: Entry, amounts: Amounts) -> None:
        told = entry.told
        self.tree.charge(told.tenant, told.kind, told.user, amounts)
        self._pending.moved(told.tenant)

    def _discharge(self, entry: Entry, amounts: Amounts, *, quiet: bool = False) -> None:
        told = entry.told
        self.tree.discharge(told.tenant, told.kind, told.user, amounts)
        self._pending.moved(told.tenant)
        if not quiet:
            self._pending.lowered(told.tenant)

    def _charge_of(self, entry: Entry, seats: Sequence[Seat]) -> Amounts:
        """What these seats cost, by GPU model where models are metered."""
        if not self._models_metered and entry.elastic is None:
            return entry.amounts
        wants = {need.role: need for need in entry.told.needs}
        of: dict[str, int] = {"gpus": 0, "cpus": 0, "memory": 0}
        for seat in seats:
            need = wants[seat.role]
            gpus = need.gpus * 1000 + need.gpu_milli
            of["gpus"] += gpus
            of["cpus"] += need.cpus_milli
            of["memory"] += need.memory_bytes
            at = self.nodes.index.get(seat.node)
            if gpus and at is not None:
                model = "gpus:" + self.nodes.offers[at].gpu_model
                of[model] = of.get(model, 0) + gpus
        return self.tree.amounts(of)

    def _use_lately(self, entry: Entry, ran_ms: int) -> None:
        """Count use so that older use weighs less, without ever touching what was counted: what
        is used later weighs more. A start counts like a minute."""
        whole, part = divmod(self.now_ms, self.rules.half_life_ms)
        # Counted from the first: a date has thousands of half-lives behind it, and so many bits.
        self._half_lives = whole if self._half_lives is None else self._half_lives
        whole = max(0, whole - self._half_lives)
        scale = _BY_HALF_LIFE + part * _BY_HALF_LIFE // self.rules.half_life_ms
        amount = max(entry.form.gpu_milli, 1) * max(ran_ms, 60_000 if ran_ms == 0 else 0)
        used = (amount * scale // _BY_HALF_LIFE) << whole
        tenant = entry.told.tenant
        self._lately[tenant] = self._lately.get(tenant, 0) + used

    # Order

    def _key(self, entry: Entry) -> Key:
        priority, order_ms, number = entry.rank
        if self.rules.order == "fifo":
            return (0, priority, 0, order_ms, number)
        tenant = entry.told.tenant
        standing = self.tree.standing(tenant, entry.amounts)
        return (standing, priority, self._lately.get(tenant, 0), order_ms, number)

    def _hopeless(self, entry: Entry) -> bool:
        """What is kept for a promise may be used by those that end before it."""
        tree, tenant = self.tree, entry.told.tenant
        if not tree.hopeless(tenant, entry.amounts):
            return False
        kept = [
            k.entry
            for k in self.reservations.all.values()
            if not k.claim and tree.cohort(k.entry.told.tenant) == tree.cohort(tenant)
        ]
        less = entry.amounts
        for other in kept:
            less = tuple(a - b for a, b in zip(less, other.charged, strict=True))
        return not kept or tree.hopeless(tenant, less)

    def _new_pending(self) -> Pending:
        return Pending(
            self._key, lambda tenant: self.tree.cohort(tenant), self._hopeless, self._floor
        )

    def _floor(self, tenant: str) -> int:
        """No job of this tenant has a lower standing now."""
        return 0 if self.rules.order == "fifo" else self.tree.floor(tenant)

    def _entry(self, job: Submit) -> Entry:
        form = self.nodes.form(job.needs, job.level, job.required)
        return Entry(job, form, self.tree, self._tick)

    def queue(self, name: str) -> Queue:
        return self._queues.get(name) or Queue(name)


def _no_less(offer: Offer, before: Offer) -> bool:
    """Whatever had a place on the node has it still."""
    return (
        offer.cpus_milli >= before.cpus_milli
        and offer.memory_bytes >= before.memory_bytes
        and offer.gpus >= before.gpus
        and offer.slots >= before.slots
        and (offer.gpu_model, offer.rack, offer.block, offer.pool)
        == (before.gpu_model, before.rack, before.block, before.pool)
    )


def _class_of(told: Submit) -> tuple[object, ...]:
    """Jobs of one class and form differ in nothing but when they came."""
    return (told.tenant, told.queue, told.kind, told.user, told.priority, told.expected_ms)


def _times(amounts: Amounts, count: int) -> Amounts:
    return tuple(amount * count for amount in amounts)


def _in_order(told: Submit, seats: Sequence[Seat]) -> tuple[Seat, ...]:
    roles = {need.role: number for number, need in enumerate(told.needs)}
    return tuple(sorted(seats, key=lambda seat: (roles[seat.role], seat.index)))


def _may_exchange(mine: Reservation, other: Reservation) -> bool:
    """Nobody loses a promised time by it: a drain, whose time nobody knows, only goes for
    another."""
    if other.start_ms >= NEVER:
        return mine.start_ms >= NEVER
    return other.claim or (not mine.claim and other.start_ms <= mine.start_ms)
