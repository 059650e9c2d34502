"""On a GPU: stages share it, their messages go through the host's memory, and the training ends
where one on the CPU ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import windlass.train as wt
from windlass.train import registry
from windlass.train.group import Group
from windlass.train.runners.flushing import PipelineRunner
from windlass.train.seat import Seat

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")


@pytest.fixture(scope="module")
def groups() -> Iterator[dict[str, Group]]:
    with Group(2, device="cuda") as there, Group(2, device="cpu") as here:
        yield {"cuda": there, "cpu": here}


def make(dropout: float = 0.0) -> wt.Task:
    torch.manual_seed(1)
    dice = torch.Generator().manual_seed(2)
    x = torch.randn(24, 4, generator=dice, dtype=torch.float64)
    y = torch.randn(24, 2, generator=dice, dtype=torch.float64)
    model = nn.Sequential(
        nn.Linear(4, 8), nn.Dropout(dropout), nn.Tanh(), nn.Linear(8, 8), nn.ReLU(inplace=True),
        nn.Linear(8, 8), nn.Dropout(dropout), nn.Tanh(), nn.Linear(8, 2),
    ).double()  # fmt: skip
    loss = wt.sum_loss(functional.mse_loss, reduction="sum")
    data = wt.Data((x, y), 7)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)

    def evaluate(net: nn.Module) -> dict[str, float]:
        device = next(net.parameters()).device
        return {"loss": float(functional.mse_loss(net(x.to(device)), y.to(device)))}

    return wt.Task(model, loss, optimizer, data, evaluate=evaluate)


def train(seat: Seat, name: str, options: dict[str, Any], dropout: float) -> dict[str, Tensor]:
    task = make(dropout)
    chosen = registry.choose(name, {"micro_batches": 3, "balance": "blocks", **options})
    torch.manual_seed(50 + seat.rank)
    runner = chosen.runner(task, seat)
    assert isinstance(runner, PipelineRunner)
    try:
        for step in range(5):
            batch = task.data.batch(task.data.at(step), *chosen.share_of(seat), seat.device)
            runner.step(batch)
        held = [each.device.type for each in task.model.parameters() if not each.is_meta]
        assert set(held) == {seat.device.type} and (len(held) < 8 or options.get("replicas"))
        runner.drain()
        return {name: each.cpu() for name, each in task.model.state_dict().items()
                if not each.is_meta}  # fmt: skip
    finally:
        runner.close()


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved", "zb1p", "zbv"])
def test_stages_on_a_gpu_end_where_stages_on_the_cpu_end(
    groups: dict[str, Group], name: str, recompute: bool
) -> None:
    options = {"recompute": recompute}
    there = groups["cuda"].call(train, name, options, 0.0)["worker 0"]
    here = groups["cpu"].call(train, name, options, 0.0)["worker 0"]
    assert there.keys() == here.keys() == make().model.state_dict().keys()
    for key in here:
        assert torch.allclose(there[key], here[key], rtol=0, atol=1e-10), key


def test_dropout_is_the_same_when_computed_again(groups: dict[str, Group]) -> None:
    """The GPU's dice too are those of the first time. (`1f1b`: with `gpipe` the last stage
    throws in another order.)"""
    once = groups["cuda"].call(train, "1f1b", {"recompute": False}, 0.4)["worker 0"]
    again = groups["cuda"].call(train, "1f1b", {"recompute": True}, 0.4)["worker 0"]
    for key in once:
        assert torch.allclose(once[key], again[key], rtol=0, atol=1e-12), key


def test_replicas_of_stages_share_a_gpu(groups: dict[str, Group]) -> None:
    there = groups["cuda"].call(train, "gpipe", {"replicas": 2}, 0.0)
    here = groups["cpu"].call(train, "gpipe", {"replicas": 2}, 0.0)
    for key, value in here["worker 0"].items():
        assert torch.allclose(there["worker 0"][key], value, rtol=0, atol=1e-10), key


def test_fit_measures_saves_and_evaluates_on_a_gpu(tmp_path: Path) -> None:
    run = wt.fit(make, "1f1b", workers=2, steps=6, checkpoint=tmp_path, save_every=3,
                 progress=False)  # fmt: skip
    assert run.result.evaluation and run.result.sent_bytes["activation"] > 0
    more = wt.fit(make, "allreduce", workers=1, steps=8, checkpoint=tmp_path, progress=False)
    assert more.result.losses[0].step == 7
    whole = wt.fit(make, "allreduce", workers=1, steps=8, progress=False)
    for key, value in whole.state.items():
        assert torch.allclose(more.state[key], value, rtol=0, atol=1e-10), key
