"""Who could be helped if others were told to end asks again, when that may have come to be so.

A job asks when it comes. But another may borrow after that, or have run too briefly to be told to
end, or the job may come to be within what its tenant owns only when others of it have ended. So a
while after anything was started or ended, and when somebody has run for long enough, all that may
have others told to end are asked once more. While nothing changes, nobody is asked.
"""

from __future__ import annotations

import heapq

from windlass.scheduler.allowance import Allowance
from windlass.scheduler.books import Books
from windlass.scheduler.entries import Entry, Stage
from windlass.scheduler.events import NEVER
from windlass.scheduler.giving_way import GivingWay
from windlass.scheduler.pending import Lane

_AT_ONCE = 32
"""So many are asked in one tick; the others a moment later."""
_MOMENT_MS = 100


class TakingBack:
    def __init__(self, books: Books, allowance: Allowance, giving_way: GivingWay) -> None:
        self._books = books
        self._allowance = allowance
        self._refused = giving_way.refused
        self._later = giving_way.later
        self._stands_as_then = giving_way.stands_as_then
        self._due_ms = NEVER
        """When all are asked; `NEVER`: nothing has changed since."""

    def next_ms(self) -> int:
        """When somebody is asked again; `NEVER`: nobody."""
        later = self._later
        while later and later[0][2] not in self._books.waiting:
            heapq.heappop(later)
        return min(self._due_ms, later[0][0] if later else NEVER)

    def note(self) -> None:
        """Something has been started or ended."""
        books = self._books
        if self._due_ms == NEVER and books.rules.preemption and books.waiting:
            if self._refused or books.members:
                self._due_ms = books.now_ms + self._while_ms()

    def asking(self) -> list[Entry]:
        """Those that may ask now, if it is time, in the order in which they would start."""
        books, later = self._books, self._later
        if books.now_ms < self._due_ms and not (later and later[0][0] <= books.now_ms):
            return []
        found = {entry.told.job_id: entry for entry in self._whose_time_came()}
        if books.now_ms >= self._due_ms:
            self._due_ms = NEVER
            self._forget_gone()
            for entry in [*self._refused.values(), *self._promised(), *self._owners()]:
                found[entry.told.job_id] = entry
        asking = [entry for entry in found.values() if self._may_ask(entry)]
        asking.sort(key=books.key)
        again = [entry.asked_again_ms for entry in asking if entry.asked_again_ms > books.now_ms]
        asking = [entry for entry in asking if entry.asked_again_ms <= books.now_ms]
        if len(asking) > _AT_ONCE:
            again.append(books.now_ms + _MOMENT_MS)
        self._due_ms = min(self._due_ms, *again, NEVER)
        return asking[:_AT_ONCE]

    def _whose_time_came(self) -> list[Entry]:
        """Those for whom somebody has run for long enough now."""
        books, later, found = self._books, self._later, []
        while later and later[0][0] <= books.now_ms:
            _, number, job_id = heapq.heappop(later)
            entry = books.waiting.get(job_id)
            if entry is not None and entry.told.number == number:
                entry.refused = None
                found.append(entry)
        return found

    def _forget_gone(self) -> None:
        waiting = self._books.waiting
        for job_id, entry in list(self._refused.items()):
            if waiting.get(job_id) is not entry:
                del self._refused[job_id]

    def _promised(self) -> list[Entry]:
        return [kept.entry for kept in self._books.reservations.all.values() if kept.seats]

    def _owners(self) -> list[Entry]:
        """The first of every lane of those that lend, or have something of their own to give."""
        books = self._books
        tenants: dict[str, None] = {}
        for members in books.members.values():
            if len(members) > 1 and any(books.tree.over_nominal(name) for name in members):
                tenants.update(dict.fromkeys(members))
            for name in members:
                if books.running.lowest_priority(name) < NEVER:
                    tenants[name] = None
        return list(books.pending.firsts(tenants)) if tenants else []

    def _may_ask(self, entry: Entry) -> bool:
        """It waits, not for something that comes soon, there is somebody it could ask for, and
        things stand otherwise than when it last asked."""
        books, told = self._books, entry.told
        if self._stands_as_then(entry) or entry.paused:
            return False
        kept = books.reservations.all.get(told.job_id)
        if kept is not None:
            if kept.claim or kept.start_ms <= books.now_ms + self._while_ms():
                return False
        elif entry.stage is not Stage.WAITING or entry.lane is None:
            return False
        elif entry is not self._first_like(entry.lane):
            return False
        return (
            bool(books.running.elastic)
            or books.running.lowest_priority(told.tenant) < told.priority
            or self._allowance.takes_back(entry)
        )

    def _first_like(self, lane: Lane) -> Entry | None:
        """The first of its lane; in a strict queue, the first of all."""
        group = lane.booth.group
        return lane.first() if group.form else self._books.pending.first_of(str(group.name))

    def _while_ms(self) -> int:
        return max(1000, self._books.rules.min_run_ms // 2)
