"""Promises: nodes and quota kept for a job that cannot start yet, from the earliest time at which
it can, made, made anew and dropped."""

from __future__ import annotations

from windlass.scheduler import plans
from windlass.scheduler.allowance import Allowance, Models
from windlass.scheduler.aside import Aside
from windlass.scheduler.books import Books
from windlass.scheduler.columns import Columns
from windlass.scheduler.entries import Entry, Stage, alike
from windlass.scheduler.events import NEVER, Promise, Remember, Seat
from windlass.scheduler.nodes import Form
from windlass.scheduler.reserve import Reservation

_PLAN_AGAIN_MS = 10_000
_WORK = 4
"""It costs as much as so many starts."""


class Promises:
    def __init__(self, books: Books, allowance: Allowance, aside: Aside) -> None:
        self._books = books
        self._allowance = allowance
        self._aside = aside
        self._unplanned: dict[Form, int] = {}
        """Forms for which no time was found, and when to think about it again."""
        self._remembered: list[Remember] = []
        self._told: dict[str, Entry] = {}
        """Those that were told of a start."""

    def make_if_due(self, entry: Entry) -> bool:
        """It is about to be passed: it gets a reservation, if there are any left to give, or if
        it waited so long that it gets one anyway."""
        books, rules = self._books, self._books.rules
        count = len(books.reservations.all)
        starving = entry.told.order_ms + rules.starving_ms <= books.now_ms
        if count >= rules.reservations and not (starving and count < 2 * rules.reservations):
            return False
        if books.queue(entry.told.queue).policy != "backfill" and not starving:
            return False
        if self._unplanned.get(entry.form, -1) > books.now_ms and not starving:
            return False
        return self.make(entry, starving=starving)

    def make(self, entry: Entry, *, starving: bool = False) -> bool:
        """Keep nodes and quota for it, from the earliest time at which it can be done."""
        books = self._books
        found, models = self._plan(entry)
        if found is None and starving:
            found = self._drain(entry, models)
        if found is None:
            self._unplanned[entry.form] = books.now_ms + _PLAN_AGAIN_MS
            return False
        start_ms, seats, spare = found
        if start_ms <= books.now_ms or not self._has_quota_then(entry, start_ms, seats):
            # Not sure enough to start it: what is kept for others may still change places, or
            # they need the quota at that time.
            if not starving:
                self._unplanned[entry.form] = books.now_ms + _PLAN_AGAIN_MS
                return False
            start_ms = NEVER
        self._keep(entry, start_ms, seats, spare)
        books.work += _WORK
        if start_ms < NEVER:
            self._tell_in_turn(entry, entry.why_later)
        return True

    def exchanged(self, entry: Entry) -> None:
        """Its like that came first starts on what was kept for it, and left it its own: those
        between them move up, and are told."""
        kept = self._books.reservations.all.get(entry.told.job_id)
        if kept is not None and not kept.claim and kept.start_ms < NEVER:
            self._tell_in_turn(entry, "")

    def _tell(self, kept: Reservation, why_later: str) -> None:
        entry = kept.entry
        late = kept.start_ms > entry.promised_ms
        slipped = (why_later or "others came before it") if late else ""
        entry.promised_ms, entry.why_later = kept.start_ms, ""
        self._told[entry.told.job_id] = entry
        self._books.decisions.append(
            Promise(entry.told.job_id, kept.start_ms, tuple(kept.names), slipped)
        )

    def tell_taken_back(self) -> None:
        """Who was told of a start, still waits, and has nothing kept for it any more is told."""
        books = self._books
        for job_id, entry in list(self._told.items()):
            if job_id in books.reservations.all:
                continue
            del self._told[job_id]
            if books.waiting.get(job_id) is entry and entry.promised_ms < NEVER:
                why = entry.why_later or "others came before it"
                entry.promised_ms, entry.why_later = NEVER, ""
                books.decisions.append(Promise(job_id, NEVER, (), why))

    def _plan(self, entry: Entry) -> tuple[plans.Found | None, Models]:
        """The earliest start there is quota for, and on which models."""
        books = self._books
        nodes, running, ahead = books.nodes, books.running, books.reservations
        if not books.models_metered:
            return plans.plan(entry, nodes, running, ahead, books.now_ms), None
        ways = self._allowance.ways(entry)
        may_charge = self._allowance.may_charge
        lawful = [models for models, amounts in ways if may_charge(entry, amounts)]
        best: tuple[plans.Found | None, Models] = (None, None)
        for models in lawful or [models for models, _ in ways]:
            found = plans.plan(entry, nodes, running, ahead, books.now_ms, models)
            if best[1] is None or (found and (best[0] is None or found[0] < best[0][0])):
                best = (found, models)
        return best

    def _has_quota_then(self, entry: Entry, start_ms: int, seats: tuple[Seat, ...]) -> bool:
        charged = self._books.charge_of(entry, seats)
        return self._allowance.may_charge(entry, charged, start_ms)

    def _drain(self, entry: Entry, models: Models) -> plans.Found | None:
        """Nobody knows when: nodes to keep new work away from until there is place."""
        nodes, ahead = self._books.nodes, self._books.reservations
        after = ahead.drains_after(entry)
        before = [kept for kept in ahead.all.values() if kept not in after]
        seats = plans.drain(entry, nodes, before, models)
        if seats is None and not any(k.start_ms >= NEVER for k in ahead.all.values()):
            # One at a time may have to wait for those that have something kept for them.
            seats = plans.drain(entry, nodes, (), models)
        if seats is None:
            return None
        columns = nodes.now.copy()
        columns.take(entry.told.needs, seats)
        return NEVER, seats, plans.spare_on(seats, columns, nodes)

    def keep_quota(self, entry: Entry) -> None:
        """Nothing but its quota is kept for it."""
        nodes = self._books.nodes
        self._keep(entry, NEVER, (), plans.spare_on((), nodes.now, nodes))

    def _keep(self, entry: Entry, start_ms: int, seats: tuple[Seat, ...], spare: Columns) -> None:
        """Take it out of its lane; nodes and quota are kept for it from now on. Nobody knows when
        a drain ends, so that it is kept from everybody, like a claim."""
        books = self._books
        books.pending.remove(entry)
        books.starves_no_more(entry)
        entry.stage = Stage.PROMISED
        entry.charged = books.charge_of(entry, seats) if seats else entry.amounts
        books.charge(entry, entry.charged)
        drains = start_ms >= NEVER and bool(seats)
        entry.hopes = books.hopes
        books.reservations.add(
            Reservation(entry, start_ms, seats, spare, books.nodes, claim=drains, tick=books.tick)
        )

    # After a restart

    def remember(self, told: Remember) -> None:
        """It was promised this by another core."""
        self._remembered.append(told)

    def recall(self) -> None:
        """What was promised before a restart is kept from now on; where it cannot be, those who
        had it get the next that there is, before all others."""
        if not self._remembered:
            return
        remembered, self._remembered = self._remembered, []
        lost: list[Entry] = []
        for told in sorted(remembered, key=lambda told: told.made_ms):
            entry = self._books.waiting.get(told.job_id)
            if entry is None:
                continue
            entry.promised_ms, entry.why_later = told.start_ms, "the scheduler was started anew"
            self._told[told.job_id] = entry
            if entry.lane is None or entry.lane.booth.group.form is None:
                continue
            found = self._as_promised(entry, told)
            if found is not None:
                seats, spare = found
                self._keep(entry, told.start_ms, seats, spare)
                entry.why_later = ""
            else:
                lost.append(entry)
        for entry in lost:
            self.make(entry)

    def _as_promised(
        self, entry: Entry, told: Remember
    ) -> tuple[tuple[Seat, ...], Columns] | None:
        """Seats on those nodes at that time, with what they have to spare then."""
        books = self._books
        nodes = books.nodes
        columns = plans.columns_at(told.start_ms, nodes, books.running, books.reservations)
        limit = plans.only_on(told.nodes, nodes)
        # Who ends before it may have been let past, on quota that is kept for it.
        gone = [e for e in books.running.by_end() if e.ends_ms <= told.start_ms]
        with self._allowance.without([e for e in gone if e.stage is Stage.RUNNING]):
            for models, _ in self._allowance.ways(entry):
                seats = nodes.place(entry.form, columns=columns, limit=limit, models=models)
                if seats is not None and self._has_quota_then(entry, told.start_ms, seats):
                    columns.take(entry.told.needs, seats)
                    return seats, plans.spare_on(seats, columns, nodes)
            return None

    def make_sooner(self, kept: Reservation) -> None:
        """Nobody knew when it could start; since then some have ended of whom nobody knew when
        they would."""
        entry = kept.entry
        self.drop(entry.told.job_id)
        entry.stage = Stage.WAITING
        if not self.make(entry, starving=True):
            self._give_up(entry)

    def make_again(self, kept: Reservation, why_later: str) -> None:
        """Plan it anew, on top of what the others were promised."""
        entry, books = kept.entry, self._books
        self.drop(entry.told.job_id)
        if kept.claim and kept.start_ms < NEVER:
            self._give_up(entry)
            return
        entry.stage = Stage.WAITING
        if kept.start_ms < NEVER:
            entry.promised_ms, entry.why_later = kept.start_ms, why_later
        starving = entry.told.order_ms + books.rules.starving_ms <= books.now_ms
        first = self._came_before(entry)
        if first is not None:
            # It came after that was promised, which did not wait for it. Now it is first.
            self._give_up(entry)
            self.make(first, starving=starving)
        elif self._aside.nowhere(entry):
            self._give_up(entry)
        elif not self.make(entry, starving=starving):
            if not self._take_from_like(entry, why_later):
                if starving:
                    self.keep_quota(entry)
                else:
                    self._give_up(entry)
        # Where it is kept now or not at all, something may be another's that was its own.
        self._books.freed = self._books.again = True

    def _came_before(self, entry: Entry) -> Entry | None:
        """One that waits with nothing kept for it, differs in nothing and ranks before it."""
        lane = self._books.pending.lane_of(entry, by_user=self._books.by_user)
        first = None if lane is None else lane.first()
        if first is None or first.rank > entry.rank or not alike(first, entry):
            return None
        return first

    def give_up(self, kept: Reservation) -> None:
        """Keep nothing for it any more; it queues up again."""
        self.drop(kept.entry.told.job_id)
        self._give_up(kept.entry)

    def _give_up(self, entry: Entry) -> None:
        self._books.queue_up(entry)
        self._books.freed = self._books.again = True

    def _tell_in_turn(self, entry: Entry, why_later: str) -> None:
        """It is told what it was promised. Among those that differ from it in nothing, who came
        first starts first: where they would not, they exchange what they were promised."""
        books = self._books
        mine = books.reservations.all.get(entry.told.job_id)
        changed = {} if mine is None else {id(mine): mine}
        alikes = self._promised_like(entry)
        alikes.sort(key=lambda kept: (kept.start_ms, kept.serial))
        for number, kept in enumerate(alikes):
            # Who comes back later than that was promised does not delay it.
            behind = [other for other in alikes[number:] if other.entry.heard <= kept.made]
            first = min(behind, key=lambda kept: kept.entry.rank, default=kept)
            if first is not kept:
                books.reservations.exchange(first, kept)
                books.bars.exchanged()
                changed.update({id(first): first, id(kept): kept})
        for kept in changed.values():
            kept.made = books.tick  # to whom it is kept for now
            self._tell(kept, why_later)

    def _take_from_like(self, entry: Entry, why_later: str) -> bool:
        """Nothing can be promised to it any more: it gets what the last of those that differ from
        it in nothing was promised."""
        books = self._books
        last = max(self._promised_like(entry), key=lambda kept: kept.entry.rank, default=None)
        if last is None or last.entry.rank < entry.rank:
            return False
        other = last.entry
        books.starves_no_more(entry)
        entry.stage, entry.charged = Stage.PROMISED, other.charged
        books.reservations.pass_on(last, entry)
        books.bars.exchanged()
        other.why_later = why_later
        books.queue_up(other)
        self._tell_in_turn(entry, why_later)
        return True

    def _promised_like(self, entry: Entry) -> list[Reservation]:
        return [
            kept
            for kept in self._books.reservations.all.values()
            if not kept.claim and kept.start_ms < NEVER and alike(kept.entry, entry)
        ]

    def drop(self, job_id: str, *, starts: bool = False) -> None:
        """Keep nothing for it any more. `starts`: it is charged as much again at once."""
        books = self._books
        kept = books.reservations.remove(job_id)
        if kept is not None:
            books.bars.removed(kept)
            # Who left things alone for one that nobody knew the time of is looked at again.
            quiet = starts and kept.start_ms < NEVER
            books.discharge(kept.entry, kept.entry.charged, quiet=quiet)
            books.freed = True
