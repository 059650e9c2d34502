"""AD-PSGD on one worker: gradient steps at its own pace, and averaging with one other at a time.

    step:   propose to a random neighbour              (those that initiate)
            snapshot of x → the model; gradient        meanwhile the other answers, x is averaged
            wait for the answer, but not for long
            x → the model; the optimiser's step; → x

`x` is what is averaged, by whatever thread a message comes in; the model is this worker's own. An
exchange is between two members and takes as long as their messages do: how long a third one's
steps take is nobody's concern, and a slow one answers as fast as the others, not being asked
between its steps only.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from torch import Tensor

from windlass.core.errors import MemberLost
from windlass.train.comm.transport import Request
from windlass.train.data import Batch
from windlass.train.policies import pairing, topology
from windlass.train.policies.pairing import Pairing
from windlass.train.policies.patience import Patience
from windlass.train.runners.base import Outcome
from windlass.train.runners.members import Member
from windlass.train.runners.swarm import Swarm
from windlass.train.runners.vectors import Vectors, landed, largest, staged
from windlass.train.seat import Seat
from windlass.train.task import Task

_LONGEST_WAIT_SECONDS = 1.0


class Pairs(Swarm):
    def __init__(
        self, task: Task, seat: Seat, *, topology: str, degree: int, trace: bool, drift_every: int
    ) -> None:
        super().__init__(task, seat, trace=trace, drift_every=drift_every)
        self._topology = topology
        self._degree = degree
        self._dice = random.Random(1_000_003 * seat.seed + seat.rank)
        self._core = Pairing(seat.rank, self.endpoint.incarnation)
        self._patience = Patience(min(_LONGEST_WAIT_SECONDS, seat.deadline_seconds))
        self._x: Vectors = self.parameters.read()
        self._kept: dict[str, Vectors] = {}
        self._marks: dict[str, dict[str, Any]] = {}
        """With them, the account of what they came from."""
        self._began: dict[str, float] = {}
        self._core.close()  # until it has the parameters that all begin with
        self.endpoint.on("pair", self._on_pair)
        self.meet()
        with self.changed:
            self._core.open()

    # -- one step ---------------------------------------------------------------------------

    def step(self, batch: Batch) -> Outcome:
        self.check_here()
        ticket = self._initiate()
        with self.changed:
            self.parameters.write(self._x)
            self.log("snapshot", self.at)
        outcome = self.gradient(batch)
        if ticket:
            self._await_answer(ticket)
        with self.changed:
            self.parameters.write(self._x)
            if outcome.count:
                self.task.optimizer.step()
                self._x = self.parameters.read()
            self.count()
            self.log("update", self.at, batch.cursor.steps)
            self.at += 1
        return outcome

    def _initiate(self) -> str | None:
        with self.changed:
            at_work = self.training()
            if len(at_work) < 2 or not self._initiates(at_work):
                return None
            edges = topology.links(
                self._topology, at_work, degree=self._degree, seed=self.seat.seed
            )
            choices = self._core.choices(topology.neighbours(edges, self.rank))
            if not choices:
                return None
            actions = self._core.propose(self._dice.choice(choices))
            self._act(actions, [])
            return self._core.proposed[0] if actions and self._core.proposed else None

    def _initiates(self, at_work: list[int]) -> bool:
        """On a bipartite graph every second one; on others all, and the lower rank goes first."""
        return self._topology != "bipartite" or topology.is_active(at_work, self.rank)

    def _await_answer(self, ticket: str) -> None:
        def over() -> bool:
            return self._core.proposed is None or self._core.proposed[0] != ticket

        with self.changed:
            began = self._began.get(ticket, time.monotonic())
        left = began + self._patience.seconds - time.monotonic()
        if not self.wait(over, max(0.0, left)):
            with self.changed:
                self._patience.missed()
                self._act(self._core.timed_out(ticket), [])

    # -- messages ---------------------------------------------------------------------------

    def _on_pair(self, request: Request) -> None:
        rank = int(request.peer_name.removeprefix("worker "))
        with self.changed:
            told = request.header
            if told["word"] == "propose":
                self._hurry()
            heard = self._core.heard(rank, told["word"], told["ticket"], request.incarnation)
            self._act(heard, request.tensors, told)
            self.changed.notify_all()
        request.reply()

    def _hurry(self) -> None:
        """One that has been offered to for long enough does not keep the others waiting."""
        ticket = self._core.engaged
        if ticket and time.monotonic() - self._began[ticket] > self._patience.seconds:
            self._act(self._core.timed_out(ticket), [])

    def _act(
        self, actions: list[pairing.Action], came: list[Tensor],
        told: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        """Under the lock. `told` came with the tensors."""
        for action in actions:
            if isinstance(action, pairing.Send):
                self._say(action)
            elif isinstance(action, pairing.Settle):
                theirs = landed(came, self._x)
                halves = [(a - b) / 2 for a, b in zip(theirs, self._x, strict=True)]
                self._x = [x + half for x, half in zip(self._x, halves, strict=True)]
                self._kept[action.ticket] = staged(halves)
                self.heed(told)
                self._marks[action.ticket] = self.mark()
                self.log("settle", action.ticket)
                if self.measures():
                    self.counters.drift.append((self.at, largest(halves)))
            elif isinstance(action, pairing.Subtract):
                halves = landed(came, self._x)
                self._x = [x - half for x, half in zip(self._x, halves, strict=True)]
                self.heed(told)
                self.log("subtract", action.ticket)
            elif isinstance(action, pairing.Forget):
                del self._kept[action.ticket], self._marks[action.ticket]
            else:
                self._closed_one(action)

    def _say(self, action: pairing.Send) -> None:
        tensors: Vectors = []
        mark: dict[str, Any] = {}
        if action.word == "offer":
            mark = self.mark()
            tensors = staged(self._x)  # never written to: each change makes new ones
            self.log("offer", action.ticket)
        elif action.word == "commit":
            tensors, mark = self._kept[action.ticket], self._marks[action.ticket]
        if action.word in ("propose", "offer"):
            self._began[action.ticket] = time.monotonic()
        try:
            self.peer(action.to).send(
                "pair", {"word": action.word, "ticket": action.ticket, **mark}, tensors,
                kind="parameters", step=self.at,
            )  # fmt: skip
        except MemberLost:
            pass  # the machine hears of it as a loss

    def _closed_one(self, action: pairing.Closed) -> None:
        began = self._began.pop(action.ticket, None)
        if action.committed:
            self.spoke.add(action.peer)
        mine = action.ticket.startswith(f"{self.rank}.")
        if mine and began is not None and action.why in ("", "busy"):
            self._patience.arrived(time.monotonic() - began)
        if mine:
            self.counters.event("exchanges" if action.committed else "aborted")
        self.changed.notify_all()

    # -- the swarm --------------------------------------------------------------------------

    def current(self) -> Vectors:
        with self.changed:
            return self._x

    def adopt(self, vectors: Vectors) -> None:
        with self.changed:
            self._x = vectors

    def came(self, member: Member) -> None:
        self._act(self._core.joined(member.rank, member.incarnation), [])

    def went(self, rank: int) -> None:
        self._act(self._core.lost(rank), [])

    def finish(self) -> None:
        """It goes on answering until nobody takes steps any more."""
        super().finish()
        self.wait_for_all(lambda rank: self.members[rank].finished, "drain")

    def settle(self) -> None:
        """Until every exchange under way has come to its end on both sides."""
        with self.changed:
            self._core.close()
        while not self.wait(lambda: not self._core.waiting, self._patience.seconds):
            with self.changed:
                for ticket in self._core.waiting:
                    self._act(self._core.timed_out(ticket), [])
        with self.changed:
            self.parameters.write(self._x)

    def shared_state(self) -> dict[str, object] | None:
        found = super().shared_state()
        with self.changed:
            self._core.open()
        return found
