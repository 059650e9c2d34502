"""D-PSGD on one worker: X ← X W - eta G, W over the neighbours that live.

    turn:   my x, and how many neighbours I have  →  each neighbour
            gradient at x
            x ← x + sum over neighbours of w (theirs - mine),   w = 1 / (1 + the larger degree)
            the optimiser's step

Two neighbours know both degrees from their messages, so they use the same weight even while one
of them has heard of a loss and the other has not: W is symmetric and doubly stochastic in every
turn, and the sum over the living stays.
"""

from __future__ import annotations

from typing import Any

from windlass.train.data import Batch
from windlass.train.policies.topology import weight
from windlass.train.runners.base import Outcome
from windlass.train.runners.neighbours import Neighbours
from windlass.train.runners.vectors import Vectors, landed, largest, staged


class Mixing(Neighbours):
    _latest: Vectors

    def step(self, batch: Batch) -> Outcome:
        self.check_here()
        self.agree()
        mine = self.parameters.read()
        with self.changed:
            self._latest, mark = mine, self.mark()
        to = self.begin()
        self.log("sent", self.turn)
        out = staged(mine)
        for rank in to:
            self.send(rank, {"degree": len(to), **mark}, out)
        outcome = self.gradient(batch)
        self.wait_for_turn()
        mixed, marks = self._mix(mine, len(to))
        self.parameters.write(mixed)
        if outcome.count:
            self.task.optimizer.step()
        self.log("update", self.at, batch.cursor.steps)
        with self.changed:
            self._latest = self.parameters.read()
            self.turn += 1
            self.at += 1
            for each in marks:
                self.heed(each)
            self.count()
        return outcome

    def _mix(self, mine: Vectors, degree: int) -> tuple[Vectors, list[dict[str, Any]]]:
        with self.changed:
            came = {
                rank: self.inbox.pop((rank, self.turn))
                for rank, span in sorted(self.receiving.items())
                if span.has(self.turn)
            }
        mixed = [each.clone() for each in mine]
        used = []
        for rank, message in came.items():
            share = weight(degree, message.header["degree"])
            used.append((rank, share))
            for at, theirs in enumerate(landed(message.tensors, mine)):
                mixed[at] += share * (theirs - mine[at])
        self.log("mix", self.turn, tuple(used))
        if self.measures() and used:
            apart = [new - old for new, old in zip(mixed, mine, strict=True)]
            self.counters.drift.append((self.at, largest(apart)))
        self.counters.event("exchanges", len(used))
        return mixed, [message.header for message in came.values()]

    def missing(self) -> list[int]:
        return [
            rank
            for rank, span in sorted(self.receiving.items())
            if span.has(self.turn) and (rank, self.turn) not in self.inbox
        ]

    def current(self) -> Vectors:
        with self.changed:
            return self._latest

    def adopt(self, vectors: Vectors) -> None:
        with self.changed:
            self._latest = vectors
