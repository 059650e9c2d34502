"""PyTorch, eagerly."""

# mypy: ignore-errors
# `reading` is beside it; the framework may not be here.

import sys

from reading import measured, missing, problem, rows

try:
    import torch
except ModuleNotFoundError as err:
    missing(err.name)

told, samples, labels, layers = problem(sys.argv[1])
torch.set_num_threads(told["threads"])
x, y = torch.from_numpy(samples.copy()), torch.from_numpy(labels)
model = torch.nn.Sequential(
    torch.nn.Linear(told["features"], told["hidden"]),
    torch.nn.ReLU(),
    torch.nn.Linear(told["hidden"], told["hidden"]),
    torch.nn.ReLU(),
    torch.nn.Linear(told["hidden"], told["classes"]),
)
with torch.no_grad():
    for number, (weights, biases) in enumerate(layers):
        model[2 * number].weight.copy_(torch.from_numpy(weights.T.copy()))
        model[2 * number].bias.copy_(torch.from_numpy(biases.copy()))
optimizer = torch.optim.SGD(model.parameters(), told["learning_rate"], momentum=told["momentum"])


def step(number):
    take = rows(told, number)
    optimizer.zero_grad(set_to_none=True)
    torch.nn.functional.cross_entropy(model(x[take]), y[take]).backward()
    optimizer.step()


def loss():
    with torch.no_grad():
        return float(torch.nn.functional.cross_entropy(model(x), y))


measured(told, torch.__version__, step, lambda: None, loss)
