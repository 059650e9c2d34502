"""The waiting are looked at, the first in order first, as long as somebody may start.

turns ──► first ──► quota? ──► seats? ──► start
            │          no         no
            │          │          └── others give way, or it is promised something
            │          └── others give way, or its lane is parked until there is more
            └── before one that may start: those that rank before it and cannot, to promise
                them something first
"""

from __future__ import annotations

from dataclasses import dataclass

from windlass.scheduler.allowance import Allowance
from windlass.scheduler.aside import Aside
from windlass.scheduler.books import Books
from windlass.scheduler.entries import Entry
from windlass.scheduler.events import NEVER, Submit
from windlass.scheduler.giving_way import GivingWay
from windlass.scheduler.nodes import Form
from windlass.scheduler.pending import Group, Key, Name
from windlass.scheduler.promises import Promises
from windlass.scheduler.seating import Seating
from windlass.scheduler.starting import Starting
from windlass.scheduler.starved import Starved
from windlass.scheduler.taking_back import TakingBack
from windlass.scheduler.turns import FRESH, Source, Turn, Turns

_ATTEMPTS = 1000
"""Jobs looked at in one tick at most; `next_ms` then says to come back at once."""
_WORK = 32
"""The same once so much was decided: what is left is decided a tick later, and what has come
meanwhile is heard first."""
_HEADS = 8
"""Jobs that cannot start looked at in one tick at most, in vain, to promise them something."""
_OLD_MS = 450_000
"""Those that do not fit are looked at as well at least this often."""
_MANY_GROUPS = 24
_MISSES = 64
_ASKING = 32
"""New jobs for which others may be told to end in one tick, past those before them."""


@dataclass(slots=True)
class _Look:
    """One look at the waiting."""

    touched: dict[Form | str, None]
    """Forms and strict queues to which somebody came since they were last looked at."""
    old: bool
    """Those that do not fit are looked at too: it was not done for long."""
    turns: Turns
    attempts: int = 0
    heads: int = _HEADS
    """So many that cannot start may still be looked at in vain."""


