"""How many members of each shape every node has room for, kept up to date as nodes change.

    room[row, node]    members of the row's shape that the node could take now
    score[row, node]   how empty the node is, FULL where it has no room: the least is the best fit
    total[row]         sum of the row: whether a gang fits is one comparison

A change of one node is one column of all rows, computed in one go. Only shapes that are asked for
have a row: the ones that were not used for longest make place for others, so that memory is
bounded whatever the jobs are.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from windlass.scheduler.columns import CPUS, PLENTY, WHOLE, Columns, Ints, Shape

FULL = (1 << 63) - 1

_ELEMENTS = 1 << 24  # rows times nodes that are kept at most
_ROWS = 1024
_FORGET = 4096  # a row that was not used for so many changes goes when place is needed
_FEW_ROWS = 8  # up to so many rows, plain integers are quicker than columns
_ONE_BY_ONE = 5  # up to so many nodes, single columns are quicker than a batch
_PLAIN_ONE_BY_ONE = 16  # the same where plain integers will do
_CHUNK = 1 << 16  # elements computed at once, so that they stay in cache

_CPU_BITS = 44


def emptiness(columns: Columns, devices: Ints) -> Ints:
    """The order of best fit, the least first: nodes that have no GPU at all, then those with the
    fewest whole GPUs free, then those with the least CPU free."""
    gpus = np.where(devices > 0, columns.whole + 1, 0)
    key: Ints = (gpus << _CPU_BITS) + np.clip(columns.cpus, 0, (1 << _CPU_BITS) - 1)
    return key


def emptiness_of(whole: int, cpus: int, *, devices: int) -> int:
    """The same for one node, with so many whole GPUs and CPUs free, that has so many devices."""
    gpus = whole + 1 if devices else 0
    return (gpus << _CPU_BITS) + min(max(cpus, 0), (1 << _CPU_BITS) - 1)


class Rooms:
    """The rows. `changed` says which nodes to look at again; it is done when next asked."""

    __slots__ = (
        "_allowed",
        "_clock",
        "_dirty",
        "_fits",
        "_known_models",
        "_place",
        "_requests",
        "_restricted",
        "_room",
        "_score",
        "_shapes",
        "_share_milli",
        "_share_rows",
        "_spare",
        "_total",
        "capacity_devices",
        "changes",
        "key",
        "model",
        "models_allowed",
        "now",
        "stamps",
        "up",
    )

    def __init__(self, now: Columns, models_allowed: Callable[[Shape], NDArray[np.bool_]]) -> None:
        self.now = now
        self.models_allowed = models_allowed
        """Which model codes a shape may run on, as a mask over the codes."""
        self.up: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self.model: Ints = np.zeros(0, dtype=np.int64)
        self.capacity_devices: Ints = np.zeros(0, dtype=np.int64)
        self.key: Ints = np.zeros(0, dtype=np.int64)
        self.changes = 0
        """How often something has changed: what was found out before may be wrong."""
        self.stamps: list[int] = []
        """By node: which of these changes was the last one there."""
        self._place = 0
        self._shapes: list[Shape] = []
        self._clock = 0
        self._dirty: set[int] = set()
        self._known_models = 1
        self._allocate(16)

    def changed(self, node: int) -> None:
        self.changes += 1
        self._dirty.add(node)
        self.stamps[node] = self.changes

    def changed_many(self, nodes: set[int]) -> None:
        self.changes += 1
        self._dirty |= nodes
        for node in nodes:
            self.stamps[node] = self.changes

    def total(self, shape: Shape) -> int:
        """Members of this shape that there is room for on all nodes together."""
        if self._dirty:
            self._refresh()
        row = shape.row if shape.row >= 0 else self._load(shape)
        shape.used = self._clock
        return int(self._total[row])

    def row(self, shape: Shape) -> NDArray[np.int32]:
        """Room by node. A view: good until the next change."""
        if self._dirty:
            self._refresh()
        row = shape.row if shape.row >= 0 else self._load(shape)
        shape.used = self._clock
        view: NDArray[np.int32] = self._room[row, : self.now.nodes]
        return view

    def some(self, shape: Shape) -> Ints:
        """The nodes that have room for a member, in their order."""
        if shape.some_at != self.changes:
            shape.some = self.row(shape).nonzero()[0]
            shape.some_at = self.changes
        return shape.some

    def best(self, shape: Shape) -> int:
        """The fullest node that has room for one member; -1: none has."""
        if self._dirty:
            self._refresh()
        row = shape.row if shape.row >= 0 else self._load(shape)
        shape.used = self._clock
        if self._total[row] < 1:
            return -1
        return int(self._score[row, : self.now.nodes].argmin())

    def keys(self) -> Ints:
        """`emptiness` of every node, up to date."""
        if self._dirty:
            self._refresh()
        return self.key[: self.now.nodes]

    def resize(self, nodes: int) -> None:
        """Make place for so many nodes; the new ones are to be `changed` by the caller."""
        self.stamps += [0] * (nodes - len(self.stamps))
        if nodes > self._place:
            self._place = max(nodes, 2 * self._place, 64)
            for name in ("up", "model", "capacity_devices", "key"):
                old = getattr(self, name)
                new = np.zeros(self._place, dtype=old.dtype)
                new[: len(old)] = old
                setattr(self, name, new)
            self.forget_rows()

    def forget_rows(self) -> None:
        """The rows are computed again from the columns when next asked for."""
        for shape in self._shapes:
            shape.row = -1
        self._shapes = []
        self._allocate(16)

    def _allocate(self, rows: int) -> None:
        self._room: NDArray[np.int32] = np.zeros((rows, self._place), dtype=np.int32)
        self._score: Ints = np.full((rows, self._place), FULL, dtype=np.int64)
        self._total: Ints = np.zeros(rows, dtype=np.int64)
        self._requests: Ints = np.ones((4, rows), dtype=np.int64)
        self._spare: Ints = np.zeros((4, rows), dtype=np.int64)
        self._allowed: NDArray[np.bool_] = np.zeros((rows, self._known_models), dtype=np.bool_)
        self._took_place()

    def _grow(self, rows: int) -> None:
        old = (self._room, self._score, self._total, self._requests, self._spare, self._allowed)
        count = len(self._shapes)
        self._allocate(rows)
        self._room[:count] = old[0][:count]
        self._score[:count] = old[1][:count]
        self._total[:count] = old[2][:count]
        self._requests[:, :count] = old[3][:, :count]
        self._spare[:, :count] = old[4][:, :count]
        self._allowed[:count] = old[5][:count]

    def _took_place(self) -> None:
        """The list of rows is another: what is kept about all of them together follows."""
        self._fits: Ints = np.full((5, len(self._shapes)), PLENTY, dtype=np.int64)
        self._restricted = any(shape.models or shape.labels for shape in self._shapes)
        pairs = [
            (row, shape.gpu_milli) for row, shape in enumerate(self._shapes) if shape.gpu_milli
        ]
        self._share_rows: Ints = np.array([row for row, _ in pairs], dtype=np.int64)
        self._share_milli: Ints = np.array([milli for _, milli in pairs], dtype=np.int64)

    def _load(self, shape: Shape) -> int:
        """Give the shape a row, computed from the columns."""
        if len(self._shapes) == self._room.shape[0]:
            self._make_place()
        row = len(self._shapes)
        self._shapes.append(shape)
        shape.row = row
        for resource, wish in enumerate(shape.amounts):
            self._requests[resource, row] = wish or 1
            self._spare[resource, row] = 0 if wish else 1 << 62
        allowed = self.models_allowed(shape)
        if len(allowed) > self._known_models:
            self._widen(len(allowed))
        self._allowed[row] = False
        self._allowed[row, : len(allowed)] = allowed
        nodes = self.now.nodes
        room = self.now.room(shape)
        room *= self._allowed[row][self.model[:nodes]] & self.up[:nodes]
        self._room[row, :nodes] = room
        self._score[row, :nodes] = np.where(room > 0, self.key[:nodes], FULL)
        self._total[row] = room.sum()
        self._took_place()
        return row

    def _widen(self, models: int) -> None:
        """New models are known: say of every row whether it may run on them."""
        self._known_models = models
        self._allowed = np.zeros((self._room.shape[0], models), dtype=np.bool_)
        for row, shape in enumerate(self._shapes):
            self._allowed[row] = self.models_allowed(shape)

    def _make_place(self) -> None:
        """Drop the rows that were not used lately; if they all were, have more of them, up to
        what memory is granted; then the least recently used go."""
        most = max(16, min(_ROWS, _ELEMENTS // max(1, self._place)))
        shapes = self._shapes
        keep = [shape for shape in shapes if self._clock - shape.used < _FORGET]
        if len(keep) * 4 > len(shapes) * 3:
            if len(shapes) * 2 <= most:
                self._grow(len(shapes) * 2)
                return
            used = sorted(shape.used for shape in shapes)
            oldest = used[len(used) // 4]
            keep = [shape for shape in shapes if shape.used > oldest]
            keep = keep or shapes[len(shapes) // 4 :]
        self._compact(keep)

    def _compact(self, keep: list[Shape]) -> None:
        before = [shape.row for shape in keep]
        for shape in self._shapes:
            shape.row = -1
        for row, (old, shape) in enumerate(zip(before, keep, strict=True)):  # only to the front
            shape.row = row
            if old != row:
                self._room[row] = self._room[old]
                self._score[row] = self._score[old]
                self._total[row] = self._total[old]
                self._requests[:, row] = self._requests[:, old]
                self._spare[:, row] = self._spare[:, old]
                self._allowed[row] = self._allowed[old]
        self._shapes = list(keep)
        self._took_place()

    def _refresh(self) -> None:
        dirty = self._dirty
        self._clock += 1
        plain = len(self._shapes) <= _FEW_ROWS and not (self._restricted or len(self._share_rows))
        if len(dirty) <= (_PLAIN_ONE_BY_ONE if plain else _ONE_BY_ONE):
            for node in dirty:
                self._refresh_one(node)
            dirty.clear()
            return
        nodes = np.array(sorted(dirty), dtype=np.int64)
        dirty.clear()
        step = max(1, _CHUNK // max(1, len(self._shapes)))
        for at in range(0, len(nodes), step):
            self._refresh_many(nodes[at : at + step])

    def _refresh_one(self, node: int) -> None:
        now = self.now
        free: list[int] = now.full[:, node].tolist()
        gpus = free[WHOLE] + 1 if self.capacity_devices.item(node) else 0
        key = (gpus << _CPU_BITS) + min(max(free[CPUS], 0), (1 << _CPU_BITS) - 1)
        self.key[node] = key
        rows = len(self._shapes)
        if rows <= _FEW_ROWS and not (self._restricted or len(self._share_rows)):
            self._refresh_rows(node, key, free)
            return
        fits = self._fits  # its last row is PLENTY, so that room never exceeds it
        np.floor_divide(now.full[:, node : node + 1], self._requests[:, :rows], out=fits[:4])
        np.add(fits[:4], self._spare[:, :rows], out=fits[:4])
        room = np.minimum.reduce(fits, axis=0)
        if len(self._share_rows):
            each = np.maximum(now.gpu[node], 0) // self._share_milli[:, None]
            at = self._share_rows
            room[at] = np.minimum(room[at], np.add.reduce(each, axis=1))
        np.maximum(room, 0, out=room)
        if not self.up[node]:
            room[:] = 0
        elif self._restricted:
            room *= self._allowed[:rows, self.model[node]]
        column = self._room[:rows, node]
        total = self._total[:rows]
        total += room
        total -= column
        column[:] = room
        self._score[:rows, node] = np.where(room, key, FULL)

    def _refresh_rows(self, node: int, key: int, free: list[int]) -> None:
        """The same, row by row: with few of them quicker than any column."""
        cpus, memory, slots, whole = free if self.up.item(node) else (0, 0, 0, 0)
        most = PLENTY if self.up.item(node) else 0
        rooms: list[int] = []
        for shape in self._shapes:
            room = most
            wish_cpus, wish_memory, wish_slots, wish_whole = shape.amounts
            if wish_whole and whole // wish_whole < room:
                room = whole // wish_whole
            if wish_cpus and cpus // wish_cpus < room:
                room = cpus // wish_cpus
            if wish_memory and memory // wish_memory < room:
                room = memory // wish_memory
            if wish_slots and slots // wish_slots < room:
                room = slots // wish_slots
            rooms.append(room if room > 0 else 0)
        rows = len(rooms)
        column = self._room[:rows, node]
        before: list[int] = column.tolist()
        if rooms != before:
            column[:] = rooms
            for row, room in enumerate(rooms):
                if room != before[row]:
                    self._total[row] += room - before[row]
        self._score[:rows, node] = [key if room else FULL for room in rooms]

    def _refresh_many(self, nodes: Ints) -> None:
        now = self.now
        cpus = now.cpus[nodes]
        gpus = np.where(self.capacity_devices[nodes] > 0, now.whole[nodes] + 1, 0)
        key = (gpus << _CPU_BITS) + np.clip(cpus, 0, (1 << _CPU_BITS) - 1)
        self.key[nodes] = key
        rows = len(self._shapes)
        if not rows:
            return
        room = np.full((rows, len(nodes)), PLENTY, dtype=np.int64)
        amounts = now.full[:, nodes]
        for resource in range(4):
            fits = amounts[resource][None, :] // self._requests[resource, :rows, None]
            fits += self._spare[resource, :rows, None]
            np.minimum(room, fits, out=room)
        if len(self._share_rows):
            free = np.maximum(now.gpu[nodes], 0)
            for row, milli in zip(self._share_rows, self._share_milli, strict=True):
                np.minimum(room[row], (free // milli).sum(axis=1), out=room[row])
        np.maximum(room, 0, out=room)
        room *= self._allowed[:rows][:, self.model[nodes]] & self.up[nodes]
        self._total[:rows] += room.sum(axis=1) - self._room[:rows, nodes].sum(axis=1)
        self._room[:rows, nodes] = room
        self._score[:rows, nodes] = np.where(room > 0, key, FULL)
