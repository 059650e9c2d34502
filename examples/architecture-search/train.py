"""One trial of an architecture search: builds the network that it was told to, trains it on
scikit-learn's digits (1797 images of 8 x 8), and logs how good it is on images it has not seen.

Where the study shares weights, it starts with those blocks of the best trial so far that are of
the same shape.
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn

import windlass


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width),
        )  # fmt: skip

    def forward(self, x):
        return torch.relu(x + self.body(x))


def block(params: dict, at: int, inputs: int) -> tuple[nn.Module, int]:
    """A block, and how many channels leave it."""
    kind = params[f"kind_{at}"]
    if kind == "pool":
        return nn.MaxPool2d(2, ceil_mode=True), inputs
    width = params[f"width_{at}"]
    if kind == "residual":
        return nn.Sequential(nn.Conv2d(inputs, width, 1), Residual(width)), width
    kernel = params[f"kernel_{at}"]
    if kind == "separable":
        depth = nn.Conv2d(inputs, inputs, kernel, padding=kernel // 2, groups=inputs)
        body = nn.Sequential(depth, nn.Conv2d(inputs, width, 1))
    else:
        body = nn.Conv2d(inputs, width, kernel, padding=kernel // 2)
    return nn.Sequential(body, nn.BatchNorm2d(width), nn.ReLU()), width


def network(params: dict) -> nn.Module:
    layers, channels = [], 1
    for at in range(params["blocks"]):
        layer, channels = block(params, at, channels)
        layers.append(layer)
    head = [nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * channels, 10)]
    return nn.Sequential(*layers, *head)


def inherit(model: nn.Module) -> int:
    """Take over what fits of the trial that this one starts from; how many tensors that were."""
    found = windlass.context().start_from
    if found is None:
        return 0
    theirs = torch.load(found / "model.pt", weights_only=True)
    ours = model.state_dict()
    same = {name: each for name, each in theirs.items()
            if name in ours and each.shape == ours[name].shape}  # fmt: skip
    model.load_state_dict({**ours, **same})
    return len(same)


def main() -> None:
    flags = argparse.ArgumentParser()
    flags.add_argument("--epochs", type=int, default=8)
    given = flags.parse_args()
    params = windlass.context().params
    torch.manual_seed(0)
    torch.set_num_threads(1)
    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16
    y = torch.tensor(labels)
    order = torch.randperm(len(x))
    test, train = order[:360], order[360:]
    model = network(params)
    inherited = inherit(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=params["lr"])
    size = sum(each.numel() for each in model.parameters())
    for epoch in range(1, given.epochs + 1):
        model.train()
        for batch in train[torch.randperm(len(train))].split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = (model(x[test]).argmax(1) == y[test]).float().mean().item()
        windlass.log(step=epoch, accuracy=right, weights=size, inherited=inherited)
    with windlass.checkpoint(given.epochs) as folder:
        torch.save(model.state_dict(), folder / "model.pt")


if __name__ == "__main__":
    main()
