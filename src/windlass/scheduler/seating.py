"""Where may a job sit now, leaving alone what is kept for others? And who surely may not?"""

from __future__ import annotations

from collections.abc import Sequence

from windlass.scheduler.allowance import Allowance, Models
from windlass.scheduler.books import Books
from windlass.scheduler.entries import Entry
from windlass.scheduler.events import Seat
from windlass.scheduler.nodes import Form
from windlass.scheduler.pending import ENDLESS, Group
from windlass.scheduler.ready import Ready
from windlass.scheduler.reserve import Reservation


class Seating:
    def __init__(self, books: Books, allowance: Allowance) -> None:
        self._books = books
        self._allowance = allowance

    def seats_for(
        self,
        entry: Entry,
        own: Reservation | None = None,
        lawful: Sequence[Models] | None = None,
    ) -> tuple[Seat, ...] | None:
        """Seats it may have now. `own`: what is kept for it. `lawful`: on these GPU models; not
        told: on those that it has quota for."""
        if not self._books.models_metered:
            return self._seats_on(entry, own, None)
        best: tuple[Seat, ...] | None = None
        for models in self._allowance.models_for(entry, own) if lawful is None else lawful:
            seats = self._seats_on(entry, own, models)
            if seats is not None and (best is None or self._nearer(entry.form, seats, best)):
                best = seats
        return best

    def _nearer(self, form: Form, seats: Sequence[Seat], others: Sequence[Seat]) -> bool:
        """Whether the gang is together at the level it prefers with these, not with those."""
        domains = self._books.nodes.domains_of
        return len(domains(form.level, seats)) == 1 < len(domains(form.level, others))

    def _seats_on(
        self, entry: Entry, own: Reservation | None, models: Models
    ) -> tuple[Seat, ...] | None:
        nodes, kept = self._books.nodes, self._books.reservations
        now_ms = self._books.now_ms
        end_ms = entry.end_if_started(now_ms)
        passing = [] if own is None else kept.own_and_drains_after(own)
        if self.outranks_a_promise(entry):
            passing += [other for other in kept.all.values() if self.may_pass(entry, other)]
        seats = nodes.place(entry.form, models=models)
        if seats is None:
            return None
        if not kept.trespass(seats, end_ms, passing):
            return seats
        limit = kept.limit_now(entry.form, end_ms, nodes, passing)
        if limit is None:
            return seats
        if own is not None and own.start_ms <= now_ms:
            # Its time has come: what it was promised is there beside what others were. Before
            # that it may only have what nobody counts on. A share of another device of the same
            # node might be one that others count on whole.
            question = Ready(kept, nodes, self._books.running, now_ms, passing)
            if entry.shares and question.all_of(own):
                return own.seats
            limit = question.with_its_own(own, limit)
        return nodes.place(entry.form, limit=limit, models=models)

    def may_fit(self, entry: Entry) -> bool:
        """False: it surely finds no seats now."""
        return self._books.nodes.could(entry.form) and not self.kept_from(entry)

    def kept_from(self, entry: Entry) -> bool:
        """Another of this form was found to have no seats that ends no later than this one, and
        nothing has changed since that could help it; what a job must leave alone only grows with
        its end."""
        books = self._books
        return books.bars.holds(
            entry.form, entry.told.expected_ms, books.now_ms,
            passing=self.outranks_a_promise(entry),
        )  # fmt: skip

    def all_kept_from(self, source: Group | Form) -> bool:
        """Nobody of this group finds seats now, or nobody of this form that runs for long; those
        that have just come aside, who are looked at anyway."""
        form = source.form if isinstance(source, Group) else source
        if form is None:
            return False
        least = None
        if isinstance(source, Group) and source.bucket != ENDLESS:
            least = 1 << source.bucket >> 1
        books = self._books
        return not books.nodes.could(form) or books.bars.holds(
            form, least, books.now_ms, passing=False
        )

    def outranks_a_promise(self, entry: Entry) -> bool:
        books = self._books
        if entry.heard != books.tick:
            return False
        if entry.told.priority <= books.reservations.lowest_priority():
            return False
        return any(self.may_pass(entry, kept) for kept in books.reservations.all.values())

    def may_pass(self, entry: Entry, kept: Reservation) -> bool:
        """A job of higher priority that comes after the promise was made may pass it, if it can
        start at once."""
        return (
            entry.heard == self._books.tick
            and not kept.claim
            and entry.told.priority > kept.entry.told.priority
            and entry.heard > kept.made
        )
