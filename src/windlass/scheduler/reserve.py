"""Reservations: what is kept for jobs that cannot start yet, on concrete nodes.

A reservation holds seats on nodes as they will be at `start_ms`, and what those nodes will have
to spare then. Another job may be placed on these nodes if it ends by then, or if it takes no more
than the spare; so the promise can only get better. What is taken by a preemption is a *claim*: a
reservation whose time is now, so that everybody has to leave it alone.

    now ──────── ends by start_ms: may use all that is free ────────┤ start_ms
    now ──────── runs longer: may use `spare` only ─────────────────┼──────────────►
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np

from windlass.scheduler.columns import DEVICE, PLENTY, Columns, Ints, Shape
from windlass.scheduler.entries import Entry
from windlass.scheduler.events import NEVER, Need, Seat
from windlass.scheduler.nodes import Form, Nodes

_FEW_NODES = 64
_ONE_BY_ONE = 8


class Reservation:
    __slots__ = (
        "entry", "start_ms", "seats", "names", "nodes", "spare", "claim", "made", "_rooms",
        "serial", "uses",
    )  # fmt: skip

    def __init__(
        self,
        entry: Entry,
        start_ms: int,
        seats: tuple[Seat, ...],
        spare: Columns,
        nodes: Nodes,
        *,
        claim: bool,
        tick: int,
    ) -> None:
        """`spare`: what will be free on its nodes at `start_ms`, with these seats taken."""
        self.entry = entry
        self.start_ms = start_ms
        self.seats = seats
        self.names = {
            name: row for row, name in enumerate(dict.fromkeys(seat.node for seat in seats))
        }
        """Its nodes, and the row of each in `nodes`, `spare` and `room`."""
        self.nodes: Ints = np.array([nodes.index[name] for name in self.names], dtype=np.int64)
        self.spare = spare
        self.claim = claim
        self.made = tick
        self.serial = 0
        """The order in which they were made: one does not count on what earlier ones keep."""
        self._rooms: dict[Form, Ints] = {}
        self.uses: list[Reservation] = []
        """Of these it uses what they have to spare."""

    def binds(self, end_ms: int) -> bool:
        """Whether a job that ends then has to leave alone what is kept here."""
        return self.claim or end_ms > self.start_ms

    def room(self, form: Form) -> Ints:
        """The most members that may be put on each of its nodes without touching what is kept."""
        known = self._rooms.get(form)
        if known is None:
            known = self._rooms[form] = self._room(form)
        return known

    def _room(self, form: Form) -> Ints:
        if self.entry.shares or any(need.gpu_milli for need in form.needs):
            return np.zeros(len(self.nodes), dtype=np.int64)
        if len(form.parts) == 1:
            wishes = form.parts[0][0].amounts
        else:
            wishes = tuple(map(max, *(shape.amounts for shape, _ in form.parts)))
        if len(self.nodes) <= _ONE_BY_ONE:
            rows: list[list[int]] = self.spare.amounts.T.tolist()
            return np.array([_members(free, wishes) for free in rows], dtype=np.int64)
        room = np.full(len(self.nodes), PLENTY, dtype=np.int64)
        for free, wish in zip(self.spare.amounts, wishes, strict=True):
            if wish:
                np.minimum(room, free // wish, out=room)
        return np.maximum(room, 0, out=room)

    def use_spare(
        self, needs: Sequence[Need], seats: Iterable[Seat]
    ) -> list[tuple[str, int, int]]:
        """A job that runs past `start_ms` has been put on these seats: less is to spare. Devices
        that were planned for this reservation and are now another's are exchanged: returned as
        (node, what was planned, what is now)."""
        exchanged: list[tuple[str, int, int]] = []
        order = self.names
        self._rooms.clear()
        spare = self.spare
        for seat in seats:
            row = order.get(seat.node)
            if row is None:
                continue
            need = next(need for need in needs if need.role == seat.role)
            spare.cpus[row] -= need.cpus_milli
            spare.memory[row] -= need.memory_bytes
            spare.slots[row] -= need.slots
            for device in seat.gpus:
                if need.gpus and spare.gpu[row, device] < DEVICE:
                    planned, device = device, self._exchange(seat.node, row, device)
                    if device != planned:
                        exchanged.append((seat.node, planned, device))
                spare.gpu[row, device] -= need.gpu_milli or DEVICE
            spare.whole[row] = int((spare.gpu[row] == DEVICE).sum())
        return exchanged

    def give_back(self, gone: Reservation) -> None:
        """What was kept for another, and so was not to spare here, is to spare again."""
        self._rooms.clear()
        spare = self.spare
        for name, row in self.names.items():
            for need, seat in gone.at(name):
                spare.cpus[row] += need.cpus_milli
                spare.memory[row] += need.memory_bytes
                spare.slots[row] += need.slots
                for device in seat.gpus:
                    spare.gpu[row, device] += need.gpu_milli or DEVICE
            spare.whole[row] = int((spare.gpu[row] == DEVICE).sum())

    def move(self, node: str, device: int, other: int) -> bool:
        """Another has this device of the node, and not that one as was thought. True: this one
        was planned with it, and takes the other."""
        row = self.names[node]
        self._rooms.clear()
        if any(seat.node == node and device in seat.gpus for seat in self.seats):
            self._plan_with(node, device, other)
            return True
        gpu = self.spare.gpu[row]
        gpu[device] -= DEVICE
        gpu[other] += DEVICE
        self.spare.whole[row] = int((gpu == DEVICE).sum())
        return False

    def _plan_with(self, node: str, device: int, other: int) -> None:
        self.seats = tuple(
            seat._replace(gpus=tuple(other if own == device else own for own in seat.gpus))
            if seat.node == node and device in seat.gpus
            else seat
            for seat in self.seats
        )

    def at(self, name: str) -> list[tuple[Need, Seat]]:
        """Its members on this node."""
        needs = {need.role: need for need in self.entry.told.needs}
        return [(needs[seat.role], seat) for seat in self.seats if seat.node == name]

    def mine(self, name: str) -> int:
        """How many of its members go to this node."""
        if name not in self.names:
            return 0
        return sum(seat.node == name for seat in self.seats)

    def _exchange(self, node: str, row: int, device: int) -> int:
        """Plan with another device of the node in place of this one; returns the other."""
        ready = np.flatnonzero(self.spare.gpu[row] == DEVICE)
        if not len(ready):
            return device
        other = int(ready[0])
        self._plan_with(node, device, other)
        return other


def _members(free: Sequence[int], wishes: Sequence[int]) -> int:
    room = PLENTY
    for amount, wish in zip(free, wishes, strict=True):
        if wish:
            room = min(room, amount // wish)
    return max(room, 0)


class Reservations:
    def __init__(self) -> None:
        self.all: dict[str, Reservation] = {}
        self.on: dict[str, list[Reservation]] = {}
        """By node: what is kept there."""
        self._serial = 0
        self.moves = 0
        """How often a device that was planned with was exchanged for another."""
        self._devices: dict[str, frozenset[int]] = {}
        """By node: the devices that somebody is planned with, as far as was asked."""
        self.beside: dict[str, dict[Shape, tuple[int, int, int]]] = {}
        """By node: as of which change of it, how many members have room beside what is kept there,
        and how empty it then is; as far as was asked."""
        self._limits: dict[Form, Ints] = {}
        """For a job that all of them bind; good until one changes."""
        self._lowest: int | None = None

    def add(self, reservation: Reservation) -> None:
        if reservation.claim and reservation.start_ms < NEVER:
            self._use_spare(reservation)
        self.all[reservation.entry.told.job_id] = reservation
        self._serial += 1
        reservation.serial = self._serial
        reservation.entry.turn = reservation.entry.turn or self._serial
        self._limits.clear()
        self._lowest = None
        for name in reservation.names:
            self.on.setdefault(name, []).append(reservation)
            self._forget_plans(name)

    def exchange(self, one: Reservation, other: Reservation) -> None:
        """What is kept for each is now kept for the other; they ask for the same."""
        one.entry, other.entry = other.entry, one.entry
        one.entry.charged, other.entry.charged = other.entry.charged, one.entry.charged
        one.entry.turn, other.entry.turn = other.entry.turn, one.entry.turn
        for reservation in (one, other):
            self.all[reservation.entry.told.job_id] = reservation
        self._lowest = None

    def pass_on(self, kept: Reservation, entry: Entry) -> None:
        """What was kept for one is now kept for another, that asks for the same."""
        del self.all[kept.entry.told.job_id]
        entry.turn = kept.entry.turn
        kept.entry = entry
        self.all[entry.told.job_id] = kept
        self._lowest = None

    def own_and_drains_after(self, own: Reservation) -> list[Reservation]:
        """What is not in the way of who has this: that, and nodes that are kept free for others
        whose turn is later and whose time nobody knows."""
        return [own, *self.drains_after(own.entry)]

    def drains_after(self, entry: Entry) -> list[Reservation]:
        """Nodes that are kept free for those who had something kept for them since later."""
        turn = entry.turn or NEVER
        drains = (k for k in self.all.values() if k.claim and k.start_ms >= NEVER)
        return [drain for drain in drains if drain.entry.turn > turn]

    def in_turn(self) -> list[Reservation]:
        """In the order in which something was first kept for them."""
        return sorted(self.all.values(), key=lambda kept: kept.entry.turn)

    def remove(self, job_id: str) -> Reservation | None:
        reservation = self.all.pop(job_id, None)
        if reservation is not None:
            self._limits.clear()
            self._lowest = None
            counted = {id(other): other for other in reservation.uses}
            for name in reservation.names:
                for other in self.on[name]:
                    if other.serial > reservation.serial and not other.claim:
                        counted[id(other)] = other
            for other in counted.values():
                other.give_back(reservation)
            for name in reservation.names:
                kept = self.on[name]
                self._forget_plans(name)
                kept.remove(reservation)
                if not kept:
                    del self.on[name]
        return reservation

    def _forget_plans(self, name: str) -> None:
        """What is planned on this node is another."""
        self._devices.pop(name, None)
        self.beside.pop(name, None)

    def _use_spare(self, claim: Reservation) -> None:
        """Who takes what others leave starts as soon as they have: of what is to spare beside
        earlier promises, this is its own from now on."""
        earlier = {id(kept): kept for name in claim.names for kept in self.on.get(name, ())}
        claim.uses = list(earlier.values())
        for kept in claim.uses:
            for node, device, other in kept.use_spare(claim.entry.told.needs, claim.seats):
                self._tell_later(kept, node, device, other)

    def trespass(
        self, seats: Iterable[Seat], end_ms: int, passing: Collection[Reservation] = ()
    ) -> bool:
        """Whether these seats lie on a node of which something is kept from a job that ends
        then. (There may still be enough to spare.)"""
        on = self.on
        if not on:
            return False
        for seat in seats:
            for reservation in on.get(seat[2], ()):
                if reservation.claim or end_ms > reservation.start_ms:
                    if reservation not in passing:
                        return True
        return False

    def limit(
        self,
        form: Form,
        end_ms: int,
        nodes: Nodes,
        passing: Iterable[Reservation] = (),
    ) -> Ints | None:
        """The most members on each node for a job that ends then (not the caller's own array);
        None: no limit at all."""
        passed = list(passing)
        binding = [r for r in self.all.values() if r.binds(end_ms) and r not in passed]
        if not binding:
            return None
        if len(binding) < len(self.all):
            return self._fold(binding, form, nodes)
        known = self._limits.get(form)
        if known is None or len(known) != len(nodes.names):
            known = self._limits[form] = self._fold(binding, form, nodes)
        return known

    def most_at(self, form: Form, name: str, end_ms: int, passed: Collection[Reservation]) -> int:
        """`limit` of one node."""
        most = PLENTY
        for reservation in self.on.get(name, ()):
            if (reservation.claim or end_ms > reservation.start_ms) and reservation not in passed:
                most = min(most, int(reservation.room(form)[reservation.names[name]]))
        return most

    def devices_on(self, name: str) -> frozenset[int]:
        """The devices of this node that somebody is planned with."""
        known = self._devices.get(name)
        if known is None:
            known = self._devices[name] = frozenset(
                device
                for one in self.on[name]
                for seat in one.seats
                if seat.node == name
                for device in seat.gpus
            )
        return known

    def until(self, form: Form, name: str) -> int:
        """When a member that is put on this node must have ended; -1: none may be put there."""
        until = NEVER
        for reservation in self.on.get(name, ()):
            if not reservation.room(form)[reservation.names[name]]:
                until = min(until, -1 if reservation.claim else reservation.start_ms)
        return until

    def limit_now(
        self, form: Form, end_ms: int, nodes: Nodes, passed: Collection[Reservation]
    ) -> Ints | None:
        """`limit` for a question about what is free now: right for nodes with room, of any size
        for the others."""
        if len(form.parts) > 1:
            return self.limit(form, end_ms, nodes, passed)
        some = nodes.with_room(form)
        if len(some) > _FEW_NODES:
            return self.limit(form, end_ms, nodes, passed)
        limit = np.full(len(nodes.names), PLENTY, dtype=np.int64)
        names, on = nodes.names, self.on
        for node in some.tolist():
            name = names[node]
            if name in on:
                limit[node] = self.most_at(form, name, end_ms, passed)
        return limit

    def lowest_priority(self) -> int:
        """No promise is to a job of a lower one; `NEVER`: there is no promise to pass."""
        if self._lowest is None:
            self._lowest = min(
                (r.entry.told.priority for r in self.all.values() if not r.claim), default=NEVER
            )
        return self._lowest

    @staticmethod
    def _fold(binding: Sequence[Reservation], form: Form, nodes: Nodes) -> Ints:
        limit = np.full(len(nodes.names), PLENTY, dtype=np.int64)
        for reservation in binding:
            at = reservation.nodes
            limit[at] = np.minimum(limit[at], reservation.room(form))
        return limit

    def started(self, needs: Sequence[Need], seats: Sequence[Seat], end_ms: int) -> None:
        """A job has been put on these seats: less is to spare for those who start before its
        end."""
        on = self.on
        if not on:
            return
        bound: dict[int, Reservation] = {}
        for seat in seats:
            for reservation in on.get(seat[2], ()):
                if reservation.claim or end_ms > reservation.start_ms:
                    bound[id(reservation)] = reservation
        if not bound:
            return
        self._limits.clear()
        for reservation in sorted(bound.values(), key=lambda one: one.serial):
            for node, device, other in reservation.use_spare(needs, seats):
                self._tell_later(reservation, node, device, other)

    def _tell_later(self, one: Reservation, node: str, device: int, other: int) -> None:
        """It is now planned with another device: those planned after it counted on what it had,
        and may have to exchange theirs in turn."""
        self.moves += 1
        self._forget_plans(node)
        for later in self.on[node]:
            if later.serial > one.serial and later.move(node, other, device):
                self._tell_later(later, node, other, device)
