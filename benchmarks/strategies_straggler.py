"""Claim: with one worker ten times slower, `adpsgd`, `ps:async` and `ps:ssp` keep at least 0.8 of
the updates a second that they make without it, where `allreduce` falls to about 0.1.

Compute is simulated: a layer that sleeps 100 ms (1 s on the slow worker) and carries a small real
tensor, so that six devices fit on two cores; nothing here says how fast a device is. Without a
barrier one of p workers at a tenth of its pace leaves (p - 1 + 0.1) / p of all updates: 0.85 for
six, and more cannot be. The arms take turns; the figure is the ratio of medians, with the range.

`ps:ssp` lets the fastest be `staleness` steps ahead of the slowest, no more: a worker that stays
slow for longer than that bound holds all others, by design. The claim is for a bound that the
window does not reach; the row with 3 shows what a small one does to a worker that stays slow.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.measure import Row, interleave, table
from windlass.train import Data, Task, sum_loss
from windlass.train.group import Group
from windlass.train.registry import choose
from windlass.train.seat import Seat

WORKERS = 6
SLEEP_SECONDS = 0.1
SLOWER = 10
WINDOW_SECONDS = 3.0
BARRIER_STEPS = 20
"""Of `allreduce`, all of whose workers must take as many; with the slow one, a tenth."""
ARMS: dict[str, tuple[str, dict[str, Any]]] = {
    "adpsgd": ("adpsgd", {}),
    "ps:async": ("ps:async", {}),
    "ps:ssp, bound not reached": ("ps:ssp", {"staleness": 64}),
    "ps:ssp, staleness 3": ("ps:ssp", {"staleness": 3}),
    "allreduce": ("allreduce", {}),
}
GOALS = {"adpsgd": 0.8, "ps:async": 0.8, "ps:ssp, bound not reached": 0.8}


def measure(rounds: int = 5, arms: Sequence[str] = tuple(ARMS)) -> list[Row]:
    with Group(WORKERS, 1, threads=1, silent_seconds=60) as group:
        contestants = {
            (arm, slower): (lambda a=arm, s=slower: _updates_a_second(group, a, s))
            for arm in arms
            for slower in (1, SLOWER)
        }
        found = interleave(
            {f"{arm}\n{slower}": run for (arm, slower), run in contestants.items()}, rounds
        )
    return [_row(arm, found[f"{arm}\n{SLOWER}"], found[f"{arm}\n1"]) for arm in arms]


def _row(arm: str, slow: list[float], even: list[float]) -> Row:
    middle = statistics.median(slow) / statistics.median(even)
    least, most = min(slow) / max(even), max(slow) / min(even)
    goal = GOALS.get(arm)
    return Row(
        f"`{arm}`, 1 of {WORKERS} workers {SLOWER}x slower: updates (simulated compute)",
        f"{statistics.median(slow):.1f}/s",
        f"{statistics.median(even):.1f}/s without it",
        f"{middle:.2f}x ({least:.2f}…{most:.2f})",
        "about 0.1x" if arm == "allreduce" else "" if goal is None else f"≥ {goal:g}x",
        None if goal is None else middle >= goal,
    )


def _updates_a_second(group: Group, arm: str, slower: int) -> float:
    name, _ = ARMS[arm]
    only = None if name.startswith("ps:") else [f"worker {n}" for n in range(WORKERS)]
    answers = group.call(contest, arm, slower, only=only, timeout_seconds=300)
    return float(sum(rate for rate in answers.values() if rate is not None))


class Sleeping(nn.Module):
    """A device that computes for so long."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.linear = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        threading.Event().wait(self.seconds)
        found: Tensor = self.linear(x)
        return found


def contest(seat: Seat, arm: str, slower: int) -> float | None:
    """This worker's updates a second; None on a server."""
    name, options = ARMS[arm]
    strategy = choose(name, options)
    seconds = SLEEP_SECONDS * (slower if seat.rank == 1 else 1)
    task = _task(seconds if seat.role == "worker" else 0.0)
    if seat.role == "server":
        with strategy.serving(task, seat) as serving:
            serving.run()
        return None
    runner = strategy.runner(task, seat)
    batch = task.data.batch(task.data.at(0), seat.rank, seat.workers)
    everybody = [f"worker {n}" for n in range(seat.workers)]
    try:
        seat.meeting.gather("begin", b"", everybody, operation="a start", deadline_seconds=60)
        began, taken = time.monotonic(), 0
        if name == "allreduce":
            for _ in range(BARRIER_STEPS // slower):
                runner.step(batch)
                taken += 1
            rate = taken / (time.monotonic() - began)
        else:
            while time.monotonic() - began < WINDOW_SECONDS:
                runner.step(batch)
                taken += 1
            # The last step may have ended after the window: not all of it belongs there.
            rate = taken / (time.monotonic() - began)
        runner.finish()
        runner.drain()
    finally:
        runner.close()
    return rate


def _task(seconds: float) -> Task:
    torch.manual_seed(0)
    model = Sleeping(seconds)
    rows = torch.randn(4 * WORKERS, 64)
    return Task(
        model,
        sum_loss(functional.mse_loss, reduction="sum"),
        torch.optim.SGD(model.parameters(), 1e-4),
        Data((rows, rows.clone()), 4 * WORKERS),
    )


if __name__ == "__main__":
    print(table(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 5)))
