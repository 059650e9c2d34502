"""Members' parts of a state put together in memory: what a checkpoint does on the disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from windlass.train.state.pieces import Piece


def joined(parts: Iterable[Mapping[str, Any] | None]) -> dict[str, Any]:
    """The whole state, of what each member's `shared_state()` gave. Of what two have, the first's
    counts."""
    found: dict[str, Any] = {}
    for part in parts:
        _join(found, part or {})
    return found


def _join(into: dict[Any, Any], part: Mapping[Any, Any]) -> None:
    for key, value in part.items():
        if isinstance(value, Mapping):
            _join(into.setdefault(key, {}), value)
        elif isinstance(value, Piece):
            there = into.setdefault(key, torch.empty(value.shape, dtype=value.value.dtype))
            at = zip(value.offsets, value.value.shape, strict=True)
            there[tuple(slice(start, start + size) for start, size in at)] = value.value.detach()
        else:
            into.setdefault(key, value)
