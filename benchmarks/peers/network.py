"""The network that all contestants train, the same data and the same batches, without Windlass."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

WORKERS = 2
BATCH = 32
"""Samples of one worker's update."""
RATE = 0.05
LAYERS = {"small": (64, 64, 10), "large": (64, 2500, 2500, 10)}
"""19 kB and 26 MB of float32."""
DATA = "BENCHMARK_PEERS_DATA"


def digits() -> tuple[Any, Any]:
    """scikit-learn's digits, which the benchmark has written to a file: 1797 of 64 pixels."""
    with np.load(os.environ[DATA]) as held:
        return held["x"], held["y"]


def batches(rank: int, count: int) -> Iterator[Any]:
    """The samples of each of a worker's updates: epochs of its own half, each in another order."""
    mine = np.arange(len(digits()[1]))[rank::WORKERS]
    dice = np.random.default_rng(rank)
    made = 0
    while True:
        order = dice.permutation(mine)
        for at in range(0, len(order) - BATCH + 1, BATCH):
            if made == count:
                return
            made += 1
            yield order[at : at + BATCH]


def network(size: str) -> Any:
    """The torch model, the same at each call."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(0)
    found: list[nn.Module] = []
    widths = LAYERS[size]
    for before, after in zip(widths, widths[1:], strict=False):
        found += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*found[:-1])


class Learner:
    """One worker's half of a torch contestant: a gradient for each batch."""

    def __init__(self, size: str, rank: int, updates: int) -> None:
        import torch

        x, y = digits()
        self.x, self.y = torch.from_numpy(x), torch.from_numpy(y)
        self.model = network(size)
        self.parameters = list(self.model.parameters())
        self.batches = list(batches(rank, updates))

    def gradients(self, samples: Any) -> list[Any]:
        from torch.nn.functional import cross_entropy

        for each in self.parameters:
            each.grad = None
        cross_entropy(self.model(self.x[samples]), self.y[samples]).backward()
        return [each.grad for each in self.parameters]

    def take(self, values: Any) -> None:
        import torch

        with torch.no_grad():
            for each, value in zip(self.parameters, values, strict=True):
                each.copy_(value)


def loss_of(model: Any) -> float:
    """Over all data: how well the same number of updates did."""
    import torch
    from torch.nn.functional import cross_entropy

    x, y = digits()
    with torch.no_grad():
        return float(cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(y)))


def answer(run: Callable[..., dict[str, Any]]) -> None:
    """Until nobody asks any more."""
    print("@@ {}", flush=True)
    for line in sys.stdin:
        print("@@", json.dumps(run(**json.loads(line))), flush=True)
