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
from collections.abc import Callable, Iterator

from windlass.scheduler.entries import Entry, Stage
from windlass.scheduler.events import NEVER
from windlass.scheduler.heads import Heads
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


class Booth:
    __slots__ = ("group", "tenant", "lanes", "queued", "key")

    def __init__(self, group: Group, tenant: str) -> None:
        self.group = group
        self.tenant = tenant
        self.lanes: dict[tuple[str, str, str], Lane] = {}
        self.queued = 0
        """The number of what stands for it in the group's heap; 0: nothing, it is aside."""
        self.key: Key = (0, 0, 0, 0, 0)
        """The key with which it is queued."""

    def first(self) -> Entry | None:
        best: Entry | None = None
        rank = _LAST
        for key, lane in list(self.lanes.items()):
            if lane.count == 0:
                del self.lanes[key]
            elif not lane.parked:
                entry = lane.first()
                if entry is not None and entry.rank < rank:
                    best, rank = entry, entry.rank
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
        """How far the log of lowered tenants was read."""
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
        self._floors: dict[str, int] = {}
        self._cohort = cohort
        self._hopeless = hopeless
        self.groups: dict[Name, Group] = {}
        self.touched: dict[Name, Group] = {}
        """Groups to which somebody came since they were last looked at."""
        self.forms: dict[Form, dict[int, Group]] = {}
        """The groups of each form, by bucket."""
        self.heads = Heads(key, self.floor)
        self.of_form: dict[Form, Heads] = {}
        """Strict queues aside."""
        self._quota_bound: dict[str, dict[Name, Group]] = {}
        """By cohort: groups with lanes that wait for quota."""
        self._fell: dict[str, None] = {}
        self._lowered: list[str] = []
        self._first = 0
        """Number of the first of `_lowered`."""
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
                    self.of_form[entry.form] = Heads(self._key, self.floor)
            group.mark = self._first + len(self._lowered)
        booth = group.booths.get(told.tenant)
        if booth is None:
            booth = group.booths[told.tenant] = Booth(group, told.tenant)
        key = ("", "", "") if strict else (told.queue, told.kind, told.user if by_user else "")
        lane = booth.lanes.get(key)
        if lane is None:
            lane = booth.lanes[key] = Lane(booth, key)
        lane.add(entry)
        group.count += 1
        self.touched[name] = group
        if not lane.parked and lane.first() is entry:
            self._push(group, booth, entry)
            if not strict:
                self.heads.push(lane)
                self.of_form[entry.form].push(lane)

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
            self.touched.pop(group.name, None)
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
        self._lowered.append(tenant)
        self.heads.lowered(tenant)
        for heads in self.of_form.values():
            heads.lowered(tenant)
        self._fell[self._cohort(tenant)] = None

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
            floor = self.floor(booth.tenant)
            if floor > stored[0]:
                booth.key = (floor, -NEVER, 0, 0, 0)
                heapq.heapreplace(heap, (booth.key, number, booth))
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
                heapq.heapreplace(heap, (key, self._pushes, booth))
                continue
            return key, entry
        return None

    def moved(self, tenant: str) -> None:
        """What this tenant uses has changed."""
        self._floors.pop(tenant, None)

    def floor(self, tenant: str) -> int:
        """The least standing that a job of this tenant may have now."""
        floor = self._floors.get(tenant)
        if floor is None:
            floor = self._floors[tenant] = self._floor_of(tenant)
        return floor

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
        self._floors.clear()

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

    def forget_read(self) -> None:
        """The log of lowered tenants, read by all, is cut off now and then."""
        if len(self._lowered) > 4096:
            oldest = min((group.mark for group in self.groups.values()), default=NEVER)
            end = self._first + len(self._lowered)
            if oldest < end - 2048:
                for group in self.groups.values():
                    self._read_lowered(group)
                oldest = end
            cut = min(oldest, end) - self._first
            del self._lowered[:cut]
            self._first += cut

    def _read_lowered(self, group: Group) -> None:
        end = self._first + len(self._lowered)
        if group.mark == end:
            return
        names = dict.fromkeys(self._lowered[group.mark - self._first :])
        group.mark = end
        booths = group.booths
        for tenant in names:
            booth = booths.get(tenant)
            if booth is not None and not (booth.queued and booth.key[0] < self.floor(tenant)):
                entry = booth.first()
                if entry is not None:
                    self._push(group, booth, entry)
        if group.parked:
            for cohort in dict.fromkeys(self._cohort(name) for name in names):
                waiting = group.parked.get(cohort)
                if waiting is None:
                    continue
                some = next((e for b in waiting for e in self._parked_entries(b)), None)
                if some is not None and group.form is not None and self._hopeless(some):
                    continue
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
        entry = booth.first()
        if entry is not None:
            self._push(group, booth, entry)

    @staticmethod
    def _parked_entries(booth: Booth) -> Iterator[Entry]:
        for lane in booth.lanes.values():
            if lane.parked:
                entry = lane.first()
                if entry is not None:
                    yield entry

    def _push(self, group: Group, booth: Booth, entry: Entry) -> None:
        key = self._key(entry)
        if booth.queued and booth.key <= key:
            return
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
