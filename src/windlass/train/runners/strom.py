"""Threshold-quantised updates from each worker to all others (Strom 2015).

    step:   gradient at a snapshot; the optimiser's step on x;  residual += the update
            elements of the residual beyond tau: (index, sign) to everybody, tau off the residual
    any time:  what comes from another is applied as it comes

So a worker's x is what all began with, plus all its own updates, plus what the others have sent:
when everything has been delivered, replicas differ by what each has not sent yet, and by nothing
else. Nobody waits for anybody.

Of one who dies, its last messages may have reached some and not others: the living tell each other
how many they have, and pass on what another lacks. Each keeps as many as a sender may have
unacknowledged, so what is missing anywhere is there somewhere.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from windlass.core.errors import InvalidInput, MemberLost
from windlass.train.comm.transport import Answer, Request
from windlass.train.data import Batch
from windlass.train.policies import threshold
from windlass.train.runners.base import Outcome, Runner
from windlass.train.runners.members import Member
from windlass.train.runners.swarm import Swarm
from windlass.train.runners.vectors import Vectors, landed, largest, staged
from windlass.train.seat import Seat
from windlass.train.strategy import Strategy
from windlass.train.task import Task

_UNACKNOWLEDGED = 64
"""Messages to one peer; with more on the way, updates stay in the residual."""


class Strom(Strategy):
    """Each worker sends the signs of what exceeds a threshold to all others (Strom 2015), 4 bytes
    an element, without server or barrier.

    The rest stays with it and is added to its next update. A dead worker is gone with what it had
    not sent; the others go on. The final model is the mean over all workers.
    """

    name: ClassVar[str] = "strom"
    on_loss: ClassVar[Literal["abort", "shrink", "rejoin"]] = "shrink"
    tau: float = Field(
        2.0**-7, gt=0, description="the threshold, taken down to the next power of two"
    )
    density: float | None = Field(
        None, gt=0, le=1, description="the share of elements to send: tau then follows by itself"
    )
    drift_every: int = Field(
        10, ge=0, description="steps between two looks at the largest part not sent yet"
    )
    trace: bool = Field(False, description="keep the order of all events, for a replay")

    def check(self, task: Task, workers: int, servers: int) -> list[str]:
        found = super().check(task, workers, servers)
        if isinstance(task.optimizer, torch.optim.LBFGS):
            raise InvalidInput("task.optimizer: strom cannot call a closure (found LBFGS)")
        count = sum(each.numel() for each in task.model.parameters())
        if count > threshold.LARGEST:
            raise InvalidInput(
                f"strom: an index has 31 bits (found {count} parameters)",
                hint="topk compression with allreduce has no such limit",
            )
        if any(group.get("momentum", 0) for group in task.optimizer.param_groups):
            found.append("strom: momentum with stale updates may not converge: try without")
        return found

    def runner(self, task: Task, seat: Seat) -> Runner:
        return Signs(self, task, seat)


@dataclass
class Heard:
    """Of one sender: how many of its messages were applied, and the last of them."""

    count: int = 0
    kept: deque[tuple[int, float, list[Tensor]]] = field(
        default_factory=lambda: deque(maxlen=_UNACKNOWLEDGED)
    )
    made: deque[int] = field(default_factory=lambda: deque(maxlen=_UNACKNOWLEDGED))
    """Of these, how many batches it had made."""


class Signs(Swarm):
    def __init__(self, options: Strom, task: Task, seat: Seat) -> None:
        super().__init__(task, seat, trace=options.trace, drift_every=options.drift_every)
        self._density = options.density
        self.tau = threshold.power_of_two(options.tau)
        self._x: Vectors = self.parameters.read()
        self.residual: Vectors = [each.new_zeros(each.shape) for each in self._x]
        self.elements = 0
        """Sent so far, to each peer."""
        self._number = 0
        self._flying: dict[int, int] = {}
        self._heard: dict[tuple[int, str], Heard] = {}
        self._gone: set[tuple[int, str]] = set()
        self._early: list[Request] = []
        for name, handler in (
            ("signs", self._on_signs), ("have", self._on_have), ("forward", self._on_forward),
        ):  # fmt: skip
            self.endpoint.on(name, handler)
        self.meet()
        with self.changed:
            early, self._early = self._early, []
            for request in early:
                self._on_signs(request)

    # -- one step ---------------------------------------------------------------------------

    def step(self, batch: Batch) -> Outcome:
        self.check_here()
        with self.changed:
            self.parameters.write(self._x)
            self.log("snapshot", self.at)
        outcome = self.gradient(batch)
        with self.changed:
            held = not self._may_send()
            self.log("update", self.at, batch.cursor.steps, held, self.tau)
            if outcome.count:
                self._update()
            self.count()
            if held:
                self.counters.event("held")
            else:
                self._send()
            if self.measures():
                self.counters.drift.append((self.at, largest(self.residual)))
            self.at += 1
        return outcome

    def _update(self) -> None:
        self.parameters.write(self._x)
        self.task.optimizer.step()
        after = self.parameters.read()
        for residual, new, old in zip(self.residual, after, self._x, strict=True):
            residual += new - old
        self._x = after

    def _may_send(self) -> bool:
        return all(self._flying.get(rank, 0) < _UNACKNOWLEDGED for rank in self.members)

    def _send(self) -> None:
        packed = [threshold.take(residual, self.tau) for residual in self.residual]
        sent = sum(each.numel() for each in packed)
        if sent:
            self._number += 1
            self.elements += sent
            header = {"number": self._number, "tau": self.tau}
            if self.seat.regroups:
                header["made"] = self.used[self.rank]
            out = staged(packed)
            for rank in list(self.members):
                self._post(rank, "signs", header, out, kind="gradient")
        if self._density is not None:
            count = sum(each.numel() for each in self.residual)
            self.tau = threshold.adapted(self.tau, sent, count, self._density)

    def _post(
        self, rank: int, operation: str, header: dict[str, Any], tensors: Vectors, kind: str
    ) -> list[Future[Answer]]:
        """One future, or none to one who is lost."""
        try:
            future = self.peer(rank).send(operation, header, tensors, kind=kind, step=self.at)
        except MemberLost:
            return []
        self._flying[rank] = self._flying.get(rank, 0) + 1
        future.add_done_callback(partial(self._arrived, self.members[rank]))
        return [future]

    def _arrived(self, member: Member, _: object) -> None:
        with self.changed:
            if self.members.get(member.rank) is member:
                self._flying[member.rank] -= 1
            self.changed.notify_all()

    # -- what comes -------------------------------------------------------------------------

    def _on_signs(self, request: Request) -> None:
        rank = int(request.peer_name.removeprefix("worker "))
        who = (rank, request.incarnation)
        with self.changed:
            if not self.is_running or self._early:
                self._early.append(request)  # this one has not yet what all begin with
                return
            told = request.header
            if who not in self._gone:
                self._apply(who, told, request.tensors)
        request.reply()

    def _apply(self, who: tuple[int, str], told: dict[str, Any], packed: list[Tensor]) -> None:
        """Once, in the sender's order."""
        heard = self._heard.setdefault(who, Heard())
        number, tau = told["number"], told["tau"]
        if number != heard.count + 1:
            return
        heard.count = number
        heard.kept.append((number, tau, packed))
        heard.made.append(told.get("made", 0))
        self.used[who[0]] = max(self.used[who[0]], heard.made[-1])
        for each, target in zip(landed(packed, self._x), self._x, strict=True):
            threshold.add(each, tau, target)
        self.spoke.add(who[0])
        self.log("apply", who[0], number)
        self.counters.event("applied", sum(each.numel() for each in packed))

    # -- of one who died --------------------------------------------------------------------

    def came(self, member: Member) -> None:
        self._heard.setdefault((member.rank, member.incarnation), Heard())

    def went(self, rank: int) -> None:
        self._flying.pop(rank, None)
        for who in [each for each in self._heard if each[0] == rank and each not in self._gone]:
            self._gone.add(who)
            for other in list(self.members):
                self._say_have(other, who)

    def _say_have(self, to: int, who: tuple[int, str]) -> None:
        count = self._heard.setdefault(who, Heard()).count
        self._post(to, "have", {"of": list(who), "count": count}, [], kind="control")

    def _on_have(self, request: Request) -> None:
        rank = int(request.peer_name.removeprefix("worker "))
        with self.changed:
            who = (request.header["of"][0], request.header["of"][1])
            heard = self._heard.setdefault(who, Heard())
            theirs = request.header["count"]
            passed: list[Future[Answer]] = []
            for (number, tau, packed), made in zip(heard.kept, heard.made, strict=True):
                if number > theirs:
                    header = {"of": list(who), "number": number, "tau": tau, "made": made}
                    passed += self._post(rank, "forward", header, staged(packed), kind="gradient")
                    self.counters.event("forwarded")
            if theirs > heard.count and who in self._gone:
                self._say_have(rank, who)
        self._reply_after(request, passed)

    def _reply_after(self, request: Request, futures: list[Future[Answer]]) -> None:
        """So that whoever has its answer has what was passed on to it, too."""
        if not futures:
            request.reply()
            return
        last = futures.pop()  # done in the order of sending
        last.add_done_callback(lambda _: request.reply())

    def _on_forward(self, request: Request) -> None:
        with self.changed:
            told = request.header
            who = (told["of"][0], told["of"][1])
            self._apply(who, told, request.tensors)
        request.reply()

    # -- the swarm --------------------------------------------------------------------------

    def current(self) -> Vectors:
        with self.changed:
            return [each.clone() for each in self._x]

    def adopt(self, vectors: Vectors) -> None:
        with self.changed:
            self._x = [each.clone() for each in vectors]

    def to_give(self) -> Vectors:
        """Where workers form anew, what one has not sent yet comes to all with the mean."""
        with self.changed:
            if not self.seat.regroups:
                return self.current()
            sent = [x - rest for x, rest in zip(self._x, self.residual, strict=True)]
            return [*sent, *(each.clone() for each in self.residual)]

    def from_mean(self, vectors: Vectors, of: int = 1) -> Vectors:
        if not self.seat.regroups:
            return vectors
        half = len(vectors) // 2
        return [a + of * b for a, b in zip(vectors[:half], vectors[half:], strict=True)]

    def finish(self) -> None:
        """First all of its own is delivered, then it says so: who has heard it of everybody has
        everything."""
        self._deliver()
        super().finish()
        self.wait_for_all(lambda rank: self.members[rank].finished, "drain")

    def settle(self) -> None:
        self._deliver()
        with self.changed:
            self.parameters.write(self._x)

    def _deliver(self) -> None:
        if not self.wait(lambda: not any(self._flying.values()), self.seat.deadline_seconds):
            self.counters.event("late")

    def local_state(self) -> dict[str, Any]:
        found = super().local_state()
        return {**found, "residual": self.residual, "tau": self.tau} if found else {}

    def load_local_state(self, state: dict[str, Any]) -> None:
        super().load_local_state(state)
        with self.changed:
            self.residual, self.tau = list(state["residual"]), float(state["tau"])
