"""A checkpoint that is read as it is asked for: a member that holds a part reads that part.

state = Stored(reader)
state["model"]["0.weight"]                          reads this tensor, and no other
block(state["model"], "0.weight", (2, 0), (2, 4))   reads rows 2 and 3 of it
read(state)                                         all of it, as plain dicts
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from windlass.train.state.pieces import Place


class Reader(Protocol):
    """What reads the files."""

    @property
    def places(self) -> Mapping[str, Place]: ...

    def shape(self, name: str) -> torch.Size | None:
        """Of a tensor; None of a plain value."""

    def tensor(self, name: str, offsets: tuple[int, ...], sizes: tuple[int, ...]) -> Tensor: ...

    def value(self, name: str) -> Any: ...


class Stored(Mapping[str, Any]):
    def __init__(self, reader: Reader, nodes: Mapping[Any, Any] | None = None) -> None:
        self._reader = reader
        self._nodes: Mapping[Any, Any] = _tree(reader.places) if nodes is None else nodes

    def __getitem__(self, key: str) -> Any:
        return self._found(self._nodes[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def shape(self, key: str) -> torch.Size | None:
        """Of a tensor, without reading it."""
        node = self._nodes[key]
        return self._reader.shape(node) if isinstance(node, str) else None

    def block(self, key: str, offsets: tuple[int, ...], sizes: tuple[int, ...]) -> Tensor:
        return self._reader.tensor(self._nodes[key], offsets, sizes)

    def _found(self, node: Any) -> Any:
        if isinstance(node, str):
            shape = self._reader.shape(node)
            if shape is None:
                return self._reader.value(node)
            return self._reader.tensor(node, (0,) * len(shape), tuple(shape))
        if node and all(isinstance(key, int) for key in node):
            return [self._found(node[number]) for number in sorted(node)]
        return Stored(self._reader, node)


def read(value: Any) -> Any:
    """Everything in it, as plain dicts and lists."""
    if isinstance(value, Mapping):
        return {key: read(inner) for key, inner in value.items()}
    return [read(each) for each in value] if isinstance(value, list) else value


def shape_of(values: Mapping[Any, Any], key: Any) -> torch.Size | None:
    """Of a tensor among stored or plain values; None of what is none."""
    if isinstance(values, Stored):
        return values.shape(key)
    found = values[key]
    return found.shape if isinstance(found, Tensor) else None


def block(
    values: Mapping[Any, Any], key: Any, offsets: tuple[int, ...], sizes: tuple[int, ...]
) -> Tensor:
    """A box of a tensor among stored or plain values."""
    if isinstance(values, Stored):
        return values.block(key, offsets, sizes)
    found: Tensor = values[key]
    box = tuple(slice(at, at + size) for at, size in zip(offsets, sizes, strict=True))
    return found[box]


def _tree(places: Mapping[str, Place]) -> dict[Any, Any]:
    root: dict[Any, Any] = {}
    for name, place in places.items():
        node = root
        for key in place[:-1]:
            node = node.setdefault(key, {})
        node[place[-1]] = name
    return root
