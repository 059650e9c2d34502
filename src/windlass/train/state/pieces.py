"""A training's state as named values, of which each member may hold a part.

    {"model": {"0.weight": Tensor | Piece, …},
     "optimizer": {"state": {0: {"exp_avg": …}}, "param_groups": [{"params": [0, 1], "lr": …}]},
     …}                                           as torch's own state_dicts; and a strategy's

A member gives the tensors it has, whole or a `Piece` of them, under the names of the whole model.
On the disk an optimiser's parameters have their names too (torch's convention for distributed
checkpoints), not numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from windlass.core.errors import InvalidInput

Place = tuple[str | int, ...]
"""Where a value lies in the tree: keys, and numbers in lists."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A box of a tensor."""

    value: Tensor
    offsets: tuple[int, ...]
    """Where it begins in the whole."""
    shape: tuple[int, ...]
    """Of the whole."""


def flat(state: Mapping[str, Any]) -> dict[str, tuple[Place, Any]]:
    """Every tensor and piece by a name of its own, with its place; what holds none is one value.
    Raises InvalidInput where two places have one name."""
    found: dict[str, tuple[Place, Any]] = {}
    for place, value in _leaves(state, ()):
        name = ".".join(map(str, place))
        if name in found:
            raise InvalidInput(f"checkpoint: two values are called {name}")
        found[name] = (place, value)
    return found


def _leaves(value: Any, at: Place) -> Iterator[tuple[Place, Any]]:
    if isinstance(value, Mapping) and (len(at) < 2 or _has_tensors(value)):
        for key, inner in value.items():
            yield from _leaves(inner, (*at, str(key)))
    elif isinstance(value, list | tuple) and _has_tensors(value):
        for number, inner in enumerate(value):
            yield from _leaves(inner, (*at, number))
    else:
        yield at, value


def _has_tensors(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_tensors, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_has_tensors, value))
    return isinstance(value, Tensor | Piece)


# -- an optimiser's parameters: numbers in memory, names on the disk ----------------------------


def named(optimizer: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """An optimiser's `state_dict()`, or a member's part of it, with names for numbers."""
    found: dict[str, Any] = {
        "state": {names[number]: each for number, each in optimizer.get("state", {}).items()}
    }
    if not found["state"]:
        del found["state"]  # somebody else may have some
    if "param_groups" in optimizer:
        found["param_groups"] = [
            {**group, "params": [names[number] for number in group["params"]]}
            for group in optimizer["param_groups"]
        ]
    return found


def numbered(optimizer: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The same back. Raises ValueError where it is an optimiser of other parameters."""
    groups = list(optimizer["param_groups"])
    theirs = [name for group in groups for name in group["params"]]
    if theirs != list(names):
        other = [name for name in theirs if name not in names] or theirs
        raise ValueError(f"its optimiser steps other parameters: {', '.join(other[:5])}")
    number = {name: n for n, name in enumerate(names)}
    return {
        "state": {number[name]: each for name, each in optimizer.get("state", {}).items()},
        "param_groups": [
            {**group, "params": [number[name] for name in group["params"]]} for group in groups
        ],
    }
