"""What an optimiser trains, as one logical vector: cut into ranges, gathered and scattered.

    vector    [ group 0, float32             | group 0, float64 | group 1, float32 ]   segments
              [ w1        | b1 | w2          | scale            | w3               ]   pieces
    ranges    [ range 0          | range 1          | range 2                      ]
    parts     [ 0                | 0         | 1    | 1         | 2                ]

A range meets its segments in *parts*: each is one flat tensor of one dtype and one set of options,
so that a server steps a handful of tensors however many parameters there are. An optimiser that
looks at whole parameters (a norm, a matrix) gets them whole: each is a segment of its own shape.
"""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from windlass.train.comm.frames import Payload

BY_ELEMENT = {
    "SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "Adagrad", "Adadelta", "RMSprop", "Rprop",
    "ASGD",
}  # fmt: skip
"""torch's optimisers that step each element by itself: their vectors may be cut anywhere."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The elements `start` to `stop` of one parameter."""

    parameter: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Part:
    """Where a range meets a segment; `start` and `stop` count along the vector."""

    group: int
    dtype: torch.dtype
    start: int
    stop: int
    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Range:
    index: int
    start: int
    stop: int


class Layout:
    """The parameters of an optimiser in the order of its groups, those of a dtype together.
    `parameters` are the tensors themselves; `places` says which of the optimiser each is."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.whole = type(optimizer).__name__ not in BY_ELEMENT
        found: list[tuple[int, str, int, Tensor]] = []
        place = 0
        for number, group in enumerate(optimizer.param_groups):
            for each in group["params"]:
                if each.requires_grad:
                    found.append((number, str(each.dtype), place, each))
                place += 1
        found.sort(key=lambda entry: entry[:3])
        self.parameters = [entry[3] for entry in found]
        self.places = [entry[2] for entry in found]
        self.groups = [entry[0] for entry in found]
        self.starts: list[int] = []
        self.size = 0
        for each in self.parameters:
            self.starts.append(self.size)
            self.size += each.numel()
        told = [(e[0], e[1], tuple(e[3].shape)) for e in found]
        self.digest = hashlib.sha256(repr((self.whole, told)).encode()).hexdigest()

    def cut(self, count: int) -> list[Range]:
        """As many ranges, alike in size; fewer where parameters stay whole."""
        edges = {0, self.size}
        for n in range(1, count):
            at = self.size * n // count
            if self.whole and self.starts:
                at = self.starts[max(0, bisect.bisect_right(self.starts, at) - 1)]
            edges.add(at)
        ordered = sorted(edges)
        return [
            Range(n, start, stop)
            for n, (start, stop) in enumerate(zip(ordered, ordered[1:], strict=False))
        ]

    def parts(self, of: Range) -> list[Part]:
        found: list[Part] = []
        first = max(0, bisect.bisect_right(self.starts, of.start) - 1)
        for n in range(first, len(self.parameters)):
            begin, tensor = self.starts[n], self.parameters[n]
            start, stop = max(of.start, begin), min(of.stop, begin + tensor.numel())
            if begin >= of.stop:
                break
            if start >= stop:
                continue
            piece = Piece(n, start - begin, stop - begin)
            last = found[-1] if found else None
            if (
                last is not None
                and not self.whole
                and (last.group, last.dtype) == (self.groups[n], tensor.dtype)
            ):
                found[-1] = Part(
                    last.group, last.dtype, last.start, stop, (stop - last.start,),
                    (*last.pieces, piece),
                )  # fmt: skip
            else:
                shape = tuple(tensor.shape) if self.whole else (stop - start,)
                found.append(Part(self.groups[n], tensor.dtype, start, stop, shape, (piece,)))
        return found


class Staging:
    """This machine's memory for one range: pinned where the parameters are on a GPU."""

    def __init__(self, layout: Layout, of: Range) -> None:
        self.layout = layout
        self.parts = layout.parts(of)
        self._pinned = any(
            layout.parameters[piece.parameter].is_cuda
            for part in self.parts
            for piece in part.pieces
        )
        self._parameters = sorted({p.parameter for part in self.parts for p in part.pieces})
        self._where: list[int] = []
        self._pairs: tuple[list[Tensor], list[Tensor]] = ([], [])
        self._buffers: list[Tensor] | None = None
        self._outgoing: list[Tensor] | None = None

    @property
    def buffers(self) -> list[Tensor]:
        """One tensor for each part, for what comes in: made once, used again."""
        if self._buffers is None:
            self._buffers = self._made()
        return self._buffers

    def gather(self, tensors: Sequence[Tensor | None]) -> list[Tensor]:
        """What `tensors` (one for each parameter; None is zeros) hold of this range, part by part.
        A part that lies in one CPU tensor is that tensor's own memory, not a copy; the copies'
        memory is used again by the next call."""
        found = []
        for number, part in enumerate(self.parts):
            own = self._in_place(part, tensors)
            found.append(self._copied(number, tensors) if own is None else own[0])
        self._settle()
        return found

    def lend(self, tensors: Sequence[Tensor | None]) -> list[Payload]:
        """The same to be sent, without a copy: in pieces, where a part lies in several."""
        found: list[Payload] = []
        for number, part in enumerate(self.parts):
            own = self._in_place(part, tensors, pieces=True)
            if own is None:
                found.append(self._copied(number, tensors))
            else:
                found.append(own[0] if len(own) == 1 else own)
        self._settle()
        return found

    def scatter(self, tensors: Sequence[Tensor]) -> None:
        """What the buffers hold, to where it belongs."""
        where = [tensors[number].data_ptr() for number in self._parameters]
        if where != self._where:
            self._where = where
            self._pairs = self._paired(tensors)
        with torch.no_grad():
            torch._foreach_copy_(*self._pairs, non_blocking=self._pinned)
        self._settle()

    def _paired(self, tensors: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Each piece in the tensors, and in the buffers."""
        targets, sources = [], []
        for buffer, part in zip(self.buffers, self.parts, strict=True):
            flat, at = buffer.reshape(-1), 0
            for piece in part.pieces:
                size = piece.stop - piece.start
                # view, not reshape: a copy would be written to and forgotten
                whole = tensors[piece.parameter].detach().view(-1)
                targets.append(whole[piece.start : piece.stop])
                sources.append(flat[at : at + size])
                at += size
        return targets, sources

    def _copied(self, number: int, tensors: Sequence[Tensor | None]) -> Tensor:
        if self._outgoing is None:  # not what comes in: an answer may come while this is sent
            self._outgoing = self._made()
        flat, at = self._outgoing[number].reshape(-1), 0
        for piece in self.parts[number].pieces:
            size = piece.stop - piece.start
            source = tensors[piece.parameter]
            if source is None:
                flat[at : at + size].zero_()
            else:
                taken = source.detach().reshape(-1)[piece.start : piece.stop]
                flat[at : at + size].copy_(taken, non_blocking=self._pinned)
            at += size
        return self._outgoing[number]

    def _made(self) -> list[Tensor]:
        return [
            torch.empty(part.shape, dtype=part.dtype, pin_memory=self._pinned)
            for part in self.parts
        ]

    def _in_place(
        self, part: Part, tensors: Sequence[Tensor | None], *, pieces: bool = False
    ) -> list[Tensor] | None:
        """The part itself, in so many pieces."""
        if len(part.pieces) > 1 and not pieces:
            return None
        found = []
        for piece in part.pieces:
            source = tensors[piece.parameter]
            if source is None or source.device.type != "cpu" or not source.is_contiguous():
                return None
            if piece.stop - piece.start < source.numel():
                source = source.detach().view(-1)[piece.start : piece.stop]
            found.append(source)
        return found if len(found) > 1 else [found[0].detach().view(part.shape)]

    def _settle(self) -> None:
        if self._pinned:
            torch.cuda.current_stream().synchronize()


def write(part: Part, tensor: Tensor, values: Sequence[Tensor]) -> None:
    """What a part's tensor holds, to where it belongs among one tensor for each parameter."""
    flat, at = tensor.reshape(-1), 0
    for piece in part.pieces:
        size = piece.stop - piece.start
        values[piece.parameter].view(-1)[piece.start : piece.stop] = flat[at : at + size]
        at += size


def gathered(part: Part, values: Sequence[Tensor]) -> Tensor:
    """The same back, on the CPU, in memory of its own."""
    found = [
        values[piece.parameter].detach().cpu().reshape(-1)[piece.start : piece.stop]
        for piece in part.pieces
    ]
    return torch.cat(found).reshape(part.shape)
