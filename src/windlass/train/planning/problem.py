"""What there is to solve: stages' times, what crosses the cuts, what a worker can hold.

The worker of a stage holds (warm-up + 1) versions of its weights, as many batches' saved
activations, a gradient and the optimiser's state. A stage of m' workers that stands behind m - m'
others lets in floor((M - 1 - (m - m')) / m') batches to warm up, so a limit of memory says of each
(i, j) how many that may be, and the programme stays exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from windlass.train.planning.links import Link
from windlass.train.planning.states import Floats, States

Replicas = int | NDArray[np.int64]


@dataclass(frozen=True)
class Piece:
    """A stage: what state `end` has more than state `start`."""

    start: int
    end: int
    replicas: int


@dataclass(frozen=True)
class Problem:
    """`time_ms`, `parameter_bytes` and `most_warm` are [i, j], over what j has more than i;
    `most_warm` is how many batches a stage may let in to warm up, -1 where it never fits."""

    time_ms: Floats
    parameter_bytes: Floats
    cut_ms: Floats
    within: NDArray[np.bool_]
    most_warm: NDArray[np.int64]
    workers: int
    link: Link
    overlap: bool
    sync_share: float = 1.0
    """Of a node's sync that each of its workers carries (`levels.py`)."""

    @property
    def count(self) -> int:
        return len(self.cut_ms)

    def stage_ms(self, time: Floats, parameters: Floats, replicas: Replicas) -> Floats:
        """Between two batches that such a stage lets through."""
        m = np.maximum(replicas, 1)
        link = self.link
        sync = self.sync_share * 1000 * (
            link.sync_factor * (m - 1) / m * parameters / link.bytes_per_s
            + 2 * (m - 1) * link.latency_s
        )  # fmt: skip
        both = np.maximum(time, sync) if self.overlap else time + sync
        return np.asarray(both / m)

    def bottleneck_ms(self, pieces: list[Piece]) -> float:
        slowest = max(float(self.cut_ms[piece.start]) for piece in pieces)  # nothing to the first
        for each in pieces:
            at = (each.start, each.end)
            one = self.stage_ms(self.time_ms[at], self.parameter_bytes[at], each.replicas)
            slowest = max(slowest, float(one))
        return slowest


@dataclass(frozen=True)
class Memory:
    """What a worker may hold, and how a schedule uses it. `versions`: of the weights; None means
    one for each batch in flight. `saved_share`: of a batch's activations in each in flight."""

    limit_bytes: float | None = None
    optimiser_factor: float = 1.0
    versions: int | None = None
    saved_share: float = 1.0

    def of_stage(self, parameters: float, saved: float, warm: int) -> float:
        versions = warm + 1 if self.versions is None else self.versions
        fixed = (versions + 1 + self.optimiser_factor) * parameters
        return fixed + (warm + 1) * self.saved_share * saved

    def most_warm(self, parameters: Floats, saved: Floats, workers: int) -> NDArray[np.int64]:
        if self.limit_bytes is None:
            return np.full(parameters.shape, workers, np.int64)
        fixed = (1 + self.optimiser_factor + (self.versions or 0)) * parameters
        each = self.saved_share * saved + (parameters if self.versions is None else 0.0)
        room = self.limit_bytes - fixed
        with np.errstate(divide="ignore", invalid="ignore"):
            flight = np.where(each > 0, room / each, np.where(room >= 0, workers + 1.0, 0.0))
        most = np.clip(np.floor(flight * (1 + 1e-12)) - 1, -1, workers)
        return np.asarray(most, np.int64)


def warm_up(workers: int, before: int, replicas: int) -> int:
    """Batches that each replica of a stage lets in before its first backward (1F1B-RR)."""
    return (workers - 1 - before) // replicas


def problem_of(
    states: States, workers: int, link: Link, overlap: bool, memory: Memory | None = None
) -> Problem:
    parameters = states.between(states.parameter_bytes)
    keeping = memory or Memory()
    return Problem(
        time_ms=states.between(states.time_ms),
        parameter_bytes=parameters,
        cut_ms=np.array([link.transfer_ms(float(each)) for each in states.cut_bytes]),
        within=states.within,
        most_warm=keeping.most_warm(parameters, states.between(states.saved_bytes), workers),
        workers=workers,
        link=link,
        overlap=overlap,
    )
