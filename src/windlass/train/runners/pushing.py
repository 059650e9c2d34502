"""Stochastic gradient push on one worker: x and a weight w go along directed links, x/w is used.

    turn:   gradient at z = x/w;  x ← the optimiser's step on x
            (x, w) in equal shares: one stays, the others go along the links
            what has come is added; z = x/w

Nobody has to answer, so links need not go both ways: the columns of P add up to 1, the rows need
not. A share that its receiver can no longer get comes back. Who dies takes its x and its w with
it, so the others' x/w stay means.
"""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from typing import Any

import torch

from windlass.train.comm.transport import Answer
from windlass.train.data import Batch
from windlass.train.runners.base import Outcome
from windlass.train.runners.neighbours import Neighbours
from windlass.train.runners.vectors import Vectors, landed, largest, staged
from windlass.train.seat import Seat
from windlass.train.task import Task


class Pushing(Neighbours):
    directed = True

    def __init__(
        self, task: Task, seat: Seat, *, one_peer: bool, overlap: int, **options: Any
    ) -> None:
        self._one_peer = one_peer
        self._overlap = overlap
        self._x: Vectors = []
        self._w = 1.0
        self._next: dict[int, int] = {}
        self._flying: dict[tuple[int, int], tuple[Vectors, float]] = {}
        self._back: list[tuple[int, int]] = []
        super().__init__(task, seat, **options)
        self.apart = seat.workers * (1 + overlap)
        self.lag = overlap

    # -- one step ---------------------------------------------------------------------------

    def step(self, batch: Batch) -> Outcome:
        self.check_here()
        self.agree()
        outcome = self.gradient(batch)
        if outcome.count:
            self.parameters.write(self._x)
            self.task.optimizer.step()
        with self.changed:
            if outcome.count:
                self._x = self.parameters.read()
            self.count()
        self.log("update", self.at, batch.cursor.steps)
        self._push(self.begin())
        try:
            self.wait_for_turn()
        finally:  # what was sent is sent: the state is the one after the step
            self._add(self.turn)
            with self.changed:
                self.turn += 1
                self.at += 1
        return outcome

    def _push(self, out: list[int]) -> None:
        targets = [out[self.turn % len(out)]] if out and self._one_peer else out
        part = 1.0 / (1 + len(targets))
        with self.changed:
            shares, w = [each * part for each in self._x], self._w * part
            self._x, self._w, mark = shares, w, self.mark()
            self.log("push", self.turn, tuple(targets))
            for rank in targets:
                self._flying[rank, self.turn] = (shares, w)
        tensors = staged(shares)
        for rank in out:
            if rank not in targets:
                self.send(rank, {"w": 0.0}, [])
                continue
            future = self.send(rank, {"w": w, **mark}, tensors)
            done = partial(self._arrived, (rank, self.turn))
            if future is None:
                done(None)
            else:
                future.add_done_callback(done)

    def _arrived(self, key: tuple[int, int], future: Future[Answer] | None) -> None:
        with self.changed:
            if future is not None and future.exception() is None:
                del self._flying[key]
            else:
                self._back.append(key)
            self.changed.notify_all()

    def _add(self, turn: int) -> None:
        """What has come, of this turn and before; the model is z then."""
        with self.changed:
            before = [each / self._w for each in self._x] if self.measures() else []
            taken = []
            for rank, at in sorted(key for key in self.inbox if key[1] <= turn):
                message = self.inbox.pop((rank, at))
                self._next[rank] = at + 1
                if message.header["w"]:
                    taken.append((rank, at))
                    came = landed(message.tensors, self._x)
                    self._x = [a + b for a, b in zip(self._x, came, strict=True)]
                    self._w += message.header["w"]
                    self.heed(message.header)
            back, self._back = sorted(self._back), []
            for key in back:
                shares, w = self._flying.pop(key)
                self._x = [a + b for a, b in zip(self._x, shares, strict=True)]
                self._w += w
            self.log("add", turn, tuple(taken), tuple(back))
            self.counters.event("exchanges", len(taken))
            if back:
                self.counters.event("returned", len(back))
            z = self.from_mean(self.to_give())
            if before and taken:
                apart = [new - old for new, old in zip(z, before, strict=True)]
                self.counters.drift.append((self.at, largest(apart)))
            self.parameters.write(z)

    def missing(self) -> list[int]:
        return self._without(self.turn - self._overlap)

    def _without(self, turn: int) -> list[int]:
        """Who has not sent all up to this turn."""
        found = []
        for rank, span in sorted(self.receiving.items()):
            at = max(self._next.get(rank, 0), span.first)
            while at <= turn and span.has(at) and (rank, at) in self.inbox:
                at += 1
            if at <= turn and span.has(at):
                found.append(rank)
        return found

    # -- the swarm --------------------------------------------------------------------------

    def current(self) -> Vectors:
        return self.from_mean(self.to_give())

    def to_give(self) -> Vectors:
        with self.changed:
            w = torch.tensor([self._w], dtype=torch.float64)
            return [*self._x, w]

    def from_mean(self, vectors: Vectors, of: int = 1) -> Vectors:
        w = float(vectors[-1])
        return [each / w for each in vectors[:-1]]

    def adopt(self, vectors: Vectors) -> None:
        with self.changed:
            self._x, self._w = vectors, 1.0

    def opened(self, rank: int, turn: int) -> None:
        if rank in self.receiving and self.receiving[rank].first == turn:
            self._next[rank] = turn

    def finish(self) -> None:
        super().finish()
        self.wait_for_all(lambda rank: self.members[rank].finished, "drain")

    def settle(self) -> None:
        """Until all that the others have sent is here, and all that was sent has arrived."""

        def still() -> bool:
            with self.changed:
                sent = [key for key in self._flying if key not in self._back]
                return bool(sent or self._without(self._sent_so_far()))

        if not self.wait(lambda: not still(), self.seat.deadline_seconds):
            self.counters.event("late")
        self._add(self._sent_so_far())

    def _sent_so_far(self) -> int:
        """Those who have finished may have been a little ahead."""
        ends = [span.last for span in self.receiving.values() if span.last is not None]
        return max([self.turn - 1, *ends])

    def local_state(self) -> dict[str, Any]:
        found = super().local_state()
        return {**found, "x": self._x, "w": self._w} if found else {}

    def load_local_state(self, state: dict[str, Any]) -> None:
        super().load_local_state(state)
        if self.joined_at is None:
            with self.changed:
                self._x, self._w = list(state["x"]), float(state["w"])
                self._next = dict.fromkeys(self.receiving, self.turn)
