"""On a GPU: pipelines without a flush end where they end on the CPU."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from windlass.train.runners.pipedream import PipeDream, Stashing, TwoBw
from windlass.train.seat import Seat
from windlass.train.task import Task
from windlass.train.testing import tasks
from windlass.train.testing.town import Town
from windlass.train.trainer import Trainer

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")


def task() -> Task:
    model = nn.Sequential(
        nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2)
    ).double()
    dice = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for each in model.parameters():
            each.copy_(torch.randn(each.shape, generator=dice, dtype=torch.float64) * 0.4)
    return tasks.regression(31, 6, model=model)


def train(seat: Seat, strategy: Stashing, device: str) -> dict[str, Tensor]:
    seat.device = torch.device(device)
    made = task()
    trainer = Trainer(made, strategy, seat=seat)
    try:
        for _ in trainer.epochs(2, close=False):
            for batch in trainer.batches():
                trainer.step(batch)
        trainer.runner.drain()
        state = made.model.state_dict()
        return {name: each.cpu() for name, each in state.items() if not each.is_meta}
    finally:
        trainer.abandon()


@pytest.mark.parametrize("strategy", [
    PipeDream(balance="blocks"), PipeDream(balance="blocks", recompute=True),
    PipeDream(balance="blocks", replicas=(2, 1)), TwoBw(balance="blocks"),
])  # fmt: skip
def test_a_gpu_ends_where_the_cpu_does(strategy: Stashing) -> None:
    found = {}
    for device in ("cpu", "cuda"):
        with Town(3, 0, silent_seconds=30) as town:
            found[device] = town.call(train, strategy, device)["worker 0"]
    for name, value in found["cpu"].items():
        torch.testing.assert_close(found["cuda"][name], value, rtol=1e-9, atol=1e-11)
