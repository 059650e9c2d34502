"""The kinds of node there are: a GPU model and the labels that a node offers. Codes are in the
order in which kinds were first heard of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from windlass.scheduler.columns import Shape
from windlass.scheduler.events import Offer


class Kinds:
    def __init__(self) -> None:
        self.models: dict[str, int] = {}
        """The GPU models there are, in the order they were heard of."""
        self._codes: dict[tuple[str, tuple[str, ...]], int] = {}

    def known(self, offer: Offer) -> bool:
        return (offer.gpu_model, offer.labels) in self._codes

    def code(self, offer: Offer) -> int:
        """Of a node that offers this; from now on it is known."""
        self.models.setdefault(offer.gpu_model, len(self.models))
        return self._codes.setdefault((offer.gpu_model, offer.labels), len(self._codes))

    def may_run(self, shape: Shape) -> NDArray[np.bool_]:
        """By kind of node, whether such a member may run there."""
        if not shape.models and not shape.labels:
            return np.ones(len(self._codes) + 1, dtype=np.bool_)
        return self.of(shape.models or tuple(self.models), frozenset(shape.labels))

    def of(self, models: Sequence[str], labels: frozenset[str] = frozenset()) -> NDArray[np.bool_]:
        """By kind of node, whether it is of one of these models and offers these labels."""
        allowed = np.zeros(len(self._codes) + 1, dtype=np.bool_)
        for (model, offered), code in self._codes.items():
            allowed[code] = model in models and labels.issubset(offered)
        return allowed
