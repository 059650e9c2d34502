"""Those with a promise start when their nodes are ready, and those who were passed for too long
get one."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from windlass.scheduler.allowance import Allowance
from windlass.scheduler.aside import Aside
from windlass.scheduler.books import Books
from windlass.scheduler.entries import Entry, Stage, alike
from windlass.scheduler.events import NEVER
from windlass.scheduler.promises import Promises
from windlass.scheduler.reserve import Reservation
from windlass.scheduler.seating import Seating
from windlass.scheduler.starting import Starting
from windlass.scheduler.starved import Starved

_ASK_AGAIN_MS = 1000
"""After so long, one that starves and for which nothing could be kept is looked at again."""


class Promised:
    def __init__(
        self,
        books: Books,
        allowance: Allowance,
        aside: Aside,
        seating: Seating,
        promises: Promises,
        starting: Starting,
        starved: Starved,
    ) -> None:
        self._books = books
        self._allowance = allowance
        self._aside = aside
        self._seating = seating
        self._promises = promises
        self._starting = starting
        self._starved = starved

    def recall(self) -> None:
        """What was promised before a restart."""
        self._promises.recall()

    def mark_late(self) -> list[Entry]:
        """Who runs past the end that was counted on is thought to run as long again."""
        books = self._books
        if not books.reservations.all or books.running.first_end_ms() >= books.now_ms:
            return []
        return books.running.overran(books.now_ms)

    def start(self, late: Sequence[Entry]) -> None:
        """Start whom it can be kept to; promise anew whose time has passed."""
        books = self._books
        if not books.reservations.all:
            return
        kept_all = books.reservations.in_turn()
        due = [k for k in kept_all if k.start_ms <= books.now_ms and not k.claim]
        if books.freed or due:
            while self._start_ready(kept_all):
                pass
        moved = False
        for kept in due:
            job_id = kept.entry.told.job_id
            if kept.start_ms < books.now_ms and books.reservations.all.get(job_id) is kept:
                names = ", ".join(entry.told.job_id for entry in late[:3])
                self._promises.make_again(
                    kept,
                    f"{names} ran past its time" if late else "what it counted on is still used",
                )
                moved = True
        if moved:  # others may start early on what was kept for them
            while self._start_ready(books.reservations.in_turn()):
                pass

    def _start_ready(self, kept_all: Sequence[Reservation]) -> bool:
        """True: one started elsewhere than planned, so that others may have a second look."""
        books = self._books
        refused = again = False
        for number, kept in enumerate(kept_all):
            entry = kept.entry
            if books.reservations.all.get(entry.told.job_id) is not kept:
                continue
            hopeful = kept.start_ms >= NEVER and entry.hopes < books.hopes
            if kept.seats and not hopeful and not books.nodes.could(entry.form):
                continue
            passing = self._seating.outranks_a_promise(entry)
            due = kept.start_ms <= books.now_ms and not kept.claim
            barred = not due and kept.start_ms < NEVER
            if barred and books.bars.holds_for(kept, books.now_ms, passing=passing):
                refused = True
                continue
            lawful = self._allowance.promised(kept, kept_all[number + 1 :])
            if not lawful:
                continue
            seats = self._seating.seats_for(entry, own=kept, lawful=lawful)
            if seats is not None:
                planned, entry = entry, self._first_alike(kept)
                self._promises.drop(entry.told.job_id, starts=True)
                if planned is not entry:
                    self._promises.exchanged(planned)
                self._starting.start(entry, seats, "its turn: it had a reservation")
                again = again or refused
                continue
            refused = True
            if not kept.seats:
                self._promises.drop(entry.told.job_id)
                self._keep_nodes_too(entry)
            elif hopeful:
                self._promises.make_sooner(kept)
            elif not books.models_metered:
                books.bars.put_up_for(kept, books.now_ms, passing=passing)
        return again

    def _first_alike(self, kept: Reservation) -> Entry:
        """What is ready is taken by the first of those that differ in nothing and have something
        kept for them; they exchange it."""
        books = self._books
        mine, first = kept, kept
        for other in books.reservations.all.values():
            if (
                other.entry.rank < first.entry.rank
                and alike(other.entry, mine.entry)
                and _may_exchange(mine, other)
            ):
                first = other
        if first is mine:
            return mine.entry
        one, two = mine.entry, first.entry
        for leaving in books.running.entries.values() if mine.claim or first.claim else ():
            if leaving.beneficiary in (one.told.job_id, two.told.job_id):
                mirrored = leaving.beneficiary == one.told.job_id
                leaving.beneficiary = (two if mirrored else one).told.job_id
        books.reservations.exchange(mine, first)
        books.bars.exchanged()
        return two

    # Those who were passed for too long

    def promise_starving(self) -> None:
        """They have what they wait for kept for them: nodes, or their quota."""
        books, heap = self._books, self._books.starving
        while heap and heap[0][0] <= books.now_ms:
            _, number, job_id = heapq.heappop(heap)
            entry = books.waiting.get(job_id)
            if entry is None or entry.told.number != number or entry.lane is None:
                continue
            if entry.lane.booth.group.form is not None:
                books.starves(entry)
        if books.starved and not self._full():
            for tenant in sorted(books.starved, key=lambda tenant: books.starved[tenant][0][0]):
                self._keep_for_some(tenant)

    def _keep_for_some(self, tenant: str) -> None:
        """For the tenant's first, and then for the next; quota for one at a time."""
        books = self._books
        for _, entry in list(books.starved[tenant]):
            if self._full() or entry.asked_ms > books.now_ms:
                return
            if entry.lane is None:
                books.starves_no_more(entry)
            elif self._aside.nowhere(entry) or self._starved.kept_before(entry):
                continue
            elif not self._allowance.has_quota(entry):
                if not self._keeps_quota(tenant):
                    self._promises.keep_quota(entry)
                return
            elif not self._keep_nodes(entry):
                entry.asked_ms = books.now_ms + _ASK_AGAIN_MS
                return

    def _keep_nodes(self, entry: Entry) -> bool:
        books, seating = self._books, self._seating
        seats = seating.seats_for(entry) if seating.may_fit(entry) else None
        if seats is not None:
            books.pending.remove(entry)
            self._starting.start(entry, seats, "its turn: it waited long")
            return True
        return self._promises.make(entry, starving=True)

    def _full(self) -> bool:
        """No more is kept for anybody, however long it waited."""
        return len(self._books.reservations.all) >= 2 * self._books.rules.reservations

    def _keeps_quota(self, tenant: str) -> bool:
        return any(
            kept.entry.told.tenant == tenant and not kept.seats
            for kept in self._books.reservations.all.values()
        )

    def let_go_when_empty(self) -> bool:
        """Nobody runs, and nobody of those that have something kept for them could start: each
        has what another lacks. All of it is let go, and everybody queues up in order."""
        books = self._books
        if books.running.entries or books.more or not books.reservations.all:
            return False
        for kept in list(books.reservations.all.values()):
            if kept.start_ms < NEVER and kept.start_ms > books.now_ms:
                continue  # it has a time, and waits for it
            self._promises.give_up(kept)
            kept.entry.asked_ms = books.now_ms + _ASK_AGAIN_MS  # or it had it back at once
        return True

    def _keep_nodes_too(self, entry: Entry) -> None:
        """There is quota for it now: nodes are kept for it as well."""
        entry.stage = Stage.WAITING
        if not self._promises.make(entry, starving=True):
            self._promises.keep_quota(entry)


def _may_exchange(mine: Reservation, other: Reservation) -> bool:
    """Nobody loses a promised time by it: a drain, whose time nobody knows, only goes for
    another."""
    if other.start_ms >= NEVER:
        return mine.start_ms >= NEVER
    return other.claim or (not mine.claim and other.start_ms <= mine.start_ms)
