"""Claim: with an average every N = 10 or 20 steps, a step of `local_sgd` takes the part of a step
with N = 1 that (T + C/N) / (T + C) says, within 10 percent; T is a step alone, C an average.

Two workers in network namespaces of their own, on links of 200 Mbit/s (the rig of
`windlass.train.sim`). Compute is simulated: a step sleeps 60 ms, and the real network behind it is
one layer of a million parameters. T is measured with no average at all, C is what N = 1 takes
more, in the same turn; arms take turns, medians count, with their range.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.measure import ROOT, Row, milliseconds, table
from windlass.train import Data, Task
from windlass.train.gang import seated
from windlass.train.registry import choose
from windlass.train.runners.base import Runner
from windlass.train.seat import Seat
from windlass.train.sim.netns import Links, unable

MBIT, WIDTH, SLEEP_SECONDS, STEPS = 200.0, 1000, 0.06, 20
NEVER = 10**9
PERIODS = (1, 10, 20, NEVER)


def measure(turns: int = 5) -> list[Row]:
    why = unable()
    if why:
        return [Row(f"`local_sgd`: not measured: {why}", "", "", "", "", None)]
    with Links(2, mbit=MBIT) as links:
        words = [sys.executable, "-m", "benchmarks.strategies_local_sgd", "rank", str(turns)]
        said = links.run(words, environment={"PYTHONPATH": str(ROOT)}, timeout_seconds=280)
    found: dict[str, list[float]] = json.loads(said[0].splitlines()[-1])
    rows = []
    for period in (10, 20):
        pairs = list(zip(found["1"], found[str(period)], found[str(NEVER)], strict=True))
        ratios = []
        for first, own, alone in pairs:
            exchange = first - alone
            ratios.append((own / first) / ((alone + exchange / period) / first))
        ratios.sort()
        middle = statistics.median(ratios)
        rows.append(
            Row(
                f"`local_sgd` every {period} steps at {MBIT:g} Mbit/s: a step, against N = 1; "
                "ratio to (T + C/N)/(T + C)",
                milliseconds(statistics.median(own for _, own, _ in pairs)),
                milliseconds(statistics.median(first for first, _, _ in pairs)),
                f"{middle:.2f}x ({ratios[0]:.2f}…{ratios[-1]:.2f})",
                "0.90…1.10x",
                0.9 <= middle <= 1.1,
            )
        )
    return rows


def rank(turns: int) -> None:
    """One of the two workers; the first prints what it measured."""
    with seated(device="cpu", seed=0, deadline_seconds=60) as seat:
        torch.set_num_threads(1)
        runners = {period: _runner(seat, period) for period in PERIODS}
        found: dict[int, list[float]] = {period: [] for period in PERIODS}
        for turn in range(turns + 1):
            for period, runner in runners.items():
                started = time.perf_counter()
                for step in range(turn * STEPS, (turn + 1) * STEPS):
                    data = runner.task.data
                    runner.step(data.batch(data.at(step), seat.rank, seat.workers))
                if turn:  # the first is for warming up
                    found[period].append((time.perf_counter() - started) / STEPS)
        for runner in runners.values():
            runner.finish()
            runner.drain()
            runner.close()
        if seat.rank == 0:
            print(json.dumps(found))


def _runner(seat: Seat, period: int) -> Runner:
    dice = torch.Generator().manual_seed(0)
    inputs = torch.randn(64, WIDTH, generator=dice)
    model = nn.Linear(WIDTH, WIDTH)
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    task = Task(model, _slowly, optimizer, Data((inputs,), 4))
    return choose("local_sgd", {"every": period}).runner(task, seat)


def _slowly(model: nn.Module, batch: Any) -> tuple[Tensor, int]:
    time.sleep(SLEEP_SECONDS)
    inputs = batch[0]
    return (model(inputs) - inputs).square().sum(), len(inputs)


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        rank(int(sys.argv[2]))
    else:
        print(table(measure(3 if "--quick" in sys.argv else 5)))
