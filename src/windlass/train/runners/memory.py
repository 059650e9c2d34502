"""Memory for what comes in, used again."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from windlass.train.comm.frames import Spec


class Memory:
    """Large tensors that are used again: fresh memory costs as much as receiving into it."""

    SMALLEST = 1 << 16

    def __init__(self, most: int) -> None:
        self._most = most
        self._free: dict[Spec, list[Tensor]] = {}

    def take(self, header: dict[str, Any], specs: list[Spec]) -> list[Tensor]:
        """In the endpoint's thread."""
        found = []
        for spec in specs:
            free = self._free.get(spec)
            try:
                found.append(free.pop() if free is not None else spec.empty())
            except IndexError:
                found.append(spec.empty())
        return found

    def give(self, tensors: list[Tensor]) -> None:
        """In the server's thread."""
        for each in tensors:
            spec = Spec(each.dtype, tuple(each.shape))
            free = self._free.setdefault(spec, [])
            if spec.size >= self.SMALLEST and len(free) < self._most:
                free.append(each)
