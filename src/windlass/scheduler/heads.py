"""Whose turn it would be if everything fitted: of every tenant the waiting job that ranks first,
and of these the one whose tenant has least.

    heads       heap of tenants by the key of their first job
      └ tenant        heap of its lanes by the rank of their first job

Kept for each form, to find who gets what has become free, and for all together, to find who cannot
start but ranks before one that can, and so gets a promise first. As in a group, a key may only be
too low; whose use fell is told through `lowered`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING

from windlass.scheduler.entries import Entry
from windlass.scheduler.events import NEVER

if TYPE_CHECKING:
    from windlass.scheduler.pending import Key, Lane, Rank


class Heads:
    def __init__(self, key: Callable[[Entry], Key], floor: Callable[[str], int]) -> None:
        """`floor`: the least standing that a job of this tenant may have now."""
        self._key = key
        self._floor = floor
        self._lanes: dict[str, list[tuple[Rank, int, Lane]]] = {}
        self._listed: dict[Lane, Rank] = {}
        """The rank with which a lane stands in its tenant's heap."""
        self._heap: list[tuple[Key, str]] = []
        self._queued: dict[str, Key] = {}
        """The key with which a tenant stands in the heap."""
        self._fell: dict[str, None] = {}
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
        self._queue(tenant, entry)

    def lowered(self, tenant: str) -> None:
        """This tenant uses less than before."""
        self._fell[tenant] = None

    def resort(self) -> None:
        """Every share may have changed in any direction."""
        self._heap.clear()
        self._queued.clear()
        self._fell = dict.fromkeys(self._lanes)

    def peek(self, before: Key | None = None) -> tuple[Key, Entry] | None:
        """The next one in order, if it ranks before that."""
        if self._fell:
            self._queue_fallen()
        heap, queued = self._heap, self._queued
        while heap:
            stored, tenant = heap[0]
            if queued.get(tenant) != stored:
                heapq.heappop(heap)
                continue
            if before is not None and stored >= before:
                return None
            floor = self._floor(tenant)
            if floor > stored[0]:
                queued[tenant] = raised = (floor, -NEVER, 0, 0, 0)
                heapq.heapreplace(heap, (raised, tenant))
                continue
            entry = self._first(tenant)
            if entry is None:
                heapq.heappop(heap)
                del queued[tenant]
                continue
            key = self._key(entry)
            if key > stored:
                queued[tenant] = key
                heapq.heapreplace(heap, (key, tenant))
                continue
            return key, entry
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
            if listed.get(lane) != rank:
                heapq.heappop(lanes)
                continue
            entry = lane.first()
            if entry is None or lane.parked:
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
        fell, self._fell = self._fell, {}
        for tenant in fell:
            stored = self._queued.get(tenant)
            if stored is None or self._floor(tenant) <= stored[0]:
                entry = self._first(tenant)
                if entry is not None:
                    self._queue(tenant, entry)

    def _queue(self, tenant: str, entry: Entry) -> None:
        key = self._key(entry)
        stored = self._queued.get(tenant)
        if stored is None or key < stored:
            self._queued[tenant] = key
            heapq.heappush(self._heap, (key, tenant))
