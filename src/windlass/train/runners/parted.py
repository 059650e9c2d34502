"""Parameters of which each member of a replica holds a part: one vector, part behind part.

    whole       w1 (8x4)      b1     w2 (2x8)        b2
    position 0  w1[0:4, :]    b1 …   w2[:, 0:4]      b2       a tensor group of two
    position 1  w1[4:8, :]           w2[:, 4:8]

    vector      [ part of position 0          | part of position 1     ]
    ranges      [ 0             | 1           | 2         | 3          ]

A range is in one part, so one member of each replica pushes and pulls it; to the servers that
range's workers are the replicas. What several positions hold alike (tied weights, layers that are
not cut) is in the part of the first of them.
"""

from __future__ import annotations

import bisect
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import torch
from torch import Tensor

from windlass.train.state.flat import BY_ELEMENT, Layout, Range

KEY = "replicas/parts"
"""Under which worker 0 tells the others, and the servers, who holds what."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Of the parameter with this number in the optimiser: all of it (`dim` -1), or what lies from
    `start` to `stop` along a dimension."""

    place: int
    dim: int = -1
    start: int = 0
    stop: int = 0

    def of(self, tensor: Tensor) -> Tensor:
        if self.dim < 0:
            return tensor
        return tensor.narrow(self.dim, self.start, self.stop - self.start)


Table = Sequence[Sequence[Slice]]
"""By position in a replica: what is in its part."""


def to_bytes(table: Table) -> bytes:
    return json.dumps([[astuple(each) for each in part] for part in table]).encode()


def from_bytes(told: bytes) -> Table:
    return [[Slice(*each) for each in part] for part in json.loads(told)]


@dataclass(frozen=True)
class Outline:
    """What a whole optimiser has, as it was before anybody let go of a part."""

    kind: str
    groups: tuple[int, ...]
    dtypes: tuple[torch.dtype, ...]
    shapes: tuple[tuple[int, ...], ...]
    trained: tuple[bool, ...]

    @classmethod
    def of(cls, optimizer: torch.optim.Optimizer) -> Outline:
        found = [
            (number, each)
            for number, group in enumerate(optimizer.param_groups)
            for each in group["params"]
        ]
        return cls(
            type(optimizer).__name__,
            tuple(number for number, _ in found),
            tuple(each.dtype for _, each in found),
            tuple(tuple(each.shape) for _, each in found),
            tuple(each.requires_grad for _, each in found),
        )


class PartedLayout(Layout):
    """As a `Layout`, with `slices` that say what of which parameter each entry is. Entries are on
    `meta` but for those that this member holds."""

    def __init__(self, outline: Outline, table: Table) -> None:
        self.outline = outline
        self.whole = outline.kind not in BY_ELEMENT
        self.slices: list[Slice] = []
        self.parameters: list[Tensor] = []
        self.groups: list[int] = []
        self.starts: list[int] = []
        self.size = 0
        self.bounds: list[tuple[int, int]] = []
        """Of each part: where it begins and ends in the vector."""
        for part in table:
            begins = self.size
            for each in sorted(part, key=self._order):
                if outline.trained[each.place]:
                    self._add(each)
            self.bounds.append((begins, self.size))
        self.places = [each.place for each in self.slices]
        told = (self.whole, outline.groups, [str(each) for each in outline.dtypes], outline.shapes)
        self.digest = hashlib.sha256(repr((told, self.slices)).encode()).hexdigest()

    def _order(self, each: Slice) -> tuple[int, str, int, int]:
        outline = self.outline
        kind = str(outline.dtypes[each.place])
        return outline.groups[each.place], kind, each.place, each.start

    def _add(self, each: Slice) -> None:
        outline = self.outline
        like = torch.empty(
            outline.shapes[each.place], dtype=outline.dtypes[each.place], device="meta"
        )
        self.slices.append(each)
        self.parameters.append(each.of(like))
        self.groups.append(outline.groups[each.place])
        self.starts.append(self.size)
        self.size += self.parameters[-1].numel()

    def entries(self, part: int) -> list[int]:
        """The numbers of a part's entries."""
        begins, ends = self.bounds[part]
        first = bisect.bisect_left(self.starts, begins)
        return [n for n in range(first, len(self.starts)) if self.starts[n] < ends]

    def hold(self, part: int, tensors: Mapping[Slice, Tensor]) -> None:
        """What this member has of its part: the tensors themselves, contiguous."""
        for number in self.entries(part):
            found = tensors[self.slices[number]]
            assert found.shape == self.parameters[number].shape, self.slices[number]
            self.parameters[number] = found

    def cut(self, count: int) -> list[Range]:
        """About as many ranges, each in one part; at least one for each part that has anything."""
        edges = {0, self.size}
        for begins, ends in self.bounds:
            size = ends - begins
            edges.add(begins)
            share = max(1, round(count * size / max(1, self.size)))
            for n in range(1, share):
                at = begins + size * n // share
                if self.whole and self.starts:
                    at = self.starts[max(0, bisect.bisect_right(self.starts, at) - 1)]
                edges.add(at)
        ordered = sorted(edges)
        return [
            Range(n, start, stop)
            for n, (start, stop) in enumerate(zip(ordered, ordered[1:], strict=False))
        ]

    def ranges_of(self, part: int, ranges: Sequence[Range]) -> list[int]:
        begins, ends = self.bounds[part]
        return [each.index for each in ranges if begins <= each.start < ends]

    # -- whole tensors ----------------------------------------------------------------------

    def together(self, values: Sequence[Tensor]) -> dict[int, Tensor]:
        """Whole parameters by their numbers, of one tensor for each entry."""
        outline = self.outline
        found: dict[int, Tensor] = {}
        for each, value in zip(self.slices, values, strict=True):
            if each.place not in found:
                shape = outline.shapes[each.place]
                found[each.place] = torch.empty(shape, dtype=value.dtype)
            each.of(found[each.place]).copy_(value)
        return found

    def states_together(self, kept: Sequence[Mapping[str, Any]]) -> dict[int, dict[str, Any]]:
        """The same of what an optimiser keeps for each entry."""
        outline = self.outline
        found: dict[int, dict[str, Any]] = {}
        for number, (each, states) in enumerate(zip(self.slices, kept, strict=True)):
            for name, value in states.items():
                state = found.setdefault(each.place, {})
                if not isinstance(value, Tensor) or value.shape != self.parameters[number].shape:
                    state[name] = value
                    continue
                if name not in state:
                    shape = outline.shapes[each.place]
                    state[name] = torch.zeros(shape, dtype=value.dtype)
                each.of(state[name]).copy_(value)
        return dict(sorted(found.items()))

    def apart(
        self, values: Mapping[int, Tensor], states: Mapping[int, Mapping[str, Any]]
    ) -> tuple[list[Tensor], list[dict[str, Any]]]:
        """One tensor, and what the optimiser keeps, for each entry, of whole ones."""
        outline = self.outline
        tensors = [each.of(values[each.place].detach()).contiguous() for each in self.slices]
        kept: list[dict[str, Any]] = []
        for each in self.slices:
            shape = outline.shapes[each.place]
            kept.append(
                {
                    name: each.of(value).contiguous()
                    if isinstance(value, Tensor) and tuple(value.shape) == shape
                    else value
                    for name, value in states.get(each.place, {}).items()
                }
            )
        return tensors, kept
