"""The largest few of a vector: their places and values."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


class TopKCodec:
    """Over the whole matrix, not for each column: the largest are where they are."""

    def __init__(self, ratio: float) -> None:
        self.ratio = ratio

    def count(self, number: int) -> int:
        return max(1, min(number, math.ceil(self.ratio * number)))

    def encode(self, matrix: Tensor) -> list[Tensor]:
        flat = matrix.reshape(-1)
        places = largest(flat.abs(), self.count(flat.numel()))
        return [places.to(torch.int32), flat[places]]

    def decode(self, parts: Sequence[Tensor], like: Tensor) -> Tensor:
        found = torch.zeros(like.numel(), dtype=like.dtype, device=like.device)
        found[parts[0].long()] = parts[1].to(like.dtype)
        return found.view(like.shape)


def largest(sizes: Tensor, count: int) -> Tensor:
    """Where the largest are, in ascending order; of equal ones the first."""
    if sizes.device.type == "cpu" and sizes.dtype in (torch.float32, torch.float64):
        values = sizes.numpy()  # to find the smallest of them is three times as fast as topk
        if not np.isnan(values.sum()):  # topk takes what is not a number first, and all hear of it
            least = np.partition(values, len(values) - count)[len(values) - count]
            above = np.flatnonzero(values > least)
            equal = np.flatnonzero(values == least)[: count - len(above)]
            return torch.from_numpy(np.sort(np.concatenate([above, equal])))
    return torch.topk(sizes, count, sorted=False).indices.sort().values


def ratio_at(step: int, warmup: int, final: float) -> float:
    """DGC's warm-up: a quarter of the gradient at first, then exponentially fewer."""
    if step >= warmup or final >= 0.25:
        return final
    return float(0.25 * (final / 0.25) ** (step / warmup))
