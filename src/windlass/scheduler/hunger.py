"""Who would take more members, and who of them is worth asking.

Most of those that would grow were refused, or rest after a resize. They are passed over until
something happens that may help them:

    AWAKE     is asked whenever one more of its form has room somewhere
    PLACE     found none: asked when something is given back on a node where it may stay
    QUOTA     had none: asked when its cohort uses less, and has enough left for one more
    RESTING   until its cool-down is over
    LOSING    until it has given up what a resize took from it

To be asked in vain costs a look, so waking may err on that side.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import replace

from windlass.scheduler.books import Books
from windlass.scheduler.entries import Entry, member_amounts
from windlass.scheduler.events import NEVER, Need
from windlass.scheduler.nodes import Form
from windlass.scheduler.quota import Amounts, Tree

AWAKE, PLACE, QUOTA, RESTING, LOSING, GONE = range(6)
_FORMS_KNOWN = 4096

Mark = tuple[int, int]


class Hungry:
    """One that runs with fewer members than it would take."""

    __slots__ = ("entry", "line", "number", "place", "quota", "read", "state")

    def __init__(self, entry: Entry, line: Line, number: int) -> None:
        self.entry = entry
        self.line = line
        self.number = number
        self.state = AWAKE
        self.quota: tuple[object, int] | None = None
        """How often its cohort had come to use less, if it was quota that it lacked."""
        self.place: Mark | None = None
        """Which log of nodes that were given something back is read, if it was a place,"""
        self.read = 0
        """and how far."""


class Line:
    """All that would take one more of the same form, in the order in which they came to."""

    __slots__ = ("awake", "form", "hungry", "mark", "need", "placeless", "quota_bound", "read")

    def __init__(self, form: Form, need: Need) -> None:
        self.form = form
        self.need = need
        self.hungry: dict[str, Hungry] = {}
        self.awake = 0
        """So many are awake,"""
        self.placeless = 0
        """and so many wait for a place."""
        self.quota_bound: dict[str, tuple[int, dict[str, Hungry]]] = {}
        """By cohort: those that wait for quota, and how often it had come to use less."""
        self.mark: Mark = (-1, -1)
        self.read = 0
        """Up to where the log was looked at for those that wait for a place."""


class Hunger:
    def __init__(self, books: Books) -> None:
        self._books = books
        self._lines: dict[Form, Line] = {}
        self._forms: dict[Need, Form] = {}
        self._of: dict[str, Hungry] = {}
        self._resting: list[tuple[int, int, Hungry]] = []
        self._pushes = 0
        self._each: dict[Form, tuple[Tree, Amounts]] = {}

    def __bool__(self) -> bool:
        return bool(self._of)

    def note(self, entry: Entry, need: Need) -> None:
        """It would take more; whatever it was refused for may be otherwise now."""
        hungry = self._of.get(entry.told.job_id)
        if hungry is None:
            form = self._one_more(need)
            line = self._lines.get(form)
            if line is None:
                line = self._lines[form] = Line(form, need)
            self._pushes += 1
            hungry = self._of[entry.told.job_id] = Hungry(entry, line, self._pushes)
            line.hungry[entry.told.job_id] = hungry
            line.awake += 1
        else:
            self.forget_refusal(entry)

    def forget_refusal(self, entry: Entry) -> None:
        hungry = self._of.get(entry.told.job_id)
        if hungry is not None:
            hungry.quota = hungry.place = None
            self.sleep(hungry, AWAKE)

    def forget(self, entry: Entry) -> None:
        """It takes no more members."""
        hungry = self._of.pop(entry.told.job_id, None)
        if hungry is not None:
            self.sleep(hungry, GONE)
            line = hungry.line
            del line.hungry[entry.told.job_id]
            if not line.hungry:
                del self._lines[line.form]

    def wake_all(self) -> None:
        """The rules are others: everybody may be asked."""
        for hungry in self._of.values():
            self.sleep(hungry, AWAKE)
        for line in self._lines.values():
            line.quota_bound.clear()

    def sleep(self, hungry: Hungry, state: int) -> None:
        """From now on it is in this state."""
        line, job_id = hungry.line, hungry.entry.told.job_id
        if hungry.state == state:
            return
        if hungry.state == AWAKE:
            line.awake -= 1
        elif hungry.state == PLACE:
            line.placeless -= 1
        elif hungry.state == QUOTA:
            bound = line.quota_bound.get(self._cohort(hungry))
            if bound is not None:
                bound[1].pop(job_id, None)
        hungry.state = state
        if state == AWAKE:
            line.awake += 1
        elif state == PLACE:
            line.placeless += 1
        elif state == QUOTA:
            fell = self._books.pending.fell_in(hungry.entry.told.tenant)
            _, bound_by = line.quota_bound.setdefault(self._cohort(hungry), (fell, {}))
            bound_by[job_id] = hungry

    def rest(self, hungry: Hungry, due_ms: int) -> None:
        """Nobody asks it before then."""
        self.sleep(hungry, RESTING)
        self._pushes += 1
        heapq.heappush(self._resting, (due_ms, self._pushes, hungry))

    def worth_asking(self) -> Iterator[tuple[Line, list[Hungry]]]:
        """Forms of which one more has room somewhere, each with those that may be helped by it,
        in order. Who is asked and refused is put to sleep by the caller."""
        books = self._books
        if not self._lines:
            return
        resting, could = self._resting, books.nodes.could
        while resting and resting[0][0] <= books.now_ms:
            hungry = heapq.heappop(resting)[2]
            if hungry.state == RESTING:
                self.sleep(hungry, AWAKE)
        for line in list(self._lines.values()):
            if not line.hungry or not could(line.form):
                continue
            if line.quota_bound:
                self._wake_quota_bound(line)
            latest = self._latest_end(line) if line.placeless else -1
            self.has_read(line)
            if line.awake or (latest >= 0 and line.placeless):
                yield (
                    line,
                    [
                        hungry
                        for hungry in line.hungry.values()
                        if hungry.state == AWAKE
                        or (hungry.state == PLACE and hungry.entry.ends_ms <= latest)
                    ],
                )

    def has_read(self, line: Line) -> None:
        line.read, line.mark = len(self._books.nodes.helped), self.mark()

    def mark(self) -> Mark:
        """Another one: what was found of places may be wrong everywhere."""
        return (self._books.bars.cleared, self._books.reservations.moves)

    def nothing_left(self, line: Line) -> None:
        """No node has room for one more of this form: it will be where something is given back."""
        if line.awake:
            for hungry in line.hungry.values():
                if hungry.state == AWAKE:
                    hungry.place, hungry.read = line.mark, line.read
                    self.sleep(hungry, PLACE)

    def quota_now(self, entry: Entry) -> tuple[object, int] | None:
        """Something that changes whenever more quota may be left for it; None: by GPU model,
        nobody counts that."""
        books = self._books
        if books.models_metered:
            return None
        return books.pending, books.pending.fell_in(entry.told.tenant)

    def _wake_quota_bound(self, line: Line) -> None:
        books = self._books
        for cohort, (fell, bound) in list(line.quota_bound.items()):
            some = next(iter(bound.values()), None)
            if some is None:
                del line.quota_bound[cohort]
                continue
            tenant = some.entry.told.tenant
            if books.pending.fell_in(tenant) == fell:
                continue
            if books.tree.hopeless(tenant, self._amounts(line)):
                continue
            for hungry in list(bound.values()):
                self.sleep(hungry, AWAKE)
            del line.quota_bound[cohort]

    def _latest_end(self, line: Line) -> int:
        """Who runs no longer than that may find a place on a node that was given something back
        since; -1: nobody."""
        books = self._books
        if line.mark != self.mark():
            return NEVER
        log = books.nodes.helped
        if line.read == len(log):
            return -1
        latest, until, names = -1, books.reservations.until, books.nodes.names
        room = books.nodes.room_now(line.form)
        for node in log[line.read :]:
            if room(node):
                latest = max(latest, until(line.form, names[node]))
        return latest

    def _amounts(self, line: Line) -> Amounts:
        """What one more is charged."""
        tree = self._books.tree
        known = self._each.get(line.form)
        if known is None or known[0] is not tree:
            if len(self._each) > _FORMS_KNOWN:
                self._each.clear()
            known = self._each[line.form] = (tree, member_amounts(line.need, tree))
        return known[1]

    def _cohort(self, hungry: Hungry) -> str:
        return self._books.tree.cohort(hungry.entry.told.tenant)

    def _one_more(self, need: Need) -> Form:
        form = self._forms.get(need)
        if form is None:
            if len(self._forms) > _FORMS_KNOWN:
                self._forms.clear()
            form = self._forms[need] = self._books.nodes.form((replace(need, count=1, minimum=0),))
        return form
