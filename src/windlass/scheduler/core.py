"""The scheduler's core: events in, decisions out.

No clock, no thread, no I/O, no randomness: the same events give the same decisions, in
production from a loop, in tests from a list. This inside is the smallest right one: by priority,
then strictly first come, first served; a gang starts whole or not at all; what a node offers is
never exceeded. `apply` and the event and decision types are what later insides keep.

    Submit ──► queue ──► Start(placement) ──► holds resources until Release
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from windlass.core.jobs import Placed
from windlass.core.resources import Node, Resources, describe


@dataclass(frozen=True)
class Ask:
    """`count` members of one role, each wanting `each`."""

    role: str
    count: int
    each: Resources


@dataclass(frozen=True)
class NodeUp:
    node: Node


@dataclass(frozen=True)
class NodeDown:
    """The node takes nothing new. What runs there keeps what it holds until released."""

    name: str


@dataclass(frozen=True)
class Submit:
    job_id: str
    order: tuple[int, ...]
    """Smaller goes first."""
    asks: tuple[Ask, ...]


@dataclass(frozen=True)
class Withdraw:
    job_id: str


@dataclass(frozen=True)
class Restore:
    """A job that holds this placement already: how a restarted server rebuilds the core."""

    job_id: str
    asks: tuple[Ask, ...]
    placement: tuple[Placed, ...]


@dataclass(frozen=True)
class Release:
    job_id: str


Event = NodeUp | NodeDown | Submit | Withdraw | Restore | Release


@dataclass(frozen=True)
class Start:
    job_id: str
    placement: tuple[Placed, ...]


Decision = Start


@dataclass(frozen=True)
class Reason:
    """Why a job waits: one machine word, what is missing, a sentence."""

    code: str
    sentence: str
    missing: dict[str, int] = field(default_factory=dict)


@dataclass
class _Room:
    """A node with what is free on it now."""

    node: Node
    free: Resources
    gpu_ids: list[str]
    up: bool = True

    @classmethod
    def empty(cls, node: Node) -> _Room:
        return cls(node, node.capacity, list(node.gpu_ids))

    def copy(self) -> _Room:
        return _Room(self.node, self.free, list(self.gpu_ids), self.up)

    def take(self, role: str, index: int, each: Resources) -> Placed:
        self.free = self.free.minus(each)
        taken, self.gpu_ids = self.gpu_ids[: each.gpus], self.gpu_ids[each.gpus :]
        return Placed(role=role, index=index, node=self.node.name, gpu_ids=tuple(taken))


class Core:
    def __init__(self) -> None:
        self._rooms: dict[str, _Room] = {}
        self._queue: dict[str, Submit] = {}  # in order of `order`
        self._held: dict[str, tuple[tuple[Ask, ...], tuple[Placed, ...]]] = {}
        self._blocked: Reason | None = None

    def apply(self, event: Event) -> list[Decision]:
        """Take one event in; answer with what to do now. Every event may be repeated."""
        match event:
            case NodeUp(node):
                self._node_up(node)
            case NodeDown(name):
                if name in self._rooms:
                    self._rooms[name].up = False
            case Submit(job_id):
                if job_id not in self._held:
                    self._enqueue(event)
            case Withdraw(job_id):
                self._queue.pop(job_id, None)
            case Restore(job_id, asks, placement):
                self._queue.pop(job_id, None)
                if job_id not in self._held:
                    self._hold(job_id, asks, placement)
            case Release(job_id):
                self._queue.pop(job_id, None)
                self._let_go(job_id)
        return self._start_what_fits()

    def why(self, job_id: str) -> Reason | None:
        """Why a queued job waits; None when it does not wait here."""
        if job_id not in self._queue:
            return None
        position = list(self._queue).index(job_id)
        first = self._blocked or Reason("dispatching", "it is about to start")
        if position == 0:
            return first
        ahead = f"{position} job{'s' if position > 1 else ''} ahead of it"
        return Reason(
            "waiting-queue",
            f"{ahead}; the first of them: {first.sentence}",
            first.missing,
        )

    def could_start(self, asks: Sequence[Ask]) -> bool:
        """Whether such a gang would start now, were it submitted."""
        rooms = [room for room in self._rooms.values() if room.up]
        return not self._queue and place(asks, rooms) is not None

    def free(self) -> dict[str, Resources]:
        return {name: room.free for name, room in self._rooms.items() if room.up}

    def _node_up(self, node: Node) -> None:
        room = _Room.empty(node)
        self._rooms[node.name] = room
        for asks, placement in self._held.values():
            each = {ask.role: ask.each for ask in asks}
            for placed in placement:
                if placed.node == node.name:
                    self._occupy(room, placed, each[placed.role])

    def _enqueue(self, submit: Submit) -> None:
        last = next(reversed(self._queue.values()), None)
        self._queue[submit.job_id] = submit
        if (
            last is not None and submit.order < last.order
        ):  # a higher priority, or one that comes back
            self._queue = dict(sorted(self._queue.items(), key=lambda item: item[1].order))

    def _hold(self, job_id: str, asks: tuple[Ask, ...], placement: tuple[Placed, ...]) -> None:
        self._held[job_id] = (asks, placement)
        each = {ask.role: ask.each for ask in asks}
        for placed in placement:
            if placed.node in self._rooms:
                self._occupy(self._rooms[placed.node], placed, each[placed.role])

    @staticmethod
    def _occupy(room: _Room, placed: Placed, each: Resources) -> None:
        # A node that came back smaller may owe more than it has: it offers nothing, never less.
        room.free = Resources(
            **{
                kind: max(0, getattr(room.free, kind) - getattr(each, kind))
                for kind in Resources.model_fields
            }
        )
        room.gpu_ids = [gpu for gpu in room.gpu_ids if gpu not in placed.gpu_ids]

    def _let_go(self, job_id: str) -> None:
        if job_id not in self._held:
            return
        _, placement = self._held.pop(job_id)
        for name in {placed.node for placed in placement} & set(self._rooms):
            up = self._rooms[name].up
            self._node_up(self._rooms[name].node)
            self._rooms[name].up = up

    def _start_what_fits(self) -> list[Decision]:
        decisions: list[Decision] = []
        while self._queue:
            head = next(iter(self._queue.values()))
            placement = place(head.asks, [room for room in self._rooms.values() if room.up])
            if placement is None:
                self._blocked = self._explain(head)
                break
            del self._queue[head.job_id]
            self._hold(head.job_id, head.asks, placement)
            decisions.append(Start(head.job_id, placement))
        else:
            self._blocked = None
        return decisions

    def _explain(self, head: Submit) -> Reason:
        rooms = [room for room in self._rooms.values() if room.up]
        if not rooms:
            return Reason("waiting-nodes", "no node is up")
        total = _total(head.asks)
        free = Resources()
        for room in rooms:
            free = free.plus(room.free)
        missing = total.missing(free)
        if missing:
            words = " and ".join(
                f"needs {describe(kind, getattr(total, kind))}, "
                f"{describe(kind, getattr(free, kind))} free"
                for kind in missing
            )
            return Reason("waiting-nodes", words, missing)
        return Reason(
            "waiting-nodes-fragmented",
            "enough is free in all, but not on single nodes: every member must fit on one",
        )


def place(asks: Sequence[Ask], rooms: Sequence[_Room]) -> tuple[Placed, ...] | None:
    """The whole gang on concrete nodes, or None. Larger members first, fullest fitting node
    first (so that free nodes stay whole); the result is in order of role and index."""
    trial = {room.node.name: room.copy() for room in rooms}
    sized = sorted(
        asks,
        key=lambda ask: (ask.each.gpus, ask.each.memory_bytes, ask.each.cpus_milli),
        reverse=True,
    )
    found: dict[str, list[Placed]] = {}
    for ask in sized:
        for index in range(ask.count):
            fitting = [room for room in trial.values() if ask.each.fits(room.free)]
            if not fitting:
                return None
            best = min(fitting, key=lambda room: _room_order(room, ask.each))
            found.setdefault(ask.role, []).append(best.take(ask.role, index, ask.each))
    return tuple(placed for ask in asks for placed in found[ask.role])


def never_fits(asks: Sequence[Ask], nodes: Iterable[Node]) -> str | None:
    """Why this gang could not start even on idle nodes; None when it could."""
    rooms = [_Room.empty(node) for node in nodes]
    if not rooms:
        return "there is no node"
    for ask in asks:
        if any(ask.each.fits(room.free) for room in rooms):
            continue
        for kind in Resources.model_fields:
            wanted, largest = (
                getattr(ask.each, kind),
                max(getattr(room.free, kind) for room in rooms),
            )
            if wanted > largest:
                return (
                    f"a member of role {ask.role} wants {describe(kind, wanted)}, "
                    f"the largest node has {describe(kind, largest)}"
                )
        return f"no single node has all that a member of role {ask.role} wants"
    if place(asks, rooms) is not None:
        return None
    total, capacity = _total(asks), Resources()
    for room in rooms:
        capacity = capacity.plus(room.free)
    missing = total.missing(capacity)
    if not missing:
        return "the members do not fit on the nodes together"
    return "; ".join(
        f"the gang wants {describe(kind, getattr(total, kind))}, all nodes together have "
        f"{describe(kind, getattr(capacity, kind))}"
        for kind in missing
    )


def _room_order(room: _Room, each: Resources) -> tuple[int, int, int, str]:
    # A member without GPUs goes where no GPU is left over, if it can.
    return (room.free.gpus - each.gpus, room.free.memory_bytes, room.free.slots, room.node.name)


def _total(asks: Sequence[Ask]) -> Resources:
    total = Resources()
    for ask in asks:
        for kind in Resources.model_fields:
            total = total.model_copy(
                update={kind: getattr(total, kind) + ask.count * getattr(ask.each, kind)}
            )
    return total
