"""Logistic regression by stochastic gradient descent, in plain Python: a first job to submit.

It needs nothing installed. With Windlass it records its loss, saves a checkpoint after each epoch
and, when it is started again, goes on from the newest one to exactly the same result.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from pathlib import Path

try:
    import windlass
except ImportError:
    windlass = None


def make_data(count: int) -> list[tuple[list[float], int]]:
    """Points in five dimensions, on either side of a plane, with some noise; always the same."""
    draw = random.Random(7)
    plane = [1.5, -2.0, 0.5, 1.0, -0.7]
    points = []
    for _ in range(count):
        x = [draw.gauss(0, 1) for _ in plane]
        side = sum(a * b for a, b in zip(x, plane, strict=True)) + draw.gauss(0, 0.5)
        points.append((x, int(side > 0)))
    return points


def train_epoch(
    weights: list[float], points: list[tuple[list[float], int]], lr: float
) -> tuple[float, float]:
    """One pass over the data; returns the mean loss and the accuracy seen on the way."""
    loss, right = 0.0, 0
    for x, label in points:
        score = weights[-1] + sum(w * value for w, value in zip(weights, x, strict=False))
        probability = 1 / (1 + math.exp(-max(-30.0, min(30.0, score))))
        loss -= math.log(max(probability if label else 1 - probability, 1e-12))
        right += (probability > 0.5) == bool(label)
        slope = lr * (probability - label)
        for index, value in enumerate([*x, 1.0]):
            weights[index] -= slope * value
    return loss / len(points), right / len(points)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument(
        "--pause", type=float, default=0.0, help="seconds to wait after each epoch"
    )
    parser.add_argument(
        "--resume", action="store_true", help="off the platform: go on from the last run"
    )
    options = parser.parse_args()

    points, weights, begun = make_data(2000), [0.0] * 6, 0
    found = windlass.resume_from(local=options.resume) if windlass else None
    if found is not None:
        state = json.loads((Path(found) / "state.json").read_text())
        weights, begun = state["weights"], state["epoch"]
        print(f"resumed after epoch {begun}")

    for epoch in range(begun + 1, options.epochs + 1):
        random.Random(epoch).shuffle(order := list(points))
        loss, accuracy = train_epoch(weights, order, options.lr)
        print(f"epoch {epoch} loss={loss:.4f} acc={accuracy:.4f}", flush=True)
        if windlass:
            windlass.log(step=epoch, loss=loss, accuracy=accuracy)
            windlass.progress(epoch, options.epochs, "epochs")
            with windlass.checkpoint(epoch) as path:
                (path / "state.json").write_text(json.dumps({"weights": weights, "epoch": epoch}))
        time.sleep(options.pause)


if __name__ == "__main__":
    main()
