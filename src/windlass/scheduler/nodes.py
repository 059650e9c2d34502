"""The nodes as the scheduler sees them: what is free, which gangs fit, and where they go.

Single-writer and incremental: a change of a node touches that node's column only, and whether a
gang of one kind of member fits is one comparison.

    form = nodes.form(needs)              # interned: equal wishes are one object
    if nodes.could(form):                 # cheap
        seats = nodes.place(form)         # the whole gang, or None
        nodes.take(form.needs, seats)     # and `give` when it ends

The same calls in the same order give the same seats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from windlass.scheduler import placement
from windlass.scheduler.columns import DEVICE, PLENTY, Columns, Ints, Shape
from windlass.scheduler.events import Need, Offer, Seat
from windlass.scheduler.forms import Form, Forms
from windlass.scheduler.kinds import Kinds
from windlass.scheduler.placement import Domains, Share
from windlass.scheduler.rooms import Rooms, emptiness
from windlass.scheduler.shares import Gradient

__all__ = ["Columns", "Form", "Nodes"]

_NO_NODES: Ints = np.zeros(0, dtype=np.int64)
_FEW_NODES = 128
"""Where no more nodes have room, they are looked at one by one."""


class Nodes:
    """All nodes, with what is free now. What is down takes nothing, but keeps what is held."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.index: dict[str, int] = {}
        self.now = Columns(self.index)
        self.capacity = Columns(self.index)
        self.up: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self.rack: Ints = _NO_NODES
        self.block: Ints = _NO_NODES
        self.pool: Ints = _NO_NODES
        self.model: Ints = _NO_NODES
        self.offers: list[Offer] = []
        """What each node offered last."""
        self._kinds = Kinds()
        self._places: dict[tuple[str, ...], int] = {}
        self._sites: tuple[Ints, Ints, Ints] = (_NO_NODES, _NO_NODES, _NO_NODES)
        self._levels: list[Domains] | None = None
        self._forms = Forms()
        self._rooms = Rooms(self.now, self._kinds.may_run)
        self._gradient = Gradient(self.now, self._kinds.may_run)
        self._given = 0
        self.helped: list[int] = []
        """A log of the nodes on which something was given back; whoever reads it cuts it."""

    @property
    def models(self) -> Mapping[str, int]:
        """The GPU models there are, in the order they were heard of."""
        return self._kinds.models

    # Nodes come and go

    def node_up(self, offer: Offer) -> None:
        """The node is there with this much in all, whatever is held on it. May come again."""
        node = self._known(offer.name, offer.gpus)
        self.offers[node] = offer
        more = (
            offer.cpus_milli - int(self.capacity.cpus[node]),
            offer.memory_bytes - int(self.capacity.memory[node]),
            offer.slots - int(self.capacity.slots[node]),
        )
        for columns in (self.capacity, self.now):
            columns.cpus[node] += more[0]
            columns.memory[node] += more[1]
            columns.slots[node] += more[2]
        devices = np.zeros(self.now.gpu.shape[1], dtype=np.int64)
        devices[: offer.gpus] = DEVICE
        self.now.gpu[node] += devices - self.capacity.gpu[node]
        self.capacity.gpu[node] = devices
        self.capacity.whole[node] = offer.gpus
        self.now.whole[node] = self.now.gpu[node].tolist().count(DEVICE)
        self._rooms.capacity_devices[node] = offer.gpus
        self._rooms.up[node] = True
        new = not self._kinds.known(offer)
        self._rooms.model[node] = self._kinds.code(offer)
        if new:
            self._rooms.forget_rows()
            self._gradient.new_model()
        self._settle(node, offer)
        self._changed(node)
        self._given += 1
        self.helped.append(node)

    def node_down(self, name: str) -> None:
        """The node takes nothing new until it is up again. One that is not known: nothing."""
        node = self.index.get(name)
        if node is not None:
            self._rooms.up[node] = False
            self._changed(node)

    def _known(self, name: str, devices: int) -> int:
        """The number of this node; one that is new is down and has nothing."""
        node = self.index.get(name)
        if node is None:
            node = self.index[name] = len(self.names)
            self.names.append(name)
            self.offers.append(Offer(name, slots=0))
            self._resize(devices)
            self._settle(node, self.offers[node])
            self._levels = None
            self._changed(node)
        elif devices > self.now.gpu.shape[1]:
            self._resize(devices)
        return node

    def _resize(self, devices: int) -> None:
        count = len(self.names)
        devices = max(devices, self.now.gpu.shape[1])
        self.now.resize(count, devices)
        self.capacity.resize(count, devices)
        self._rooms.resize(count)
        self._gradient.resize(count)
        if count > len(self._sites[0]):
            wider = max(64, 2 * count)
            sites = [
                np.concatenate([site, np.zeros(wider - len(site), np.int64)])
                for site in self._sites
            ]
            self._sites = (sites[0], sites[1], sites[2])
        self.up = self._rooms.up[:count]
        self.model = self._rooms.model[:count]
        self.rack, self.block, self.pool = (site[:count] for site in self._sites)

    def _settle(self, node: int, offer: Offer) -> None:
        """Which rack, block and pool the node is in, as codes in the order they were heard of."""
        address = (offer.pool, offer.block, offer.rack)
        for site, length in zip(self._sites, (3, 2, 1), strict=True):
            code = self._places.setdefault(address[:length], len(self._places))
            if site[node] != code:
                site[node] = code
                self._levels = None

    # What is held

    def take(self, needs: Sequence[Need], seats: Sequence[Seat]) -> None:
        """These members hold their seats from now on, also on nodes that are down or unknown."""
        for seat in seats:
            devices = max(seat[3]) + 1 if seat[3] else 0
            if seat[2] not in self.index or devices > self.now.gpu.shape[1]:
                self._known(seat[2], devices)
        self.now.take(needs, seats)
        self._moved(needs, seats, 1)

    def give(self, needs: Sequence[Need], seats: Sequence[Seat]) -> None:
        """What these members held is free again."""
        self.now.give(needs, seats)
        self._moved(needs, seats, -1)
        self._given += 1
        index = self.index
        self.helped += [index[seat[2]] for seat in seats]

    def _moved(self, needs: Sequence[Need], seats: Sequence[Seat], sign: int) -> None:
        if len(seats) == 1:
            self._changed(self.index[seats[0][2]])
        else:
            index = self.index
            touched = {index[seat[2]] for seat in seats}
            self._rooms.changed_many(touched)
            self._gradient.changed_many(touched)
        if len(needs) == 1:
            self._held(needs[0], sign * len(seats))
            return
        for need in needs:
            self._held(need, sign * sum(seat[0] == need.role for seat in seats))

    def _held(self, need: Need, members: int) -> None:
        shape = self._forms.shape(need)
        shape.held += members
        self._gradient.moved(shape, members)

    def _changed(self, node: int) -> None:
        self._rooms.changed(node)
        self._gradient.changed(node)

    def wanted(self, form: Form, gangs: int) -> None:
        """So many more gangs of this form wait (fewer if negative): they count, with what is
        held, as the demand that GPU shares are placed for. Telling is optional."""
        for shape, members in form.parts:
            shape.wanted += gangs * members
            self._gradient.moved(shape, gangs * members)

    # What fits

    def form(self, needs: Sequence[Need], level: str = "", required: bool = False) -> Form:
        """The one object for these wishes."""
        return self._forms.form(needs, level, required)

    def could(self, form: Form) -> bool:
        """May the whole gang be placed now? Exact for one need; for several, for a required
        level and for gangs where there are several pools a yes may turn out a no in `place`."""
        if form.refused == self._given:
            return False
        if form.asked != self._rooms.changes:
            form.asked = self._rooms.changes
            total = self._rooms.total
            form.could = True
            for shape, members in form.parts:
                if total(shape) < members:
                    form.could = False
                    break
        return form.could

    def room(self, need: Need, *, columns: Columns | None = None) -> Ints:
        """How many such members each node could take now. The caller's own array."""
        shape = self._forms.shape(need)
        if columns is None:
            return self._rooms.row(shape).astype(np.int64)
        return columns.room(shape) * self._mask(shape, None)

    def room_now(self, form: Form) -> Callable[[int], int]:
        """How many members of a form with one need a node has room for, node by node."""
        return self._rooms.row(form.parts[0][0]).item

    def with_room(self, form: Form) -> Ints:
        """The nodes that have room now for a member of a form with one need."""
        return self._rooms.some(form.parts[0][0])

    def changed_at(self, node: int) -> int:
        """Another number whenever anything has changed on this node."""
        return self._rooms.stamps[node]

    def room_in_all(self, form: Form) -> int:
        """Members of a form with one need that have room now."""
        return self._rooms.total(form.parts[0][0])

    def room_in_pools(self, form: Form) -> dict[int, int]:
        """The same by the code of each pool."""
        return self.by_pool(self._rooms.row(form.parts[0][0]).astype(np.int64))

    def by_pool(self, room: Ints) -> dict[int, int]:
        """The sum of a column over each pool, by its code."""
        pools = self._domains()[2]
        sums = pools.sums(room)
        codes = pools.codes[pools.order[pools.starts]]
        return dict(zip(codes.tolist(), sums.tolist(), strict=True))

    def domains_of(self, level: str, seats: Iterable[Seat]) -> set[int]:
        """The domains of this level in which these seats are."""
        nodes = {self.index[seat.node] for seat in seats}
        codes = {"rack": self.rack, "block": self.block, "": self.pool}.get(level)
        return nodes if codes is None else {int(codes[node]) for node in nodes}

    def several_pools(self) -> bool:
        return self._domains()[2].count > 1

    def room_with(self, shape: Shape, devices: Ints) -> Ints:
        """How many members that want whole devices each node could take, at most, if so many more
        of its devices were free, and all else was."""
        room: Ints = (self.now.whole + devices) // shape.gpus
        return room * self._mask(shape, None)

    def room_when_empty(self, need: Need) -> Ints:
        """How many such members each node, up or down, could take if nobody else were there."""
        shape = self._forms.shape(need)
        return self.capacity.room(shape) * self._kinds.may_run(shape)[self.model]

    def only_model(self, model: str, limit: NDArray[np.integer] | None) -> Ints:
        """The same limit of members on each node, and none on nodes of other GPU models."""
        allowed = self._kinds.of([model])[self.model]
        most = np.full(len(self.names), PLENTY, dtype=np.int64) if limit is None else limit
        return np.where(allowed, most, 0)

    def place_when_empty(
        self, form: Form, models: Sequence[str] | None = None
    ) -> tuple[Seat, ...] | None:
        """Seats for the gang if nobody else were there and every node were up."""
        up = self.up.copy()
        self.up[:] = True
        try:
            return self.place(form, columns=self.capacity, models=models)
        finally:
            self.up[:] = up

    # Where it goes

    def place(
        self,
        form: Form,
        *,
        columns: Columns | None = None,
        limit: NDArray[np.integer] | None = None,
        models: Sequence[str] | None = None,
    ) -> tuple[Seat, ...] | None:
        """Seats for the whole gang at its admission size, or None. Takes nothing.

        `columns`: a what-if in place of what is free now. `limit`: the most members on each node.
        `models`: only nodes of these GPU models.
        """
        if not self.names:
            return None
        plain = columns is None and limit is None and models is None
        if len(form.parts) > 1:
            return self._place_several(form, columns or self.now, limit, models)
        shape, members = form.parts[0]
        if plain and members == 1:
            return self._place_one(form, shape)
        by_gradient = members == 1 and bool(shape.gpu_milli or self._gradient.shared)
        if columns is None and models is None and not by_gradient:
            chosen = self._gang(form, limit)
        else:
            room, key = self._column(shape, columns, limit, models)
            if by_gradient and columns is None:
                return self._seat_by_gradient(form, shape, room)
            chosen = placement.gang(room, key, members, self._domains(), form.highest)
        if chosen is None:
            if plain:
                form.refused = self._given
            return None
        return self._seats(form.needs[0], shape, columns or self.now, chosen, range(members))

    def _gang(self, form: Form, limit: NDArray[np.integer] | None) -> list[Share] | None:
        """How many members each node gets of what is free now, for a form with one need."""
        shape, members = form.parts[0]
        some = self._rooms.some(shape)
        if len(some) > _FEW_NODES:
            room, key = self._column(shape, None, limit, None)
            return placement.gang(room, key, members, self._domains(), form.highest)
        free = self._free(shape, some, limit)
        return placement.gang_among(free, members, self._domains(), form.highest)

    def _free(
        self, shape: Shape, some: Ints, limit: NDArray[np.integer] | None
    ) -> list[placement.Free]:
        """Of these nodes those with room."""
        room = self._rooms.row(shape)[some]
        if limit is not None:
            room = np.minimum(room, limit[some])
        columns = (self._rooms.keys()[some].tolist(), some.tolist(), room.tolist())
        return [one for one in zip(*columns, strict=True) if one[2] > 0]

    def shares_if(
        self,
        form: Form,
        otherwise: Mapping[int, tuple[int, int]],
        limit: NDArray[np.integer] | None = None,
    ) -> list[Share] | None:
        """How many members of a form with one need each node would get, if these nodes had that
        room and that emptiness; None: it would not fit. `limit`: the most on each other node."""
        shape = form.parts[0][0]
        some = self._rooms.some(shape)
        if len(some) + len(otherwise) <= _FEW_NODES:
            free = [one for one in self._free(shape, some, limit) if one[1] not in otherwise]
            free += [(empty, node, most) for node, (most, empty) in otherwise.items() if most > 0]
            free.sort(key=lambda one: one[1])
            return placement.gang_among(free, form.members, self._domains(), form.highest)
        room, key = self._column(shape, None, limit, None)
        key = key.copy()
        for node, (members, empty) in otherwise.items():
            room[node], key[node] = members, empty
        return placement.gang(room, key, form.members, self._domains(), form.highest)

    def extend(
        self,
        form: Form,
        seats: Sequence[Seat],
        extra: int,
        *,
        limit: NDArray[np.integer] | None = None,
    ) -> tuple[Seat, ...]:
        """Seats for up to `extra` more members of the elastic need, as near as possible to where
        the gang is, without those it has. May be empty."""
        if form.elastic < 0 or not self.names:
            return ()
        need = form.needs[form.elastic]
        shape = form.parts[form.elastic][0]
        indexes = {seat.index for seat in seats if seat.role == need.role}
        extra = min(extra, need.count - len(indexes))
        if extra <= 0:
            return ()
        places = {self.index[seat.node] for seat in seats}
        some = self._rooms.some(shape)
        if places and len(some) <= _FEW_NODES:
            free = self._free(shape, some, limit)
            chosen = placement.extend_among(free, places, extra, self._domains(), form.highest)
            unused = (index for index in range(need.count) if index not in indexes)
            return self._seats(need, shape, self.now, chosen, unused)
        room, key = self._column(shape, None, limit, None)
        held = np.array(sorted(places), dtype=np.int64)
        if len(held):
            chosen = placement.extend(room, key, held, extra, self._domains(), form.highest)
        else:
            members = min(extra, int(room.sum()))
            chosen = placement.gang(room, key, members, self._domains(), form.highest) or []
        unused = (index for index in range(need.count) if index not in indexes)
        return self._seats(need, shape, self.now, chosen, unused)

    def _place_one(self, form: Form, shape: Shape) -> tuple[Seat, ...] | None:
        if shape.gpu_milli or self._gradient.shared:
            return self._seat_by_gradient(form, shape, self._rooms.row(shape))
        node = self._rooms.best(shape)
        if node < 0:
            return None
        devices: tuple[int, ...] = ()
        if shape.gpus or shape.gpu_milli:
            devices = self.now.devices(node, shape, 1)[0]
        return (Seat(form.needs[0].role, 0, self.names[node], devices),)

    def _seat_by_gradient(
        self, form: Form, shape: Shape, allowed: NDArray[np.integer]
    ) -> tuple[Seat, ...] | None:
        room = self._rooms.row(shape)
        chosen = self._gradient.choose(
            shape, room, allowed, self._rooms.keys(), self.model, self._forms.shapes.values()
        )
        if chosen is None:
            return None
        node, devices = chosen
        return (Seat(form.needs[0].role, 0, self.names[node], devices),)

    def _place_several(
        self,
        form: Form,
        columns: Columns,
        limit: NDArray[np.integer] | None,
        models: Sequence[str] | None,
    ) -> tuple[Seat, ...] | None:
        masks = [self._mask(shape, models) for shape, _ in form.parts]
        chosen = placement.several(
            columns,
            form.parts,
            masks,
            None if limit is None else np.asarray(limit, dtype=np.int64),
            self._rooms.capacity_devices[: columns.nodes],
            self._domains(),
            form.highest,
        )
        if chosen is None:
            return None
        return tuple(
            Seat(need.role, index, self.names[node], devices)
            for need, part in zip(form.needs, chosen, strict=True)
            for index, (node, devices) in enumerate(
                (node, devices) for node, members in part for devices in members
            )
        )

    def _seats(
        self,
        need: Need,
        shape: Shape,
        columns: Columns,
        chosen: Sequence[Share],
        indexes: Iterable[int],
    ) -> tuple[Seat, ...]:
        numbers = iter(indexes)
        return tuple(
            Seat(need.role, next(numbers), self.names[node], devices)
            for node, count in chosen
            for devices in columns.devices(node, shape, count)
        )

    def _column(
        self,
        shape: Shape,
        columns: Columns | None,
        limit: NDArray[np.integer] | None,
        models: Sequence[str] | None,
    ) -> tuple[Ints, Ints]:
        """Room for the shape by node, as narrowed for one call, and the order of best fit."""
        if columns is None:
            room = self._rooms.row(shape).astype(np.int64)
            key = self._rooms.keys()
            if models is not None:
                room *= self._mask(shape, models)
        else:
            room = columns.room(shape) * self._mask(shape, models)
            key = emptiness(columns, self._rooms.capacity_devices[: columns.nodes])
        if limit is not None:
            np.minimum(room, limit, out=room)
        return room, key

    def _mask(self, shape: Shape, models: Sequence[str] | None) -> Ints:
        allowed = self._kinds.may_run(shape)
        if models is not None and (shape.gpus or shape.gpu_milli):
            allowed = allowed & self._kinds.of(models)
        return placement.may_run(allowed, self.model, self.up)

    def _domains(self) -> list[Domains]:
        if self._levels is None:
            self._levels = [Domains(codes.copy()) for codes in (self.rack, self.block, self.pool)]
        return self._levels
