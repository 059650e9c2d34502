"""Pushes through a filter: a worker codes them and remembers what that lost, a server decodes.

    worker                                              server (and its copy)
    given    ← scale · gradient + residual
    parts    ← encode(given)          ── parts, scale ──►  gradient ← decode(parts) / scale
    residual ← given - decode(parts)       (when it was taken)

What is given is near the mean over the samples, as what the optimiser takes is: the sum times a
power of two, which costs no bit and keeps half precision from overflowing. A residual counts as a
mean too, so that the next push may be of another number of samples.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from windlass.core.errors import InvalidInput
from windlass.train.counters import Counters
from windlass.train.policies.codec import Blocks, Coder, Feedback
from windlass.train.policies.compression import TopK
from windlass.train.policies.filters import Filter
from windlass.train.state.flat import Layout, Part, gathered, write

_log = logging.getLogger("windlass.train")

Shares = list[list[Tensor]]
"""Of each range, its tensors."""


class Decoder:
    """What comes for one range, for a server to read."""

    def __init__(self, filter: Filter, layout: Layout, parts: Sequence[Part]) -> None:
        self.filter = filter
        self.parts = list(parts)
        self.shapes = [shapes_of(filter, layout, part) for part in self.parts]

    def __call__(self, tensors: Sequence[Tensor], scale: float) -> list[Tensor]:
        """A tensor for each part: fresh, or the memory of what came. Raises InvalidInput on what
        the filter cannot read."""
        number, rest = divmod(len(tensors), sum(map(len, self.shapes)))
        found, at = [], 0
        try:
            if rest:
                raise InvalidInput(f"{len(tensors)} tensors")
            for part, shapes in zip(self.parts, self.shapes, strict=True):
                mine = tensors[at : at + number * len(shapes)]
                at += len(mine)
                like = torch.empty(part.stop - part.start, dtype=part.dtype)
                near = Blocks(self.filter, shapes).decode(mine, like)
                if near.dtype != part.dtype:
                    raise InvalidInput(f"{near.dtype} for {part.dtype}")
                found.append(near.mul_(1.0 / scale).view(part.shape))
        except Exception as err:
            name = self.filter.name or type(self.filter).__name__
            raise InvalidInput(f"compress: {name} cannot decode what was pushed: {err}") from err
        return found


class Outbox:
    """What one worker pushes, coded; and what of it has not been sent yet."""

    def __init__(
        self,
        filter: Filter,
        layout: Layout,
        ranges: Sequence[Sequence[Part]],
        counters: Counters,
        pushes: int = 0,
    ) -> None:
        self.filter = filter
        self.layout = layout
        self.counters = counters
        self.pushes = pushes
        self._parts = [list(parts) for parts in ranges]
        self._shapes = [[shapes_of(filter, layout, p) for p in parts] for parts in ranges]
        self._clip = filter.clip if isinstance(filter, TopK) else None
        self._feedback = self._memories()
        self._unit, self._next_unit = 1.0, 1.0

    def code(self, shares: Shares, count: float) -> tuple[Shares, float | None]:
        """What to send, and its scale; or the same and None: this push goes whole. Nothing is
        remembered before `commit`, so a push that fails leaves all as it was."""
        coder = self.filter.at(self.pushes)
        if coder is None:
            return shares, None
        scale = 2.0 ** -math.ceil(math.log2(count))
        self._next_unit = scale * count
        given = [[each.reshape(-1) * scale for each in parts] for parts in shares]
        if self._clip is not None:
            self._clip_all(given, self._clip * self._next_unit)
        coded: Shares = []
        for index, tensors in enumerate(given):
            coded.append([])
            for at, tensor in enumerate(tensors):
                blocks = Blocks(coder, self._shapes[index][at])
                coded[-1] += self._encode((index, at), blocks, tensor)
        return coded, scale

    def commit(self) -> None:
        """The servers have it."""
        self.pushes += 1
        for each in self._feedback.values():
            each.commit()
        self._unit = self._next_unit

    def state(self) -> dict[str, Any]:
        """By parameter, so that it fits whatever the ranges are next time."""
        kept: dict[str, list[Tensor]] = {}
        for (index, at), each in self._feedback.items():
            for name, value in each.state().items():
                if name not in kept:
                    kept[name] = [
                        torch.zeros(p.shape, dtype=p.dtype) for p in self.layout.parameters
                    ]
                write(self._parts[index][at], value, kept[name])
        return {"pushes": self.pushes, "unit": self._unit, "kept": kept}

    def load(self, state: dict[str, Any]) -> None:
        self.pushes, self._unit = int(state["pushes"]), float(state["unit"])
        for (index, at), each in self._feedback.items():
            part = self._parts[index][at]
            each.load({n: gathered(part, v).reshape(-1) for n, v in state["kept"].items()})

    # -- inside -----------------------------------------------------------------------------

    def _memories(self) -> dict[tuple[int, int], Feedback]:
        if not self.filter.has_feedback:
            return {}
        options: dict[str, Any] = {}
        if isinstance(self.filter, TopK):
            options = {"momentum": self.filter.momentum, "masking": self.filter.masking}
        return {
            (index, at): Feedback(self.filter, **options)
            for index, parts in enumerate(self._parts)
            for at in range(len(parts))
        }

    def _encode(self, key: tuple[int, int], coder: Coder, tensor: Tensor) -> list[Tensor]:
        feedback = self._feedback.get(key)
        if feedback is None:
            return coder.encode(tensor.view(1, -1))
        feedback.coder = coder
        before = feedback.resets
        found = feedback.encode(tensor, self._next_unit / self._unit)
        if feedback.resets > before:
            self.counters.event("residual resets")
            _log.warning(
                "push %s: the residual of range %s begins at zero: a gradient was not finite",
                self.pushes, key[0],
            )  # fmt: skip
        return found

    def _clip_all(self, given: Shares, allowed: float) -> None:
        squares = sum(float(each.double().square().sum()) for parts in given for each in parts)
        norm = math.sqrt(squares)
        if norm > allowed:
            for parts in given:
                for each in parts:
                    each.mul_(allowed / norm)
            self.counters.event("clipped")


def shapes_of(filter: Filter, layout: Layout, part: Part) -> list[tuple[int, int]]:
    """The matrices that lie in a part, (columns, length) each: one row of all, or what there is of
    each parameter's columns."""
    if not filter.by_column:
        return [(1, part.stop - part.start)]
    found: list[tuple[int, int]] = []
    for piece in part.pieces:
        shape = layout.parameters[piece.parameter].shape
        length = math.prod(shape[1:]) if len(shape) > 1 else math.prod(shape)
        first = min(piece.stop, -(-piece.start // length) * length)  # where a column begins
        whole, rest = divmod(piece.stop - first, length)
        found += [
            each
            for each in ((1, first - piece.start), (whole, length), (1, rest))
            if each[0] and each[1]
        ]
    return found
