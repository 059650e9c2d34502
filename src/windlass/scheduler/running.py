"""The jobs that hold seats: by tenant, and in the order in which they end."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np

from windlass.scheduler.columns import DEVICE, Columns, Ints
from windlass.scheduler.entries import Entry, Stage
from windlass.scheduler.events import NEVER, Seat
from windlass.scheduler.nodes import Nodes

_LONGEST_BLOCK = 1024

Victim = tuple[int, int, int]
Ending = tuple[int, int, Entry, tuple[tuple[int, int], ...]]
"""When it ends, its number, the job, and the nodes it is on with how many devices it has there:
a plan looks at many that end and at few of their seats."""


class Running:
    def __init__(self, nodes: Nodes) -> None:
        self.entries: dict[str, Entry] = {}
        self.held = Held(nodes)
        self._nodes = nodes
        self._ends = _Ends()
        self._by_tenant: dict[str, list[tuple[Victim, Entry]]] = {}
        self.elastic: dict[str, Entry] = {}
        self._surplus: dict[str, tuple[Victim, list[tuple[int, int]]]] = {}
        """Of these, where in that order, and how many devices of them are on which nodes."""
        self._surplus_devices: Ints = np.zeros(0, dtype=np.int64)
        self._parting: list[tuple[Victim, Entry]] = []
        """Elastic jobs that may have members above their fewest, like `_by_tenant`."""
        self.leaving: dict[str, Entry] = {}
        """Those that were told to end."""

    def add(self, entry: Entry) -> None:
        """It holds its seats, and those it is losing, in the nodes' columns already."""
        self.entries[entry.told.job_id] = entry
        self._ends.add(self._ending(entry))
        insort(self._by_tenant.setdefault(entry.told.tenant, []), (_victim(entry), entry))
        if entry.elastic is not None:
            self.elastic[entry.told.job_id] = entry
            self._note_surplus(entry)
        if entry.stage is Stage.LEAVING:
            self.leaving[entry.told.job_id] = entry

    def remove(self, entry: Entry) -> None:
        del self.entries[entry.told.job_id]
        self.held.forget(entry)
        if entry.elastic is not None:
            del self.elastic[entry.told.job_id]
            self._forget_surplus(entry)
        self.leaving.pop(entry.told.job_id, None)
        self._ends.remove(entry)
        mine = self._by_tenant[entry.told.tenant]
        del mine[bisect_left(mine, (_victim(entry),))]
        if not mine:
            del self._by_tenant[entry.told.tenant]

    def changed(self, entry: Entry) -> None:
        """It holds other seats than before."""
        self.held.forget(entry)
        self._ends.remove(entry)
        self._ends.add(self._ending(entry))
        if entry.elastic is not None:
            self._note_surplus(entry)

    def _note_surplus(self, entry: Entry) -> None:
        self._forget_surplus(entry)
        seats = entry.surplus_seats()
        if seats:
            index, devices = self._nodes.index, self.surplus_devices()
            where = [(index[seat.node], len(seat.gpus)) for seat in seats]
            for node, count in where:
                devices[node] += count
            victim = _victim(entry)
            self._surplus[entry.told.job_id] = (victim, where)
            insort(self._parting, (victim, entry))

    def _forget_surplus(self, entry: Entry) -> None:
        known = self._surplus.pop(entry.told.job_id, None)
        if known is not None:
            del self._parting[bisect_left(self._parting, (known[0],))]
            for node, count in known[1]:
                self._surplus_devices[node] -= count

    def surplus_devices(self) -> Ints:
        """How many devices of each node are held by members above the fewest, or more."""
        missing = len(self._nodes.names) - len(self._surplus_devices)
        if missing > 0:
            more = np.zeros(missing, dtype=np.int64)
            self._surplus_devices = np.concatenate([self._surplus_devices, more])
        return self._surplus_devices

    def parting(self) -> Iterator[tuple[Entry, list[tuple[int, int]]]]:
        """The same, each with how many devices of its surplus, or more, are on which nodes."""
        surplus = self._surplus
        for _, entry in self._parting:
            if entry.stage is Stage.RUNNING and not entry.losing:
                yield entry, surplus[entry.told.job_id][1]

    def with_surplus(self) -> Iterator[Entry]:
        """Those with members above their fewest, the one to part with most easily first."""
        for _, entry in self._parting:
            if entry.stage is Stage.RUNNING and entry.surplus:
                yield entry

    def _ending(self, entry: Entry) -> Ending:
        index, seats = self._nodes.index, entry.seats + entry.losing
        if len(seats) == 1:
            spots: tuple[tuple[int, int], ...] = ((index[seats[0][2]], len(seats[0][3])),)
        else:
            devices: dict[int, int] = {}
            for seat in seats:
                node = index[seat[2]]
                devices[node] = devices.get(node, 0) + len(seat[3])
            spots = tuple(devices.items())
        return (entry.ends_ms, entry.told.number, entry, spots)

    def overran(self, now_ms: int) -> list[Entry]:
        """Those that still run past the end that was counted on: each is now thought to run as
        long again."""
        late = []
        while (first := self._ends.first()) is not None and first[0] < now_ms:
            entry = first[2]
            self._ends.remove(entry)
            ran = max(1, now_ms - entry.started_ms)
            entry.ends_ms = now_ms + ran
            self._ends.add(self._ending(entry))
            late.append(entry)
        return late

    def by_end(self) -> Iterator[Entry]:
        """Those that end, the first to end first."""
        for ends_ms, _, entry, _ in chain.from_iterable(self._ends.blocks):
            if ends_ms >= NEVER:
                return
            yield entry

    def first_to_end(self, count: int) -> list[Ending]:
        """So many of them at most."""
        first: list[Ending] = []
        for block in self._ends.blocks:
            first += block[: count - len(first)]
            if len(first) == count:
                break
        if first and first[-1][0] >= NEVER:
            del first[bisect_left(first, (NEVER,)) :]
        return first

    def first_end_ms(self) -> int:
        first = self._ends.first()
        return NEVER if first is None else first[0]

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


