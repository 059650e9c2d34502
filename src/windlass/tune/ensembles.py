"""Which trials together predict best: greedy forward selection with replacement (Caruana 2004).

Members are averaged. The first one chosen is the best alone, and of all sizes the best is kept, so
on the rows that it is chosen by an ensemble is never worse than its best member. Nothing here is
left to chance: among equals the first given wins, and the smaller ensemble.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Cost = Callable[[Array, Array], float]
"""(truth, predicted) → what is better when less."""
ROUNDS = 50
"""So many members at most, each counted as often as it was taken."""
_LEAST = 1e-15


@dataclass(frozen=True)
class Metric:
    name: str
    maximize: bool
    classes: bool
    """Whether the truth is the place of a class, and predictions rows of probabilities."""
    value: Cost

    def cost(self, truth: Array, predicted: Array) -> float:
        found = self.value(truth, predicted)
        return -found if self.maximize else found


@dataclass(frozen=True)
class Chosen:
    weights: tuple[float, ...]
    """For each member given; 0: left out. They add up to 1."""
    score: float
    alone: tuple[float, ...]
    """What each member scores by itself."""
    best: int
    """The member that is best by itself."""


def accuracy(truth: Array, predicted: Array) -> float:
    return float(np.mean(np.argmax(predicted, axis=1) == truth))


def logloss(truth: Array, predicted: Array) -> float:
    said = np.clip(predicted[np.arange(len(truth)), truth], _LEAST, 1.0)
    return float(-np.mean(np.log(said)))


def rmse(truth: Array, predicted: Array) -> float:
    return float(np.sqrt(np.mean((predicted - truth) ** 2)))


METRICS = {
    "accuracy": Metric("accuracy", True, True, accuracy),
    "logloss": Metric("logloss", False, True, logloss),
    "rmse": Metric("rmse", False, False, rmse),
}


def metric_for(goal: str, classes: bool) -> Metric:
    """The one that a study's direction speaks of, where nobody names one."""
    if not classes:
        return METRICS["rmse"]
    return METRICS["accuracy" if goal == "maximize" else "logloss"]


def select(truth: Array, members: Sequence[Array], metric: Metric, rounds: int = ROUNDS) -> Chosen:
    """Raises ValueError without members, or when one has another shape than the first."""
    if not members or not len(truth):
        raise ValueError("nothing to choose from: no members, or no rows")
    if any(each.shape != members[0].shape or len(each) != len(truth) for each in members):
        raise ValueError("the members did not predict the same rows and classes")
    alone = [metric.cost(truth, each) for each in members]
    total = np.zeros_like(members[0], dtype=float)
    counts = [0] * len(members)
    best_cost, best_counts = float("inf"), counts
    for size in range(1, rounds + 1):
        costs = [metric.cost(truth, (total + each) / size) for each in members]
        at = _least(costs)
        total += members[at]
        counts = [count + (place == at) for place, count in enumerate(counts)]
        if costs[at] < best_cost - 1e-12:
            best_cost, best_counts = costs[at], counts
    taken = sum(best_counts)
    if not taken:
        raise ValueError("no member has a score: their predictions are not finite numbers")
    score = mixed(members, [count / taken for count in best_counts])
    sign = -1.0 if metric.maximize else 1.0
    return Chosen(
        weights=tuple(count / taken for count in best_counts),
        score=metric.value(truth, score),
        alone=tuple(sign * cost for cost in alone),
        best=_least(alone),
    )


def mixed(members: Sequence[Array], weights: Sequence[float]) -> Array:
    """What members say together."""
    pairs = zip(members, weights, strict=True)
    parts = [weight * each for each, weight in pairs if weight]
    found: Array = np.sum(parts, axis=0)
    return found


def _least(costs: Sequence[float]) -> int:
    """The first of the least; what is no number is never it."""
    finite = [cost if cost == cost else float("inf") for cost in costs]
    return finite.index(min(finite))
