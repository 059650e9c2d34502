"""On a GPU: two workers share it over gloo, and end where two on the CPU end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from windlass.train import registry
from windlass.train.group import Group
from windlass.train.policies.compression import BF16, FP16, OneBit, PowerSGD, TopK
from windlass.train.seat import Seat
from windlass.train.testing.tasks import flat, network, regression

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")

CASES: list[tuple[str, dict[str, Any]]] = [
    ("allreduce", {}),
    ("allreduce", {"ring": True, "check_every": 2}),
    ("allreduce", {"compress": OneBit(warmup=2)}),
    ("allreduce", {"compress": TopK(ratio=0.2)}),
    ("allreduce", {"compress": PowerSGD(rank=2)}),
    ("allreduce", {"compress": FP16()}),
    ("allreduce", {"compress": BF16()}),
    ("local_sgd", {"every": 3, "average_state": True, "post_local": 2}),
    ("bmuf", {"tau": 3}),
    ("diloco", {"every": 3}),
    ("easgd", {"tau": 3}),
]


@pytest.fixture(scope="module")
def groups() -> Iterator[dict[str, Group]]:
    with Group(2, device="cuda") as there, Group(2, device="cpu") as here:
        yield {"cuda": there, "cpu": here}


def train(seat: Seat, name: str, options: dict[str, Any]) -> Tensor:
    model = network(width=16).to(seat.device)
    task = regression(44, 8, model=model, optimizer=lambda p: torch.optim.SGD(p, 0.05))
    runner = registry.choose(name, options).runner(task, seat)
    for step in range(8):
        batch = task.data.batch(task.data.at(step), seat.rank, seat.workers, seat.device)
        runner.step(batch)
    runner.finish()
    runner.drain()
    runner.load_local_state(runner.local_state())
    assert all(each.device.type == seat.device.type for each in task.model.parameters())
    runner.close()
    return flat(task.model)


@pytest.mark.parametrize(
    "name, options", CASES, ids=lambda each: each if isinstance(each, str) else ""
)
def test_workers_that_share_a_gpu_end_where_workers_on_the_cpu_end(
    groups: dict[str, Group], name: str, options: dict[str, Any]
) -> None:
    there = groups["cuda"].call(train, name, options)
    here = groups["cpu"].call(train, name, options)
    assert torch.equal(there["worker 0"], there["worker 1"])
    assert torch.allclose(there["worker 0"], here["worker 0"], rtol=1e-6, atol=1e-8)
