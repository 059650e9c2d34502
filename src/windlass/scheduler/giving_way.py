"""Some are told to end so that another can start, which gets a claim on what they leave."""

from __future__ import annotations

import heapq

from windlass.scheduler import plans
from windlass.scheduler.allowance import Allowance
from windlass.scheduler.books import Books
from windlass.scheduler.columns import Ints
from windlass.scheduler.elastic import Elastic
from windlass.scheduler.entries import Entry, Stage, alike
from windlass.scheduler.events import NEVER, Preempt, Seat
from windlass.scheduler.preempt import Plan, Planner
from windlass.scheduler.promises import Promises
from windlass.scheduler.reserve import Reservation
from windlass.scheduler.seating import Seating
from windlass.scheduler.starting import Starting


class GivingWay:
    def __init__(
        self,
        books: Books,
        allowance: Allowance,
        seating: Seating,
        promises: Promises,
        starting: Starting,
        elastic: Elastic,
    ) -> None:
        self._books = books
        self._allowance = allowance
        self._seating = seating
        self._promises = promises
        self._starting = starting
        self._elastic = elastic
        self.refused: dict[str, Entry] = {}
        """Those that nobody could be told to end for."""
        self.later: list[tuple[int, int, str]] = []
        """When somebody has run for long enough whom one of these asked for, as a heap."""
        self._orphans: dict[str, list[Entry]] = {}
        """After a restart: those that are ending, by the job they make place for."""

    def make_place_for(self, entry: Entry) -> bool:
        """Tell others to end for it, if that is lawful and enough. What is kept for it, if it
        only waits for a promise, is its own."""
        books, rules, told = self._books, self._books.rules, entry.told
        if not rules.preemption or self._asked_in_vain(entry):
            return False
        if self._behind_its_like(entry):
            self.put_off(entry)
            return False
        own = books.reservations.all.get(told.job_id)
        with self._allowance.without([] if own is None else [entry]):
            borrowers = self._allowance.borrowers(entry)
            if not (
                borrowers
                or books.running.elastic
                or books.running.lowest_priority(told.tenant) < told.priority
            ):
                return False
            plan, later_ms = self._plan(entry, borrowers, own)
        if plan is None:
            self.put_off(entry, later_ms)
            return False
        self._promises.drop(told.job_id)
        self._carry_out(entry, plan)
        books.freed = books.reordered = True
        if own is not None or rules.quotas or rules.caps:
            books.again = True  # there is more for others: nodes that were its own, or quota
        kept = books.reservations.all[told.job_id]
        seats = self._seating.seats_for(entry, own=kept)
        if seats is not None:  # it was short of quota alone, and has it now
            self._promises.drop(told.job_id, starts=True)
            self._starting.start(entry, seats, "its turn")
        return True

    def _behind_its_like(self, entry: Entry) -> bool:
        """One that came before it and differs in nothing waits for its promise: it asks first."""
        form, rank = entry.form, entry.rank
        for kept in self._books.reservations.all.values():
            other = kept.entry
            if other.form is form and not kept.claim and other.rank < rank and alike(other, entry):
                return True
        return False

    def _asked_in_vain(self, entry: Entry) -> bool:
        """It asked a moment ago, or nothing has changed since."""
        return entry.asked_again_ms > self._books.now_ms or self.stands_as_then(entry)

    def stands_as_then(self, entry: Entry) -> bool:
        """It was refused, and nothing has changed since."""
        return entry.refused is not None and entry.refused == self._stand()

    def put_off(self, entry: Entry, later_ms: int = NEVER) -> None:
        """Nobody can be told to end for it before things stand otherwise, or before then."""
        books, told = self._books, entry.told
        entry.refused = self._stand()
        entry.asked_again_ms = books.now_ms + max(1000, books.rules.min_run_ms // 4)
        self.refused[told.job_id] = entry
        if later_ms < NEVER:
            due = max(later_ms, entry.asked_again_ms)
            heapq.heappush(self.later, (due, told.number, told.job_id))

    def _stand(self) -> tuple[int, int]:
        return (self._books.stirred, len(self._books.decisions))

    def _plan(
        self, entry: Entry, borrowers: list[str], own: Reservation | None
    ) -> tuple[Plan | None, int]:
        """And when to ask again, if there is none."""
        books = self._books
        with self._allowance.without(self._allowance.borrowed_promises(entry)):
            # As if it had no end: nobody knows when those that are told to end will have done so.
            passing = [] if own is None else [own]

            def limit() -> Ints | None:
                return books.reservations.limit(entry.form, NEVER, books.nodes, passing)

            def most_on(node: int) -> int:
                name = books.nodes.names[node]
                return books.reservations.most_at(entry.form, name, NEVER, passing)

            # What is taken back from borrowers is not borrowed in its turn.
            ways = (borrowers and self._allowance.owned_ways(entry)) or self._allowance.ways(entry)
            planner = Planner(
                entry, books.nodes, books.running, books.tree, books.rules, books.now_ms, limit,
                most_on, ways, self._allowance.wanted(entry), books.charge_of,
            )  # fmt: skip
            plan = planner.plan(entry.told.tenant in books.reclaims_any, borrowers)
            return plan, planner.later_ms

    def _carry_out(self, entry: Entry, plan: Plan) -> None:
        books, told = self._books, entry.told
        whole = {v.entry.told.job_id: v.entry for v in plan.victims if v.whole}
        parts: dict[str, list[Seat]] = {}
        for victim in plan.victims:
            if not victim.whole and victim.entry.told.job_id not in whole:
                parts.setdefault(victim.entry.told.job_id, []).extend(victim.seats)
        for job_id, seats in parts.items():
            self._elastic.shrink(books.running.entries[job_id], seats, told.job_id)
        for job_id, leaving in whole.items():
            books.discharge(leaving, leaving.charged)
            books.running.remove(leaving)
            leaving.stage = Stage.LEAVING
            leaving.beneficiary = told.job_id
            leaving.ends_ms = books.now_ms
            books.running.add(leaving)
            self._elastic.forget(leaving)
            mine = leaving.told.tenant == told.tenant
            reason = (
                f"priority {told.priority} of {told.job_id} is higher"
                if mine
                else f"{told.tenant} takes back what it lent, for {told.job_id}"
            )
            books.decisions.append(Preempt(job_id, told.job_id, reason))
        self._claim(entry, plan)

    def _claim(self, entry: Entry, plan: Plan) -> None:
        """Its seats are kept from everybody until those who hold them are gone."""
        books = self._books
        books.pending.remove(entry)
        books.starves_no_more(entry)
        entry.stage = Stage.PROMISED
        entry.charged = books.charge_of(entry, plan.seats)
        books.charge(entry, entry.charged)
        books.reservations.add(
            Reservation(
                entry,
                books.now_ms,
                plan.seats,
                plan.spare,
                books.nodes,
                claim=True,
                tick=books.tick,
            )
        )

    # After a restart

    @property
    def expects_somebody(self) -> bool:
        """Some are ending for a job that was not told of yet."""
        return bool(self._orphans)

    def restored(self, leaving: Entry, beneficiary: str) -> None:
        """This one is ending, to make place for that job."""
        self._orphans.setdefault(beneficiary, []).append(leaving)

    def adopt_claims(self) -> None:
        """Those that are ending make place for somebody; it gets its claim."""
        books = self._books
        if not self._orphans:
            return
        orphans, self._orphans = self._orphans, {}
        for job_id, leaving in orphans.items():
            entry = books.waiting.get(job_id)
            leaving = [e for e in leaving if e.told.job_id in books.running.entries]
            if entry is None:
                if leaving:
                    self._orphans[job_id] = leaving  # it may still be told of
                continue
            if entry.stage is not Stage.WAITING or entry.paused:
                continue
            if not self._allowance.has_quota(entry):
                continue  # the rules were changed meanwhile: it waits like all others
            self._adopt(entry, leaving)

    def _adopt(self, entry: Entry, leaving: list[Entry]) -> None:
        books = self._books
        columns = books.nodes.now.copy()
        books.running.held.shift(columns, leaving, 1)
        limit = books.reservations.limit(entry.form, NEVER, books.nodes)
        metered = books.models_metered
        for models in self._allowance.models_for(entry, None) if metered else [None]:
            seats = books.nodes.place(entry.form, columns=columns, limit=limit, models=models)
            if seats is not None:
                columns.take(entry.told.needs, seats)
                spare = plans.spare_on(seats, columns, books.nodes)
                self._claim(entry, Plan(seats, spare))
                return
