"""The same programme for thousands of workers, by asking of a time t whether it can be kept.

For one t the answer takes O(N²), not O(N² M²): a stage's time falls with its replicas from two on,
so it keeps t with one replica, or with `low` or more. So the numbers of workers with which the
blocks up to j keep t are a few single ones and everything from some number on, which is a row of
bits; and t is halved between what is kept and what is not until no number lies between.

The memory's limit fits in: a stage of m' replicas behind b workers may let in at most q batches
when floor((M-1-b)/m') <= q, which is b + m' >= M - q m': for free m' >= low the workers up to and
with it are again everything from some number on, max(b + low, ceil((M + q b) / (q + 1))).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from windlass.train.planning.problem import Piece, Problem

_HALVINGS = 24


def solve_by_threshold(problem: Problem) -> list[Piece] | None:
    """As `programme.solve`, exact to the last bit of the time."""
    best = _Kept(problem, math.inf).pieces()
    if best is None:
        return None
    high, low = problem.bottleneck_ms(best), 0.0
    for turn in range(200):
        middle = (low + high) / 2 if turn < _HALVINGS else math.nextafter(high, 0.0)
        if not low < middle < high:
            break
        found = _Kept(problem, middle).pieces()
        if found is None:
            low = middle
        else:
            high = problem.bottleneck_ms(found)
    return fewest_stages(problem, high)


def fewest_stages(problem: Problem, most_ms: float) -> list[Piece] | None:
    """Of the plans that keep `most_ms`, one with as few stages as any; None: there is none."""
    return _Kept(problem, most_ms).pieces(by_stages=True)


class _Layer:
    """`reach[j]`, bit m: so many workers can do with the blocks so far. `least[j]`: its lowest."""

    def __init__(self, count: int, workers: int) -> None:
        self.reach = [0] * count
        self.least = np.full(count, workers + 1, np.int64)

    def put(self, state: int, bits: int) -> None:
        self.reach[state] = bits
        if bits:
            self.least[state] = (bits & -bits).bit_length() - 1


class _Kept:
    """Which states can be reached when nothing takes longer than `most_ms`."""

    def __init__(self, problem: Problem, most_ms: float) -> None:
        self.problem = problem
        self.low = _least_replicas(problem, most_ms)
        self.single = problem.within & (problem.time_ms <= most_ms) & (problem.most_warm >= 0)
        self.arrives = problem.cut_ms <= most_ms

    def pieces(self, by_stages: bool = False) -> list[Piece] | None:
        workers = self.problem.workers
        begun = _Layer(self.problem.count, workers)
        begun.put(0, 1)
        if not by_stages:
            self._fill(begun, begun)
            return self._back([begun]) if begun.reach[-1] >> workers & 1 else None
        layers = [begun]
        while not layers[-1].reach[-1] >> workers & 1:
            more = _Layer(self.problem.count, workers)
            self._fill(layers[-1], more)
            if not any(more.reach):
                return None
            layers.append(more)
        return self._back(layers)

    def _fill(self, old: _Layer, new: _Layer) -> None:
        """Let one more stage end in each state."""
        problem, workers = self.problem, self.problem.workers
        everything = (1 << (workers + 1)) - 1
        for end in range(1, problem.count):
            before = np.flatnonzero(problem.within[:, end] & self.arrives & (old.least <= workers))
            if not len(before):
                continue
            first = int(self._from_on(old.least[before], before, end).min())
            bits = everything & ~((1 << first) - 1) if first <= workers else 0
            for start in before[self.single[before, end]]:
                fits = max(0, workers - int(problem.most_warm[start, end]) - 1)
                bits |= (old.reach[start] >> fits << fits) << 1
            new.put(end, bits & everything)

    def _from_on(
        self, begun: NDArray[np.int64], before: NDArray[np.int64], end: int
    ) -> NDArray[np.int64]:
        """With how many workers, and any number more, the blocks up to `end` can do."""
        warm, low = self.problem.most_warm[before, end], self.low[before, end]
        fits = -(-(self.problem.workers + warm * begun) // np.maximum(warm + 1, 1))
        found = np.maximum(begun + low, fits)
        return np.where((warm >= 0) & (low <= self.problem.workers), found, 1 << 40)

    def _back(self, layers: list[_Layer]) -> list[Piece]:
        """From the end, each stage as long as it can be. One layer alone: it holds all."""
        found: list[Piece] = []
        end, workers = self.problem.count - 1, self.problem.workers
        while end:
            layer = layers[max(0, len(layers) - 2 - len(found))]
            near = self.problem.within[:, end] & self.arrives & (layer.least <= workers)
            for start in np.flatnonzero(near):
                replicas = self._last(layer, int(start), end, workers)
                if replicas:
                    break
            else:
                raise AssertionError("a state that was reached has a way to it")
            found.append(Piece(int(start), end, replicas))
            end, workers = int(start), workers - replicas
        return found[::-1]

    def _last(self, layer: _Layer, start: int, end: int, workers: int) -> int:
        """How many of the first `workers` the stage start→end takes; 0: there is no way."""
        problem, warm = self.problem, int(self.problem.most_warm[start, end])
        if warm < 0:
            return 0
        before = int(layer.least[start])
        replicas = workers - before
        room = problem.workers - 1 - before < (warm + 1) * replicas
        if room and replicas >= self.low[start, end]:
            return replicas
        alone = self.single[start, end] and problem.workers - workers < warm + 1
        return 1 if alone and layer.reach[start] >> (workers - 1) & 1 else 0


def _least_replicas(problem: Problem, most_ms: float) -> NDArray[np.int64]:
    """From two on; one more than there are workers where none keeps the time."""
    low = np.full(problem.time_ms.shape, 2, np.int64)
    high = np.full(problem.time_ms.shape, problem.workers + 1, np.int64)
    while (low < high).any():
        middle = (low + high) // 2
        kept = problem.stage_ms(problem.time_ms, problem.parameter_bytes, middle) <= most_ms
        kept &= middle <= problem.workers
        high = np.where(kept, middle, high)
        low = np.where(kept, low, np.minimum(middle + 1, high))
    return np.where(problem.within, low, problem.workers + 1)
