"""Blocks shared out over stages so that the slowest stage is as fast as can be.

Exact: a cut is chosen among all. The best possible "slowest" is a sum of neighbouring costs; it is
found by dynamic programming over (blocks so far, stages so far), O(stages · blocks · log blocks).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

from windlass.core.errors import InvalidInput


def balance(costs: Sequence[float], stages: int) -> tuple[tuple[int, int], ...]:
    """(first, last) of each stage, inclusive, none empty; the greatest sum of costs of a stage is
    the least that there is. Raises InvalidInput when there are fewer blocks than stages."""
    blocks = len(costs)
    if not 1 <= stages <= blocks:
        raise InvalidInput(
            f"stages: from 1 to {blocks}, the number of blocks (found {stages})",
            hint="fewer stages, or a model cut into more blocks",
        )
    for number, cost in enumerate(costs):
        if not (math.isfinite(cost) and cost >= 0):
            raise InvalidInput(f"costs: block {number} costs {cost!r}; at least 0 and finite")
    before = [0, *accumulate(costs)]
    # least[j]: the least greatest sum of the first j blocks in as many stages as rounds so far.
    least = [float(before[j]) for j in range(blocks + 1)]
    begins = [[0] * (blocks + 1)]
    for stage in range(1, stages):
        row = [math.inf] * (blocks + 1)
        begin = [0] * (blocks + 1)
        for last in range(stage + 1, blocks + 1):
            begin[last], row[last] = _best_begin(least, before, stage, last)
        least = row
        begins.append(begin)
    cuts = [blocks]
    for begin in reversed(begins):
        cuts.append(begin[cuts[-1]])
    cuts.reverse()
    return tuple((cuts[n], cuts[n + 1] - 1) for n in range(stages))


def _best_begin(
    least: Sequence[float], before: Sequence[float], first: int, last: int
) -> tuple[int, float]:
    """Where the last stage begins. `least` grows with the begin and the stage's own sum falls, so
    the best is where they cross."""
    low, high = first, last - 1
    while low < high:
        middle = (low + high) // 2
        if least[middle] >= before[last] - before[middle]:
            high = middle
        else:
            low = middle + 1
    choices = {low, max(first, low - 1)}
    return min(
        ((begin, max(least[begin], before[last] - before[begin])) for begin in sorted(choices)),
        key=lambda found: found[1],
    )
