"""A what-if for a gang of equal members that looks at few nodes.

If some jobs were gone, more would be free on the nodes where they are, and nowhere else. So only
these are looked at, with plain integers, and no column of all nodes is copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from windlass.scheduler.columns import DEVICE, PLENTY, Columns, Ints, Shape
from windlass.scheduler.events import Need, Seat
from windlass.scheduler.nodes import Form, Nodes
from windlass.scheduler.placement import Share
from windlass.scheduler.rooms import emptiness_of


class Local:
    """What would be free on one node."""

    __slots__ = ("cpus", "gpu", "memory", "slots", "room")

    def __init__(self, columns: Columns, node: int) -> None:
        self.cpus, self.memory, self.slots = columns.full[:3, node].tolist()
        self.gpu: list[int] = columns.gpu[node].tolist()
        self.room = 0
        """Members of the gang that have room, as far as they are counted."""

    def move(self, need: Need, seat: Seat, sign: int) -> None:
        self.cpus += sign * need.cpus_milli
        self.memory += sign * need.memory_bytes
        self.slots += sign * need.slots
        for device in seat.gpus:
            self.gpu[device] += sign * (need.gpu_milli or DEVICE)

    def room_for(self, shape: Shape) -> int:
        room = PLENTY
        if shape.cpus_milli:
            room = self.cpus // shape.cpus_milli
        if shape.memory_bytes:
            room = min(room, self.memory // shape.memory_bytes)
        if shape.slots:
            room = min(room, self.slots // shape.slots)
        if shape.gpus:
            room = min(room, self.gpu.count(DEVICE) // shape.gpus)
        if shape.gpu_milli:
            milli = shape.gpu_milli
            room = min(room, sum(free // milli for free in self.gpu if free > 0))
        return max(room, 0)


class Nearby:
    """Does a gang of this form, with one need, fit? And where, if it does?"""

    def __init__(self, form: Form, nodes: Nodes, limit: Ints | None = None) -> None:
        """`limit`: the most members on each node."""
        self._nodes = nodes
        self._form = form
        self._limit = limit
        self._shape, self._members = form.parts[0]
        self._known: dict[int, Local] = {}
        self._pools = form.members > 1 and nodes.several_pools()
        if limit is not None:
            room = np.minimum(nodes.room(form.needs[0]), limit)
            self._total = nodes.by_pool(room) if self._pools else {0: int(room.sum())}
        else:
            self._total = (
                nodes.room_in_pools(form) if self._pools else {0: nodes.room_in_all(form)}
            )

    def fits(self) -> bool:
        if not any(total >= self._members for total in self._total.values()):
            return False
        return not self._form.highest or self._gang() is not None

    def move(self, needs: tuple[Need, ...], seats: Iterable[Seat], sign: int) -> None:
        """These members are gone (or, with -1, are back)."""
        index = self._nodes.index
        for seat in seats:
            node = index[seat.node]
            local = self._known.get(node) or self._load(node)
            local.move(of_role(needs, seat.role), seat, sign)
            self._count(node, local)

    def seats(self, chosen: Sequence[Share] | None = None) -> tuple[tuple[Seat, ...], Columns]:
        """Where it fits: its seats, and what their nodes have to spare."""
        chosen = self._gang() if chosen is None else chosen
        assert chosen is not None, "it fits"
        names, role = self._nodes.names, self._form.needs[0].role
        spare = Columns(self._nodes.index, len(chosen), self._nodes.now.gpu.shape[1])
        seats: list[Seat] = []
        for row, (node, count) in enumerate(chosen):
            local = self._known.get(node) or self._load(node)
            spare.full[:, row] = (local.cpus, local.memory, local.slots, local.gpu.count(DEVICE))
            spare.gpu[row] = local.gpu
            devices = spare.devices(row, self._shape, count)
            spare.occupy(row, self._shape, devices)
            seats += [Seat(role, len(seats) + at, names[node], devices[at]) for at in range(count)]
        return tuple(seats), spare

    def _gang(self) -> Sequence[Share] | None:
        return self._nodes.shares_if(self._form, self._elsewhere(), self._limit)

    def _elsewhere(self) -> dict[int, tuple[int, int]]:
        """Nodes that are not as they are now: the members that have room, and how empty it is."""
        return {node: (local.room, self._emptiness(node)) for node, local in self._known.items()}

    def _emptiness(self, node: int) -> int:
        local = self._known[node]
        return emptiness_of(
            local.gpu.count(DEVICE), local.cpus, devices=self._nodes.offers[node].gpus
        )

    def _load(self, node: int) -> Local:
        """As it is now."""
        local = self._known[node] = Local(self._nodes.now, node)
        local.room = self._room(node, local)
        return local

    def _count(self, node: int, local: Local) -> bool:
        """Something has changed on this node: whether the gang fits in its pool with it."""
        room = self._room(node, local)
        if room == local.room:
            return False
        where = int(self._nodes.pool[node]) if self._pools else 0
        self._total[where] += room - local.room
        local.room = room
        return self._total[where] >= self._members

    def _room(self, node: int, local: Local) -> int:
        models, offer = self._shape.models, self._nodes.offers[node]
        if not self._nodes.up[node] or (models and offer.gpu_model not in models):
            return 0
        if self._shape.labels and not set(self._shape.labels) <= set(offer.labels):
            return 0
        room = local.room_for(self._shape)
        return room if self._limit is None else min(room, int(self._limit[node]))


def of_role(needs: tuple[Need, ...], role: str) -> Need:
    if len(needs) == 1:
        return needs[0]
    return next(need for need in needs if need.role == role)
