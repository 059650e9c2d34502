"""Where a member goes when devices are shared: where least of what is free becomes useless.

The fragmentation gradient of Weng et al., "Beware of Fragmentation" (USENIX ATC 2023), told the
other way round. For a member of the demand, what a node has free is usable if the member fits
there, and then all of its devices that have at least that member's share free:

    usable(node) = sum over demand m:  weight(m) * (m fits) * (free on devices that could serve m)

That sees CPU run short only when nothing fits any more. So the same is added once more, but no
more of it than CPU and memory would last for: on the trace of the paper 95.4 % get allocated in
place of 94.8 % (means of 6 seeds).

A member goes to the node and device where that sum falls least; of equals, to the fullest. The
demand is what holds seats now and what is known to wait: no look ahead, and a restart learns it
anew from the same jobs (it is looked at now and then, so single choices may differ after one).
Integers only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from windlass.scheduler.columns import DEVICE, Columns, Ints, Shape
from windlass.scheduler.events import Need
from windlass.scheduler.rooms import FULL

Mask = NDArray[np.bool_]

_SHAPES = 64  # so many shapes of the demand are looked at, the most frequent ones
_PARTS = 1 << 20  # the weights of the demand sum to about this
_ANOTHER = 16  # it is another demand when more than 1/16 of it is
_CHUNK = 1024  # nodes at once, so that what is computed stays in cache
_ROWS = 256
_ELEMENTS = 1 << 21


class _Row:
    """For one shape: by node, how much usable room placing a member costs, and on which device."""

    __slots__ = ("device", "loss", "stamp")

    def __init__(self, nodes: int) -> None:
        self.loss: Ints = np.zeros(nodes, dtype=np.int64)
        self.device: Ints = np.zeros(nodes, dtype=np.int64)
        self.stamp = 0


class Gradient:
    """The rows for the shapes that were placed lately, each brought up to date when asked."""

    def __init__(self, now: Columns, models_allowed: Callable[[Shape], Mask]) -> None:
        self.now = now
        self.models_allowed = models_allowed
        self.shared = 0
        """Members that hold or wait for a share of a device."""
        self._moves = 0
        self._learnt = 0
        self._parts: dict[Shape, int] = {}
        self._demand = self._expected()
        self._clock = 1
        self._stamps: Ints = np.zeros(0, dtype=np.int64)
        self._rows: dict[Shape, _Row] = {}
        self._before = _Row(0)

    def resize(self, nodes: int) -> None:
        if nodes > len(self._stamps):
            self._stamps = np.zeros(max(64, 2 * nodes), dtype=np.int64)
            self._forget()

    def changed(self, node: int) -> None:
        self._clock += 1
        self._stamps[node] = self._clock

    def changed_many(self, nodes: set[int]) -> None:
        self._clock += 1
        self._stamps[list(nodes)] = self._clock

    def moved(self, shape: Shape, members: int) -> None:
        """The demand has so many more members of this shape (fewer if negative)."""
        self._moves += abs(members)
        if shape.gpu_milli:
            self.shared += members

    def choose(
        self,
        shape: Shape,
        room: NDArray[np.integer],
        allowed: NDArray[np.integer],
        key: Ints,
        model: Ints,
        shapes: Iterable[Shape],
    ) -> tuple[int, tuple[int, ...]] | None:
        """The node, of those with any `allowed`, and the devices for one member; None: nowhere.
        `room` is what there is room for as far as the node goes."""
        if self._moves * 16 > self._learnt:
            self._learn(shapes)
        row = self._refreshed(shape, room, model)
        loss = np.where(allowed > 0, row.loss[: self.now.nodes], FULL)
        least = loss.min(initial=FULL)
        if least == FULL:
            return None
        equals = np.flatnonzero(loss == least)
        node = int(equals[key[equals].argmin()])
        if shape.gpu_milli:
            return node, (int(row.device[node]),)
        return node, self.now.devices(node, shape, 1)[0]

    def _learn(self, shapes: Iterable[Shape]) -> None:
        """Look at the demand again, and start anew if it has become another one: what was
        computed for about the same mix is as good, and far cheaper to keep."""
        weights = [
            (shape.held + shape.wanted, -at, shape)
            for at, shape in enumerate(shapes)
            if shape.held + shape.wanted > 0 and (shape.gpus or shape.gpu_milli)
        ]
        weights.sort(key=lambda item: item[:2], reverse=True)
        total = sum(weight for weight, _, _ in weights)
        self._moves = 0
        self._learnt = max(64, total)
        parts = {shape: weight * _PARTS // total for weight, _, shape in weights[:_SHAPES]}
        apart = sum(abs(part - self._parts.get(shape, 0)) for shape, part in parts.items())
        apart += sum(part for shape, part in self._parts.items() if shape not in parts)
        if apart * _ANOTHER > _PARTS:
            self._parts = parts
            self._demand = self._expected()
            self._forget()

    def new_model(self) -> None:
        """A GPU model was heard of for the first time."""
        self._demand = self._expected()
        self._forget()

    def _expected(self) -> _Demand:
        """What is wanted, and besides, whatever it is, some who want a device of their own: so
        that devices are not broken up without need where nobody did yet."""
        parts = [*self._parts.items(), (Shape(Need("", 1, gpus=1)), _PARTS >> 3)]
        return _Demand(parts, self.models_allowed)

    def _forget(self) -> None:
        self._rows.clear()
        self._before = _Row(len(self._stamps))

    def _refreshed(self, shape: Shape, room: NDArray[np.integer], model: Ints) -> _Row:
        row = self._rows.pop(shape, None)
        if row is None:
            while len(self._rows) >= max(8, min(_ROWS, _ELEMENTS // (len(self._stamps) or 1))):
                del self._rows[next(iter(self._rows))]  # the least recently used
            row = _Row(len(self._stamps))
        self._rows[shape] = row
        if row.stamp < self._clock:
            stale = self._stamps[: self.now.nodes] > row.stamp if row.stamp else True
            nodes = np.flatnonzero((room > 0) & stale)
            if len(nodes):
                before = self._usable_before(model)[nodes]
                row.loss[nodes], row.device[nodes] = _losses(
                    self.now.subset(nodes), before, model[nodes], shape, self._demand
                )
            row.stamp = self._clock
        return row

    def _usable_before(self, model: Ints) -> Ints:
        row = self._before
        if row.stamp < self._clock:
            stale = self._stamps[: self.now.nodes] > row.stamp
            nodes = np.flatnonzero(stale) if row.stamp else np.arange(self.now.nodes)
            if len(nodes):
                part = self.now.subset(nodes)
                usable = self._demand.usable(part.cpus, part.memory, part.gpu, model[nodes])
                row.loss[nodes] = usable
            row.stamp = self._clock
        return row.loss


class _Demand:
    """The shapes that are wanted, each with its weight, as columns; and the levels: how much a
    device must have free to serve one, a share or all of it."""

    __slots__ = ("_allowed", "_cpus", "_gpus", "_level", "_levels", "_memory", "_size", "_weights")

    def __init__(
        self, demand: list[tuple[Shape, int]], models_allowed: Callable[[Shape], Mask]
    ) -> None:
        shapes = [shape for shape, _ in demand]
        levels = [shape.gpu_milli or DEVICE for shape in shapes]
        self._levels, self._level = np.unique(_column(levels), return_inverse=True)
        self._cpus = _column([max(1, shape.cpus_milli) for shape in shapes])
        self._memory = _column([max(1, shape.memory_bytes) for shape in shapes])
        self._gpus = _column([max(1, shape.gpus) for shape in shapes])
        self._size = self._gpus * _column(levels)
        self._weights = _column([weight for _, weight in demand])
        self._allowed: Mask | None = None
        if any(shape.models or shape.labels for shape in shapes):
            self._allowed = np.array([models_allowed(shape) for shape in shapes]).T

    def usable(self, cpus: Ints, memory: Ints, gpu: Ints, model: Ints) -> Ints:
        """Of nodes with this much free each."""
        if len(cpus) <= _CHUNK:
            return self._usable(cpus, memory, gpu, model)
        chunks = [slice(at, at + _CHUNK) for at in range(0, len(cpus), _CHUNK)]
        return np.concatenate(
            [self._usable(cpus[at], memory[at], gpu[at], model[at]) for at in chunks]
        )

    def _usable(self, cpus: Ints, memory: Ints, gpu: Ints, model: Ints) -> Ints:
        serving = gpu[:, None, :] >= self._levels[:, None]  # node, level, device
        devices = np.add.reduce(serving, axis=2, dtype=np.int64)[:, self._level]
        amount = np.add.reduce(gpu[:, None, :] * serving, axis=2)[:, self._level]
        lasts = cpus[:, None] // self._cpus  # node, shape
        np.minimum(lasts, memory[:, None] // self._memory, out=lasts)
        fits = devices >= self._gpus
        fits &= lasts > 0
        if self._allowed is not None:
            fits &= self._allowed[model]
        lasts *= self._size
        np.minimum(lasts, amount, out=lasts)
        lasts += amount
        lasts *= fits
        usable: Ints = lasts @ self._weights
        return usable


def _column(values: list[int]) -> Ints:
    return np.array(values, dtype=np.int64)


def _losses(
    free: Columns, before: Ints, model: Ints, shape: Shape, demand: _Demand
) -> tuple[Ints, Ints]:
    """For every one of these nodes (each has room): what a member costs there, on which device."""
    cpus = free.cpus - shape.cpus_milli
    memory = free.memory - shape.memory_bytes
    if not shape.gpu_milli:
        gpu = free.gpu.copy()
        if shape.gpus:
            whole = gpu == DEVICE
            gpu[whole & (whole.cumsum(axis=1) <= shape.gpus)] = 0
        nowhere = np.full(len(cpus), -1, dtype=np.int64)
        return before - demand.usable(cpus, memory, gpu, model), nowhere
    options = free.gpu >= shape.gpu_milli
    for device in range(1, options.shape[1]):  # of equal devices, the first
        same = free.gpu[:, :device] == free.gpu[:, device : device + 1]
        options[:, device] &= ~same.any(axis=1)
    nodes, devices = np.nonzero(options)
    gpu = free.gpu[nodes]
    gpu[np.arange(len(nodes)), devices] -= shape.gpu_milli
    loss = before[nodes] - demand.usable(cpus[nodes], memory[nodes], gpu, model[nodes])
    left = free.gpu[nodes, devices]
    order = np.lexsort((left, loss, nodes))
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = nodes[order][1:] != nodes[order][:-1]
    best = order[first]
    return loss[best], devices[best]
