"""On a GPU: two replicas of two stages in two slices, all on the one device, end where one process
on the CPU ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from meshes import mesh_task
from torch import Tensor

from windlass.train import registry
from windlass.train.group import Group
from windlass.train.seat import Seat
from windlass.train.testing.tasks import alone

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
STEPS = 3


@pytest.fixture(scope="module")
def group() -> Iterator[Group]:
    with Group(8, device="cuda", silent_seconds=30.0) as found:
        yield found


def train(seat: Seat, name: str, options: dict[str, Any]) -> dict[str, Tensor]:
    task = mesh_task("straight")
    chosen = registry.choose(name, {"micro_batches": 3, "balance": "blocks", **options})
    chosen.check(task, seat.workers, 0)
    runner = chosen.runner(task, seat)
    try:
        for step in range(STEPS):
            batch = task.data.batch(task.data.at(step), *chosen.share_of(seat), seat.device)
            runner.step(batch)
        held = {each.device.type for each in task.model.parameters() if not each.is_meta}
        assert held == {seat.device.type}
        runner.assemble()
        if seat.rank == 0:
            with runner.as_it_counts() as whole:
                before = {name: each.clone() for name, each in whole.state_dict().items()}
        runner.drain()
        if seat.rank:
            return {}
        after = task.model.state_dict()
        assert all(torch.equal(after[name], value) for name, value in before.items())
        return {name: each.cpu() for name, each in after.items()}
    finally:
        runner.close()


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("name", ["1f1b", "zb1p"])
def test_a_mesh_on_a_gpu_ends_where_one_process_on_the_cpu_ends(
    group: Group, name: str, recompute: bool
) -> None:
    options = {"recompute": recompute, "replicas": 2, "tensor": 2}
    found = group.call(train, name, options)["worker 0"]
    wanted = alone(mesh_task("straight"), STEPS).model.state_dict()
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        assert torch.allclose(found[key], value, rtol=0, atol=1e-10), key
