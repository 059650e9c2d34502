"""What a worker of elastic averaging shows for evaluation is the centre, not what it sent last."""

from __future__ import annotations

import torch
from torch import nn

import windlass.train as wt
from windlass.train.runners.serverstrategies import ElasticAsync
from windlass.train.seat import Seat
from windlass.train.testing.town import Town


def make() -> wt.Task:
    model = nn.Linear(1, 1, bias=False, dtype=torch.float64)
    nn.init.constant_(model.weight, 8.0)
    x = torch.ones(4, 1, dtype=torch.float64)
    return wt.Task(
        model=model,
        loss=lambda network, batch: (network(batch[0]).sum(), len(batch[0])),
        optimizer=torch.optim.SGD(model.parameters(), 1.0),  # each step takes 1 away
        data=wt.Data((x,), 4),
    )


def train(seat: Seat) -> list[tuple[float, float]]:
    task, strategy = make(), ElasticAsync(tau=1, alpha=0.5)
    if seat.role == "server":
        with strategy.serving(task, seat) as serving:
            serving.run()
        return []
    runner = strategy.runner(task, seat)
    seen = []
    for step in range(2):
        runner.step(task.data.batch(task.data.at(step)))
        with runner.as_it_counts() as model:
            centre = model.weight.item()
        seen.append((centre, task.model.weight.item()))
    runner.finish()
    runner.drain()
    runner.close()
    return seen


def test_the_centre_is_seen_as_it_was_pulled_and_ones_own_is_back_afterwards() -> None:
    """Found by training the example: the buffers that the centre was pulled into had been pushed
    from since, so the differences were evaluated as if they were a network."""
    with Town(1, 1) as town:
        seen = town.call(train)["worker 0"]
    # x: 8 - 1 = 7, centre 8, d = -0.5; then x: 7.5 - 1 = 6.5, centre 7.5, d = -0.5.
    assert seen == [(8.0, 7.5), (7.5, 7.0)]
