"""One bit for each number: its side of a threshold; two levels for each column.

    column   0.3 -0.1  0.5  0.2 -0.5       bits  1 0 1 1 0
    levels   mean above 0.333, mean of the rest -0.3

A column of n numbers is ceil(n/8) + 8 bytes on the wire. Alone this is useless; with the loss fed
back in the next step (Seide et al. 2014) it trains nearly as well as the whole gradient.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


class OneBitCodec:
    def __init__(self, threshold: str = "zero") -> None:
        self.threshold = threshold

    def encode(self, matrix: Tensor) -> list[Tensor]:
        length = matrix.shape[1]
        middle = None if self.threshold == "zero" else matrix.mean(1, keepdim=True)
        apart = matrix if middle is None else matrix - middle
        above = _above_zero(apart)
        number = above.view(torch.uint8).sum(1, dtype=torch.int32)
        levels = torch.stack(  # a side without members has the level 0, and nobody reads it
            [
                apart.clamp_max(0).sum(1) / (length - number).clamp_min(1),
                apart.clamp_min(0).sum(1) / number.clamp_min(1),
            ],
            dim=1,
        )
        if middle is not None:
            levels += middle
        return [pack(above), levels.to(torch.float32)]

    def decode(self, parts: Sequence[Tensor], like: Tensor) -> Tensor:
        """low + bit · (high - low): `torch.where` would take ten times as long on a CPU."""
        bits, levels = parts
        found = unpack(bits, like.shape[1]).view(torch.uint8).to(like.dtype)
        low, high = torch.split(levels.to(like.dtype), 1, dim=1)
        return found.mul_(high - low).add_(low)

    def sizes(self, columns: int, length: int) -> list[tuple[torch.dtype, tuple[int, ...]]]:
        return [(torch.uint8, (columns, -(-length // 8))), (torch.float32, (columns, 2))]


def _above_zero(matrix: Tensor) -> Tensor:
    if matrix.device.type == "cpu" and matrix.dtype in (torch.float32, torch.float64):
        return torch.from_numpy(matrix.numpy() > 0)  # several times as fast as torch's
    return matrix > 0


def pack(flags: Tensor) -> Tensor:
    """Eight to a byte, the first in the highest bit; each row begins a new byte."""
    if flags.device.type == "cpu":
        return torch.from_numpy(np.packbits(flags.numpy(), axis=1))
    return pack_anywhere(flags)


def unpack(bits: Tensor, length: int) -> Tensor:
    if bits.device.type == "cpu":
        return torch.from_numpy(np.unpackbits(bits.numpy(), axis=1, count=length)).view(torch.bool)
    return unpack_anywhere(bits, length)


def pack_anywhere(flags: Tensor) -> Tensor:
    """In torch's own operations: slower on a CPU by far."""
    padded = torch.nn.functional.pad(flags.to(torch.uint8), (0, -flags.shape[1] % 8))
    weights = torch.tensor([128, 64, 32, 16, 8, 4, 2, 1], dtype=torch.uint8, device=flags.device)
    return (padded.view(flags.shape[0], -1, 8) * weights).sum(2, dtype=torch.uint8)


def unpack_anywhere(bits: Tensor, length: int) -> Tensor:
    shifts = torch.arange(7, -1, -1, dtype=torch.uint8, device=bits.device)
    flags = (bits.unsqueeze(2) >> shifts) & 1
    return flags.view(bits.shape[0], -1)[:, :length].to(torch.bool)