class Waiting:
    def __init__(
        self,
        books: Books,
        allowance: Allowance,
        aside: Aside,
        seating: Seating,
        promises: Promises,
        starting: Starting,
        giving_way: GivingWay,
        taking_back: TakingBack,
        starved: Starved,
    ) -> None:
        self._books = books
        self._allowance = allowance
        self._aside = aside
        self._seating = seating
        self._promises = promises
        self._starting = starting
        self._giving_way = giving_way
        self._taking_back = taking_back
        self._starved = starved
        self._first_of: dict[str, Entry] = {}
        """Of each strict queue the one that was looked at last."""
        self._look_for_old_ms = 0

    def start(self, came: list[Entry]) -> None:
        """Start who may be, in order. `came`: those that others may be told to end for, whoever
        is before them; emptied when that was done."""
        books = self._books
        books.again = books.reordered = False
        if not self._start_the_only_one():
            self._start_in_turn()
        if not (books.again or books.more):
            asking = came.copy()
            came.clear()
            self._ask_for_others(asking)
        if not books.more:
            self.look_for_other_firsts()

    def start_at_once(self, job: Submit, came: list[Entry]) -> bool:
        """Nobody waits, and nothing is kept for anybody: what has just come is heard, and starts
        without queueing up. False: that is not so, it is to be heard like all others."""
        books = self._books
        if books.pending.groups or books.freed or books.reservations.all:
            return False
        if books.now_ms >= self._look_for_old_ms or job.job_id in books.waiting:
            return False
        queue = books.queue(job.queue)
        if queue.paused or queue.policy == "strict" or job.job_id in books.running.entries:
            return False
        entry = books.entry(job)
        if not self._seating.may_fit(entry) or books.hopeless(entry):
            return False
        if not self._allowance.has_quota(entry):
            return False
        books.nodes.wanted(entry.form, 1)
        seats = self._seating.seats_for(entry)
        if seats is not None:
            self._starting.start(entry, seats, "its turn")
        else:
            books.waiting[job.job_id] = entry
            books.queue_up(entry)
            came.append(entry)
        return True

    def rest(self, came: list[Entry]) -> None:
        """Nobody waits in a lane, and nothing is kept for anybody."""
        books, pending = self._books, self._books.pending
        books.again = books.reordered = False
        came.clear()
        if books.freed:
            pending.wake_quota_bound()
        if books.freed or pending.touched:
            pending.touched = {}
            if books.now_ms >= self._look_for_old_ms:
                self._look_for_old_ms = books.now_ms + self._often_ms()
        self._taking_back.asking()

    def _often_ms(self) -> int:
        return max(1000, min(self._books.rules.starving_ms // 8, _OLD_MS))

    def _start_in_turn(self) -> None:
        look = self._begin()
        if look is None:
            return
        while look.turns.worth_going_on():
            if self._has_done_enough(look) or not self._next(look):
                break
        self._books.pending.heads.put_back()

    def _start_the_only_one(self) -> bool:
        """Nobody waits but one that has just come, and nothing is kept for anybody: it need not
        be found. False: that is not so, or it does not start; all are looked at in turn."""
        books, pending = self._books, self._books.pending
        if len(pending.groups) != 1 or books.freed or books.reservations.all:
            return False
        if books.now_ms >= self._look_for_old_ms:
            return False
        group = next(iter(pending.groups.values()))
        if group.count != 1 or group.form is None or group.form not in pending.touched:
            return False
        entry = pending.only_of(group)
        if entry is None or not self._seating.may_fit(entry):
            return False
        touched, pending.touched = pending.touched, {}
        if self._look_at(entry, group, passed=False, fresh=True):
            if books.again:
                pending.touched.update(touched)
            return True
        pending.touched = touched
        return False

    def _begin(self) -> _Look | None:
        """None: nobody is worth a look."""
        books, pending = self._books, self._books.pending
        touched, pending.touched = pending.touched, {}
        old = books.now_ms >= self._look_for_old_ms
        if books.freed:
            pending.wake_quota_bound()
        queues, forms = self._worth_a_look(touched)
        if not pending.groups:
            return None
        attempts = 0
        if not books.reservations.all:
            attempts = self._start_in_order(touched)
        turns = Turns(touched)
        for queue in queues:
            group = pending.groups.get(queue)
            least = None if group is None else pending.least(group)
            if group is not None and least is not None:
                turns.add(group, key=least)
        for form in forms:
            if form in pending.forms:
                turns.add(form, fits=books.nodes.could(form))
        return _Look(touched, old, turns, attempts)

    def _worth_a_look(self, touched: dict[Form | str, None]) -> tuple[list[str], list[Form]]:
        """Strict queues and forms of which somebody may start, or may be passed by somebody who
        starts."""
        books, pending = self._books, self._books.pending
        if not books.freed and not touched:
            return [], []
        if books.now_ms >= self._look_for_old_ms:
            self._look_for_old_ms = books.now_ms + self._often_ms()
            return list(books.queues), list(pending.forms)
        new_forms = [form for form in touched if isinstance(form, Form)]
        if not books.freed:
            return [name for name in touched if isinstance(name, str)], new_forms
        could = books.nodes.could
        forms = dict.fromkeys(new_forms + [form for form in pending.forms if could(form)])
        return list(books.queues), list(forms)

    def _has_done_enough(self, look: _Look) -> bool:
        """The others are looked at in another tick. Not before somebody has started: what is
        kept for those that wait may be planned anew again and again."""
        books = self._books
        if books.work >= _WORK and books.started_now:
            self._look_again_at_all(look)
        elif look.attempts >= _ATTEMPTS:
            books.pending.touched.update(look.touched)
        else:
            return False
        books.more = True
        return True

    def _next(self, look: _Look) -> bool:
        """Whoever is first is looked at; False: no more in this look."""
        turns = look.turns
        if self._books.reordered:
            self._books.reordered = False
            turns.forget()
        key, number, source, entry = turns.first()
        fresh = bool(number & FRESH)
        if not (look.old or fresh) and self._seating.all_kept_from(source):
            turns.drop()
            self._add_shorter(look, source)
            return True
        if entry is None or entry.lane is None or self._books.key(entry) > key:
            # Nobody knows yet who it is, it was looked at as a head, or its tenant has started
            # something since.
            found = self._best(source)
            if found is not None:
                turns.set_first(*found)
            else:
                turns.drop()
            return True
        fits = self._seating.may_fit(entry)
        if not (fits or look.old or fresh) and isinstance(source, Group):
            if source.form is None:
                self._first_of[entry.told.queue] = entry
            turns.drop()
            return True
        if fits and self._look_at_a_head(look, key):
            return True
        return self._take(look, entry)

    def _look_at_a_head(self, look: _Look, key: Key) -> bool:
        """One that ranks before that and cannot start is promised something first. False: there
        is none, or all is to be looked at again."""
        books = self._books
        if not look.heads or len(books.reservations.all) >= books.rules.reservations:
            return False
        head = self._next_head(key)
        if head is None:
            return False
        lane = head.lane
        assert lane is not None
        if self._look_at(head, lane.booth.group, passed=True, fresh=False):
            books.pending.heads.push(lane)
        else:
            look.heads -= 1
        return not books.again

    def _take(self, look: _Look, entry: Entry) -> bool:
        """The first, whose turn it is, is looked at; then the next of where it came from."""
        books, turns = self._books, look.turns
        turn = turns.first()
        source = turn[2]
        turns.drop()
        look.attempts += 1
        assert entry.lane is not None
        group = entry.lane.booth.group
        fresh = bool(turn[1] & FRESH)
        goes_on = not books.again and self._look_at(
            entry, group, passed=turns.fitting > 0, fresh=fresh
        )
        if books.again:
            self._look_again_at_all(look)
            return False
        if goes_on:
            self._next_of(look, turn)
        else:  # nothing more of this group in this tick; of this form, what ends sooner
            self._add_shorter(look, source)
        return True

    def _next_of(self, look: _Look, turn: Turn) -> None:
        found = self._best(turn[2])
        if found is not None:
            key, entry = found
            look.turns.put_back(turn, key, entry, fits=self._seating.may_fit(entry))

    def _look_again_at_all(self, look: _Look) -> None:
        books, pending = self._books, self._books.pending
        pending.touched.update(look.touched)
        if look.old:
            self._look_for_old_ms = books.now_ms

    def _add_shorter(self, look: _Look, source: Source) -> None:
        """The groups of a form of which some may start though its first may not."""
        books = self._books
        if isinstance(source, Group):
            return
        least = books.bars.least(source)
        if not books.nodes.could(source):
            return
        for bucket, group in books.pending.forms.get(source, {}).items():
            if 1 << bucket >> 1 < least or least > NEVER:
                look.turns.add(group)

    def _best(self, source: Source) -> tuple[Key, Entry] | None:
        pending = self._books.pending
        if isinstance(source, Group):
            return pending.best(source)
        heads = pending.of_form.get(source)
        return None if heads is None else heads.peek()

    def _next_head(self, before: Key) -> Entry | None:
        """The first of all that surely cannot start now, if it ranks before that."""
        pending = self._books.pending
        pending.wake_quota_bound()
        while (entry := pending.heads.next(before)) is not None:
            if not self._seating.may_fit(entry):
                return entry
        return None

    def _start_in_order(self, touched: dict[Form | str, None]) -> int:
        """Where most of those that wait may start, the quickest way is to take all of them in
        order, as long as few are met that cannot; returns how many jobs were looked at."""
        books, heads = self._books, self._books.pending.heads
        closed: set[Name] = set()
        attempts = missed = 0
        if len(books.pending.groups) <= _MANY_GROUPS:
            return 0
        while attempts < _ATTEMPTS and missed < _MISSES and not books.reservations.all:
            if books.work >= _WORK and books.started_now:
                break
            entry = heads.next()
            if entry is None:
                break
            lane = entry.lane
            assert lane is not None
            group = lane.booth.group
            if group.name in closed:
                missed += 1
                continue
            attempts += 1
            if self._look_at(entry, group, passed=True, fresh=entry.form in touched):
                heads.push(lane)
            else:
                closed.add(group.name)
            if books.again:
                break
        heads.put_back()
        return attempts

    # One job

    def _look_at(self, entry: Entry, group: Group, *, passed: bool, fresh: bool) -> bool:
        """Start it if it may be; else park it, preempt for it, or promise it something. False:
        nobody else of its group can be helped either."""
        books = self._books
        strict = group.form is None
        if strict:
            self._first_of[entry.told.queue] = entry
            if self._behind_a_claim(entry):
                return False
        waits = self._starved.before(entry) is not None
        hopeless = not strict and books.hopeless(entry)
        if waits or hopeless or not self._allowance.has_quota(entry):
            if self._aside.put(entry):
                return True
            if not waits and self._giving_way.make_place_for(entry):
                return True
            if strict:
                return False  # nobody passes
            books.pending.park(entry)
            if hopeless and books.key(entry)[0]:
                books.pending.park_all(entry)  # of who borrows; who owns it may take it back
            return True
        fits = books.nodes.could(entry.form)
        if fits and not self._seating.kept_from(entry) and self._start(entry):
            return True
        if self._aside.put(entry):
            return True
        if (fresh or fits) and self._giving_way.make_place_for(entry):
            return True
        return not strict and passed and self._promises.make_if_due(entry)

    def _start(self, entry: Entry) -> bool:
        """Start it if there are seats; else nobody like it is looked at before that changes."""
        books = self._books
        seats = self._seating.seats_for(entry)
        if seats is not None:
            books.pending.remove(entry)
            self._starting.start(entry, seats, "its turn")
            return True
        if not books.models_metered:
            passing = self._seating.outranks_a_promise(entry)
            books.bars.put_up(entry.form, entry.told.expected_ms, books.now_ms, passing=passing)
        return False

    def _behind_a_claim(self, entry: Entry) -> bool:
        """In a strict queue, who has a claim or a promise is still before those behind it."""
        return any(
            kept.entry.told.queue == entry.told.queue and kept.entry.rank < entry.rank
            for kept in self._books.reservations.all.values()
        )

    # When all have been looked at

    def _ask_for_others(self, asking: list[Entry]) -> None:
        """Who has just come may take back what its tenant lent, though another that asks for the
        same and may not is before it; and, now and then, who waits already."""
        for entry in asking[:_ASKING]:
            lane = entry.lane
            if lane is None or lane.booth.group.form is None or lane.first() is not entry:
                continue
            if self._allowance.borrowers(entry) and self._giving_way.make_place_for(entry):
                return
        for entry in self._taking_back.asking():
            if self._starved.before(entry) or self._behind_others(entry):
                self._giving_way.put_off(entry)
            elif self._giving_way.make_place_for(entry):
                return

    def _behind_others(self, entry: Entry) -> bool:
        """In a strict queue, and not first."""
        lane = entry.lane
        return lane is not None and lane.booth.group.form is None and self._behind_a_claim(entry)

    def look_for_other_firsts(self) -> bool:
        """With what has been started or promised, shares have changed: another may be first in a
        strict queue than the one that was looked at. True: all are to be looked at again."""
        pending, books = self._books.pending, self._books
        if not books.decisions:
            return False
        for queue, looked_at in list(self._first_of.items()):
            first = pending.first_of(queue)
            if first is None:
                del self._first_of[queue]
            elif first is not looked_at:
                self._first_of[queue] = first
                pending.touched[queue] = None
                books.again = True
        return books.again
