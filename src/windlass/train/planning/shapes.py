"""Pipelines that flush: stages and micro-batches, where the cuts are, what a worker holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from windlass.train.planning.profile import Profile
from windlass.train.planning.states import Floats, States


@dataclass(frozen=True)
class Shape:
    """`copies` pipelines of `stages` stages, each with its share cut into `micro_batches`."""

    copies: int
    stages: int
    micro_batches: int
    micro: float
    """Samples in a micro-batch."""


class Held:
    """Bytes on the worker of each stage [i, j], with so many micro-batches in flight."""

    def __init__(self, profile: Profile, states: States, recompute: bool) -> None:
        weights = states.between(states.parameter_bytes)
        self._fixed = (2 + profile.optimiser_factor) * weights
        self._saved = states.between(states.saved_bytes)
        into = states.cut_bytes.copy()
        into[0] = profile.input_bytes
        self._into = into
        self._recompute = recompute

    def bytes(self, flight: int) -> Floats:
        if self._recompute:
            return np.asarray(self._fixed + flight * self._into[:, None] + self._saved)
        return np.asarray(self._fixed + flight * self._saved)


def even_cuts(cost: Floats, allowed: list[NDArray[np.bool_]]) -> list[int] | None:
    """The ends of as many stages as `allowed` has, with the slowest as quick as can be; the k-th
    must be allowed by the k-th."""
    count, stages = len(cost), len(allowed)
    best = np.full((stages + 1, count), np.inf)
    best[0, 0] = 0.0
    came = np.zeros((stages + 1, count), np.int64)
    for k, may in enumerate(allowed):
        found = np.where(may, np.maximum(best[k][:, None], cost), np.inf)
        came[k + 1] = found.argmin(axis=0)
        best[k + 1] = found[came[k + 1], np.arange(count)]
    if not np.isfinite(best[stages, -1]):
        return None
    ends = [count - 1]
    for k in range(stages, 1, -1):
        ends.append(int(came[k, ends[-1]]))
    return ends[::-1]
