"""A model as flat vectors, one for each dtype: what gossip averages and sends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

Vectors = list[Tensor]


class Flattened:
    """Tensors that keep their places while they are read into vectors and written from them.
    Only such as can be averaged: whole numbers and flags are left alone."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        self._groups: dict[torch.dtype, list[Tensor]] = {}
        for each in tensors:
            if each.numel() and (each.is_floating_point() or each.is_complex()):
                self._groups.setdefault(each.dtype, []).append(each)

    def read(self) -> Vectors:
        """Fresh ones, on the tensors' device."""
        with torch.no_grad():
            return [
                torch.cat([each.detach().reshape(-1) for each in group])
                for group in self._groups.values()
            ]

    def write(self, vectors: Sequence[Tensor]) -> None:
        with torch.no_grad():
            for group, vector in zip(self._groups.values(), vectors, strict=True):
                parts = torch.split(vector.to(group[0].device), [each.numel() for each in group])
                for each, part in zip(group, parts, strict=True):
                    each.copy_(part.view(each.shape))


def parameters_of(model: nn.Module) -> Flattened:
    return Flattened(model.parameters())


def buffers_of(model: nn.Module) -> Flattened:
    return Flattened(model.buffers())


def staged(vectors: Sequence[Tensor]) -> Vectors:
    """The same in this machine's memory, to be sent: through pinned memory from a GPU."""
    found, waits = [], False
    for each in vectors:
        if each.is_cuda:
            here = torch.empty(each.shape, dtype=each.dtype, pin_memory=True)
            here.copy_(each, non_blocking=True)
            waits = True
            found.append(here)
        else:
            found.append(each)
    if waits:
        torch.cuda.synchronize()
    return found


def landed(vectors: Sequence[Tensor], like: Sequence[Tensor]) -> Vectors:
    """What came, where this worker's own are."""
    return [came.to(own.device) for came, own in zip(vectors, like, strict=True)]


def largest(vectors: Sequence[Tensor]) -> float:
    """The largest size of an element."""
    return max((float(each.abs().max()) for each in vectors), default=0.0)
