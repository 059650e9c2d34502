"""A copy of a state as it is now, in memory that is used again: what a checkpoint is written from
while the training goes on. Copies of a GPU's tensors lie in pinned memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from windlass.train.state.pieces import Piece

_Key = tuple[Any, ...]


class Snapshot:
    """Its copies are good until the next `take`."""

    def __init__(self) -> None:
        self._buffers: dict[_Key, Tensor] = {}
        self._before: dict[_Key, Tensor] = {}
        self._devices: set[torch.device] = set()

    def take(self, state: Any) -> Any:
        """The same tree with copies of its tensors, on the CPU. Done when it returns."""
        self._before, self._buffers = self._buffers, {}
        copied = self._copied(state, ())
        self._before = {}
        for device in self._devices:
            torch.cuda.current_stream(device).synchronize()
        self._devices.clear()
        return copied

    def _copied(self, value: Any, at: _Key) -> Any:
        if isinstance(value, Tensor):
            return self._copy(value.detach(), at)
        if isinstance(value, Piece):
            return replace(value, value=self._copy(value.value.detach(), at))
        if isinstance(value, Mapping):
            return {key: self._copied(inner, (*at, key)) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._copied(inner, (*at, n)) for n, inner in enumerate(value)]
        if type(value) is tuple:
            return tuple(self._copied(inner, (*at, n)) for n, inner in enumerate(value))
        return value

    def _copy(self, source: Tensor, at: _Key) -> Tensor:
        if source.layout != torch.strided:
            return source.to("cpu", copy=True)
        buffer = self._before.get(at)
        if buffer is None or buffer.shape != source.shape or buffer.dtype != source.dtype:
            buffer = torch.empty(source.shape, dtype=source.dtype, pin_memory=source.is_cuda)
        buffer.copy_(source, non_blocking=source.is_cuda)
        if source.is_cuda:
            self._devices.add(source.device)
        self._buffers[at] = buffer
        return buffer