class _Ends:
    """In the order in which they end, in blocks, so that few are moved for one that comes."""

    def __init__(self) -> None:
        self.blocks: list[list[Ending]] = []
        self._lasts: list[tuple[int, int]] = []
        """When the last of each block ends, and its number."""

    def first(self) -> Ending | None:
        return self.blocks[0][0] if self.blocks else None

    def add(self, ending: Ending) -> None:
        if not self.blocks:
            self.blocks.append([ending])
            self._lasts.append(ending[:2])
            return
        at = min(bisect_left(self._lasts, ending[:2]), len(self.blocks) - 1)
        block = self.blocks[at]
        insort(block, ending)
        if len(block) > _LONGEST_BLOCK:
            half = len(block) // 2
            self.blocks.insert(at + 1, block[half:])
            self._lasts.insert(at + 1, block[-1][:2])
            del block[half:]
        self._lasts[at] = block[-1][:2]

    def remove(self, entry: Entry) -> None:
        it = (entry.ends_ms, entry.told.number)
        at = bisect_left(self._lasts, it)
        block = self.blocks[at]
        del block[bisect_left(block, it)]
        if block:
            self._lasts[at] = block[-1][:2]
        else:
            del self.blocks[at], self._lasts[at]


class Held:
    """Held seats and devices as rows of columns, so that what many jobs hold is added to a what-if
    at once. A job gets its rows when it is first asked for: most end before that."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._seats = _Rows(4)  # node, cpus, memory, slots
        self._devices = _Rows(3)  # node, device, milli
        self._of: dict[str, tuple[list[int], list[int]]] = {}

    def _add(self, entry: Entry) -> tuple[list[int], list[int]]:
        index = self._nodes.index
        wants = {need.role: need for need in entry.told.needs}
        seats: list[tuple[int, int, int, int]] = []
        devices: list[tuple[int, int, int]] = []
        for seat in entry.seats + entry.losing:
            need, node = wants[seat.role], index[seat.node]
            seats.append((node, need.cpus_milli, need.memory_bytes, need.slots))
            for device in seat.gpus:
                devices.append((node, device, need.gpu_milli or DEVICE))
        rows = self._of[entry.told.job_id] = (self._seats.put(seats), self._devices.put(devices))
        return rows

    def forget(self, entry: Entry) -> None:
        """It holds nothing more, or something else."""
        rows = self._of.pop(entry.told.job_id, None)
        if rows is not None:
            self._seats.free += rows[0]
            self._devices.free += rows[1]

    def shift(self, columns: Columns, entries: Iterable[Entry], sign: int) -> None:
        """Add what these hold to a what-if, or, with -1, take it out again."""
        known = self._of
        rows = [known.get(entry.told.job_id) or self._add(entry) for entry in entries]
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
