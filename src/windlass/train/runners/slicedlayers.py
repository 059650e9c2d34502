"""The forwards of layers of which each worker has a slice.

    x ─ same ─ A_i ─ f ─ B_i ─ sum ─ + bias      same: backward sums;  sum: backward is the same

Column: a slice of the outputs. Row: a slice of the inputs (of an embedding: of its words), and the
sum over the workers is the whole output.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from windlass.train.cut.pairs import How


class Sums(Protocol):
    index: int

    def sum(self, tensor: Tensor, operation: str, kind: str) -> Tensor:
        """A new tensor: the sum over all that have a slice."""
        ...


def forward_of(
    module: nn.Linear | nn.Embedding, how: How, sums: Sums
) -> Callable[[Tensor], Tensor]:
    """Its parameters are read anew in each call."""
    if isinstance(module, nn.Embedding):
        return module.forward if how == "column" else _Words(module, sums)
    return _Column(module, sums) if how == "column" else _Row(module, sums)


class _Column:
    def __init__(self, module: nn.Linear, sums: Sums) -> None:
        self._module = module
        self._sums = sums

    def __call__(self, inputs: Tensor) -> Tensor:
        same: Tensor = _Same.apply(inputs, self._sums)  # type: ignore[no-untyped-call]
        return functional.linear(same, self._module.weight, self._module.bias)


class _Row:
    def __init__(self, module: nn.Linear, sums: Sums) -> None:
        self._module = module
        self._sums = sums

    def __call__(self, inputs: Tensor) -> Tensor:
        part = functional.linear(inputs, self._module.weight)
        found: Tensor = _Sum.apply(part, self._sums)  # type: ignore[no-untyped-call]
        bias = self._module.bias
        return found if bias is None else found + bias.to(found.dtype)  # once, not by each


class _Words:
    """Of the words of others it makes nothing."""

    def __init__(self, module: nn.Embedding, sums: Sums) -> None:
        self._module = module
        self._sums = sums

    def __call__(self, words: Tensor) -> Tensor:
        module = self._module
        count = module.weight.shape[0]
        first = count * self._sums.index
        if bool(((words < 0) | (words >= module.num_embeddings)).any()):
            raise IndexError("index out of range in self")  # as torch says of the whole table
        others = (words < first) | (words >= first + count)
        padding = module.padding_idx
        mine = padding is not None and first <= padding < first + count
        part = functional.embedding(
            (words - first).masked_fill(others, 0),
            module.weight,
            padding - first if padding is not None and mine else None,
        ).masked_fill(others.unsqueeze(-1), 0)
        found: Tensor = _Sum.apply(part, self._sums)  # type: ignore[no-untyped-call]
        return found


class _Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, sums: Sums) -> Tensor:
        ctx.sums = sums
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.sums.sum(gradient, "backward of cut layers", "gradient"), None


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: Tensor, sums: Sums) -> Tensor:
        return sums.sum(part, "forward of cut layers", "activation")

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None
