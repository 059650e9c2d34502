"""What all gossip runners share on top of their members: a gradient, and the mean of all.

give      this worker's parameters for a mean of all, when it has come so far
final     that mean, from the lowest of the living, who asked everybody
progress  how far somebody is whom others wait for
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import torch

from windlass.core.errors import MemberLost, WindlassError
from windlass.train.comm.transport import Answer, Request
from windlass.train.counters import Fault
from windlass.train.data import Batch
from windlass.train.failures import lost
from windlass.train.policies import topology
from windlass.train.runners.base import Outcome
from windlass.train.runners.members import ROLE, Members
from windlass.train.runners.vectors import Vectors, landed, staged
from windlass.train.seat import Seat
from windlass.train.task import Task

_POLL_SECONDS = 0.5
_STEPS_TO_SPEAK = 10
"""Workers that have not exchanged anything for so long have fallen apart."""


@dataclass
class Mean:
    """One mean of all: what this worker gives, who asked for it, what came of it."""

    given: Vectors | None = None
    asked: list[Request] = field(default_factory=list)
    used: list[int] = field(default_factory=list)
    """The account of what is given."""
    final: Vectors | None = None
    told: dict[str, Any] = field(default_factory=dict)
    """Of the mean: of how many it is, and the account of all of them."""


class Swarm(Members):
    """One worker that gossips. `used` is its account: of each worker, how many batches have left
    something in its parameters. Whoever takes in another's parameters takes in its account."""

    merges: ClassVar[bool] = True

    def __init__(
        self, task: Task, seat: Seat, *, trace: bool = False, drift_every: int = 0
    ) -> None:
        super().__init__(task, seat, trace=trace)
        self.reached = 0
        """Steps that the training has done, by the batches: the same for all who save."""
        self.spoke: set[int] = set()
        """With whom something was exchanged since `_spoke_since`, a step."""
        self._spoke_since = 0
        self._drift_every = drift_every
        self.used = [0] * seat.workers
        self._account: list[int] = list(self.used)
        """That of the last mean of all."""
        self._means: dict[str, Mean] = {}
        for name, handler in (
            ("give", self._on_give), ("final", self._on_final), ("progress", self._on_progress),
        ):  # fmt: skip
            self.endpoint.on(name, handler)

    def to_give(self) -> Vectors:
        """What a mean of all is taken of."""
        return self.current()

    def from_mean(self, vectors: Vectors, of: int = 1) -> Vectors:
        """Parameters, from the mean of what so many gave."""
        return vectors

    # -- the account ------------------------------------------------------------------------

    def mark(self) -> dict[str, Any]:
        """Under the lock: what goes with parameters that are sent."""
        return {"used": list(self.used)} if self.seat.regroups else {}

    def heed(self, told: Mapping[str, Any]) -> None:
        """Under the lock: parameters with that mark have been taken in."""
        if "used" in told:
            self.used = [max(each) for each in zip(self.used, told["used"], strict=True)]

    def count(self) -> None:
        """Under the lock: one more batch of this worker is in its parameters."""
        self.used[self.rank] += 1

    def account(self) -> dict[int, int]:
        return dict(enumerate(self._account))

    # -- one step's gradient ----------------------------------------------------------------

    def gradient(self, batch: Batch) -> Outcome:
        """Of the mean over this worker's share, into the parameters' `grad`."""
        self.reached = batch.cursor.steps + 1
        self.task.optimizer.zero_grad()
        if batch.content is None:
            return Outcome(0.0, 0.0)
        total, count = self.task.loss_of(batch.content)
        total.backward()  # type: ignore[no-untyped-call]
        for each in self.task.model.parameters():
            if each.grad is not None and count:
                each.grad.div_(count)
        return Outcome(total.detach(), count)

    def measures(self) -> bool:
        """Whether the consensus distance is to be estimated at this step."""
        return self._drift_every > 0 and self.at % self._drift_every == 0

    # -- the mean of all --------------------------------------------------------------------

    def mean_of_all(self, key: str) -> Vectors:
        """Everybody's parameters and buffers averaged, over those who live; the same bits for all
        of them. Each calls it with the same key. Raises MemberLost when this one is given up."""
        with self.changed:
            given = self.to_give()
            mine = [*given, *self.buffers.read()]
            mean = self._means.setdefault(key, Mean())
            mean.given, mean.used = staged(mine), list(self.used)
            asked, mean.asked = mean.asked, []
        for request in asked:
            self._give(request, mean)
        while mean.final is None:
            first = min(self.living())
            if first == self.rank:
                self._lead(key, mean)
            else:
                self._follow(key, mean, first)
        with self.changed:
            if self.at - self._spoke_since >= _STEPS_TO_SPEAK:
                self.spoke.clear()
                self._spoke_since = self.at
            over = [k for k, each in self._means.items() if k != key and each.final is not None]
            for old in over:
                del self._means[old]
        found = landed(mean.final, mine)
        self._account = list(mean.told["used"])
        return [*self.from_mean(found[: len(given)], mean.told["of"]), *found[len(given) :]]

    def _lead(self, key: str, mean: Mean) -> None:
        others = [rank for rank in self.living() if rank != self.rank]
        answers = self._to_all(others, "give", {"key": key}, [])
        used = mean.used
        replicas, links = {self.rank: mean.given or []}, {(self.rank, r) for r in self.spoke}
        for rank, future in answers.items():
            try:
                found = self._patiently(rank, future, key)
            except MemberLost as err:
                self.check_here()
                if not self.is_lost(rank):
                    self.counters.survived(Fault("unreached", f"{ROLE}{rank}", self.at, str(err)))
                continue
            if found.header["final"]:
                mean.final, mean.told = found.tensors, found.header["told"]
                return
            replicas[rank] = found.tensors
            used = [max(each) for each in zip(used, found.header["used"], strict=True)]
            links |= {(rank, other) for other in found.header["spoke"]}
        final = [
            torch.stack([replicas[rank][at] for rank in sorted(replicas)]).mean(0)
            for at in range(len(mean.given or []))
        ]
        self._report_distance(key, replicas, links)
        told = {"used": used, "of": len(replicas)}
        others = [rank for rank in replicas if rank != self.rank]
        heard = self._to_all(others, "final", {"key": key, "told": told}, final)
        for future in heard.values():
            try:
                future.result(self.seat.deadline_seconds)
            except (WindlassError, TimeoutError):
                pass  # it is lost, or will ask the next one
        mean.final, mean.told = final, told

    def _to_all(
        self, ranks: list[int], operation: str, header: dict[str, Any], vectors: Vectors
    ) -> dict[int, Future[Answer]]:
        found = {}
        for rank in ranks:
            try:
                found[rank] = self.peer(rank).send(
                    operation, header, vectors, kind="parameters", step=self.at
                )
            except MemberLost:
                continue
        return found

    def _follow(self, key: str, mean: Mean, first: int) -> None:
        def over() -> bool:
            return mean.final is not None or first not in self.members

        signs = _Signs(self.seat.deadline_seconds)
        while not self.wait(over, _POLL_SECONDS):
            self._look_after(first, signs, key)

    def _patiently(self, rank: int, future: Future[Answer], key: str) -> Answer:
        """Its answer, as long as it moves on towards it."""
        signs = _Signs(self.seat.deadline_seconds)
        future.add_done_callback(lambda _: self.wake())
        while not self.wait(future.done, _POLL_SECONDS):
            self._look_after(rank, signs, key)
        return future.result()

    def wait_for_all(self, until: Callable[[int], bool], key: str) -> None:
        """Until it is true of each other member that lives, as long as they move on."""
        for rank in self.living():
            over = partial(self._is_over, rank, until)
            signs = _Signs(self.seat.deadline_seconds)
            while rank != self.rank and not self.wait(over, _POLL_SECONDS):
                self._look_after(rank, signs, key)

    def _is_over(self, rank: int, until: Callable[[int], bool]) -> bool:
        return rank not in self.members or until(rank)

    def _look_after(self, rank: int, signs: _Signs, key: str) -> None:
        try:
            told = self.peer(rank).call(
                "progress", {"key": key}, kind="control", step=self.at,
                deadline_seconds=self.seat.deadline_seconds,
            ).header  # fmt: skip
        except MemberLost:
            if not self.is_lost(rank):
                raise
            return
        if signs.are_missing(told["waits"], told["step"]):
            raise lost([f"{ROLE}{rank}"], f"the mean of all ({key})", self.at, waited=signs.limit)

    def _report_distance(
        self, key: str, replicas: dict[int, Vectors], links: set[tuple[int, int]]
    ) -> None:
        """Over all, and where they fell apart, of each part."""
        count = len(self.to_give())
        flat = {
            rank: torch.cat([each.double() for each in self.from_mean(vectors[:count])])
            for rank, vectors in replicas.items()
        }
        whole = topology.distance(flat)
        self.counters.drift.append((self.at, whole))
        parts = topology.components(links, replicas)
        if len(parts) > 1 and self.at - self._spoke_since >= _STEPS_TO_SPEAK:
            each = [
                f"{', '.join(map(str, part))}: {topology.distance({r: flat[r] for r in part}):.3g}"
                for part in parts
            ]
            text = f"workers spoke in {len(parts)} parts; distance {whole:.3g}, " + "; ".join(
                f"of {part}" for part in each
            )
            self.counters.survived(Fault("partition", self.seat.name, self.at, text))

    def _on_give(self, request: Request) -> None:
        with self.changed:
            mean = self._means.setdefault(request.header["key"], Mean())
            if mean.given is None:
                mean.asked.append(request)
                return
        self._give(request, mean)

    def _give(self, request: Request, mean: Mean) -> None:
        with self.changed:
            final, given = mean.final, mean.given or []
            header = {"final": final is not None, "spoke": sorted(self.spoke)}
            header |= {"told": mean.told, "used": mean.used}
        request.reply(header, final or given)

    def _on_final(self, request: Request) -> None:
        request.reply()  # before this worker can learn of it, and be gone
        with self.changed:
            mean = self._means.setdefault(request.header["key"], Mean())
            if mean.final is None:
                mean.final, mean.told = request.tensors, request.header["told"]
            self.changed.notify_all()

    def _on_progress(self, request: Request) -> None:
        with self.changed:
            waits = self._means.get(request.header["key"], Mean()).given is not None
            request.reply({"waits": waits, "step": self.at})

    # -- the end ----------------------------------------------------------------------------

    def settle(self) -> None:
        """Until nothing of this worker is in flight."""

    def drain(self) -> None:
        """The final model is the mean over the workers that live, the same on all of them."""
        self.settle()
        found = self.mean_of_all("drain")
        self.write(found)
        self.adopt(self.parameters.read())

    def shared_state(self) -> dict[str, Any] | None:
        """The mean; this worker's own parameters are in its `local_state`."""
        self.settle()
        mine = [*self.parameters.read(), *self.buffers.read()]
        found = self.mean_of_all(f"state/{self.reached}")
        self.write(found)
        state = {
            name: value.detach().clone() for name, value in self.task.model.state_dict().items()
        }
        self.write(mine)
        if not self.seat.leads:
            return None
        return {"model": state, "optimizer": self.task.optimizer.state_dict()}

    def load_shared_state(self, state: Mapping[str, Any]) -> None:
        """A member that came back has newer ones from another."""
        if self.joined_at is None:
            super().load_shared_state(state)
            self.adopt(self.parameters.read())

    def local_state(self) -> dict[str, Any]:
        if self.seat.regroups:
            return {}  # whoever goes on from this may be another
        return {
            "at": self.at,
            "reached": self.reached,
            "parameters": self.parameters.read(),
            "buffers": self.buffers.read(),
            "optimizer": self.task.optimizer.state_dict(),
        }

    def load_local_state(self, state: dict[str, Any]) -> None:
        if self.joined_at is not None:
            return
        self.at = self.began_at = int(state["at"])
        self.reached = int(state["reached"])
        self.write([*state["parameters"], *state["buffers"]])
        self.task.optimizer.load_state_dict(state["optimizer"])
        self.adopt(self.parameters.read())


class _Signs:
    """Of somebody who is waited for: as long as it takes steps, and no step takes longer than the
    deadline or four times its slowest so far, it is on its way."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._step: int | None = None
        self._changed = time.monotonic()

    def are_missing(self, waits: bool, step: int) -> bool:
        now = time.monotonic()
        if waits or step != self._step:
            if self._step is not None:
                self.limit = max(self.limit, 4 * (now - self._changed))
            self._step, self._changed = step, now
        return now - self._changed > self.limit
