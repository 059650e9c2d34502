"""The jobs that hold seats: by tenant, and in the order in which they end."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np

from windlass.scheduler.columns import DEVICE, Columns
from windlass.scheduler.entries import Entry, Stage
from windlass.scheduler.events import NEVER, Seat
from windlass.scheduler.nodes import Nodes

Victim = tuple[int, int, int]


class Running:
    def __init__(self, nodes: Nodes) -> None:
        self.entries: dict[str, Entry] = {}
        self.held = Held(nodes)
        self._ends: list[tuple[int, int, Entry]] = []
        self._by_tenant: dict[str, list[tuple[Victim, Entry]]] = {}
        self.elastic: dict[str, Entry] = {}

    def add(self, entry: Entry) -> None:
        """It holds its seats, and those it is losing, in the nodes' columns already."""
        self.entries[entry.told.job_id] = entry
        self.held.add(entry)
        insort(self._ends, (entry.ends_ms, entry.told.number, entry))
        insort(self._by_tenant.setdefault(entry.told.tenant, []), (_victim(entry), entry))
        if entry.elastic is not None:
            self.elastic[entry.told.job_id] = entry

    def remove(self, entry: Entry) -> None:
        del self.entries[entry.told.job_id]
        self.held.remove(entry)
        self.elastic.pop(entry.told.job_id, None)
        del self._ends[bisect_left(self._ends, (entry.ends_ms, entry.told.number))]
        mine = self._by_tenant[entry.told.tenant]
        del mine[bisect_left(mine, (_victim(entry),))]
        if not mine:
            del self._by_tenant[entry.told.tenant]

    def changed(self, entry: Entry) -> None:
        """It holds other seats than before."""
        self.held.remove(entry)
        self.held.add(entry)

    def overran(self, now_ms: int) -> list[Entry]:
        """Those that still run past the end that was counted on: each is now thought to run as
        long again."""
        late = []
        while self._ends and self._ends[0][0] < now_ms:
            entry = self._ends[0][2]
            del self._ends[0]
            ran = max(1, now_ms - entry.started_ms)
            entry.ends_ms = now_ms + ran
            insort(self._ends, (entry.ends_ms, entry.told.number, entry))
            late.append(entry)
        return late

    def by_end(self) -> Iterator[Entry]:
        """Those that end, the first to end first."""
        for ends_ms, _, entry in self._ends:
            if ends_ms >= NEVER:
                return
            yield entry

    def first_end_ms(self) -> int:
        return self._ends[0][0] if self._ends else NEVER

    def cheapest(self, tenant: str) -> Iterator[Entry]:
        """The tenant's, the one to part with most easily first: lowest priority, latest start."""
        for _, entry in self._by_tenant.get(tenant, ()):
            if entry.stage is Stage.RUNNING:
                yield entry

    def lowest_priority(self, tenant: str) -> int:
        mine = self._by_tenant.get(tenant)
        return mine[0][0][0] if mine else NEVER


def _victim(entry: Entry) -> Victim:
    return (entry.told.priority, -entry.started_ms, -entry.told.number)


class Held:
    """Every held seat and device as a row of columns, so that what many jobs hold is added to a
    what-if at once."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._seats = _Rows(4)  # node, cpus, memory, slots
        self._devices = _Rows(3)  # node, device, milli
        self._of: dict[str, tuple[list[int], list[int]]] = {}

    def add(self, entry: Entry) -> None:
        index = self._nodes.index
        wants = {need.role: need for need in entry.told.needs}
        seats: list[tuple[int, int, int, int]] = []
        devices: list[tuple[int, int, int]] = []
        for seat in entry.seats + entry.losing:
            need, node = wants[seat.role], index[seat.node]
            seats.append((node, need.cpus_milli, need.memory_bytes, need.slots))
            for device in seat.gpus:
                devices.append((node, device, need.gpu_milli or DEVICE))
        self._of[entry.told.job_id] = (self._seats.put(seats), self._devices.put(devices))

    def remove(self, entry: Entry) -> None:
        seats, devices = self._of.pop(entry.told.job_id)
        self._seats.free += seats
        self._devices.free += devices

    def shift(self, columns: Columns, entries: Iterable[Entry], sign: int) -> None:
        """Add what these hold to a what-if, or, with -1, take it out again."""
        rows = [self._of[entry.told.job_id] for entry in entries]
        self._seats.shift([row[0] for row in rows], columns, sign)
        self._devices.shift([row[1] for row in rows], columns, sign)


class _Rows:
    def __init__(self, width: int) -> None:
        self.columns = np.zeros((width, 64), dtype=np.int64)
        self.free: list[int] = list(range(63, -1, -1))

    def put(self, rows: Sequence[tuple[int, ...]]) -> list[int]:
        if not rows:
            return []
        while len(self.free) < len(rows):
            width, size = self.columns.shape
            self.columns = np.concatenate(
                [self.columns, np.zeros((width, size), dtype=np.int64)], axis=1
            )
            self.free += range(2 * size - 1, size - 1, -1)
        if len(rows) == 1:
            at = self.free.pop()
            self.columns[:, at] = rows[0]
            return [at]
        places = self.free[-len(rows) :]
        del self.free[-len(rows) :]
        self.columns[:, places] = np.array(rows, dtype=np.int64).T
        return places

    def shift(self, places: Sequence[list[int]], columns: Columns, sign: int) -> None:
        at = np.fromiter(chain.from_iterable(places), dtype=np.int64)
        if not len(at):
            return
        rows = self.columns[:, at]
        node = rows[0]
        if len(rows) == 4:
            for column, amount in zip(
                (columns.cpus, columns.memory, columns.slots), rows[1:], strict=True
            ):
                if amount.any():
                    np.add.at(column, node, sign * amount)
            return
        np.add.at(columns.gpu, (node, rows[1]), sign * rows[2])
        touched = np.unique(node)
        columns.whole[touched] = (columns.gpu[touched] == DEVICE).sum(axis=1)


def shift_seats(columns: Columns, entry: Entry, seats: Iterable[Seat], sign: int) -> None:
    """The same for some of one job's seats."""
    (columns.give if sign > 0 else columns.take)(entry.told.needs, list(seats))
