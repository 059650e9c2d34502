"""PipeDream's programme: cut a graph of blocks into stages and give each some of the workers, so
that the slowest of stages and transfers is as quick as it can be.

    stage(i→j, m) = max(T, W) / m with overlap, (T + W) / m without    T time, W sync of m replicas
    A(j, m) = min( stage(0→j, m),
                   min over i < j, m' < m of max( A(i, m-m'), 2 a_i / B, stage(i→j, m') ) )

where i and j are downsets (`states.py`; of a chain: its prefixes), so O(N² M²) for N of them and M
workers. All workers are used. Of the plans with the best time, one with fewest stages is given.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from windlass.train.planning.problem import Piece, Problem
from windlass.train.planning.threshold import fewest_stages, solve_by_threshold

MOST_WORK = 3e8
"""Steps of the programme beyond which `threshold.py` is quicker."""


def solve(problem: Problem) -> list[Piece] | None:
    """The best stages in order; None when the memory's limit forbids every plan."""
    if problem.count**2 * problem.workers**2 / 4 > MOST_WORK:
        return solve_by_threshold(problem)
    best = Table(problem, np.array([0])).best[0, -1, problem.workers]
    return fewest_stages(problem, float(best)) if np.isfinite(best) else None


class Table:
    """A(j, m) from each state of `starts`, with the choices that led to it."""

    def __init__(self, problem: Problem, starts: NDArray[np.int64]) -> None:
        shape = (len(starts), problem.count, problem.workers + 1)
        self.best = np.full(shape, np.inf)
        self._from = np.full((*shape, 2), -1, np.int32)
        self._starts = starts
        self._sent = np.full(shape, np.inf)  # the same, when the next stage has it
        self._sent[np.arange(len(starts)), starts, 0] = 0.0
        for end in range(1, problem.count):
            before = np.flatnonzero(problem.within[:, end])
            for replicas in range(problem.workers, 0, -1):  # on equal times more replicas
                self._extend(problem, before, end, replicas)
            sent = np.maximum(self.best[:, end], problem.cut_ms[end])
            self._sent[:, end] = np.minimum(self._sent[:, end], sent)

    def _extend(
        self, problem: Problem, before: NDArray[np.int64], end: int, replicas: int
    ) -> None:
        """Let the last stage of `end` have so many replicas."""
        most = problem.workers - replicas + 1
        own = problem.stage_ms(
            problem.time_ms[before, end], problem.parameter_bytes[before, end], replicas
        )
        found = np.maximum(self._sent[:, before, :most], own[:, None])
        least = problem.workers - (problem.most_warm[before, end] + 1) * replicas
        if (least > 0).any():  # behind how many workers it fits
            found = np.where(np.arange(most) >= least[:, None], found, np.inf)
        at = found.argmin(axis=1)
        slowest = np.take_along_axis(found, at[:, None], axis=1)[:, 0]
        now = self.best[:, end, replicas:]
        better = slowest < now
        now[better] = slowest[better]
        self._from[:, end, replicas:, 0][better] = before[at][better]
        self._from[:, end, replicas:, 1][better] = replicas

    def pieces(self, row: int, end: int, workers: int) -> list[Piece] | None:
        if not np.isfinite(self.best[row, end, workers]):
            return None
        found: list[Piece] = []
        while end != self._starts[row]:
            start, replicas = (int(each) for each in self._from[row, end, workers])
            found.append(Piece(start, end, replicas))
            end, workers = start, workers - replicas
        return found[::-1]
