"""Elastic gangs: they start at their fewest members, take what is left when all others have been
looked at, and give it back first. At most one resize of a gang in a cool-down."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace

from windlass.scheduler.books import Books
from windlass.scheduler.columns import Ints
from windlass.scheduler.entries import Entry, Stage, member_amounts
from windlass.scheduler.events import Need, Resize, Seat, Start, Submit
from windlass.scheduler.hunger import AWAKE, LOSING, PLACE, QUOTA, Hunger, Hungry, Line
from windlass.scheduler.nodes import Form
from windlass.scheduler.quota import Amounts


class Elastic:
    def __init__(self, books: Books) -> None:
        self._books = books
        self._hunger = Hunger(books)
        self._rested: list[int] = []
        """When somebody may be resized again, as a heap."""

    def next_ms(self, now_ms: int) -> int | None:
        """When somebody may grow that may not now; None: nobody."""
        rested = self._rested
        while rested and rested[0] <= now_ms:
            heapq.heappop(rested)
        return rested[0] if rested and self._hunger else None

    def note(self, entry: Entry) -> None:
        """It runs: remember it if it would take more members."""
        need = entry.elastic
        if need is None or entry.stage is not Stage.RUNNING:
            return
        if _count(entry, need) < need.count:
            self._hunger.note(entry, need)
        else:
            self._hunger.forget_refusal(entry)

    def forget(self, entry: Entry) -> None:
        """It takes no more members."""
        if entry.elastic is not None:
            self._hunger.forget(entry)

    def follow_rules(self) -> None:
        """They are others: everybody may be asked."""
        self._hunger.wake_all()

    def grow(self) -> None:
        """Those that may be helped by what is free, in order."""
        could, hunger = self._books.nodes.could, self._hunger
        for line, asked in hunger.worth_asking():
            mark = line.mark
            for hungry in asked:
                if not self._may_grow(hungry, line.form):
                    continue
                self._grow_one(hungry, line.form)
                if not could(line.form):
                    hunger.nothing_left(line)
                    break
                if hunger.mark() != mark:  # what is kept has moved: those behind it may fit
                    self._grow_others(line, hungry)
                    break

    def _grow_others(self, line: Line, last: Hungry) -> None:
        """The same for all behind that one."""
        for hungry in [one for one in line.hungry.values() if one.number > last.number]:
            if hungry.state not in (AWAKE, PLACE) or not self._may_grow(hungry, line.form):
                continue
            self._grow_one(hungry, line.form)
            if not self._books.nodes.could(line.form):
                self._hunger.nothing_left(line)
                break

    def _may_grow(self, hungry: Hungry, form: Form) -> bool:
        """False: it rests, or is still refused; nobody asks it before that may have changed."""
        books, entry = self._books, hungry.entry
        if entry.losing:
            self._hunger.sleep(hungry, LOSING)
            return False
        rested_ms = entry.resized_ms + books.rules.cool_down_ms
        if rested_ms > books.now_ms:
            self._hunger.rest(hungry, rested_ms)
            return False
        if hungry.quota is not None and hungry.quota == self._hunger.quota_now(entry):
            self._hunger.sleep(hungry, QUOTA)
            return False
        if self._still_placeless(hungry, form):
            self._hunger.sleep(hungry, PLACE)
            return False
        return True

    def _still_placeless(self, hungry: Hungry, form: Form) -> bool:
        """It found no place, and on no node that has been given something back is there room."""
        books, kept = self._books, self._books.reservations
        if hungry.state == PLACE or hungry.place != self._hunger.mark():
            return False
        log = books.nodes.helped
        room, names = books.nodes.room_now(form), books.nodes.names
        for node in log[hungry.read :]:
            if room(node) and kept.most_at(form, names[node], hungry.entry.ends_ms, ()):
                return False
        hungry.read = len(log)
        return True

    def _grow_one(self, hungry: Hungry, form: Form) -> None:
        books, entry = self._books, hungry.entry
        need, told = entry.elastic, entry.told
        assert need is not None
        have = _count(entry, need)
        model = self._model_of(entry) if books.models_metered else None
        extra = self._extra(entry, need, need.count - have, model)
        hungry.quota = None
        if not extra:
            hungry.quota = self._hunger.quota_now(entry)
            if hungry.quota is not None:
                self._hunger.sleep(hungry, QUOTA)
            return
        limit: Ints | None = books.reservations.limit_now(form, entry.ends_ms, books.nodes, ())
        if model is not None:
            limit = books.nodes.only_model(model, limit)
        seats = books.nodes.extend(entry.form, entry.seats, extra, limit=limit)
        if not seats:
            hungry.place, hungry.read = self._hunger.mark(), len(books.nodes.helped)
            self._hunger.sleep(hungry, PLACE)
            return
        hungry.place = None
        self._hunger.sleep(hungry, AWAKE)
        books.nodes.take(told.needs, seats)
        more = books.charge_of(entry, seats)
        books.charge(entry, more)
        entry.charged = tuple(a + b for a, b in zip(entry.charged, more, strict=True))
        books.reservations.started((need,), seats, entry.ends_ms)
        entry.seats = _in_order(told, entry.seats + seats)
        books.running.changed(entry)
        self._tell_grown(entry)
        if have + len(seats) >= need.count:
            self.forget(entry)

    def _extra(self, entry: Entry, need: Need, extra: int, model: str | None) -> int:
        """So many more there is quota for, roughly."""
        told, tree = entry.told, self._books.tree
        each = member_amounts(need, tree)
        if model is not None:
            each = tree.on_model(each, model)
        if not tree.fits(told.tenant, told.kind, told.user, each):
            return 0
        while extra and not tree.fits(told.tenant, told.kind, told.user, _times(each, extra)):
            extra //= 2
        return extra

    def _tell_grown(self, entry: Entry) -> None:
        books, job_id = self._books, entry.told.job_id
        at = books.started_now.get(job_id)
        if at is not None:
            begun = books.decisions[at]
            assert isinstance(begun, Start)
            books.decisions[at] = replace(begun, seats=entry.seats)
        else:
            self._resized(entry)
            books.decisions.append(Resize(job_id, entry.seats, reason="there is room for more"))

    def shrink(self, entry: Entry, seats: Sequence[Seat], beneficiary: str) -> None:
        """It gives up these seats for somebody; it holds them until it has."""
        books = self._books
        gone = set(seats)
        each = books.charge_of(entry, seats)
        books.discharge(entry, each)
        entry.charged = tuple(a - b for a, b in zip(entry.charged, each, strict=True))
        self._hunger.forget_refusal(entry)
        entry.losing = tuple(seats)
        entry.seats = tuple(seat for seat in entry.seats if seat not in gone)
        self._resized(entry)
        books.decisions.append(
            Resize(
                entry.told.job_id,
                entry.seats,
                beneficiary=beneficiary,
                reason=f"{len(seats)} of its members make place for {beneficiary}",
            )
        )

    def _resized(self, entry: Entry) -> None:
        self.was_resized(entry, self._books.now_ms)

    def was_resized(self, entry: Entry, when_ms: int) -> None:
        """It rests from then on."""
        entry.resized_ms = when_ms
        heapq.heappush(self._rested, when_ms + self._books.rules.cool_down_ms)

    def _model_of(self, entry: Entry) -> str | None:
        """The GPU model it runs on, if its quota is kept by model."""
        nodes = self._books.nodes
        if not self._books.tree.by_model(entry.told.tenant):
            return None
        for seat in entry.seats:
            if seat.gpus:
                return nodes.offers[nodes.index[seat.node]].gpu_model
        return None


def _count(entry: Entry, need: Need) -> int:
    return sum(seat.role == need.role for seat in entry.seats)


def _times(amounts: Amounts, count: int) -> Amounts:
    return tuple(amount * count for amount in amounts)


def _in_order(told: Submit, seats: Sequence[Seat]) -> tuple[Seat, ...]:
    roles = {need.role: number for number, need in enumerate(told.needs)}
    return tuple(sorted(seats, key=lambda seat: (roles[seat.role], seat.index)))
