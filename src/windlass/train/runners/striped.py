"""Quantised gradients do not add, so each worker owns a stripe and adds that for all.

    worker 0:  encode [stripe 0 | stripe 1 | stripe 2]
                        own        → 1        → 2          all-to-all
    each owner: decode what came, add, encode the sum again (with a residual of its own), → all

Both losses are remembered where they happen: by each worker for what it sent, by each owner for
what it sent back. All decode the same bytes, so replicas are the same to the bit.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from windlass.train.comm.torchdist import Pending, WorkerGroup
from windlass.train.counters import Counters
from windlass.train.policies.codec import (
    Codec,
    columns_of,
    from_bytes,
    size_bytes,
    to_bytes,
)
from windlass.train.runners.buckets import Bucket
from windlass.train.runners.compressed import Compressed


@dataclass
class _Flight:
    first: Pending
    incoming: list[Tensor]
    second: Pending | None = None
    returned: list[Tensor] = field(default_factory=list)


class Striped(Compressed):
    def __init__(
        self,
        group: WorkerGroup,
        counters: Counters,
        codec: Codec,
        *,
        by_column: bool,
        has_feedback: bool = False,
        warmup: int = 0,
    ) -> None:
        """`by_column`: the codec wants each layer's columns; else any cut will do."""
        super().__init__(group, counters, warmup=warmup)
        self.codec = codec
        self.by_column = by_column
        self.has_feedback = has_feedback
        self._flights: dict[int, _Flight] = {}

    def begin_compressed(self, bucket: Bucket) -> None:
        flat = bucket.flat
        if self.has_feedback:
            flat.add_(self.remembered(f"worker/{bucket.index}", flat))
        lost = torch.empty_like(flat) if self.has_feedback else None
        outgoing = [self._encode(bucket, flat, owner, lost) for owner in range(self.group.size)]
        if lost is not None:
            self.remember(f"worker/{bucket.index}", lost)
        sizes = [outgoing[self.group.rank].numel()] * self.group.size
        incoming, pending = self.group.all_to_all(
            outgoing, sizes, operation="exchange of compressed gradients"
        )
        self._flights[bucket.index] = _Flight(pending, incoming)

    def turn_compressed(self, bucket: Bucket) -> None:
        flight, me = self._flights[bucket.index], self.group.rank
        flight.first.wait()
        flat = bucket.flat
        for piece in self._stripe(bucket, flat, me):
            piece.zero_()
        for data in flight.incoming:  # in the order of workers, whoever came first
            self._decode(bucket, data, me, flat, adds=True)
        lost = None
        if self.has_feedback:
            key = f"owner/{bucket.index}"
            own = torch.zeros_like(flat)
            stripe = self._joined(bucket, own, me)
            before = self.remembered(key, stripe)
            self._spread(bucket, before, flat, me)
            lost = own
        data = self._encode(bucket, flat, me, lost)
        if lost is not None:
            self.remember(key, self._joined(bucket, lost, me))
        sizes = [self._bytes(bucket, owner) for owner in range(self.group.size)]
        flight.returned, flight.second = self.group.all_to_all(
            [data] * self.group.size, sizes, operation="return of compressed gradients"
        )

    def end_compressed(self, bucket: Bucket) -> None:
        flight = self._flights.pop(bucket.index)
        assert flight.second is not None
        flight.second.wait()
        for owner, data in enumerate(flight.returned):
            self._decode(bucket, data, owner, bucket.flat, adds=False)

    # -- stripes ----------------------------------------------------------------------------

    def _stripe(self, bucket: Bucket, flat: Tensor, owner: int) -> list[Tensor]:
        """The parts of the bucket that are this owner's, as matrices of columns: views of `flat`,
        which is the bucket's flat tensor or another of its shape."""
        size = self.group.size
        if not self.by_column:
            return [flat.tensor_split(size)[owner].view(1, -1)]
        found, offset = [], 0
        for number, view in enumerate(bucket.views):
            matrix = columns_of(flat[offset : offset + view.numel()].view(view.shape))
            offset += view.numel()
            # Turned by one for each layer, so that single columns do not all go to worker 0.
            part = matrix.tensor_split(size)[(owner + number + bucket.index) % size]
            if part.numel():
                found.append(part)
        return found

    def _encode(self, bucket: Bucket, flat: Tensor, owner: int, lost: Tensor | None) -> Tensor:
        pieces = self._stripe(bucket, flat, owner)
        rests = self._stripe(bucket, lost, owner) if lost is not None else [None] * len(pieces)
        parts: list[Tensor] = []
        for piece, rest in zip(pieces, rests, strict=True):
            encoded = self.codec.encode(piece)
            if rest is not None:
                torch.sub(piece, self.codec.decode(encoded, piece), out=rest)
            parts += encoded
        return to_bytes(parts) if parts else torch.empty(0, dtype=torch.uint8, device=flat.device)

    def _decode(self, bucket: Bucket, data: Tensor, owner: int, flat: Tensor, adds: bool) -> None:
        offset = 0
        for piece in self._stripe(bucket, flat, owner):
            end = offset + size_bytes(self.codec, *piece.shape)
            parts = from_bytes(self.codec, data[offset:end], *piece.shape)
            found = self.codec.decode(parts, piece)
            piece.add_(found) if adds else piece.copy_(found)
            offset = end

    def _bytes(self, bucket: Bucket, owner: int) -> int:
        pieces = self._stripe(bucket, bucket.flat, owner)
        return sum(size_bytes(self.codec, *piece.shape) for piece in pieces)

    def _joined(self, bucket: Bucket, flat: Tensor, owner: int) -> Tensor:
        pieces = self._stripe(bucket, flat, owner)
        return torch.cat([each.reshape(-1) for each in pieces]) if pieces else flat[:0].clone()

    def _spread(self, bucket: Bucket, values: Tensor, flat: Tensor, owner: int) -> None:
        offset = 0
        for piece in self._stripe(bucket, flat, owner):
            piece.add_(values[offset : offset + piece.numel()].view(piece.shape))
            offset += piece.numel()
