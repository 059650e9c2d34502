"""Fewer bytes for a gradient: what a user asks for with `compress=`.

Each kind is an option object here (a filter, so that it codes a push to a server too), a pure
codec in a module of its own, and an exchange between workers in `runners/`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from windlass.core.errors import InvalidInput
from windlass.train.policies.codec import Coder
from windlass.train.policies.filters import Filter
from windlass.train.policies.halves import HalfCodec
from windlass.train.policies.onebit import OneBitCodec
from windlass.train.policies.topk import TopKCodec, ratio_at

if TYPE_CHECKING:
    from windlass.train.task import Task


class Compression(Filter):
    """The base."""

    has_feedback: ClassVar[bool] = True

    def codec(self) -> Coder:
        """For one tensor alone, as servers use it. Raises InvalidInput where there is none."""
        raise InvalidInput(f"compress: {self.name} is between workers only")

    def encode(self, matrix: Tensor) -> list[Tensor]:
        return self.codec().encode(matrix)

    def decode(self, parts: Sequence[Tensor], like: Tensor) -> Tensor:
        return self.codec().decode(parts, like)

    def at(self, push: int) -> Coder | None:
        return self.codec()


class OneBit(Compression):
    """1-bit SGD: a sign for each number, two levels for each column, with error feedback."""

    name: ClassVar[str] = "onebit"
    by_column: ClassVar[bool] = True
    warmup: int = Field(0, ge=0, description="first steps with whole gradients")
    threshold: Literal["zero", "mean"] = Field(
        "zero", description="what separates the two levels of a column: zero, or its mean"
    )

    def codec(self) -> OneBitCodec:
        return OneBitCodec(self.threshold)

    def at(self, push: int) -> Coder | None:
        return self.codec() if push >= self.warmup else None


class TopK(Compression):
    """Deep gradient compression: only the largest numbers; the rest is kept for later steps."""

    name: ClassVar[str] = "topk"
    ratio: float = Field(0.01, gt=0, le=1, description="the part of the numbers that is sent")
    warmup: int = Field(0, ge=0, description="first steps that send more: 1/4, then ever fewer")
    momentum: float = Field(
        0.0, ge=0, lt=1, description="momentum before the choice (DGC); then none in the optimiser"
    )
    masking: bool = Field(True, description="forget the momentum of what has been sent")
    clip: float | None = Field(
        None, gt=0, description="largest norm of the whole gradient; each worker clips its part"
    )

    def codec(self) -> TopKCodec:
        return TopKCodec(self.ratio)

    def at(self, push: int) -> Coder | None:
        return TopKCodec(ratio_at(push, self.warmup, self.ratio))

    def check(self, task: Task, workers: int) -> list[str]:
        twice = [g["momentum"] for g in task.optimizer.param_groups if g.get("momentum")]
        if self.momentum and twice:
            raise InvalidInput(
                f"compress.momentum: {self.momentum} before the choice and {twice[0]} in the "
                "optimiser would be momentum twice",
                hint="SGD(…, momentum=0) with TopK(momentum=…)",
            )
        if twice and not self.momentum:
            return [
                "compress: TopK delays most numbers, and momentum in the optimiser then pushes "
                "stale ones; TopK(momentum=…) with SGD(momentum=0) corrects for it"
            ]
        return []


class PowerSGD(Compression):
    """Low-rank gradients: two thin matrices for each layer, by one power iteration a step.

    Linear, so a plain all-reduce carries it. All workers orthogonalise for themselves: on machines
    of different kinds their last bits may differ (`check_every=` tells)."""

    name: ClassVar[str] = "powersgd"
    rank: int = Field(4, ge=1, description="columns of the two thin matrices")
    warmup: int = Field(0, ge=0, description="first steps with whole gradients")

    def codec(self) -> Coder:
        raise InvalidInput(
            "compress: PowerSGD is between workers only: its factors add up because all workers "
            "multiply by the same one in each step, and a push comes alone",
            hint="OneBit(), TopK(), FP16() or BF16() for what goes to a server",
        )


class FP16(Compression):
    """Half precision on the wire, summed in full."""

    name: ClassVar[str] = "fp16"
    has_feedback: ClassVar[bool] = False

    def codec(self) -> HalfCodec:
        return HalfCodec(torch.float16)


class BF16(Compression):
    """bfloat16 on the wire, summed in full: the range of single precision, fewer digits."""

    name: ClassVar[str] = "bf16"
    has_feedback: ClassVar[bool] = False

    def codec(self) -> HalfCodec:
        return HalfCodec(torch.bfloat16)
