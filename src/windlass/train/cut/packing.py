"""What is alive at a boundary between two stages, as a flat tuple that can travel.

Tensors, None, numbers and words travel as they are. Where a value has a shape of its own (a tuple
of states, a dict) or is a dtype, a size, a device, one more word at the end says how to put it
together again:

    [x, 3]            → (x, 3)
    [(h, c), x]       → (h, c, x, "\\0shape:[{"t": [0, 1]}, 2]")

A device does not travel: on the other side it is the device of that stage.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from windlass.core.errors import InvalidInput

_MARK = "\0shape:"
_PLAIN = (Tensor, bool, int, float, str)


def pack(values: Sequence[Any], where: str = "", *, local: bool = False) -> tuple[Any, ...]:
    """The values as leaves. With `local` what cannot travel stays as it is (it need not travel);
    otherwise InvalidInput says what it is, and `where`."""
    if all(each is None or isinstance(each, _PLAIN) for each in values):
        return tuple(values)
    leaves: list[Any] = []
    shape = [_taken_apart(each, leaves, where, local) for each in values]
    if shape == list(range(len(leaves))):
        return tuple(leaves)
    return (*leaves, _MARK + json.dumps(shape))


def is_shaped(values: Sequence[Any]) -> bool:
    """Whether a last word says how the values are put together."""
    return bool(values) and isinstance(values[-1], str) and values[-1].startswith(_MARK)


def unpack(values: Sequence[Any], device: torch.device | None = None) -> list[Any]:
    """What was packed. `device` stands for every device that was among the values."""
    if not is_shaped(values):
        return list(values)
    shape = json.loads(values[-1][len(_MARK) :])
    leaves = values[:-1]
    return [_put_together(each, leaves, device) for each in shape]


def _taken_apart(value: Any, leaves: list[Any], where: str, local: bool) -> Any:
    if value is None or isinstance(value, _PLAIN):
        leaves.append(value)
        return len(leaves) - 1
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if isinstance(value, slice):
        parts = (value.start, value.stop, value.step)
        return {"s": [_taken_apart(each, leaves, where, local) for each in parts]}
    if type(value) in (tuple, torch.Size):
        return {"t": [_taken_apart(each, leaves, where, local) for each in value]}
    if type(value) is list:
        return {"l": [_taken_apart(each, leaves, where, local) for each in value]}
    if type(value) is dict and all(isinstance(key, str | int) for key in value):
        pairs = value.items()
        return {"d": [[key, _taken_apart(each, leaves, where, local)] for key, each in pairs]}
    if local:
        leaves.append(value)
        return len(leaves) - 1
    raise InvalidInput(
        f"{where}: a {type(value).__name__} is needed by a later stage and cannot travel",
        hint="let blocks hand on tensors, numbers, None, or tuples, lists and dicts of them",
    )


def _put_together(shape: Any, leaves: Sequence[Any], device: torch.device | None) -> Any:
    if isinstance(shape, int):
        return leaves[shape]
    ((kind, inner),) = shape.items()
    if kind == "dtype":
        return getattr(torch, inner)
    if kind == "device":
        return device if device is not None else torch.device(inner)
    if kind == "d":
        return {key: _put_together(each, leaves, device) for key, each in inner}
    parts = [_put_together(each, leaves, device) for each in inner]
    if kind == "s":
        return slice(*parts)
    return tuple(parts) if kind == "t" else parts
