"""The earliest time at which a gang of equal members fits, found node by node.

What is free later differs from what is free now on few nodes: those whose jobs end before the
gang fits. So the ends are walked one by one. Where the walk gets long, columns are quicker: the
caller takes over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from windlass.scheduler.columns import DEVICE
from windlass.scheduler.entries import Entry
from windlass.scheduler.nearby import Local, Nearby, of_role
from windlass.scheduler.nodes import Form, Nodes
from windlass.scheduler.placement import Share
from windlass.scheduler.running import Ending

if TYPE_CHECKING:
    from windlass.scheduler.reserve import Reservations


class Outlook(Nearby):
    """One question: when does a gang of this form, with one need, fit?"""

    def __init__(self, form: Form, nodes: Nodes, kept: Reservations) -> None:
        """`kept`: what has been promised already."""
        super().__init__(form, nodes)
        self._kept = kept
        self._ended: dict[int, list[Entry]] = {}
        """Who has ended on nodes that were not looked at closely yet."""
        self._devices: dict[int, int] = {}
        """How many devices may be free there by then, at most, and not promised."""
        self._promised: dict[int, frozenset[int]] = {}
        """The devices promised to others, of those nodes."""
        # What is promised is taken off where there is room now; elsewhere it makes no difference.
        room, index = nodes.room_now(form), nodes.index
        self._beside: dict[int, tuple[int, int]] = {}
        """How many members have room there beside what is promised, and how empty it then is."""
        for name in kept.on:
            node = index[name]
            now = room(node)
            if now:
                where = int(nodes.pool[node]) if self._pools else 0
                left = self._beside[node] = self._left_beside(node)
                self._total[where] -= now - left[0]

    def walk(self, ending: Iterable[Ending]) -> Entry | None:
        """The one of these, in the order in which they end, after which the gang fits."""
        on, names, whole = self._kept.on, self._nodes.names, self._nodes.now.whole.item
        known, devices, promised, ended = self._known, self._devices, self._promised, self._ended
        wish = self._shape.gpus
        for _, _, entry, spots in ending:
            fits = False
            for node, count in spots:
                local = known.get(node)
                if local is None:
                    have = devices.get(node)
                    if have is None:
                        have = self._free_devices(node) if names[node] in on else whole(node)
                        ended[node] = [entry]
                    else:
                        ended[node].append(entry)
                    have += count
                    if node in promised:
                        have -= self._promised_of(entry, node)
                    devices[node] = have
                    if have < wish:
                        continue  # not enough devices there, whatever else is
                    local = self._load(node)
                    for one in ended[node]:
                        _leave(local, one, names[node])
                else:
                    _leave(local, entry, names[node])
                fits = self._count(node, local) or fits
            if fits:
                return entry
        return None

    def _left_beside(self, node: int) -> tuple[int, int]:
        """Known until something changes on that node, or is promised there."""
        nodes, shape = self._nodes, self._shape
        known = self._kept.beside.setdefault(nodes.names[node], {})
        found, stamp = known.get(shape), nodes.changed_at(node)
        if found is None or found[0] != stamp:
            local = self._load(node)
            found = known[shape] = (stamp, local.room, self._emptiness(node))
        return found[1:]

    def _elsewhere(self) -> dict[int, tuple[int, int]]:
        return self._beside | super()._elsewhere()

    def only_node(self, last: Entry) -> Sequence[Share]:
        """Where a gang of one goes, once it fits because `last` ended."""
        index, known = self._nodes.index, self._known
        touched = {index[seat.node] for seat in last.seats + last.losing}
        ready = [node for node in touched if node in known and known[node].room]
        return [(min(ready, key=lambda node: (self._emptiness(node), node)), 1)]

    def _free_devices(self, node: int) -> int:
        """How many are free now and not promised."""
        nodes = self._nodes
        promised = self._promised[node] = self._kept.devices_on(nodes.names[node])
        free = nodes.now.gpu[node].tolist()
        return sum(milli == DEVICE for at, milli in enumerate(free) if at not in promised)

    def _promised_of(self, entry: Entry, node: int) -> int:
        """How many of its devices on this node are promised."""
        name, promised = self._nodes.names[node], self._promised[node]
        return sum(
            device in promised
            for seat in entry.seats + entry.losing
            if seat[2] == name
            for device in seat[3]
        )

    def _load(self, node: int) -> Local:
        """As it is now, without what is promised."""
        name = self._nodes.names[node]
        local = self._known[node] = Local(self._nodes.now, node)
        for reservation in self._kept.on.get(name, ()):
            needs = reservation.entry.told.needs
            for seat in reservation.seats:
                if seat.node == name:
                    local.move(of_role(needs, seat.role), seat, -1)
        local.room = self._room(node, local)
        return local


def _leave(local: Local, entry: Entry, name: str) -> None:
    """What it holds on this node is free."""
    needs = entry.told.needs
    for seat in entry.seats + entry.losing if entry.losing else entry.seats:
        if seat[2] == name:
            local.move(of_role(needs, seat[0]), seat, 1)
