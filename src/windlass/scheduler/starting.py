"""A job starts: seats are taken, quota is charged, the decision is written."""

from __future__ import annotations

from windlass.scheduler.books import Books
from windlass.scheduler.elastic import Elastic
from windlass.scheduler.entries import Entry, Stage
from windlass.scheduler.events import Seat, Start
from windlass.scheduler.promises import Promises
from windlass.scheduler.seating import Seating


class Starting:
    def __init__(
        self, books: Books, seating: Seating, promises: Promises, elastic: Elastic
    ) -> None:
        self._books = books
        self._seating = seating
        self._promises = promises
        self._elastic = elastic

    def start(
        self,
        entry: Entry,
        seats: tuple[Seat, ...],
        reason: str,
    ) -> None:
        """Out of its lane, or with what was kept for it dropped, it starts here."""
        books, told = self._books, entry.told
        books.no_longer_waits(entry)
        entry.stage = Stage.RUNNING
        entry.seats = seats
        entry.started_ms = books.now_ms
        entry.ends_ms = entry.end_if_started(books.now_ms)
        entry.charged = books.charge_of(entry, seats)
        books.nodes.take(told.needs, seats)
        books.charge(entry, entry.charged)
        books.running.add(entry)
        self._pass_promises(entry)
        books.reservations.started(told.needs, seats, entry.ends_ms)
        books.use_lately(entry, 0)
        books.work += 1
        books.started_now[told.job_id] = len(books.decisions)
        books.decisions.append(Start(told.job_id, seats, reason))
        self._elastic.note(entry)

    def _pass_promises(self, entry: Entry) -> None:
        """It came with a higher priority and took what was kept for others: they get a later
        promise. Who was heard of before passes nobody."""
        on = self._books.reservations.on
        if not on or entry.heard != self._books.tick:
            return
        passed = {
            kept.entry.told.job_id: kept
            for seat in entry.seats
            for kept in on.get(seat.node, ())
            if self._seating.may_pass(entry, kept) and kept.binds(entry.ends_ms)
        }
        for kept in passed.values():
            self._promises.make_again(kept, f"{entry.told.job_id} came with a higher priority")
