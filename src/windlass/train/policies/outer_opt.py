"""What an exchange makes of everybody's parameters: averages, block momentum, elastic force.

    worker i:  x_i ── local steps ──► x_i ── give ──► summed over all ── take ──► x_i, centre

Pure: `take` gives a new state and new parameters and changes nothing, so that a failed exchange
leaves everything as before. All workers hold the same centre and memory, to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

Vectors = list[Tensor]


@dataclass(frozen=True)
class OuterState:
    """The same on all. `centre` is what counts: W of block momentum, c of elastic averaging."""

    centre: Vectors
    memory: Vectors = field(default_factory=list)


class OuterPolicy:
    def begin(self, start: Sequence[Tensor]) -> OuterState:
        return OuterState([each.clone() for each in start])

    def give(self, state: OuterState, own: Vectors, weight: float) -> Vectors:
        """This worker's part of the sum. Weight 0: it took no step since the last time."""
        raise NotImplementedError

    def take(
        self, state: OuterState, own: Vectors, given: Vectors, total: Vectors, weights: float
    ) -> tuple[OuterState, Vectors]:
        """The new state, and what this worker goes on with."""
        raise NotImplementedError

    def after(self, state: OuterState, own: Vectors, given: Vectors) -> Vectors:
        """What this worker goes on with when it has the new state from another, who was able to
        finish the exchange before a member died in it."""
        raise NotImplementedError

    def spread(self, own: Vectors, total: Vectors, weights: float, state: OuterState) -> Vectors:
        """How far this worker was from the mean."""
        return [x - t / weights for x, t in zip(own, total, strict=True)]


class Mean(OuterPolicy):
    """Parameter averaging: all go on from the mean."""

    def give(self, state: OuterState, own: Vectors, weight: float) -> Vectors:
        return [x * weight for x in own]

    def take(
        self, state: OuterState, own: Vectors, given: Vectors, total: Vectors, weights: float
    ) -> tuple[OuterState, Vectors]:
        new = self.step(state, [t / weights for t in total])
        return new, self.start(new)

    def after(self, state: OuterState, own: Vectors, given: Vectors) -> Vectors:
        return self.start(state)

    def step(self, state: OuterState, mean: Vectors) -> OuterState:
        return OuterState(mean)

    def start(self, state: OuterState) -> Vectors:
        """Where the next block begins."""
        return [each.clone() for each in state.centre]


class BlockMomentum(Mean):
    """G = mean - W; D ← mu D + zeta G; W ← W + D. With Nesterov a block begins at W + mu D."""

    def __init__(self, mu: float, zeta: float, nesterov: bool) -> None:
        self.mu = mu
        self.zeta = zeta
        self.nesterov = nesterov

    def begin(self, start: Sequence[Tensor]) -> OuterState:
        return OuterState([x.clone() for x in start], [torch.zeros_like(x) for x in start])

    def step(self, state: OuterState, mean: Vectors) -> OuterState:
        memory = [
            self.mu * d + self.zeta * (m - w)
            for d, m, w in zip(state.memory, mean, state.centre, strict=True)
        ]
        return OuterState([w + d for w, d in zip(state.centre, memory, strict=True)], memory)

    def start(self, state: OuterState) -> Vectors:
        if not self.nesterov:
            return super().start(state)
        return [w + self.mu * d for w, d in zip(state.centre, state.memory, strict=True)]


class OuterNesterov(Mean):
    """Nesterov SGD on W - mean as if it were a gradient (DiLoCo)."""

    def __init__(self, lr: float, momentum: float) -> None:
        self.lr = lr
        self.momentum = momentum

    def begin(self, start: Sequence[Tensor]) -> OuterState:
        return OuterState([x.clone() for x in start], [torch.zeros_like(x) for x in start])

    def step(self, state: OuterState, mean: Vectors) -> OuterState:
        centre, memory = [], []
        for v, m, w in zip(state.memory, mean, state.centre, strict=True):
            gradient = w - m
            v = self.momentum * v + gradient
            memory.append(v)
            centre.append(w - self.lr * (gradient + self.momentum * v))
        return OuterState(centre, memory)


class Elastic(OuterPolicy):
    """d_i = alpha (x_i - c); x_i ← x_i - d_i; c ← c + sum of d_i."""

    def __init__(self, alpha: float) -> None:
        self.alpha = alpha

    def give(self, state: OuterState, own: Vectors, weight: float) -> Vectors:
        force = self.alpha * weight
        return [force * (x - c) for x, c in zip(own, state.centre, strict=True)]

    def take(
        self, state: OuterState, own: Vectors, given: Vectors, total: Vectors, weights: float
    ) -> tuple[OuterState, Vectors]:
        new = OuterState([c + t for c, t in zip(state.centre, total, strict=True)])
        return new, self.after(new, own, given)

    def after(self, state: OuterState, own: Vectors, given: Vectors) -> Vectors:
        return [x - d for x, d in zip(own, given, strict=True)]

    def spread(self, own: Vectors, total: Vectors, weights: float, state: OuterState) -> Vectors:
        return [x - c for x, c in zip(own, state.centre, strict=True)]
