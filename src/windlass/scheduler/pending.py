"""The waiting jobs, kept so that the next one to look at is found without sorting them.

    group (one form and run time to a power of two, or one strict queue)
      └ booth (one tenant in it)              heap by (standing, rank of its first)
          └ lane (one queue, kind of work and user)      heap by rank: first come, first served

Jobs of one lane differ in nothing that decides whether they may start, so only the first of a
lane is ever looked at. Keys in a group's heap may be out of date in one direction only: a tenant's
share that rose since is found when its booth comes up; one that fell is told through `lowered`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Container, Iterator

from windlass.scheduler.entries import Entry, Stage
from windlass.scheduler.events import NEVER
from windlass.scheduler.heads import Falls, Heads, raise_first
from windlass.scheduler.nodes import Form

Rank = tuple[int, int, int]
Key = tuple[int, int, int, int, int]
"""(share with it, -priority, what its tenant used lately, order_ms, number): the least is next."""

Name = tuple[Form, int] | str
"""Of a group: its form and run time, or its strict queue."""
ENDLESS = 64

_LAST: Rank = (NEVER, NEVER, NEVER)


class Lane:
    __slots__ = ("booth", "key", "heap", "parked", "count", "pushes")

    def __init__(self, booth: Booth, key: tuple[str, str, str]) -> None:
        self.booth = booth
        self.key = key
        self.heap: list[tuple[Rank, int, Entry]] = []
        self.parked = False
        """Its first waits for quota."""
        self.count = 0
        self.pushes = 0

    def first(self) -> Entry | None:
        heap = self.heap
        while heap:
            entry = heap[0][2]
            if entry.lane is self and entry.stage is Stage.WAITING:
                return entry
            heapq.heappop(heap)
        return None

    def add(self, entry: Entry) -> None:
        self.pushes += 1
        heapq.heappush(self.heap, (entry.rank, self.pushes, entry))
        entry.lane = self
        self.count += 1

    def remove(self, entry: Entry) -> None:
        entry.lane = None
        self.count -= 1


class Standing:
    """Where a tenant stands among all."""

    __slots__ = ("cohort", "fell", "floor", "least")

    def __init__(self, cohort: str) -> None:
        self.cohort = cohort
        self.floor = -1
        """The least standing that a job of it may have now; -1: to be asked."""
        self.least: Key = (-1, -NEVER, 0, 0, 0)
        """With that, the least key."""
        self.fell = 0
        """The number of the last time that it used less than before."""


class Booth:
    __slots__ = ("group", "tenant", "standing", "lanes", "queued", "key")

    def __init__(self, group: Group, tenant: str, standing: Standing) -> None:
        self.group = group
        self.tenant = tenant
        self.standing = standing
        self.lanes: dict[tuple[str, str, str], Lane] = {}
        self.queued = 0
        """The number of what stands for it in the group's heap; 0: nothing, it is aside."""
        self.key: Key = (0, 0, 0, 0, 0)
        """The key with which it is queued."""

    def first(self) -> Entry | None:
        best: Entry | None = None
        rank = _LAST
        empty = False
        for lane in self.lanes.values():
            if lane.count == 0:
                empty = True
            elif not lane.parked:
                entry = lane.first()
                if entry is not None and entry.rank < rank:
                    best, rank = entry, entry.rank
        if empty:
            self.lanes = {key: lane for key, lane in self.lanes.items() if lane.count}
        return best


class Group:
    __slots__ = ("name", "form", "bucket", "booths", "heap", "aside", "parked", "mark", "count")

    def __init__(self, name: Name) -> None:
        self.name = name
        self.form = None if isinstance(name, str) else name[0]
        """What all of it ask for; None: a strict queue, whose jobs differ."""
        self.bucket = 0 if isinstance(name, str) else name[1]
        """All of it run less than 2 ** bucket ms; `ENDLESS`: nobody knows."""
        self.booths: dict[str, Booth] = {}
        self.heap: list[tuple[Key, int, Booth]] = []
        self.aside: list[Booth] = []
        """Booths with nothing more to look at in this tick."""
        self.parked: dict[str, list[Booth]] = {}
        """By cohort: booths with a lane that waits for quota."""
        self.mark = 0
        """The number of the last time that a tenant's use fell, as far as it was read."""
        self.count = 0


