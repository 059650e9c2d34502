"""Updates as few signs: what of a residual is beyond a threshold, in four bytes an element.

    packed:   index i  →  +tau at i          -i - 1  →  -tau at i          (int32)

The threshold is a power of two: what is sent is then exact in binary floating point, so that what
was sent and what is left add up to what was to be sent.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

LARGEST = 2**31 - 1
_FASTEST = 64.0
"""The most that an adaptive threshold moves at once."""


def power_of_two(value: float) -> float:
    """The largest one that is not above it."""
    return math.ldexp(1.0, math.frexp(value)[1] - 1)


def take(residual: Tensor, tau: float) -> Tensor:
    """The elements of size tau or more, packed; tau of each is taken from the residual."""
    found = torch.nonzero(residual.abs() >= tau).view(-1)
    positive = residual[found] > 0
    residual[found] -= torch.where(positive, tau, -tau).to(residual.dtype)
    return torch.where(positive, found, -found - 1).to(torch.int32)


def add(packed: Tensor, tau: float, target: Tensor) -> None:
    """What was taken, to somebody's parameters."""
    index = packed.to(target.device, torch.int64)
    positive = index >= 0
    index = torch.where(positive, index, -index - 1)
    target.index_add_(0, index, torch.where(positive, tau, -tau).to(target.dtype))


def adapted(tau: float, sent: int, count: int, density: float) -> float:
    """The threshold for the next step, so that about `density` of all elements go: twice or half
    where it was twice too many or too few, more where it is far off."""
    share = sent / max(1, count)
    if share > 2 * density:
        return tau * min(_FASTEST, power_of_two(share / density))
    if share < density / 2:
        return tau / min(_FASTEST, power_of_two(density / max(share, density / _FASTEST)))
    return tau
