"""What is free on every node, as columns of integers, and how many members that is room for.

    amounts[r, n]   cpus (milli), memory (bytes), slots, whole (devices that are entirely free)
    gpu[n, d]       what is free of each device, in milli; 0 for a device the node does not have

Resource-major, because a question is asked of one resource on all nodes far more often than of
all resources of one node. What is free may be negative inside (a node that came back smaller
than what is taken there owes the difference); there is no room on such a node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from windlass.scheduler.events import Need, Seat

Ints = NDArray[np.int64]

CPUS, MEMORY, SLOTS, WHOLE = range(4)
DEVICE = 1000
"""One whole device, in milli."""
PLENTY = 1 << 30
"""More members than this never count on one node."""

_ONE_BY_ONE = 24  # up to so many seats, single steps are quicker than building arrays

_NO_NODES: Ints = np.zeros(0, dtype=np.int64)


class Shape:
    """What one member wants of its node: interned, so that equal wishes share one row of room."""

    __slots__ = (
        "amounts",
        "cpus_milli",
        "gpu_milli",
        "gpus",
        "held",
        "labels",
        "memory_bytes",
        "models",
        "row",
        "slots",
        "some",
        "some_at",
        "used",
        "wanted",
    )

    def __init__(self, need: Need) -> None:
        self.cpus_milli = need.cpus_milli
        self.memory_bytes = need.memory_bytes
        self.slots = need.slots
        self.gpus = need.gpus
        self.gpu_milli = need.gpu_milli
        self.models = need.gpu_models
        self.labels = need.labels
        self.amounts = (need.cpus_milli, need.memory_bytes, need.slots, need.gpus)
        self.row = -1
        """Its row among those kept up to date; -1: none."""
        self.used = 0
        self.some: Ints = _NO_NODES
        """The nodes with room for such a member,"""
        self.some_at = -1
        """as of this count of changes."""
        self.held = 0
        """Members of this shape that hold seats now."""
        self.wanted = 0
        """Members of this shape that wait now, as far as told."""

    def size(self) -> tuple[int, int, int]:
        """Larger members are harder to place, so they go first."""
        return (self.gpus * DEVICE + self.gpu_milli, self.cpus_milli, self.memory_bytes)


class Columns:
    """Free amounts by node. `take` and `give` are exact inverses of each other."""

    __slots__ = ("_gpu", "cpus", "full", "gpu", "index", "memory", "nodes", "slots", "whole")

    cpus: Ints
    memory: Ints
    slots: Ints
    whole: Ints
    gpu: Ints

    def __init__(self, index: Mapping[str, int], nodes: int = 0, devices: int = 0) -> None:
        self.index = index
        self.nodes = nodes
        self.full: Ints = np.zeros((4, nodes), dtype=np.int64)
        self._gpu: Ints = np.zeros((nodes, devices), dtype=np.int64)
        self._slice()

    def copy(self) -> Columns:
        """A what-if: the same nodes, free to be changed. Good until a node is added."""
        return self._of(self.amounts.copy(), self.gpu.copy())

    def subset(self, nodes: Ints) -> Columns:
        """A what-if of these nodes alone, numbered from 0 in their order."""
        return self._of(self.amounts[:, nodes], self.gpu[nodes])

    def _of(self, amounts: Ints, gpu: Ints) -> Columns:
        other = Columns.__new__(Columns)
        other.index = self.index
        other.nodes = amounts.shape[1]
        other.full = amounts
        other._gpu = gpu
        other._slice()
        return other

    @property
    def amounts(self) -> Ints:
        return self.full[:, : self.nodes]

    def resize(self, nodes: int, devices: int) -> None:
        """Make place for so many nodes and devices; what is new is 0. Amortised over doublings."""
        place, width = self._gpu.shape
        if nodes > place or devices > width:
            place = max(nodes, 2 * place) if nodes > place else place
            amounts = np.zeros((4, place), dtype=np.int64)
            amounts[:, : self.full.shape[1]] = self.full
            gpu = np.zeros((place, max(devices, width)), dtype=np.int64)
            gpu[: self._gpu.shape[0], :width] = self._gpu
            self.full, self._gpu = amounts, gpu
        self.nodes = nodes
        self._slice()

    def _slice(self) -> None:
        self.cpus, self.memory, self.slots, self.whole = self.full[:, : self.nodes]
        self.gpu = self._gpu[: self.nodes]

    def take(self, needs: Sequence[Need], seats: Sequence[Seat]) -> None:
        """These members hold their seats from now on."""
        self._move(needs, seats, -1)

    def give(self, needs: Sequence[Need], seats: Sequence[Seat]) -> None:
        """What these members held is free again."""
        self._move(needs, seats, 1)

    def _move(self, needs: Sequence[Need], seats: Sequence[Seat], sign: int) -> None:
        if len(needs) == 1:
            self._move_role(needs[0], seats, sign)
            return
        for need in needs:
            role = need.role
            self._move_role(need, [seat for seat in seats if seat[0] == role], sign)

    def _move_role(self, need: Need, seats: Sequence[Seat], sign: int) -> None:
        if len(seats) > _ONE_BY_ONE:
            self._move_many(need, seats, sign)
            return
        cpus = sign * need.cpus_milli
        memory = sign * need.memory_bytes
        slots = sign * need.slots
        device = sign * (need.gpu_milli or DEVICE)
        for seat in seats:
            node = self.index[seat[2]]
            self.cpus[node] += cpus
            self.memory[node] += memory
            self.slots[node] += slots
            if seat[3]:
                free = self.gpu[node]
                for number in seat[3]:
                    free[number] += device
                self.whole[node] = free.tolist().count(DEVICE)

    def _move_many(self, need: Need, seats: Sequence[Seat], sign: int) -> None:
        index = self.index
        nodes = np.array([index[seat[2]] for seat in seats], dtype=np.int64)
        members = np.bincount(nodes, minlength=self.nodes)
        members *= sign
        self.cpus += members * need.cpus_milli
        self.memory += members * need.memory_bytes
        self.slots += members * need.slots
        width = self.gpu.shape[1]
        places = [index[seat[2]] * width + number for seat in seats for number in seat[3]]
        if places:
            device = sign * (need.gpu_milli or DEVICE)
            self.gpu += device * np.bincount(places, minlength=self.gpu.size).reshape(
                self.gpu.shape
            )
            touched = np.unique(nodes)
            self.whole[touched] = (self.gpu[touched] == DEVICE).sum(axis=1)

    def room(self, shape: Shape) -> Ints:
        """How many members of this shape each node has room for, whatever its state or model."""
        room = np.full(self.nodes, PLENTY, dtype=np.int64)
        for free, wish in zip(self.amounts, shape.amounts, strict=True):
            if wish:
                np.minimum(room, free if wish == 1 else free // wish, out=room)
        if shape.gpu_milli:
            each = np.maximum(self.gpu, 0) // shape.gpu_milli
            np.minimum(room, each.sum(axis=1), out=room)
        return np.maximum(room, 0, out=room)

    def devices(self, node: int, shape: Shape, members: int) -> list[tuple[int, ...]]:
        """The devices for so many members on this node: whole ones from the lowest number up,
        shares each on the fullest device that still has it."""
        free = self.gpu[node].tolist()
        if shape.gpus:
            ready = [number for number, milli in enumerate(free) if milli == DEVICE]
            each = shape.gpus
            return [tuple(ready[at : at + each]) for at in range(0, members * each, each)]
        if not shape.gpu_milli:
            return [()] * members
        chosen: list[tuple[int, ...]] = []
        for _ in range(members):
            _, number = min(
                (milli, number) for number, milli in enumerate(free) if milli >= shape.gpu_milli
            )
            free[number] -= shape.gpu_milli
            chosen.append((number,))
        return chosen

    def occupy(self, node: int, shape: Shape, members: Sequence[tuple[int, ...]]) -> None:
        """`take` on a node given by number, for members with these devices."""
        count = len(members)
        self.cpus[node] -= count * shape.cpus_milli
        self.memory[node] -= count * shape.memory_bytes
        self.slots[node] -= count * shape.slots
        free = self.gpu[node]
        for devices in members:
            for number in devices:
                free[number] -= shape.gpu_milli or DEVICE
        self.whole[node] = free.tolist().count(DEVICE)
