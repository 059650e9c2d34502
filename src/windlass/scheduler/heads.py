"""Whose turn it would be if everything fitted: of every tenant the waiting job that ranks first,
and of these the one whose tenant has least.

    heads       heap of tenants by the key of their first job
      └ tenant        heap of its lanes by the rank of their first job

Kept for each form, to find who gets what has become free, and for all together, to find who cannot
start but ranks before one that can, and so gets a promise first. As in a group, a key may only be
too low; whose use fell is in the log.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from windlass.scheduler.entries import Entry

if TYPE_CHECKING:
    from windlass.scheduler.pending import Key, Lane, Rank, Standing


_LONGEST_LOG = 8192

Item = TypeVar("Item", bound=tuple[object, ...])


class Falls:
    """A log of the tenants that came to use less, for all who keep them in order: each remembers
    how far it has read."""

    __slots__ = ("_begin", "_log", "count")

    def __init__(self) -> None:
        self._log: list[str] = []
        self._begin = 0
        self.count = 0
        """How often it happened, so far."""

    def add(self, tenant: str) -> int:
        """Returns the number of this time."""
        if len(self._log) >= _LONGEST_LOG:
            self._log.clear()
            self._begin = self.count
        self._log.append(tenant)
        self.count += 1
        return self.count

    def since(self, number: int) -> dict[str, None] | None:
        """Who did after that; None: that is too long ago."""
        if number < self._begin:
            return None
        return dict.fromkeys(self._log[number - self._begin :])


class Heads:
    def __init__(
        self,
        key: Callable[[Entry], Key],
        floor: Callable[[str], int],
        standings: Mapping[str, Standing],
        falls: Falls,
    ) -> None:
        """`floor`: the least standing that a job of this tenant may have now, which is then known
        to its `Standing` until that changes."""
        self._falls = falls
        self._read = falls.count
        """The number of the last fall that it knows of; -1: anybody may have fallen."""
        self._key = key
        self._standings = standings
        self._floor = floor
        self._lanes: dict[str, list[tuple[Rank, int, Lane]]] = {}
        self._listed: dict[Lane, Rank] = {}
        """The rank with which a lane stands in its tenant's heap."""
        self._heap: list[tuple[Key, str]] = []
        self._queued: dict[str, Key] = {}
        """The key with which a tenant stands in the heap."""
        self._taken: list[Lane] = []
        self._pushes = 0

    def push(self, lane: Lane) -> None:
        """The lane has another first, or may be looked at again."""
        entry = lane.first()
        if entry is None or lane.parked or self._listed.get(lane) == entry.rank:
            return
        self._listed[lane] = entry.rank
        tenant = lane.booth.tenant
        lanes = self._lanes.setdefault(tenant, [])
        self._pushes += 1
        heapq.heappush(lanes, (entry.rank, self._pushes, lane))
        self._queue(tenant)

    def resort(self) -> None:
        """Every share may have changed in any direction."""
        self._heap.clear()
        self._queued.clear()
        self._read = -1

    def peek(self, before: Key | None = None) -> tuple[Key, Entry] | None:
        """The next one in order, if it ranks before that."""
        if self._read != self._falls.count:
            self._queue_fallen()
        heap, queued, standings = self._heap, self._queued, self._standings
        while heap:
            stored, tenant = heap[0]
            if queued.get(tenant) is not stored:
                heapq.heappop(heap)
                continue
            if before is not None and stored >= before:
                return None
            standing = standings[tenant]
            if standing.floor < 0:
                self._floor(tenant)
            if standing.floor > stored[0]:
                queued[tenant] = stored = standing.least
                if not raise_first(heap, (stored, tenant)):
                    continue
            entry = self._first(tenant)
            if entry is None:
                heapq.heappop(heap)
                del queued[tenant]
                continue
            key = self._key(entry)
            if key > stored:
                queued[tenant] = key
                if not raise_first(heap, (key, tenant)):
                    continue
            return None if before is not None and key >= before else (key, entry)
        return None

    def next(self, before: Key | None = None) -> Entry | None:
        """The same, taken out: its lane does not come again before `put_back` or `push`."""
        found = self.peek(before)
        if found is None:
            return None
        _, _, lane = heapq.heappop(self._lanes[found[1].told.tenant])
        del self._listed[lane]
        self._taken.append(lane)
        return found[1]

    def put_back(self) -> None:
        """What `next` gave may come again."""
        taken, self._taken = self._taken, []
        for lane in taken:
            self.push(lane)

    def _first(self, tenant: str) -> Entry | None:
        lanes, listed = self._lanes.get(tenant), self._listed
        while lanes:
            rank, number, lane = lanes[0]
            if listed.get(lane) is not rank:
                heapq.heappop(lanes)
                continue
            entry = None if lane.parked else lane.first()
            if entry is None:
                heapq.heappop(lanes)
                del listed[lane]
                continue
            if entry.rank == rank:
                return entry
            listed[lane] = entry.rank
            heapq.heapreplace(lanes, (entry.rank, number, lane))
        self._lanes.pop(tenant, None)
        return None

    def _queue_fallen(self) -> None:
        fell = self._falls.since(self._read)
        self._read = self._falls.count
        lanes, queued, heap, standings = self._lanes, self._queued, self._heap, self._standings
        for tenant in list(lanes) if fell is None else fell:
            if tenant in lanes:
                standing = standings[tenant]
                if standing.floor < 0:
                    self._floor(tenant)
                least = standing.least
                stored = queued.get(tenant)
                if stored is None or least < stored:
                    queued[tenant] = least
                    heapq.heappush(heap, (least, tenant))

    def _queue(self, tenant: str) -> None:
        """With the least key that it may have: what that is matters when it comes up."""
        standing = self._standings[tenant]
        if standing.floor < 0:
            self._floor(tenant)
        least = standing.least
        stored = self._queued.get(tenant)
        if stored is None or least < stored:
            self._queued[tenant] = least
            heapq.heappush(self._heap, (least, tenant))


def raise_first(heap: list[Item], item: Item) -> bool:
    """The first now has this key, which is higher. False: another is first with that."""
    count = len(heap)
    if (count > 1 and heap[1] < item) or (count > 2 and heap[2] < item):
        heapq.heapreplace(heap, item)
        return False
    heap[0] = item
    return True
