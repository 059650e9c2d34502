"""One small network under any strategy: change the word and train again.

python train.py --list
python train.py --strategy allreduce --workers 2
python train.py --strategy ps:ssp --workers 2 --option staleness=3
"""

from __future__ import annotations

import argparse
import json

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

import windlass.train as wt


def make() -> wt.Task:
    """Called on every worker, so that each has a network of its own."""
    images, labels = load_digits(return_X_y=True)
    inputs, targets = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def accuracy(network: nn.Module) -> dict[str, float]:
        right = network(inputs[1500:]).argmax(1) == targets[1500:]
        return {"accuracy": float(right.float().mean())}

    return wt.Task(
        model=model,
        loss=wt.sum_loss(cross_entropy, reduction="sum"),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.2),
        data=wt.Data((inputs[:1500], targets[:1500]), global_batch=32),
        evaluate=accuracy,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--strategy", default="allreduce")
    parser.add_argument("--workers", type=int, help="in a job its gang says how many")
    parser.add_argument("--servers", type=int)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--list", action="store_true", help="which strategies there are")
    asked = parser.parse_args()
    if asked.list:
        for name, line in wt.strategies().items():
            print(f"{name:16} {line}")
        return
    run = wt.fit(
        make,
        asked.strategy,
        workers=asked.workers,
        servers=asked.servers,
        epochs=asked.epochs,
        **dict(value_of(each) for each in asked.option),
    )
    print(run.report())


def value_of(text: str) -> tuple[str, object]:
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


if __name__ == "__main__":
    main()
