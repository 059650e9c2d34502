"""Exchanges turn by turn between neighbours, who may change while training goes on.

Two neighbours agree from which turn on they exchange, and until which: one asks between two of its
turns, the other answers at once with the first turn that neither has begun. So both always count
on each other for the same turns, whatever each knows of the rest; who dies is gone from both
sides' accounts.

    i between turns 7 and 8          j in turn 9
      link {at: 8}  ------------->   max(8, 9 + 1) = 10
                    <------------- {first: 10}         both exchange from turn 10 on
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from windlass.core.errors import MemberLost
from windlass.train.comm.transport import Request
from windlass.train.failures import lost
from windlass.train.policies import topology
from windlass.train.policies.patience import Patience
from windlass.train.runners.swarm import Swarm
from windlass.train.seat import Seat
from windlass.train.task import Task


@dataclass
class Span:
    """The turns in which a link is used; `last` None: until further notice."""

    first: int
    last: int | None = None

    def has(self, turn: int) -> bool:
        return self.first <= turn and (self.last is None or turn <= self.last)

    def ends(self, last: int) -> None:
        self.last = last if self.last is None else min(self.last, last)


@dataclass
class Message:
    header: dict[str, Any]
    tensors: list[Tensor]


class Neighbours(Swarm):
    directed = False
    lag = 0
    """Turns by which a message may be late."""

    def __init__(
        self, task: Task, seat: Seat, *, topology: str, degree: int, trace: bool, drift_every: int
    ) -> None:
        super().__init__(task, seat, trace=trace, drift_every=drift_every)
        self._topology = topology
        self._degree = degree
        self.turn = 0
        self._begun = -1
        self._sent: dict[int, int] = {}
        self.sending: dict[int, Span] = {}
        self.receiving: dict[int, Span] = {}
        self.inbox: dict[tuple[int, int], Message] = {}
        self.patience = Patience(seat.deadline_seconds)
        self.apart = seat.workers  # no path is longer
        self.endpoint.on("link", self._on_link)
        self.endpoint.on("turn", self._on_turn)
        self.meet()
        with self.changed:
            if self.joined_at is None:  # all know the same graph: no need to ask
                for a, b in self._edges([*range(seat.workers)]):
                    if a == self.rank and b in self.members:
                        self.sending[b] = Span(0)
                    if b == self.rank and a in self.members:
                        self.receiving[a] = Span(0)

    # -- links ------------------------------------------------------------------------------

    def agree(self) -> None:
        """Between two turns: ask for the links that the graph of those at work wants and that
        this worker is to ask for; end those it does not want."""
        with self.changed:
            edges = self._edges(self.training())
            wanted = {b for a, b in edges if a == self.rank and (self.directed or a < b)}
            mine = {b: s for b, s in self.sending.items() if self.directed or self.rank < b}
            missing = sorted(rank for rank in wanted if rank not in mine)
            surplus = sorted(
                rank for rank in mine if rank not in wanted and mine[rank].last is None
            )
        for rank in [*missing, *surplus]:
            self._ask(rank, opens=rank in missing)
        with self.changed:
            for spans in (self.sending, self.receiving):
                for rank in [r for r, s in spans.items() if _is_over(s, self.turn - self.lag)]:
                    del spans[rank]
            firsts = [s.first for s in (*self.sending.values(), *self.receiving.values())]
            if firsts and min(firsts) > self.turn:
                self.turn = min(firsts)  # newly come: take turns where the others are

    def _ask(self, rank: int, *, opens: bool) -> None:
        try:
            answer = self.peer(rank).call(
                "link", {"at": self.turn, "opens": opens}, kind="control", step=self.turn,
                deadline_seconds=self.seat.deadline_seconds,
            )  # fmt: skip
        except MemberLost:
            if not self.is_lost(rank):
                raise
            return
        with self.changed:
            if rank in self.members:
                self._agreed(rank, answer.header["turn"], opens=opens, asked=True)

    def _on_link(self, request: Request) -> None:
        rank = int(request.peer_name.removeprefix("worker "))
        with self.changed:
            turn = max(request.header["at"], self._begun + 1)
            if rank in self.members:
                self._agreed(rank, turn, opens=request.header["opens"], asked=False)
            request.reply({"turn": turn})
            self.changed.notify_all()

    def _agreed(self, rank: int, turn: int, *, opens: bool, asked: bool) -> None:
        sides = [self.sending] if asked else [self.receiving]
        for spans in (self.sending, self.receiving) if not self.directed else sides:
            if opens:
                spans[rank] = Span(turn)
                self.opened(rank, turn)
            elif rank in spans:
                spans[rank].ends(turn - 1)

    def opened(self, rank: int, turn: int) -> None:
        """Under the lock: a link is new."""

    def _edges(self, members: list[int]) -> set[tuple[int, int]]:
        options = {"degree": self._degree, "seed": self.seat.seed}
        if self.directed:
            return topology.arrows(self._topology, members, **options)
        pairs = topology.links(self._topology, members, **options)
        return pairs | {(b, a) for a, b in pairs}

    # -- turns ------------------------------------------------------------------------------

    def begin(self) -> list[int]:
        """The turn has begun; to whom this worker sends in it, sorted."""
        with self.changed:
            self._begun = self.turn
            to = sorted(rank for rank, span in self.sending.items() if span.has(self.turn))
            self._sent.update(dict.fromkeys(to, self.turn))
            return to

    def send(self, rank: int, header: dict[str, Any], tensors: list[Tensor]) -> Any:
        """The future, or None: it is lost, and so not counted on."""
        try:
            return self.peer(rank).send(
                "turn", {"turn": self.turn, **header}, tensors, kind="parameters", step=self.turn
            )
        except MemberLost:
            return None

    def _on_turn(self, request: Request) -> None:
        rank = int(request.peer_name.removeprefix("worker "))
        with self.changed:
            member = self.members.get(rank)
            if member is not None and member.incarnation == request.incarnation:
                self.inbox[rank, request.header["turn"]] = Message(request.header, request.tensors)
                self.spoke.add(rank)
                self.changed.notify_all()
        request.reply()

    def missing(self) -> list[int]:
        """Under the lock: whose messages this turn needs and has not got."""
        raise NotImplementedError

    def wait_for_turn(self) -> None:
        """Raises MemberLost that names those who did not send within the deadline."""
        began = time.monotonic()
        usual = self.patience.seconds
        if not self.wait(lambda: not self.missing(), usual):
            self.counters.event("late")
            self.patience.missed()
            left = began + self.seat.deadline_seconds - time.monotonic()
            if not self.wait(lambda: not self.missing(), max(0.0, left)):
                with self.changed:
                    names = [f"worker {rank}" for rank in self.missing()]
                waited = self.seat.deadline_seconds
                raise lost(names, "exchange with neighbours", self.turn, waited=waited)
        self.patience.arrived(time.monotonic() - began)

    # -- the swarm --------------------------------------------------------------------------

    def went(self, rank: int) -> None:
        self.sending.pop(rank, None)
        self.receiving.pop(rank, None)
        self._sent.pop(rank, None)
        for key in [key for key in self.inbox if key[0] == rank]:
            del self.inbox[key]

    def farewell(self, rank: int) -> dict[str, Any]:
        """The last turn it counts on the other, and the last it sent something itself."""
        with self.changed:
            return {"last": self.turn - 1, "sent": self._sent.get(rank, -1)}

    def finished(self, rank: int, told: dict[str, Any]) -> None:
        if rank in self.sending:  # what is sent is sent, and will be taken
            self.sending[rank].ends(max(told["last"], self._begun))
        if rank in self.receiving:
            self.receiving[rank].ends(told["sent"])

    def local_state(self) -> dict[str, Any]:
        found = super().local_state()
        return {**found, "turn": self.turn} if found else {}

    def load_local_state(self, state: dict[str, Any]) -> None:
        super().load_local_state(state)
        if self.joined_at is None:
            with self.changed:
                self.turn = int(state["turn"])
                self._begun = self.turn - 1


def _is_over(span: Span, turn: int) -> bool:
    return span.last is not None and span.last < turn
