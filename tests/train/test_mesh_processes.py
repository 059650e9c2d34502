"""Two places of a pipeline with two slices each, as processes: dice, and a kill."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import windlass.train as wt
from windlass.core.errors import MemberLost
from windlass.train import registry
from windlass.train.group import Group
from windlass.train.runners.ends import cut_batch
from windlass.train.seat import Seat

CUTS = (5,)


@pytest.fixture(scope="module")
def group() -> Iterator[Group]:
    with Group(4, silent_seconds=30.0) as found:
        yield found


class Noted(nn.Dropout):
    """Keeps its masks. In a reference it is given them instead."""

    masks: list[Tensor]
    given: list[Tensor]

    def forward(self, x: Tensor) -> Tensor:
        if hasattr(self, "given"):
            return x * self.given.pop(0)
        mask = functional.dropout(torch.ones_like(x), self.p, self.training)
        if not hasattr(self, "masks"):
            self.masks = []
        self.masks.append(mask.detach().clone())
        return x * mask


def make() -> wt.Task:
    """On each stage a dropout between two cuts and one outside of them."""
    torch.manual_seed(1)
    dice = torch.Generator().manual_seed(2)
    x = torch.randn(24, 4, generator=dice, dtype=torch.float64)
    y = torch.randn(24, 2, generator=dice, dtype=torch.float64)
    model = nn.Sequential(
        nn.Linear(4, 32), Noted(0.5), nn.Tanh(), nn.Linear(32, 16), Noted(0.5),
        nn.Linear(16, 32), nn.Tanh(), Noted(0.5), nn.Linear(32, 16), Noted(0.5), nn.LayerNorm(16),
        nn.Linear(16, 2),
    ).double()  # fmt: skip
    loss = wt.sum_loss(functional.mse_loss, reduction="sum")
    return wt.Task(model, loss, torch.optim.SGD(model.parameters(), 0.05), wt.Data((x, y), 13))


def with_dice(seat: Seat, recompute: bool) -> tuple[dict[str, list[Tensor]], dict[str, Any]]:
    """One step: the masks of this worker's dropouts, and the whole model on worker 0."""
    task = make()
    options = {"micro_batches": 3, "cuts": CUTS, "recompute": recompute, "tensor": 2}
    chosen = registry.choose("1f1b", options)
    chosen.check(task, seat.workers, 0)
    runner = chosen.runner(task, seat)
    try:
        runner.step(task.data.batch(task.data.at(0), *chosen.share_of(seat)))
        runner.drain()
        masks = {
            name: each.masks for name, each in task.model.named_modules() if hasattr(each, "masks")
        }
        return masks, task.model.state_dict() if seat.rank == 0 else {}
    finally:
        runner.close()


def first_times(masks: list[Tensor], times: int) -> list[Tensor]:
    """Done again for the backward, a mask is the same again."""
    found: list[Tensor] = []
    for each in masks:
        if not any(torch.equal(each, before) for before in found):
            found.append(each)
    assert len(masks) == times * len(found)
    return found


@pytest.mark.parametrize("recompute", [False, True])
def test_dice_agree_outside_of_the_cuts_and_differ_between_them(
    group: Group, recompute: bool
) -> None:
    """1.11: the step is that of one process with the masks put together of the slices'."""
    found = group.call(with_dice, recompute)
    task = make()
    for name, module in task.model.named_modules():
        if not isinstance(module, Noted):
            continue
        place = 0 if int(name) < CUTS[0] else 1
        times = 2 if recompute and place == 0 else 1  # the last stage waits for its backward
        one, two = (
            first_times(found[f"worker {2 * place + n}"][0][name], times) for n in range(2)
        )
        if name in ("1", "7"):
            assert not torch.equal(one[0], two[0]), "each slice has dice of its own"
            module.given = [torch.cat(both, -1) for both in zip(one, two, strict=True)]
        else:
            assert all(torch.equal(*both) for both in zip(one, two, strict=True))
            module.given = list(one)
    content = task.data.batch(task.data.at(0)).content
    for part in cut_batch(content, 3):
        total, _ = task.loss_of(part)
        total.backward()  # type: ignore[no-untyped-call]
    for parameter in task.model.parameters():
        assert parameter.grad is not None
        parameter.grad.div_(13)
    task.optimizer.step()
    for name, value in task.model.state_dict().items():
        assert torch.allclose(found["worker 0"][1][name], value, rtol=0, atol=1e-13), name


def step_on(seat: Seat, path: str) -> None:
    task = make()
    chosen = registry.choose("1f1b", {"micro_batches": 3, "cuts": CUTS, "tensor": 2})
    runner = chosen.runner(task, seat)
    for step in range(1_000_000):
        runner.step(task.data.batch(task.data.at(step), *chosen.share_of(seat)))
        if step == 3 and seat.rank == 3:
            Path(path).touch()


def test_a_worker_that_is_killed_is_named_by_all_others(group: Group, tmp_path: Path) -> None:
    """The last test of the group: it ends it."""
    path = tmp_path / "far enough"
    number = group.begin(step_on, str(path))
    ends = time.monotonic() + 60
    while not path.exists() and time.monotonic() < ends:
        Event().wait(0.05)
    group.kill("worker 3")
    for name in ("worker 0", "worker 1", "worker 2"):
        with pytest.raises(MemberLost) as caught:
            group.finish(number, only=[name])
        assert caught.value.details["missing"] == ["worker 3"], name
