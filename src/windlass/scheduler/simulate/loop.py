"""The clock of the simulation: what comes next, and all that comes at once.

    time ──►   t0            t1                       t2
               submit        finish, submit, submit   timer
               └─ one batch  └─ one batch: finish < node < submit < timer, then as they were put

Arrivals are read from the sorted list of jobs, so that only what is under way is in the heap.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple

from windlass.scheduler.simulate.workload import Job

FINISH, NODE, SUBMIT, TIMER = range(4)


class Due(NamedTuple):
    """Something that happens: compared by time, kind, and the order it was put in."""

    time_ms: int
    rank: int
    number: int
    what: str
    who: Any
    token: int


class Timeline:
    """Integer milliseconds; the same puts give the same order, always."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs = jobs
        self._times = [job.submit_ms for job in jobs]
        self._times.append(1 << 62)
        self._next = 0
        self._heap: list[Due] = []
        self._number = 0

    def put(self, time_ms: int, rank: int, what: str, who: Any, token: int = 0) -> None:
        self._number += 1
        heappush(self._heap, Due(time_ms, rank, self._number, what, who, token))

    @property
    def arrived(self) -> int:
        """How many jobs have come."""
        return self._next

    @property
    def arrivals_over(self) -> bool:
        return self._next >= len(self._jobs)

    def next_ms(self) -> int | None:
        """When the next thing happens."""
        arrival = self._times[self._next]
        if self._heap:
            due = self._heap[0].time_ms
            return due if due < arrival else arrival
        return None if self.arrivals_over else arrival

    def take(self, until_ms: int) -> tuple[list[Due], range, list[Due]]:
        """All that happens until then: (finishes and nodes, the arrivals as numbers of jobs,
        the rest)."""
        before: list[Due] = []
        after: list[Due] = []
        heap = self._heap
        while heap and heap[0].time_ms <= until_ms:
            due = heappop(heap)
            (before if due.rank < SUBMIT else after).append(due)
        first = at = self._next
        times = self._times
        while times[at] <= until_ms:
            at += 1
        self._next = at
        return before, range(first, at), after
