"""Dropout between two cuts: each worker of a group has other elements there, so their dice must
differ, while all other dice of the group agree (1.11).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

_APART = 7919


def draw_apart(modules: Iterable[nn.Module], index: int) -> None:
    """From now on each throws dice of its own in training: what they are is one throw of the
    common dice and the worker's place in its group, so that a forward which is done again with the
    same common dice (activation checkpointing) is the same again."""
    for each in modules:
        each.forward = _Own(each, index)


class _Own:
    def __init__(self, module: nn.Module, index: int) -> None:
        self._module = module
        self._usual: Any = module.forward
        self._index = index

    def __call__(self, inputs: Tensor) -> Tensor:
        if not self._module.training:
            found: Tensor = self._usual(inputs)
            return found
        seed = int(torch.randint(2**48, ())) + _APART * (self._index + 1)
        device = inputs.device
        is_cuda = device.type == "cuda"
        with torch.random.fork_rng(devices=[device] if is_cuda else []):
            if is_cuda:
                with torch.cuda.device(device):
                    torch.cuda.manual_seed(seed)
            else:
                torch.default_generator.manual_seed(seed)
            found = self._usual(inputs)
        return found
