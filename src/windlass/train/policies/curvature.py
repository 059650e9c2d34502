"""How much blocks of parameters depend on each other: norms of blocks of the loss's curvature."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

_PROBES = 8
"""Directions in which a block is looked at: with as many elements or fewer, it is exact."""

_MOST_KEPT = 1_000_000
"""Norms in a checkpoint."""


class Block(NamedTuple):
    """The elements `start` to `stop`, in memory order, of one parameter."""

    parameter: int
    start: int
    stop: int

    def of(self, tensor: Tensor) -> Tensor:
        return tensor.view(-1)[self.start : self.stop]


def blocks_of(parameters: Sequence[Tensor], size: int | None) -> list[Block]:
    """Each parameter in blocks of `size` elements; None: whole."""
    found = []
    for number, each in enumerate(parameters):
        step = each.numel() if size is None else size
        for start in range(0, each.numel(), max(1, step)):
            found.append(Block(number, start, min(each.numel(), start + step)))
    return found


class Curvature:
    """|H_jk| of each pair of blocks (Frobenius norms), H the curvature of `loss()`: measured for a
    block when it is first asked for, and kept until `forget`."""

    def __init__(
        self,
        parameters: Sequence[Tensor],
        blocks: Sequence[Block],
        loss: Callable[[], Tensor],
        seed: int = 0,
    ) -> None:
        self._parameters = list(parameters)
        self._blocks = list(blocks)
        self._loss = loss
        self._rows: dict[int, dict[int, float]] = {}
        """Of each block that was looked at: those on which it depends at all."""
        self._gradients: tuple[Tensor | None, ...] | None = None
        self._seed = seed

    def norm(self, first: int, second: int) -> float:
        if first not in self._rows:
            self._rows[first] = self._row(first)
        return self._rows[first].get(second, 0.0)

    def forget(self) -> None:
        self._rows.clear()

    def state(self) -> list[list[Any]]:
        """What was measured, as JSON; nothing, where that is too much to keep."""
        if sum(map(len, self._rows.values())) > _MOST_KEPT:
            return []
        return [[block, sorted(row.items())] for block, row in sorted(self._rows.items())]

    def load(self, state: list[list[Any]]) -> None:
        self._rows = {int(block): {int(k): float(v) for k, v in row} for block, row in state}

    def moved(self) -> None:
        """The parameters are not what they were: what is asked for next is measured there."""
        self._gradients = None

    def _row(self, block: int) -> dict[int, float]:
        """Of a block's columns: their norm in each block's rows."""
        total = torch.zeros(len(self._blocks), dtype=torch.float64)
        probes = self._probes(block)
        for each in probes:
            product = self._product(block, each)
            if product is None:
                return {}
            for number, one in enumerate(self._blocks):
                there = product[one.parameter]
                if there is not None:
                    total[number] += float(one.of(there.contiguous()).double().square().sum())
        size = self._blocks[block].stop - self._blocks[block].start
        # Of signs drawn at random, the mean of |H v|^2 is the squared norm.
        norms = (total if len(probes) == size else total / len(probes)).sqrt()
        return {number: norm for number, norm in enumerate(norms.tolist()) if norm > 0}

    def _probes(self, block: int) -> list[Tensor]:
        chosen = self._blocks[block]
        size, like = chosen.stop - chosen.start, self._parameters[chosen.parameter]
        if size <= _PROBES:
            return list(torch.eye(size, dtype=like.dtype, device=like.device))
        dice = torch.Generator().manual_seed(self._seed + block)
        signs = torch.randint(0, 2, (_PROBES, size), generator=dice) * 2 - 1
        return list(signs.to(like.device, like.dtype))

    def _product(self, block: int, direction: Tensor) -> tuple[Tensor | None, ...] | None:
        """H times a direction within a block; None where the loss does not depend on it."""
        if self._gradients is None:
            self._gradients = torch.autograd.grad(
                self._loss(), self._parameters, create_graph=True, allow_unused=True
            )
        chosen = self._blocks[block]
        gradient = self._gradients[chosen.parameter]
        if gradient is None or not gradient.requires_grad:
            return None
        return torch.autograd.grad(
            gradient.reshape(-1)[chosen.start : chosen.stop], self._parameters,
            direction, retain_graph=True, allow_unused=True,
        )  # fmt: skip