class Pending:
    def __init__(
        self,
        key: Callable[[Entry], Key],
        cohort: Callable[[str], str],
        hopeless: Callable[[Entry], bool],
        floor: Callable[[str], int],
    ) -> None:
        self._key = key
        self._floor_of = floor
        self._standings: dict[str, Standing] = {}
        self._cohort = cohort
        self._hopeless = hopeless
        self.groups: dict[Name, Group] = {}
        self.touched: dict[Form | str, None] = {}
        """Forms and strict queues to which somebody came, first in a lane, since they were last
        looked at."""
        self.forms: dict[Form, dict[int, Group]] = {}
        """The groups of each form, by bucket."""
        self._falls = Falls()
        self.heads = Heads(key, self.floor, self._standings, self._falls)
        self.of_form: dict[Form, Heads] = {}
        """Strict queues aside."""
        self._quota_bound: dict[str, dict[Name, Group]] = {}
        """By cohort: groups with lanes that wait for quota."""
        self._fell: dict[str, None] = {}
        """Cohorts that use less, and whose lanes that wait for quota were not woken yet."""
        self._cohort_fell: dict[str, int] = {}
        """The number of the last of these in each cohort."""
        self._pushes = 0

    def add(self, entry: Entry, *, strict: bool, by_user: bool) -> None:
        told = entry.told
        expected = told.expected_ms
        bucket = ENDLESS if expected is None else expected.bit_length()
        name: Name = told.queue if strict else (entry.form, bucket)
        group = self.groups.get(name)
        if group is None:
            group = self.groups[name] = Group(name)
            if not strict:
                self.forms.setdefault(entry.form, {})[bucket] = group
                if entry.form not in self.of_form:
                    self.of_form[entry.form] = Heads(
                        self._key, self.floor, self._standings, self._falls
                    )
            group.mark = self._falls.count
        booth = group.booths.get(told.tenant)
        if booth is None:
            standing = self._standing(told.tenant)
            booth = group.booths[told.tenant] = Booth(group, told.tenant, standing)
        key = ("", "", "") if strict else (told.queue, told.kind, told.user if by_user else "")
        lane = booth.lanes.get(key)
        if lane is None:
            lane = booth.lanes[key] = Lane(booth, key)
        lane.add(entry)
        group.count += 1
        if not lane.parked and lane.first() is entry:
            self.touched[told.queue if strict else entry.form] = None
            self._push(group, booth, entry)
            if not strict:
                self.heads.push(lane)
                self.of_form[entry.form].push(lane)

    def only_of(self, group: Group) -> Entry | None:
        """The one that waits in a group of one, unless it waits for quota."""
        for booth in group.booths.values():
            first = booth.first()
            if first is not None:
                return first
        return None

    def lane_of(self, entry: Entry, *, by_user: bool) -> Lane | None:
        """The lane in which it would stand, strict queues aside; None: nobody stands there."""
        told = entry.told
        bucket = ENDLESS if told.expected_ms is None else told.expected_ms.bit_length()
        group = self.groups.get((entry.form, bucket))
        booth = None if group is None else group.booths.get(told.tenant)
        key = (told.queue, told.kind, told.user if by_user else "")
        return None if booth is None else booth.lanes.get(key)

    def remove(self, entry: Entry) -> None:
        lane = entry.lane
        if lane is None:
            return
        group = lane.booth.group
        lane.remove(entry)
        group.count -= 1
        if group.form is None and (first := lane.first()) is not None:
            self._push(group, lane.booth, first)  # it may have a better standing
        if group.count == 0:
            del self.groups[group.name]
            for cohort in group.parked:
                self._quota_bound.get(cohort, {}).pop(group.name, None)
            if group.form is not None:
                groups = self.forms[group.form]
                del groups[group.bucket]
                if not groups:
                    del self.forms[group.form]
                    del self.of_form[group.form]

    def lowered(self, tenant: str) -> None:
        """This tenant uses less than before: its booths may come up earlier than their keys say,
        and lanes of its cohort that wait for quota are worth another look."""
        cohort = self._cohort(tenant)
        number = self._falls.add(tenant)
        self._standing(tenant).fell = self._cohort_fell[cohort] = number
        self._fell[cohort] = None

    def fell_in(self, tenant: str) -> int:
        """The number of the last time that somebody of its cohort came to use less."""
        return self._cohort_fell.get(self._cohort(tenant), 0)

    def wait_for_quota(self, tenant: str) -> bool:
        """Whether lanes of its cohort do."""
        return bool(self._quota_bound.get(self._cohort(tenant)))

    def least(self, group: Group) -> Key | None:
        """A key that `best` does not go below; None: there is nobody. Far cheaper than `best`."""
        self._read_lowered(group)
        self.refresh(group)
        return group.heap[0][0] if group.heap else None

    def best(self, group: Group) -> tuple[Key, Entry] | None:
        """The job of this group to look at next, with its key as it now is."""
        self._read_lowered(group)
        heap = group.heap
        while heap:
            stored, number, booth = heap[0]
            if number != booth.queued:
                heapq.heappop(heap)
                continue
            standing = booth.standing
            if standing.floor < 0:
                self.floor(booth.tenant)
            if standing.floor > stored[0]:
                booth.key = stored = standing.least
                if not raise_first(heap, (stored, number, booth)):
                    continue
            entry = booth.first()
            if entry is None:
                heapq.heappop(heap)
                booth.queued = 0
                if booth.lanes:
                    group.aside.append(booth)
                elif group.booths.get(booth.tenant) is booth:
                    del group.booths[booth.tenant]
                continue
            key = self._key(entry)
            if key > stored:
                self._pushes += 1
                booth.queued, booth.key = self._pushes, key
                if not raise_first(heap, (key, self._pushes, booth)):
                    continue
            return key, entry
        return None

    def moved(self, tenant: str) -> None:
        """What this tenant uses has changed."""
        self._standing(tenant).floor = -1

    def floor(self, tenant: str) -> int:
        """The least standing that a job of this tenant may have now."""
        standing = self._standing(tenant)
        if standing.floor < 0:
            floor = standing.floor = self._floor_of(tenant)
            standing.least = (floor, -NEVER, 0, 0, 0)
        return standing.floor

    def _standing(self, tenant: str) -> Standing:
        standing = self._standings.get(tenant)
        if standing is None:
            standing = self._standings[tenant] = Standing(self._cohort(tenant))
        return standing

    def wake_quota_bound(self) -> None:
        """Lanes that wait for quota are worth another look where less is used than before, in
        whatever group they are."""
        fell, self._fell = self._fell, {}
        for cohort in fell:
            for group in list(self._quota_bound.get(cohort, {}).values()):
                self._read_lowered(group)

    def refresh(self, group: Group) -> None:
        """A new tick: what was set aside may be looked at again."""
        if group.aside:
            aside, group.aside = group.aside, []
            for booth in aside:
                entry = booth.first()
                if entry is not None:
                    self._push(group, booth, entry)

    def park(self, entry: Entry) -> None:
        """It waits for quota: its lane is not looked at before its cohort uses less."""
        lane = entry.lane
        assert lane is not None
        lane.parked = True
        booth = lane.booth
        cohort = self._cohort(booth.tenant)
        booth.group.parked.setdefault(cohort, []).append(booth)
        self._quota_bound.setdefault(cohort, {})[booth.group.name] = booth.group

    def park_all(self, entry: Entry) -> None:
        """Nobody of its cohort has quota for as much: none of them is looked at before there is
        more."""
        cohort = self._cohort(entry.told.tenant)
        for group in self.forms.get(entry.form, {}).values():
            for booth in group.booths.values():
                if booth.standing.cohort == cohort:
                    lanes = [lane for lane in booth.lanes.values() if not lane.parked]
                    for lane in lanes:
                        lane.parked = True
                    if lanes:
                        group.parked.setdefault(cohort, []).append(booth)
            if cohort in group.parked:
                self._quota_bound.setdefault(cohort, {})[group.name] = group

    def wake(self, entry: Entry) -> None:
        """Look at its lane again though its cohort uses no less."""
        lane = entry.lane
        if lane is not None and lane.parked:
            self._unpark(lane.booth.group, lane.booth)

    def resort(self) -> None:
        """Every share may have changed in any direction."""
        for group in self.groups.values():
            self._compact(group)
        self.heads.resort()
        for heads in self.of_form.values():
            heads.resort()
        for standing in self._standings.values():
            standing.floor = -1

    def firsts(self, tenants: Container[str]) -> Iterator[Entry]:
        """The first of every lane of these tenants, whether it waits for quota or not; of a
        strict queue the first of all."""
        for group in self.groups.values():
            if group.form is None:
                first = self.first_of(group.name)  # type: ignore[arg-type]  # a queue's name
                if first is not None and first.told.tenant in tenants:
                    yield first
                continue
            for tenant, booth in group.booths.items():
                if tenant in tenants:
                    for lane in booth.lanes.values():
                        entry = lane.first()
                        if entry is not None:
                            yield entry

    def in_order(self) -> list[Entry]:
        """Every waiting job as it would be looked at now: of each tenant in a group by rank, so
        that one with a better standing still comes after those that rank before it."""
        keyed: list[tuple[Key, Entry]] = []
        for group in self.groups.values():
            for booth in group.booths.values():
                least: Key | None = None
                for entry in sorted(_entries(booth), key=lambda entry: entry.rank):
                    key = self._key(entry)
                    least = key if least is None or key > least else least
                    keyed.append((least, entry))
        keyed.sort(key=lambda item: (item[0], item[1].rank))
        return [entry for _, entry in keyed]

    def first_of(self, queue: str) -> Entry | None:
        """The first of a strict queue; None: nobody waits there."""
        group = self.groups.get(queue)
        firsts = [] if group is None else [booth.first() for booth in group.booths.values()]
        return min((e for e in firsts if e is not None), key=self._key, default=None)

    def _read_lowered(self, group: Group) -> None:
        mark = group.mark
        if mark == self._falls.count:
            return
        group.mark = self._falls.count
        fell = self._falls.since(mark) if self._falls.count - mark < len(group.booths) else None
        if fell is None:
            booths = [b for b in group.booths.values() if b.standing.fell > mark]
        else:
            booths = [group.booths[tenant] for tenant in fell if tenant in group.booths]
        for booth in booths:
            standing = booth.standing
            if standing.floor < 0:
                self.floor(booth.tenant)
            if not booth.queued or standing.floor < booth.key[0]:
                self._queue(group, booth, standing.least)
        if group.parked:
            for cohort in [c for c in group.parked if self._cohort_fell.get(c, 0) > mark]:
                self._wake_cohort(group, cohort)

    def _wake_cohort(self, group: Group, cohort: str) -> None:
        """Unless surely nobody has quota."""
        waiting = group.parked[cohort]
        some = next((e for b in waiting for e in self._parked_entries(b)), None)
        if some is not None and group.form is not None and self._hopeless(some):
            return
        del group.parked[cohort]
        self._quota_bound.get(cohort, {}).pop(group.name, None)
        for booth in waiting:
            self._unpark(group, booth)

    def _unpark(self, group: Group, booth: Booth) -> None:
        if group.booths.get(booth.tenant) is not booth:
            return
        for lane in booth.lanes.values():
            lane.parked = False
            if group.form is not None:
                self.heads.push(lane)
                self.of_form[group.form].push(lane)
        self.floor(booth.tenant)
        least = booth.standing.least
        if not booth.queued or booth.key > least:
            self._queue(group, booth, least)

    @staticmethod
    def _parked_entries(booth: Booth) -> Iterator[Entry]:
        for lane in booth.lanes.values():
            if lane.parked:
                entry = lane.first()
                if entry is not None:
                    yield entry

    def _push(self, group: Group, booth: Booth, entry: Entry) -> None:
        key = self._key(entry)
        if booth.queued and booth.key[0] < key[0]:
            key = (booth.key[0], *key[1:])  # if its tenant falls back to that, nobody tells
        if not (booth.queued and booth.key <= key):
            self._queue(group, booth, key)

    def _queue(self, group: Group, booth: Booth, key: Key) -> None:
        """It comes up with this key, which may be too low but not too high."""
        self._pushes += 1
        booth.queued, booth.key = self._pushes, key
        heapq.heappush(group.heap, (key, self._pushes, booth))
        if len(group.heap) > 64 + 4 * len(group.booths):
            self._compact(group)

    def _compact(self, group: Group) -> None:
        fresh = []
        for booth in group.booths.values():
            booth.queued = 0
            entry = booth.first()
            if entry is not None:
                self._pushes += 1
                key = self._key(entry)
                booth.queued, booth.key = self._pushes, key
                fresh.append((key, self._pushes, booth))
        heapq.heapify(fresh)
        group.heap[:] = fresh
        group.aside = [booth for booth in group.aside if booth.queued == 0]


def _entries(booth: Booth) -> list[Entry]:
    """All that wait there; one that left and came back stands in its lane's heap twice."""
    entries = {
        entry.told.number: entry
        for lane in booth.lanes.values()
        for _, _, entry in lane.heap
        if entry.lane is lane and entry.stage is Stage.WAITING
    }
    return list(entries.values())
