"""What a study has found: the best, the best so far, and what each parameter explains."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from windlass.core.spaces import Dimension
from windlass.core.studies import Objective, TrialState
from windlass.tune.draw import to_unit
from windlass.tune.history import Past, loss

_BINS = 6


def counted(history: Sequence[Past]) -> list[Past]:
    """Those that can be the best: with a value for every objective, and within bounds."""
    return [
        past
        for past in history
        if past.values
        and all(value is not None and math.isfinite(value) for value in past.values)
        and past.feasible
        and past.state is not TrialState.FAILED
    ]


def best(objectives: Sequence[Objective], history: Sequence[Past]) -> list[Past]:
    """The best trial; of several objectives all that no other beats, by number."""
    found = counted(history)
    if not found:
        return []
    scores = {past.number: _losses(objectives, past) for past in found}
    if len(objectives) == 1:
        return [min(found, key=lambda past: (scores[past.number], past.number))]
    return [
        past
        for past in found
        if not any(_beats(scores[other.number], scores[past.number]) for other in found)
    ]


def curve(objective: Objective, history: Sequence[Past]) -> list[tuple[int, float]]:
    """(trial, best value so far), where it changed."""
    found: list[tuple[int, float]] = []
    lowest = math.inf
    for past in sorted(counted(history), key=lambda past: past.number):
        score = loss(objective, past.values[0])
        if score < lowest:
            lowest = score
            found.append((past.number, float(past.values[0] or 0.0)))
    return found


def importance(
    space: Mapping[str, Dimension], objective: Objective, history: Sequence[Past]
) -> dict[str, float]:
    """By parameter: the part of the values' variance that lies between groups of trials with
    alike values of it. A first look, each parameter for itself: what only two of them together
    explain is not seen. Ranks of values are compared, so that one that exploded does not drown
    the rest."""
    found = counted(history)
    if len(found) < 4:
        return {}
    order = sorted(found, key=lambda past: loss(objective, past.values[0]))
    ranks = {past.number: float(at) for at, past in enumerate(order)}
    mean = (len(found) - 1) / 2
    total = sum((rank - mean) ** 2 for rank in ranks.values()) / len(found)
    shares: dict[str, float] = {}
    for name, dimension in space.items():
        groups: dict[int, list[float]] = {}
        for past in found:
            groups.setdefault(_bin(dimension, past, name, len(found)), []).append(
                ranks[past.number]
            )
        between = sum(
            len(group) * (sum(group) / len(group) - mean) ** 2 for group in groups.values()
        )
        # Groups by chance explain (groups - 1) / (trials - 1) of it: that is no explanation.
        by_chance = (len(groups) - 1) / (len(found) - 1)
        share = between / len(found) / total if total else 0.0
        shares[name] = max(0.0, (share - by_chance) / (1 - by_chance)) if by_chance < 1 else 0.0
    return {name: round(share, 4) for name, share in shares.items()}


def _bin(dimension: Dimension, past: Past, name: str, trials: int) -> int:
    if name not in past.params:
        return -1
    if dimension.kind == "choice":
        return list(dimension.choices).index(past.params[name])
    bins = max(2, min(_BINS, trials // 3))
    return min(bins - 1, int(to_unit(dimension, past.params[name]) * bins))


def _losses(objectives: Sequence[Objective], past: Past) -> tuple[float, ...]:
    return tuple(
        loss(objective, value) for objective, value in zip(objectives, past.values, strict=True)
    )


def _beats(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    pairs = list(zip(one, other, strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)
