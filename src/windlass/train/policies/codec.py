"""What turns a gradient into fewer bytes and back: pure, without peers, memory or clock.

    parts = codec.encode(matrix)          tensors to send, on the matrix's device
    near = codec.decode(parts, like)      what the other side makes of them

A matrix has a column in each row of the tensor (`columns_of`): what feeds one output of a layer.
`Feedback` adds the memory: what was lost in one step is added in the next. `Blocks` codes a vector
that several matrices lie in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from windlass.core.errors import InvalidInput


class Coder(Protocol):
    def encode(self, matrix: Tensor) -> list[Tensor]: ...

    def decode(self, parts: Sequence[Tensor], like: Tensor) -> Tensor:
        """In the shape and type of `like`."""
        ...


class Codec(Coder, Protocol):
    """One whose parts can be told beforehand."""

    def sizes(self, columns: int, length: int) -> list[tuple[torch.dtype, tuple[int, ...]]]:
        """Type and shape of each part, so that a receiver can make room."""
        ...


def columns_of(tensor: Tensor) -> Tensor:
    """The tensor as a matrix: a column of numbers for each output, in memory order."""
    return tensor.view(tensor.shape[0], -1) if tensor.dim() > 1 else tensor.view(1, -1)


def size_bytes(codec: Codec, columns: int, length: int) -> int:
    total = 0
    for dtype, shape in codec.sizes(columns, length):
        count = 1
        for each in shape:
            count *= each
        total += count * dtype.itemsize
    return total


def to_bytes(parts: Sequence[Tensor]) -> Tensor:
    """The parts as one vector of bytes."""
    return torch.cat([each.contiguous().view(-1).view(torch.uint8) for each in parts])


def from_bytes(codec: Codec, data: Tensor, columns: int, length: int) -> list[Tensor]:
    """The parts back from `to_bytes`."""
    found, offset = [], 0
    for dtype, shape in codec.sizes(columns, length):
        count = 1
        for each in shape:
            count *= each
        end = offset + count * dtype.itemsize
        # A copy: bytes in the middle of a message need not lie as the type wants.
        found.append(data[offset:end].clone().view(dtype).view(shape))
        offset = end
    return found


class Blocks:
    """A vector as the matrices of `shapes`, one behind the other, each coded by itself. A coder
    gives equally many parts for each."""

    def __init__(self, coder: Coder, shapes: Sequence[tuple[int, int]]) -> None:
        self.coder = coder
        self.shapes = shapes

    def encode(self, matrix: Tensor) -> list[Tensor]:
        found = [self.coder.encode(each) for each in self._cut(matrix)]
        if len({len(parts) for parts in found}) > 1:
            raise InvalidInput("encode: it gives equally many tensors for every matrix")
        return [part for parts in found for part in parts]

    def decode(self, parts: Sequence[Tensor], like: Tensor) -> Tensor:
        number, rest = divmod(len(parts), len(self.shapes))
        if rest or not number:
            raise InvalidInput(f"{len(parts)} tensors for {len(self.shapes)} matrices")
        if len(self.shapes) == 1:
            return self.coder.decode(parts, like.view(self.shapes[0])).reshape(like.shape)
        found = torch.empty_like(like)
        for at, into in enumerate(self._cut(found)):
            into.copy_(self.coder.decode(parts[at * number : (at + 1) * number], into))
        return found

    def _cut(self, matrix: Tensor) -> list[Tensor]:
        flat, found, at = matrix.view(-1), [], 0
        for columns, length in self.shapes:
            found.append(flat[at : at + columns * length].view(columns, length))
            at += columns * length
        return found


class Feedback:
    """Error feedback around a coder, for one tensor: sum(sent) + residual = sum(given). With
    `momentum` that of deep gradient compression: u ← m u + g is what is given, and with `masking`
    u begins again where something was sent."""

    def __init__(self, coder: Coder, *, momentum: float = 0.0, masking: bool = True) -> None:
        self.coder = coder
        self.resets = 0
        self._momentum, self._masking = momentum, masking
        self._kept: dict[str, Tensor] = {}
        self._new: dict[str, Tensor] = {}

    @property
    def residual(self) -> Tensor | None:
        return self._kept.get("residual")

    def encode(self, tensor: Tensor, turn: float = 1.0) -> list[Tensor]:
        """What to send. `commit` says that it was: the memory is as before until then. What is
        remembered counts `turn` times, where tensors are in another scale than they were."""
        update = self._with("momentum", tensor, self._momentum * turn)
        given = self._with("residual", update, turn)
        matrix = columns_of(given.contiguous())
        parts = self.coder.encode(matrix)
        near = self.coder.decode(parts, matrix)
        self._remember("residual", (matrix - near).view(tensor.shape))
        if self._momentum:
            sent = (near != 0).view(tensor.shape)
            self._remember("momentum", update.masked_fill(sent, 0.0) if self._masking else update)
        return parts

    def commit(self) -> None:
        self._kept.update(self._new)
        self._new.clear()

    def state(self) -> dict[str, Tensor]:
        return dict(self._kept)

    def load(self, state: Mapping[str, Tensor]) -> None:
        self._kept = dict(state)
        self._new.clear()

    def _with(self, key: str, tensor: Tensor, times: float) -> Tensor:
        kept = self._kept.get(key)
        if kept is None or not times:
            return tensor
        return tensor + (kept if times == 1.0 else kept * times)

    def _remember(self, key: str, value: Tensor) -> None:
        if not is_finite(value):
            self.resets += 1
            value = torch.zeros_like(value)
        self._new[key] = value


def is_finite(tensor: Tensor) -> bool:
    """In one pass: a sum is finite only if all are (or, rarely, it overflowed: as bad)."""
    return bool(torch.isfinite(tensor.sum()))
