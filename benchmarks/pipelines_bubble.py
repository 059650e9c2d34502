"""Claim: a step of `gpipe` with K stages and M micro-batches takes (M + K - 1) times what one
micro-batch takes on one stage, forward and backward, within 10 percent.

Compute is simulated, so that eight "devices" fit on two cores: a layer sleeps 50 ms forward and
100 ms backward and hands on small real tensors. Workers are processes; messages go through their
sockets. Cells take turns, medians count, with their range.
"""

from __future__ import annotations

import dataclasses
import statistics
import sys
import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.measure import Row, seconds, table
from windlass.train.data import Data
from windlass.train.group import Group
from windlass.train.registry import choose
from windlass.train.runners.base import Runner
from windlass.train.seat import Seat
from windlass.train.task import Task, sum_loss

FORWARD_SECONDS, BACKWARD_SECONDS, WIDTH = 0.05, 0.10, 16
STAGES, MICRO_BATCHES = (2, 4, 8), (1, 4, 32)
CELLS = [(stages, count) for stages in STAGES for count in MICRO_BATCHES]
Times = dict[tuple[int, int], list[float]]


def measure(turns: int = 5) -> list[Row]:
    with Group(max(STAGES), threads=1, deadline_seconds=60) as group:
        taken = group.call(_run, turns)["worker 0"]
    return [_row(*cell, taken[cell]) for cell in CELLS]


def _row(stages: int, count: int, taken: list[float]) -> Row:
    formula = (count + stages - 1) * (FORWARD_SECONDS + BACKWARD_SECONDS)
    middle = statistics.median(taken)
    faster = stages * count * (FORWARD_SECONDS + BACKWARD_SECONDS) / middle
    bound = stages * count / (count + stages - 1)
    return Row(
        f"`gpipe` K = {stages}, M = {count}: a step against (M+K-1)(f+b); {faster:.2f}x of one "
        f"worker, {bound:.2f}x by the formula (simulated compute)",
        seconds(middle),
        seconds(formula),
        f"{middle / formula:.3f}x ({min(taken) / formula:.3f}…{max(taken) / formula:.3f})",
        "0.90…1.10x",
        0.9 <= middle / formula <= 1.1,
    )


# -- in each worker -------------------------------------------------------------------------------


class _Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        time.sleep(FORWARD_SECONDS)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        time.sleep(BACKWARD_SECONDS)
        return gradients[0]


class _Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, value: Tensor) -> Tensor:
        found: Tensor = _Slow.apply(self.linear(value))  # type: ignore[no-untyped-call]
        return found


def _run(seat: Seat, turns: int) -> Times:
    """Seconds of each step. The first worker begins a step and ends it, so its time counts; those
    that are not among the stages pass by."""
    cells = [cell for cell in CELLS if seat.rank < cell[0]]
    runners = {
        cell: _runner(dataclasses.replace(seat, workers=cell[0]), cell[1]) for cell in cells
    }
    found: Times = {cell: [] for cell in CELLS}
    for turn in range(turns + 1):
        for cell, runner in runners.items():
            batch = runner.task.data.batch(runner.task.data.at(turn))
            began = time.perf_counter()
            runner.step(batch)
            if turn:  # the first is for warming up
                found[cell].append(time.perf_counter() - began)
    for runner in runners.values():
        runner.drain()
    for runner in runners.values():
        runner.close()
    return found


def _runner(seat: Seat, micro_batches: int) -> Runner:
    inputs = torch.randn(32, WIDTH)
    model = nn.Sequential(*(_Layer() for _ in range(seat.workers)))
    task = Task(
        model, sum_loss(functional.mse_loss, reduction="sum"),
        torch.optim.SGD(model.parameters(), 1e-4), Data((inputs, inputs), 32),
    )  # fmt: skip
    options = {"micro_batches": micro_batches, "cuts": tuple(range(1, seat.workers))}
    return choose("gpipe", options).runner(task, seat)


if __name__ == "__main__":
    print(table(measure(1 if "--quick" in sys.argv else 5)))
