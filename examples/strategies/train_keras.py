"""A Keras 3 model on the torch backend, as it is: python train_keras.py --strategy allreduce"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
import torch
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy

import windlass.train as wt


def make() -> wt.Task:
    keras.utils.set_random_seed(0)  # Keras draws weights with a generator of its own
    images, labels = load_digits(return_X_y=True)
    inputs, targets = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
    model = keras.Sequential(
        [
            keras.Input(shape=(64,)),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    return wt.Task(
        model=model,
        loss=wt.sum_loss(cross_entropy, reduction="sum"),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.2),
        data=wt.Data((inputs, targets), global_batch=32),
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--strategy", default="allreduce")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--epochs", type=int, default=3)
    asked = parser.parse_args()
    print(wt.fit(make, asked.strategy, workers=asked.workers, epochs=asked.epochs).report())


if __name__ == "__main__":
    main()
