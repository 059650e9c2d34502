"""Half the bytes: 16-bit floating point on the wire, sums in the gradient's own precision."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class HalfCodec:
    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def encode(self, matrix: Tensor) -> list[Tensor]:
        return [matrix.to(self.dtype)]

    def decode(self, parts: Sequence[Tensor], like: Tensor) -> Tensor:
        return parts[0].view(like.shape).to(like.dtype)

    def sizes(self, columns: int, length: int) -> list[tuple[torch.dtype, tuple[int, ...]]]:
        return [(self.dtype, (columns, length))]
