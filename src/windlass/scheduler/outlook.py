"""The earliest time at which a gang of equal members fits, found node by node.

What is free later differs from what is free now on few nodes: those whose jobs end before the
gang fits. So the ends are walked one by one, with plain integers for the nodes they touch, and no
column of all nodes is copied. Where the walk gets long, columns are quicker: the caller takes
over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from windlass.scheduler.columns import DEVICE, PLENTY, Columns, Shape
from windlass.scheduler.entries import Entry
from windlass.scheduler.events import Need, Seat
from windlass.scheduler.nodes import Form, Nodes

if TYPE_CHECKING:
    from windlass.scheduler.reserve import Reservations


class Local:
    """What will be free on one node."""

    __slots__ = ("cpus", "gpu", "memory", "slots", "room")

    def __init__(self, columns: Columns, node: int) -> None:
        self.cpus, self.memory, self.slots = columns.full[:3, node].tolist()
        self.gpu: list[int] = columns.gpu[node].tolist()
        self.room = 0

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

    def columns(self, index: Mapping[str, int]) -> Columns:
        """The same as columns of one node."""
        columns = Columns(index, 1, len(self.gpu))
        columns.full[:, 0] = (self.cpus, self.memory, self.slots, self.gpu.count(DEVICE))
        columns.gpu[0] = self.gpu
        return columns


class Outlook:
    """One question: when does a gang of this form, with one need, fit?"""

    def __init__(self, form: Form, nodes: Nodes, kept: Reservations) -> None:
        """`kept`: what has been promised already."""
        self._nodes = nodes
        self._kept = kept
        self._form = form
        self._shape, self._members = form.parts[0]
        self._known: dict[int, Local] = {}
        self._ended: dict[int, list[tuple[Need, Seat]]] = {}
        """What has ended on nodes that were not looked at closely yet."""
        self._devices: dict[int, int] = {}
        """How many devices may be free there by then, at most."""
        self._whole = nodes.now.whole.item
        self._pools = form.members > 1 and nodes.several_pools()
        # What is promised is taken off where there is room now; elsewhere it makes no difference.
        total = nodes.room_in_pools(form) if self._pools else {0: nodes.room_in_all(form)}
        room = nodes.room_now(form)
        for node in kept.nodes().tolist():
            now = room(node)
            if now:
                total[int(nodes.pool[node]) if self._pools else 0] -= now - self._load(node).room
        self._total = total

    def fits_now(self) -> bool:
        return any(total >= self._members for total in self._total.values())

    def ends(self, entry: Entry) -> bool:
        """This one ends: whether the gang fits then."""
        index, pool = self._nodes.index, self._nodes.pool
        needs, wish = entry.told.needs, self._shape.gpus
        known, devices = self._known, self._devices
        fits = False
        for seat in entry.seats + entry.losing if entry.losing else entry.seats:
            node = index[seat[2]]
            need = needs[0] if len(needs) == 1 else _of_role(needs, seat[0])
            local = known.get(node)
            if local is None:
                count = devices.get(node)
                if count is None:
                    count = self._whole(node)
                    self._ended[node] = []
                devices[node] = count = count + len(seat[3])
                self._ended[node].append((need, seat))
                if count < wish:
                    continue  # not enough devices there, whatever else is
                local = self._load(node)
                for need, seat in self._ended[node]:
                    local.move(need, seat, 1)
            else:
                local.move(need, seat, 1)
            if self._allowed(node):
                room = local.room_for(self._shape)
                if room != local.room:
                    where = int(pool[node]) if self._pools else 0
                    self._total[where] += room - local.room
                    local.room = room
                    fits = fits or self._total[where] >= self._members
        return fits

    def only_seat(self, last: Entry) -> tuple[tuple[Seat, ...], Columns]:
        """For a gang of one, once it fits because `last` ended: its seat, and what that node has
        to spare."""
        nodes, shape = self._nodes, self._shape
        touched = {nodes.index[seat.node] for seat in last.seats + last.losing}
        ready = [node for node in touched if node in self._known and self._known[node].room]
        node = min(ready, key=lambda node: (self._emptiness(node), node))
        local = self._known[node]
        columns = local.columns(nodes.index)
        devices = columns.devices(0, shape, 1)
        columns.occupy(0, shape, devices)
        return (Seat(self._form.needs[0].role, 0, nodes.names[node], devices[0]),), columns

    def _emptiness(self, node: int) -> tuple[int, int]:
        local = self._known[node]
        gpus = local.gpu.count(DEVICE) + 1 if self._nodes.offers[node].gpus else 0
        return (gpus, max(local.cpus, 0))

    def _load(self, node: int) -> Local:
        name = self._nodes.names[node]
        local = Local(self._nodes.now, node)
        for reservation in self._kept.on.get(name, ()):
            needs = reservation.entry.told.needs
            for seat in reservation.seats:
                if seat.node == name:
                    local.move(_of_role(needs, seat.role), seat, -1)
        if self._allowed(node):
            local.room = local.room_for(self._shape)
        self._known[node] = local
        return local

    def _allowed(self, node: int) -> bool:
        models = self._shape.models
        return bool(self._nodes.up[node]) and (
            not models or self._nodes.offers[node].gpu_model in models
        )


def _of_role(needs: tuple[Need, ...], role: str) -> Need:
    if len(needs) == 1:
        return needs[0]
    return next(need for need in needs if need.role == role)
