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
from itertools import islice

import numpy as np

from windlass.scheduler.columns import DEVICE, PLENTY, Columns, Ints
from windlass.scheduler.entries import Entry
from windlass.scheduler.events import NEVER, Need, Seat
from windlass.scheduler.nodes import Form, Nodes
from windlass.scheduler.outlook import Outlook
from windlass.scheduler.running import Running

_FIRST_LOOK = 8
_FEW_ENDS = 512
_FEW_NODES = 64


class Reservation:
    __slots__ = (
        "entry", "start_ms", "seats", "names", "nodes", "spare", "claim", "made", "_rooms",
        "serial",
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

    def binds(self, end_ms: int) -> bool:
        """Whether a job that ends then has to leave alone what is kept here."""
        return self.claim or end_ms > self.start_ms

    def room(self, form: Form) -> Ints:
        """The most members that may be put on each of its nodes without touching what is kept."""
        known = self._rooms.get(form)
        if known is None:
            known = self._rooms[form] = self._room(form.needs)
        return known

    def _room(self, needs: tuple[Need, ...]) -> Ints:
        room = np.full(len(self.nodes), PLENTY, dtype=np.int64)
        spare = self.spare
        if self.entry.shares or any(need.gpu_milli for need in needs):
            return np.zeros(len(self.nodes), dtype=np.int64)
        for free, wish in (
            (spare.cpus, max(need.cpus_milli for need in needs)),
            (spare.memory, max(need.memory_bytes for need in needs)),
            (spare.slots, max(need.slots for need in needs)),
            (spare.whole, max(need.gpus for need in needs)),
        ):
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

    def follow(
        self, planned: Reservation, seats: Iterable[Seat]
    ) -> tuple[list[Seat], list[tuple[str, int, int]]]:
        """One that was planned before this has been put on these seats, maybe with other devices
        than was thought: what is kept here moves to those it left. Returns what it was given
        beside its plan, and what was exchanged here."""
        before: dict[str, list[Seat]] = {}
        for seat in planned.seats:
            before.setdefault(seat.node, []).append(seat)
        beyond: list[Seat] = []
        took: dict[str, list[int]] = {}
        left: dict[str, list[int]] = {}
        for seat in seats:
            expected = before.get(seat.node)
            if not expected:
                beyond.append(seat)
                continue
            took.setdefault(seat.node, []).extend(seat.gpus)
            left.setdefault(seat.node, []).extend(expected.pop().gpus)
        exchanged: list[tuple[str, int, int]] = []
        if self.entry.shares or planned.entry.shares:
            return beyond, exchanged
        for node, devices in took.items():
            if node not in self.names:
                continue
            free = [device for device in left[node] if device not in devices]
            gone = [device for device in devices if device not in left[node]]
            for device, other in zip(gone, free, strict=False):
                if self.move(node, device, other):
                    exchanged.append((node, device, other))
        return beyond, exchanged

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

    def with_its_own(self, limit: Ints) -> Ints:
        """The same limit for the job itself: what is kept for it is its own."""
        limit = limit.copy()
        for name, row in self.names.items():
            at = self.nodes[row]
            limit[at] = max(int(limit[at]), self.mine(name))
        return limit

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


class Reservations:
    def __init__(self) -> None:
        self.all: dict[str, Reservation] = {}
        self.on: dict[str, list[Reservation]] = {}
        """By node: what is kept there."""
        self._serial = 0
        self._limits: dict[Form, Ints] = {}
        """For a job that all of them bind; good until one changes."""
        self._lowest: int | None = None
        self._nodes: Ints | None = None

    def add(self, reservation: Reservation) -> None:
        self.all[reservation.entry.told.job_id] = reservation
        self._serial += 1
        reservation.serial = self._serial
        self._limits.clear()
        self._lowest = self._nodes = None
        for name in reservation.names:
            self.on.setdefault(name, []).append(reservation)

    def exchange(self, one: Reservation, other: Reservation) -> None:
        """What is kept for each is now kept for the other; they ask for the same."""
        one.entry, other.entry = other.entry, one.entry
        one.entry.charged, other.entry.charged = other.entry.charged, one.entry.charged
        for reservation in (one, other):
            self.all[reservation.entry.told.job_id] = reservation
        self._lowest = None

    def own_and_drains_after(self, own: Reservation) -> list[Reservation]:
        """What is not in the way of who has this: that, and nodes that are kept free for others
        who came to it later and whose time nobody knows."""
        kept = list(self.all.values())
        later = kept[kept.index(own) + 1 :] if own in kept else []
        return [own, *(k for k in later if k.claim and k.start_ms >= NEVER)]

    def remove(self, job_id: str) -> Reservation | None:
        reservation = self.all.pop(job_id, None)
        if reservation is not None:
            self._limits.clear()
            self._lowest = self._nodes = None
            for name in reservation.names:
                kept = self.on[name]
                kept.remove(reservation)
                if not kept:
                    del self.on[name]
        return reservation

    def trespass(
        self, seats: Iterable[Seat], end_ms: int, passing: Iterable[Reservation] = ()
    ) -> bool:
        """Whether these seats lie on a node of which something is kept from a job that ends
        then. (There may still be enough to spare.)"""
        on = self.on
        if not on:
            return False
        passed = list(passing)
        return any(
            reservation.binds(end_ms) and reservation not in passed
            for seat in seats
            for reservation in on.get(seat[2], ())
        )

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

    def nodes(self) -> Ints:
        """All nodes of which something is kept."""
        if self._nodes is None:
            every = [r.nodes for r in self.all.values()]
            self._nodes = np.unique(np.concatenate(every)) if every else np.zeros(0, np.int64)
        return self._nodes

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

    def started(
        self,
        needs: Sequence[Need],
        seats: Sequence[Seat],
        end_ms: int,
        planned: Reservation | None = None,
    ) -> None:
        """A job has been put on these seats. `planned`: its time had come, and this was kept for
        it. Reservations made after that one did not count its seats as their spare."""
        on = self.on
        if not on:
            return
        bound = {
            id(reservation): reservation
            for seat in seats
            for reservation in on.get(seat[2], ())
            if reservation.binds(end_ms)
        }
        if bound:
            self._limits.clear()
        for reservation in sorted(bound.values(), key=lambda one: one.serial):
            beyond = list(seats)
            exchanged: list[tuple[str, int, int]] = []
            if planned is not None and reservation.serial > planned.serial:
                beyond, exchanged = reservation.follow(planned, seats)
            exchanged += reservation.use_spare(needs, beyond)
            for node, device, other in exchanged:
                self._tell_later(reservation, node, device, other)

    def _tell_later(self, one: Reservation, node: str, device: int, other: int) -> None:
        """It is now planned with another device: those planned after it counted on what it had,
        and may have to exchange theirs in turn."""
        for later in self.on[node]:
            if later.serial > one.serial and later.move(node, other, device):
                self._tell_later(later, node, other, device)


def spare_on(seats: Iterable[Seat], at_start: Columns, nodes: Nodes) -> Columns:
    """Of what will be free, the nodes of these seats."""
    names = dict.fromkeys(seat.node for seat in seats)
    return at_start.subset(np.array([nodes.index[name] for name in names], dtype=np.int64))


Found = tuple[int, tuple[Seat, ...], Columns]
"""When, where, and what is to spare then."""


def plan(
    entry: Entry,
    nodes: Nodes,
    running: Running,
    ahead: Reservations,
    now_ms: int,
    models: Sequence[str] | None = None,
) -> Found | None:
    """The earliest time at which the gang fits (on these GPU models), if everybody ends when it is
    thought to and those `ahead` have what they were promised. None: never, as far as is known."""
    if len(entry.form.needs) == 1 and not entry.form.required and models is None:
        found = _plan_soon(entry, nodes, running, ahead, now_ms)
        if found is not None:
            return found
    found = _plan_by_columns(entry, nodes, running, ahead, now_ms, models)
    return found and (found[0], found[1], spare_on(found[1], found[2], nodes))


def _plan_soon(
    entry: Entry, nodes: Nodes, running: Running, ahead: Reservations, now_ms: int
) -> Found | None:
    """The same, if it fits after the first few ends; None: not found."""
    outlook = Outlook(entry.form, nodes, ahead)
    if outlook.fits_now():
        return None
    ended = []
    for other_entry in islice(running.by_end(), _FEW_ENDS):
        ended.append(other_entry)
        if outlook.ends(other_entry):
            break
    else:
        return None
    when = max(now_ms + 1, ended[-1].ends_ms)  # somebody has to leave first
    if entry.form.members == 1:
        return (when, *outlook.only_seat(ended[-1]))
    columns = nodes.now.copy()
    for other in ahead.all.values():
        columns.take(other.entry.told.needs, other.seats)
    running.held.shift(columns, ended, 1)
    seats = nodes.place(entry.form, columns=columns)
    assert seats is not None, "there is room in all of one pool"
    columns.take(entry.told.needs, seats)
    return when, seats, spare_on(seats, columns, nodes)


def _plan_by_columns(
    entry: Entry,
    nodes: Nodes,
    running: Running,
    ahead: Reservations,
    now_ms: int,
    models: Sequence[str] | None,
) -> Found | None:
    """The same, however far off it is; tells what is free then on all nodes."""
    columns = nodes.now.copy()
    for other in ahead.all.values():
        columns.take(other.entry.told.needs, other.seats)
    form = entry.form
    seats = _fits(form, nodes, columns, models)
    if seats is not None:
        columns.take(entry.told.needs, seats)
        return now_ms, seats, columns
    ending = running.by_end()
    step, held = _FIRST_LOOK, running.held
    while chunk := list(islice(ending, step)):
        before = columns.copy()
        held.shift(columns, chunk, 1)
        if _fits(form, nodes, columns, models) is not None:
            low, high = 0, len(chunk)  # not enough after `low` of them, enough after `high`
            while high - low > 1:
                middle = (low + high) // 2
                trial = before.copy()
                held.shift(trial, chunk[low:middle], 1)
                if _fits(form, nodes, trial, models) is None:
                    low, before = middle, trial
                else:
                    high, columns = middle, trial
            seats = _fits(form, nodes, columns, models)
            assert seats is not None
            columns.take(entry.told.needs, seats)
            return max(now_ms + 1, chunk[high - 1].ends_ms), seats, columns
        step *= 2
    return None


def drain(
    entry: Entry,
    nodes: Nodes,
    ahead: Reservations | None = None,
    models: Sequence[str] | None = None,
) -> tuple[Seat, ...] | None:
    """Where the gang would go if nobody else ran (but those `ahead`): nodes to keep new work away
    from, when nothing is known of the ends of those who run there."""
    columns = nodes.capacity.copy()
    for other in ahead.all.values() if ahead is not None else ():
        columns.take(other.entry.told.needs, other.seats)
    return nodes.place(entry.form, columns=columns, models=models)


def _fits(
    form: Form, nodes: Nodes, columns: Columns, models: Sequence[str] | None
) -> tuple[Seat, ...] | None:
    if len(form.needs) == 1:
        need = form.needs[0]
        room = nodes.room(need, columns=columns)
        if int(room.sum()) < form.members:
            return None
    return nodes.place(form, columns=columns, models=models)
