"""The scheduler's core: events in, decisions out.

No clock, no thread, no I/O, no randomness: the same events give the same decisions, in the server
from a loop, in the simulator from a heap. It is a cache of what the driver told; a restarted
driver builds it anew by telling all again.

One tick (`apply`):

    1. hear        the events; free what was released; wake who may be helped by it    hearing
    2. late        who runs past the end that was counted on is thought to run         promised
                   as long again
    3. promised    start those with a reservation whose nodes are ready; what came     promised
                   too late for its time is promised anew
    4. starving    who was passed for too long has nodes or quota kept for it          promised
    5. waiting     the best of those that fit, again and again: quota, place,          waiting
                   charge, start; one that does not fit may have others give way
                   (giving_way), and gets a promise before others pass it (promises);
                   who was refused, or owns what others borrow, asks again (taking_back)
    6. grow        elastic gangs, with what is left                                    elastic

All steps share one set of books. May it be charged? is asked of `allowance`, where may it sit? of
`seating`.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from windlass.scheduler import why
from windlass.scheduler.allowance import Allowance
from windlass.scheduler.aside import Aside
from windlass.scheduler.books import Books
from windlass.scheduler.elastic import Elastic
from windlass.scheduler.entries import Entry, Stage
from windlass.scheduler.events import (
    NEVER,
    REASONS,
    Decision,
    Event,
    Promise,
    Reason,
    Rules,
    Seat,
    Submit,
    Used,
)
from windlass.scheduler.giving_way import GivingWay
from windlass.scheduler.hearing import Hearing
from windlass.scheduler.nodes import Nodes
from windlass.scheduler.promised import Promised
from windlass.scheduler.promises import Promises
from windlass.scheduler.quota import Tree
from windlass.scheduler.reserve import Reservations
from windlass.scheduler.running import Running
from windlass.scheduler.seating import Seating
from windlass.scheduler.starting import Starting
from windlass.scheduler.starved import Starved
from windlass.scheduler.taking_back import TakingBack
from windlass.scheduler.waiting import Waiting


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
        books = self.books = Books(rules or Rules())
        allowance = self.allowance = Allowance(books)
        seating = self.seating = Seating(books, allowance)
        aside = Aside(books, allowance)
        starved = self._starved = Starved(books, allowance, aside)
        promises = self._promises = Promises(books, allowance, aside)
        elastic = self._elastic = Elastic(books)
        starting = Starting(books, seating, promises, elastic)
        giving_way = self._giving_way = GivingWay(
            books, allowance, seating, promises, starting, elastic
        )
        self._hearing = Hearing(books, allowance, aside, promises, giving_way, elastic)
        self._promised = Promised(books, allowance, aside, seating, promises, starting, starved)
        taking_back = self._taking_back = TakingBack(books, allowance, giving_way)
        self._waiting = Waiting(
            books, allowance, aside, seating, promises, starting, giving_way, taking_back, starved
        )  # fmt: skip

    def apply(self, events: Sequence[Event], now_ms: int) -> list[Decision]:
        """One tick: take the events in, answer with what to do now. Every event may be told
        again. Time never goes back."""
        books, hearing = self.books, self._hearing
        books.tick += 1
        books.now_ms = max(books.now_ms, now_ms)
        books.decisions, books.started_now = [], {}
        books.more, books.work = False, 0
        books.stirred += bool(events)
        if not self._starts_at_once(events):
            for event in events:
                hearing.hear(event)
            hearing.settle()
            self._giving_way.adopt_claims()
            self._promised.recall()
        if books.pending.groups or books.reservations.all:
            self._look_at_all()
        else:
            self._promised.promise_starving()
            self._waiting.rest(hearing.came)
        if not books.more:
            self._elastic.grow()
            books.more = self._waiting.look_for_other_firsts()
        if books.freed or books.decisions:
            books.stirred += 1
            self._taking_back.note()
        books.freed = books.more
        books.bars.forget_read()
        if not books.more:
            self._promises.tell_taken_back()
        return books.decisions

    def _starts_at_once(self, events: Sequence[Event]) -> bool:
        """An idle cluster's usual tick: one job comes, nobody waits, and it fits. It need not
        queue up first."""
        if len(events) != 1 or type(events[0]) is not Submit or self._giving_way.expects_somebody:
            return False
        return self._waiting.start_at_once(events[0], self._hearing.came)

    def _look_at_all(self) -> None:
        self._promised.start(self._promised.mark_late())
        self._promised.promise_starving()
        if self.books.again:  # a promise was passed by one that starved: others may be next
            self._promised.start([])
        self._look_at_the_waiting()
        if self._promised.let_go_when_empty():
            self._promised.start([])
            self._look_at_the_waiting()

    def _look_at_the_waiting(self) -> None:
        came = self._hearing.came
        self._waiting.start(came)
        while self.books.again:
            self._promised.start([])
            self._waiting.start(came)

    def next_ms(self) -> int | None:
        """When to call `apply` again though nothing is heard; None: no need."""
        books, now_ms = self.books, self.books.now_ms
        if books.more:
            return now_ms
        due = self._taking_back.next_ms()
        while books.starving and books.starving[0][2] not in books.waiting:
            heapq.heappop(books.starving)
        if books.starving:
            due = min(due, books.starving[0][0])
        for reservation in books.reservations.all.values():
            if not reservation.claim:
                start_ms = reservation.start_ms
                due = min(due, start_ms if start_ms > now_ms else start_ms + 1)
        rested_ms = self._elastic.next_ms(now_ms)
        if rested_ms is not None:
            due = min(due, rested_ms)
        return None if due >= NEVER else max(due, now_ms + 1)

    # What others ask

    def why(self, job_id: str) -> Reason | None:
        """Why a job waits; None when it does not wait here."""
        entry = self.waiting.get(job_id)
        return None if entry is None else why.reason(self, entry)

    def line(self, queue: str = "") -> list[str]:
        """The jobs that wait (in one queue), in the order in which they would be looked at."""
        kept = [r.entry for r in self.reservations.all.values()]
        idle = [e for e in self.waiting.values() if e.stage is Stage.WAITING and e.lane is None]
        in_lanes = self.books.pending.in_order()
        entries = [*kept, *in_lanes, *sorted(idle, key=lambda e: e.rank)]
        return [e.told.job_id for e in entries if queue in ("", e.told.queue)]

    def first_of(self, queue: str) -> Entry | None:
        """Whom the others of a strict queue wait for."""
        kept = [k.entry for k in self.reservations.all.values() if k.entry.told.queue == queue]
        first = min(kept, key=lambda e: e.rank, default=None)
        return first or self.books.pending.first_of(queue)

    def starved_before(self, entry: Entry) -> Entry | None:
        """Whom it leaves its quota to."""
        return self._starved.before(entry)

    def would_wait(self, job: Submit) -> Reason | None:
        """Why such a job would wait, were it submitted; None: it would start now."""
        entry, queue = self.books.entry(job), self.books.queue(job.queue)
        if queue.paused:
            return Reason("paused", f"queue {job.queue} is paused")
        told = why.reason(self, entry)
        if not self.allowance.has_quota(entry) or self.starved_before(entry) is not None:
            return told
        if queue.policy == "strict" and self.first_of(job.queue) is not None:
            return told
        if self.seating.seats_for(entry) is not None:
            return None
        if told.code == "dispatching":  # there is room, and somebody else is to have it
            return Reason("waiting-reservation", REASONS["waiting-reservation"])
        return told

    def never_fits(self, job: Submit) -> str | None:
        """Why such a job could not start even if nobody else were there; None when it could."""
        return why.never(self, self.books.entry(job))

    def promise(self, job_id: str) -> Promise | None:
        """What a waiting job was promised; None: nothing, or nobody knows when."""
        kept = self.reservations.all.get(job_id)
        if kept is None or kept.start_ms >= NEVER:
            return None
        return Promise(job_id, kept.start_ms, tuple(kept.names))

    def used(self) -> list[Used]:
        """What tenants used lately, of those that used anything since this was last asked: for
        the core after a restart."""
        return self.books.used()

    def holdings(self) -> Mapping[str, Holding]:
        return {
            job_id: Holding(
                entry.told, entry.seats, entry.started_ms, entry.stage is Stage.LEAVING,
                entry.losing,
            )
            for job_id, entry in self.running.entries.items()
        }  # fmt: skip

    @property
    def now_ms(self) -> int:
        return self.books.now_ms

    @property
    def rules(self) -> Rules:
        return self.books.rules

    @property
    def nodes(self) -> Nodes:
        return self.books.nodes

    @property
    def tree(self) -> Tree:
        return self.books.tree

    @property
    def running(self) -> Running:
        return self.books.running

    @property
    def reservations(self) -> Reservations:
        return self.books.reservations

    @property
    def waiting(self) -> Mapping[str, Entry]:
        """All that do not hold seats."""
        return self.books.waiting
