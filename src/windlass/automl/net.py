"""A small network for tables: trained with torch, kept as arrays, predicting with numpy alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator  # type: ignore[import-untyped]

Array = NDArray[Any]
EPOCHS = 80
STEPS = 400
"""At least so many, however few the rows."""
BATCH = 64


class Net(BaseEstimator):  # type: ignore[misc]  # it has no stubs
    """Layers of `width` with ReLU between them; Adam, a rate that falls to nothing."""

    def __init__(
        self, classes: bool = True, width: int = 64, depth: int = 2, rate: float = 1e-3,
        decay: float = 1e-4, seed: int = 0,
    ) -> None:  # fmt: skip
        self.classes = classes
        self.width = width
        self.depth = depth
        self.rate = rate
        self.decay = decay
        self.seed = seed

    def fit(self, rows: Array, truth: Array) -> Net:
        import torch

        torch.manual_seed(self.seed)
        given = torch.tensor(np.asarray(rows), dtype=torch.float32)
        loss: Any
        if self.classes:
            self.classes_ = np.unique(truth)
            wanted = torch.tensor(np.searchsorted(self.classes_, truth))
            outputs, loss = len(self.classes_), torch.nn.functional.cross_entropy
        else:
            self.mean_, self.scale_ = float(np.mean(truth)), float(np.std(truth)) or 1.0
            scaled = (np.asarray(truth) - self.mean_) / self.scale_
            wanted = torch.tensor(scaled, dtype=torch.float32).unsqueeze(1)
            outputs, loss = 1, torch.nn.functional.mse_loss
        sizes = [given.shape[1], *[self.width] * self.depth, outputs]
        layers: list[torch.nn.Module] = []
        for before, after in zip(sizes[:-1], sizes[1:], strict=True):
            layers += [torch.nn.Linear(before, after), torch.nn.ReLU()]
        net = torch.nn.Sequential(*layers[:-1])
        self._train(net, given, wanted, loss)
        self.weights_ = [
            (part.weight.detach().numpy().T.copy(), part.bias.detach().numpy().copy())
            for part in net
            if isinstance(part, torch.nn.Linear)
        ]
        return self

    def _train(self, net: Any, given: Any, wanted: Any, loss: Any) -> None:
        import torch

        each = -(-len(given) // BATCH)
        epochs = max(EPOCHS, -(-STEPS // each))
        best = torch.optim.AdamW(net.parameters(), lr=self.rate, weight_decay=self.decay)
        falling = torch.optim.lr_scheduler.CosineAnnealingLR(best, epochs * each)
        for _ in range(epochs):
            order: Any = torch.randperm(len(given))
            for part in order.split(BATCH):
                best.zero_grad()
                loss(net(given[part]), wanted[part]).backward()
                best.step()
                falling.step()

    def _forward(self, rows: Array) -> Array:
        found = np.asarray(rows, dtype=np.float32)
        for at, (weight, bias) in enumerate(self.weights_):
            found = found @ weight + bias
            if at + 1 < len(self.weights_):
                found = np.maximum(found, 0.0)
        return found

    def predict_proba(self, rows: Array) -> Array:
        raw = self._forward(rows).astype(float)
        chances = np.exp(raw - raw.max(axis=1, keepdims=True))
        found: Array = chances / chances.sum(axis=1, keepdims=True)
        return found

    def predict(self, rows: Array) -> Array:
        if self.classes:
            found: Array = self.classes_[self.predict_proba(rows).argmax(axis=1)]
            return found
        scaled: Array = self._forward(rows)[:, 0] * self.scale_ + self.mean_
        return scaled
