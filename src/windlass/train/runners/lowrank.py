"""PowerSGD: each layer's gradient as the product of two thin matrices, summed by all-reduce.

    M_i ← g_i + r_i             what this worker would send
    P ← sum of M_i Q            all-reduce; the same Q on all, from the step before
    P ← orthonormal columns of P
    Q_i ← M_i^T P ; Q ← sum     all-reduce
    gradient ← P Q^T ;  r_i ← M_i - P Q_i^T

Since P Q^T is the sum of the P Q_i^T, each worker knows exactly which part of its own was carried.
Vectors, and matrices too small to gain, go whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from windlass.train.comm.torchdist import Pending, WorkerGroup
from windlass.train.counters import Counters
from windlass.train.policies.codec import columns_of
from windlass.train.policies.compression import PowerSGD
from windlass.train.runners.buckets import Bucket
from windlass.train.runners.compressed import Compressed

_SEED = 20190531


@dataclass
class _Flight:
    layers: list[tuple[int, Tensor, int]]
    """(its place, its view as a matrix, its rank) of those that go as two thin ones."""
    left: Tensor
    whole: Tensor
    pending: list[Pending]
    right: Tensor | None = None
    factors: list[Tensor] = field(default_factory=list)


class LowRank(Compressed):
    def __init__(self, group: WorkerGroup, counters: Counters, options: PowerSGD) -> None:
        super().__init__(group, counters, warmup=options.warmup)
        self.rank = options.rank
        self._flights: dict[int, _Flight] = {}

    def begin_compressed(self, bucket: Bucket) -> None:
        layers = self._layers(bucket)
        whole = torch.cat(
            [view.reshape(-1) for view in self._others(bucket, layers)] or [_none(bucket)]
        )
        for place, matrix, _ in layers:
            matrix.add_(self.remembered(f"residual/{bucket.index}/{place}", matrix))
        left = torch.cat(
            [
                (matrix @ self._right(bucket, *layer)).reshape(-1)
                for layer in layers
                for matrix in [layer[1]]
            ]
            or [_none(bucket)]
        )
        pending = [
            self.group.all_reduce(each, operation=f"all-reduce of {what}")
            for each, what in ((left, "left factors"), (whole, "small gradients"))
            if each.numel()
        ]
        self._flights[bucket.index] = _Flight(layers, left, whole, pending)

    def turn_compressed(self, bucket: Bucket) -> None:
        flight = self._flights[bucket.index]
        for pending in flight.pending:
            pending.wait()
        flight.pending = []
        offset, rights = 0, []
        for place, matrix, rank in flight.layers:
            count = matrix.shape[0] * rank
            factor = orthonormal(flight.left[offset : offset + count].view(matrix.shape[0], rank))
            offset += count
            right = matrix.t() @ factor
            self.remember(f"residual/{bucket.index}/{place}", matrix - factor @ right.t())
            flight.factors.append(factor)
            rights.append(right.reshape(-1))
        if rights:
            flight.right = torch.cat(rights)
            flight.pending = [
                self.group.all_reduce(flight.right, operation="all-reduce of right factors")
            ]

    def end_compressed(self, bucket: Bucket) -> None:
        flight = self._flights.pop(bucket.index)
        for pending in flight.pending:
            pending.wait()
        offset = 0
        for (place, matrix, rank), factor in zip(flight.layers, flight.factors, strict=True):
            assert flight.right is not None
            count = matrix.shape[1] * rank
            right = flight.right[offset : offset + count].view(matrix.shape[1], rank)
            offset += count
            torch.mm(factor, right.t(), out=matrix)
            self.remember(f"right/{bucket.index}/{place}", right.clone())
        offset = 0
        for view in self._others(bucket, flight.layers):
            view.copy_(flight.whole[offset : offset + view.numel()].view(view.shape))
            offset += view.numel()

    def _layers(self, bucket: Bucket) -> list[tuple[int, Tensor, int]]:
        found = []
        for place, view in enumerate(bucket.views):
            if view.dim() < 2:
                continue
            matrix = columns_of(view)
            rows, columns = matrix.shape
            rank = min(self.rank, rows, columns)
            if rank * (rows + columns) < rows * columns:
                found.append((place, matrix, rank))
        return found

    @staticmethod
    def _others(bucket: Bucket, layers: list[tuple[int, Tensor, int]]) -> list[Tensor]:
        thin = {place for place, _, _ in layers}
        return [view for place, view in enumerate(bucket.views) if place not in thin]

    def _right(self, bucket: Bucket, place: int, matrix: Tensor, rank: int) -> Tensor:
        """The step before's, or at first something arbitrary that is the same on all."""
        key = f"right/{bucket.index}/{place}"
        found = self._kept.get(key)
        if found is not None and found.shape == (matrix.shape[1], rank):
            return found
        dice = torch.Generator().manual_seed(_SEED + 1000 * bucket.index + place)
        fresh = torch.randn(matrix.shape[1], rank, generator=dice, dtype=torch.float64)
        return fresh.to(matrix)


def orthonormal(matrix: Tensor) -> Tensor:
    """Orthonormal columns that span those of the matrix; where these depend on each other,
    arbitrary ones."""
    wide = matrix if matrix.dtype in (torch.float32, torch.float64) else matrix.float()
    found: Tensor = torch.linalg.qr(wide).Q
    return found.to(matrix.dtype)


def _none(bucket: Bucket) -> Tensor:
    return bucket.flat[:0]
