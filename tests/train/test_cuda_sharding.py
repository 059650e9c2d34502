"""On a GPU: stages with versions and shards of an optimiser end where they end on the CPU; what
torch cannot shard over one GPU says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from windlass.core.errors import InvalidInput
from windlass.train import registry
from windlass.train.group import Group
from windlass.train.seat import Seat
from windlass.train.testing.tasks import flat, regression

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")

CASES: list[tuple[str, dict[str, Any]]] = [
    ("pipedream", {"balance": "blocks"}),
    ("2bw", {"balance": "blocks"}),
    ("zero1", {}),
]


@pytest.fixture(scope="module")
def groups() -> Iterator[dict[str, Group]]:
    with Group(2, device="cuda") as there, Group(2, device="cpu") as here:
        yield {"cuda": there, "cpu": here}


def deep() -> nn.Module:
    torch.manual_seed(5)
    layers: list[nn.Module] = [nn.Linear(4, 16), nn.Tanh()]
    for _ in range(4):
        layers += [nn.Linear(16, 16), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(16, 2)).double()


def train(seat: Seat, name: str, options: dict[str, Any]) -> Tensor | None:
    strategy = registry.choose(name, options)
    model = deep() if strategy.places_model else deep().to(seat.device)
    task = regression(44, 8, model=model, optimizer=lambda p: torch.optim.SGD(p, 0.05))
    strategy.check(task, seat.workers, seat.servers)
    runner = strategy.runner(task, seat)
    index, of = strategy.share_of(seat)
    try:
        for step in range(8):
            runner.step(task.data.batch(task.data.at(step), index, of, seat.device))
        runner.finish()
        runner.drain()
        runner.assemble()
        if seat.rank:
            return None
        with runner.as_it_counts() as found:
            return flat(found)
    finally:
        runner.close()


@pytest.mark.parametrize(
    "name, options", CASES, ids=lambda each: each if isinstance(each, str) else ""
)
def test_what_shares_a_gpu_ends_where_it_ends_on_the_cpu(
    groups: dict[str, Group], name: str, options: dict[str, Any]
) -> None:
    there = groups["cuda"].call(train, name, options)["worker 0"]
    here = groups["cpu"].call(train, name, options)["worker 0"]
    assert torch.allclose(there, here, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", ["fsdp", "tensor"])
def test_sharding_by_torch_needs_a_gpu_for_each_worker(
    groups: dict[str, Group], name: str
) -> None:
    with pytest.raises(InvalidInput, match="each worker needs one of its own"):
        groups["cuda"].call(train, name, {})


@pytest.mark.parametrize("name", ["fsdp", "tensor"])
def test_one_worker_shards_nothing_on_a_gpu(name: str) -> None:
    with Group(1, device="cuda") as there, Group(1, device="cpu") as here:
        found = there.call(train, name, {})["worker 0"], here.call(train, name, {})["worker 0"]
    assert torch.allclose(*found, rtol=1e-6, atol=1e-8)
