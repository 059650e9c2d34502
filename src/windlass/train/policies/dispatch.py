"""Which blocks of parameters are updated next, and which of them together: STRADS' scheduler.

    order      cyclic: one after another; priority: drawn by how much each changed last
    together   only blocks that depend on each other weakly: of the matrix of dependences, each
               row over the blocks of one round sums up to `bound` at most

With dependences sqrt(rate_j rate_k) |H_jk|, H the curvature of the loss, and a bound of 2, a round
of plain gradient (or proximal) steps never makes the loss larger, though its blocks are updated at
the same time (Gershgorin). Pure: the same seed and the same changes give the same rounds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Literal

Order = Literal["priority", "cyclic"]
Dependence = Callable[[int, int], float]
"""Of two blocks, or of one on itself."""
_SEARCH = 4
"""Candidates for each place of a round."""
_FLOOR = 1e-3
"""Of the largest squared change: as likely as that is a block drawn that does not change."""


class Dispatch:
    def __init__(
        self, count: int, *, at_once: int, order: Order, bound: float | None, seed: int = 0
    ) -> None:
        """Of `count` blocks, at most `at_once` in a round."""
        self.count = count
        self.at_once = at_once
        self.order = order
        self.bound = bound
        self.changes: list[float | None] = [None] * count
        """How much each changed when it was updated last; None: never was."""
        self._line = list(range(count))
        """Those that wait longest come first."""
        self._dice = random.Random(seed)

    def next(self, dependence: Dependence) -> list[int]:
        """The blocks of a round, the most important first; at least one."""
        found: list[int] = []
        for block in self._candidates():
            if len(found) == self.at_once:
                break
            if not found or self._fits(block, found, dependence):
                found.append(block)
        taken = set(found)
        self._line = [each for each in self._line if each not in taken] + found
        return found

    def changed(self, block: int, by: float) -> None:
        self.changes[block] = by

    def left_out(self, blocks: Sequence[int]) -> None:
        """They were in a round and nobody has updated them: they come first again."""
        self._line = [*blocks, *(each for each in self._line if each not in blocks)]

    # -- inside -----------------------------------------------------------------------------

    def _candidates(self) -> list[int]:
        most = _SEARCH * self.at_once if self.bound is not None else self.at_once
        if self.order == "cyclic":
            return self._line[:most]
        new = [block for block in self._line if self.changes[block] is None]
        return new[:most] + self._drawn(most - len(new))

    def _drawn(self, most: int) -> list[int]:
        """Without putting back, each as likely as its last change squared."""
        known = {b: by * by for b, by in enumerate(self.changes) if by is not None}
        floor = _FLOOR * max(known.values(), default=0.0) or 1.0
        weights = {block: by + floor for block, by in known.items()}
        if most <= 0:
            return []
        # The largest of u^(1/w) are a draw by the weights (Efraimidis and Spirakis).
        keys = {b: self._dice.random() ** (1.0 / w) for b, w in _scaled(weights).items()}
        return sorted(keys, key=lambda block: (-keys[block], block))[:most]

    def _fits(self, block: int, found: Sequence[int], dependence: Dependence) -> bool:
        if self.bound is None:
            return True
        every = [*found, block]
        return all(sum(dependence(a, b) for b in every) <= self.bound for a in every)

    # -- the whole of it --------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        version, inside, gauss = self._dice.getstate()
        return {
            "changes": list(self.changes), "line": list(self._line),
            "dice": [version, list(inside), gauss],
        }  # fmt: skip

    def load(self, state: dict[str, Any]) -> None:
        """Raises ValueError where it is of other blocks."""
        if len(state["changes"]) != self.count:
            raise ValueError(f"it has {len(state['changes'])} blocks, not {self.count}")
        self.changes, self._line = list(state["changes"]), list(state["line"])
        version, inside, gauss = state["dice"]
        self._dice.setstate((version, tuple(inside), gauss))


def _scaled(weights: dict[int, float]) -> dict[int, float]:
    """So that the largest is 1: small powers of a number below 1 would all be 0."""
    largest = max(weights.values(), default=1.0)
    return {block: weight / largest for block, weight in weights.items()}
