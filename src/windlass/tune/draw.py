"""Values of a space: by chance, by grid, or those of another trial changed a little.

All randomness comes from (seed, number): asked again for the same trial, the answer is the same.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping
from typing import Any

from windlass.core.spaces import Dimension, holds, numeric

Space = Mapping[str, Dimension]
Values = dict[str, Any]
MOST_POINTS = 100_000
"""A grid beyond this is no plan."""


def chance(seed: int, number: int, what: str = "") -> random.Random:
    """The dice of one trial."""
    return random.Random(f"{seed}/{number}/{what}")


def by_chance(space: Space, dice: random.Random) -> Values:
    found: Values = {}
    for name, dimension in space.items():
        value = draw(dimension, dice)  # drawn though it may not count: others keep their dice
        if holds(dimension, found):
            found[name] = value
    return found


def draw(dimension: Dimension, dice: random.Random) -> Any:
    if dimension.kind == "choice":
        return dice.choice(dimension.choices)
    return from_unit(dimension, dice.random())


def from_unit(dimension: Dimension, part: float) -> int | float:
    """The value at a part, 0 to 1, of the way through a range."""
    low, high = dimension.low, dimension.high
    if dimension.kind == "int" and not dimension.log:
        step = int(dimension.step or 1)
        count = int(high - low) // step + 1
        return int(low) + step * min(count - 1, int(part * count))
    if dimension.step:
        count = math.floor((high - low) / dimension.step + 1e-9) + 1
        return min(high, low + dimension.step * min(count - 1, int(part * count)))
    if dimension.log:
        ends = (low - 0.5, high + 0.5) if dimension.kind == "int" else (low, high)
        value = math.exp(math.log(ends[0]) + part * (math.log(ends[1]) - math.log(ends[0])))
        value = round(value) if dimension.kind == "int" else value
        return numeric(dimension, min(high, max(low, value)))
    return min(high, low + part * (high - low))


def to_unit(dimension: Dimension, value: Any) -> float:
    """How far through its dimension a value is, 0 to 1; of a choice by its place."""
    if dimension.kind == "choice":
        at = next((at for at, each in enumerate(dimension.choices) if each == value), 0)
        return at / max(1, len(dimension.choices) - 1)
    low, high = dimension.low, dimension.high
    if high <= low:
        return 0.0
    if dimension.log:
        return (math.log(value) - math.log(low)) / (math.log(high) - math.log(low))
    return float((value - low) / (high - low))


def grid(space: Space, points: int | None) -> list[Values]:
    """Every combination, in order; a parameter whose condition does not hold is left out once,
    not once for each of its values."""
    found = list(itertools.islice(_combinations(list(space.items()), points, {}), MOST_POINTS + 1))
    if len(found) > MOST_POINTS:
        raise ValueError(f"the grid has more than {MOST_POINTS} points")
    return found


def _combinations(
    left: list[tuple[str, Dimension]], points: int | None, so_far: Values
) -> Iterator[Values]:
    if not left:
        yield dict(so_far)
        return
    (name, dimension), rest = left[0], left[1:]
    if not holds(dimension, so_far):
        yield from _combinations(rest, points, so_far)
        return
    for value in marks(dimension, points):
        yield from _combinations(rest, points, {**so_far, name: value})


def marks(dimension: Dimension, points: int | None) -> list[Any]:
    """The values of one dimension in a grid."""
    if dimension.kind == "choice":
        return list(dimension.choices)
    if points is None or dimension.step:
        step = dimension.step or 1.0
        count = math.floor((dimension.high - dimension.low) / step + 1e-9) + 1
        return [
            numeric(dimension, dimension.low + step * at)
            for at in range(min(count, MOST_POINTS + 1))
        ]
    if dimension.kind == "int":
        count = min(points, int(dimension.high - dimension.low) + 1)
    else:
        count = points
    spread = (_at(dimension, at / max(1, count - 1)) for at in range(count))
    return list(dict.fromkeys(spread))


def _at(dimension: Dimension, part: float) -> int | float:
    """Like `from_unit`, with both ends."""
    low, high = dimension.low, dimension.high
    if dimension.log:
        value = math.exp(math.log(low) + part * (math.log(high) - math.log(low)))
    else:
        value = low + part * (high - low)
    value = min(high, max(low, value))
    return round(value) if dimension.kind == "int" else value


def explore(
    space: Space, values: Mapping[str, Any], resample: float, dice: random.Random
) -> Values:
    """Another trial's values, each drawn anew or moved by a fifth; choices to a neighbour."""
    found: Values = {}
    for name, dimension in space.items():
        anew, up, fresh = dice.random() < resample, dice.random() < 0.5, draw(dimension, dice)
        if not holds(dimension, found):
            continue
        if anew or name not in values:
            found[name] = fresh
        elif dimension.kind == "choice":
            at = list(dimension.choices).index(values[name]) + (1 if up else -1)
            found[name] = dimension.choices[max(0, min(len(dimension.choices) - 1, at))]
        else:
            found[name] = _moved(dimension, values[name], up)
    return found


def _moved(dimension: Dimension, value: float, up: bool) -> int | float:
    least = 0.0 if dimension.log else 0.05 * (dimension.high - dimension.low)  # 0 must move too
    by = max(0.2 * abs(value), least)
    moved = value + by if up else value - by
    if dimension.step or dimension.kind == "int":
        step = dimension.step or 1.0
        off = round((moved - dimension.low) / step)
        if dimension.low + off * step == value:
            off += 1 if up else -1
        moved = dimension.low + off * step
    return numeric(dimension, min(dimension.high, max(dimension.low, moved)))


def fits(space: Space, values: Mapping[str, Any]) -> bool:
    """Whether the values are ones that this space could have given."""
    seen: Values = {}
    for name, dimension in space.items():
        if not holds(dimension, seen):
            continue
        if name not in values or not dimension.contains(values[name]):
            return False
        seen[name] = values[name]
    return set(seen) == set(values)
