"""Claim: `allreduce` makes at least 0.98 times the steps a second of torch's plain DDP, although
it also counts samples, takes uneven and empty shares, and names who is missing.

Two workers on gloo over loopback, one thread each. Both arms live in the same two processes and
take turns, so that a neighbour's load falls on both; the claim is the median of the ratios of
neighbouring turns, with their range. CPU time stands beside: it says more where others run. Two
networks: one of a few large layers, where bytes count, and one of many small ones, where each
hook does.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.measure import Row, milliseconds, table
from windlass.train import Data, Task, sum_loss
from windlass.train.group import Group
from windlass.train.registry import choose
from windlass.train.seat import Seat

GOAL = 0.98
BATCH = 64
NETWORKS = {"3 layers of 1024": (3, 1024, 10), "60 layers of 64": (60, 64, 20)}


def measure(turns: int = 11) -> list[Row]:
    with Group(2, threads=1) as group:
        return [row for name in NETWORKS for row in _rows(group, name, turns)]


def _rows(group: Group, name: str, turns: int) -> list[Row]:
    found = group.call(contest, name, turns)["worker 0"]
    kinds = (
        ("seconds", [(a[0], b[0]) for a, b in found]),
        ("CPU time", [(a[1], b[1]) for a, b in found]),
    )
    rows = []
    for kind, pairs in kinds:
        ratios = sorted(peer / ours for ours, peer in pairs)
        middle = statistics.median(ratios)
        rows.append(
            Row(
                f"`allreduce` against DDP, {name}: a step, {kind}",
                milliseconds(statistics.median(ours for ours, _ in pairs)),
                milliseconds(statistics.median(peer for _, peer in pairs)),
                f"{middle:.3f}x ({ratios[0]:.2f}…{ratios[-1]:.2f})",
                f"≥ {GOAL:g}x" if kind == "seconds" else "",
                middle >= GOAL if kind == "seconds" else None,
            )
        )
    return rows


Times = tuple[float, float]


def contest(seat: Seat, name: str, turns: int) -> list[tuple[Times, Times]]:
    """(ours, DDP's), each seconds and CPU seconds of a step, turn by turn."""
    depth, width, steps = NETWORKS[name]
    dice = torch.Generator().manual_seed(seat.rank)
    inputs = torch.randn(BATCH, width, generator=dice)
    targets = torch.randn(BATCH, width, generator=dice)
    step, close = _ours(seat, _network(depth, width), inputs, targets)
    other, close_other = _plain(seat, _network(depth, width), inputs, targets)
    found = []
    for turn in range(turns + 1):
        pair = [_time(each, steps) for each in ((step, other) if turn % 2 else (other, step))]
        if turn:  # the first is for warming up
            found.append((pair[0], pair[1]) if turn % 2 else (pair[1], pair[0]))
    close()
    close_other()
    return found


def _time(step: Callable[[], None], steps: int) -> Times:
    started, spent = time.perf_counter(), time.process_time()
    for _ in range(steps):
        step()
    return (time.perf_counter() - started) / steps, (time.process_time() - spent) / steps


def _network(depth: int, width: int) -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers)


Arm = tuple[Callable[[], None], Callable[[], None]]


def _ours(seat: Seat, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> Arm:
    data = Data((inputs.repeat(2, 1), targets.repeat(2, 1)), 2 * BATCH, shuffle=False)
    optimizer = torch.optim.SGD(model.parameters(), 1e-4, momentum=0.9)
    task = Task(model, sum_loss(functional.mse_loss, reduction="sum"), optimizer, data)
    runner = choose("allreduce", {}).runner(task, seat)
    batch = data.batch(data.at(0), seat.rank, seat.workers)

    def step() -> None:
        runner.step(batch)

    return step, runner.close


def _plain(seat: Seat, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> Arm:
    import torch.distributed as dist

    if seat.rank == 0:
        store: Any = dist.TCPStore(  # type: ignore[attr-defined]
            "127.0.0.1", 0, 2, True, timedelta(seconds=30), wait_for_workers=False
        )
        seat.meeting.put("ddp", str(store.port).encode())
    port = int(seat.meeting.get("ddp", operation="meeting", deadline_seconds=30))
    if seat.rank:
        store = dist.TCPStore(  # type: ignore[attr-defined]
            "127.0.0.1", port, 2, False, timedelta(seconds=30)
        )
    dist.init_process_group("gloo", store=store, rank=seat.rank, world_size=seat.workers)
    wrapped = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 1e-4, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        functional.mse_loss(wrapped(inputs), targets).backward()
        optimizer.step()

    return step, dist.destroy_process_group


if __name__ == "__main__":
    print(table(measure(5 if "--quick" in sys.argv else 11)))
