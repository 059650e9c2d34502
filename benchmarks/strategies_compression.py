"""Claims: on links of 200 Mbit/s, with a network that waits for its gradients, a step with
`OneBit` or `PowerSGD` takes at most a third of the time of a plain all-reduce.

Two workers, each in a network namespace of its own, joined by links that a token bucket holds to
200 Mbit/s each way (the rig of `windlass.train.sim`); compute is real, and small. All arms live in
the same two processes and take turns; the claim is the median of the ratios of neighbouring turns,
with their range. The loss after the same number of steps stands beside, for each arm: a step that
is fast and learns nothing is worth nothing.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.measure import ROOT, Row, milliseconds, table
from windlass.train import Data, Task, sum_loss
from windlass.train.data import Batch
from windlass.train.gang import seated
from windlass.train.policies.compression import BF16, Compression, OneBit, PowerSGD, TopK
from windlass.train.runners.collective import AllReduce, CollectiveRunner
from windlass.train.seat import Seat
from windlass.train.sim.netns import Links, unable

MBIT = 200.0
WIDTH, BATCH = 1536, 8
STEPS = 2
ARMS: dict[str, tuple[Compression | None, float | None]] = {
    "whole": (None, None),
    "OneBit": (OneBit(), 3.0),
    "PowerSGD, rank 4": (PowerSGD(rank=4), 3.0),
    "TopK, 1%": (TopK(ratio=0.01), None),
    "BF16": (BF16(), None),
}


def measure(turns: int = 7) -> list[Row]:
    why = unable()
    if why:
        return [Row(f"compression at {MBIT:g} Mbit/s", "", "", "", "", None), _skipped(why)]
    with Links(2, mbit=MBIT) as links:
        words = [sys.executable, "-m", "benchmarks.strategies_compression", "rank", str(turns)]
        said = links.run(words, environment={"PYTHONPATH": str(ROOT)}, timeout_seconds=280)
    found = json.loads(said[0].splitlines()[-1])
    whole = found["whole"]
    rows = []
    for name, (_, goal) in ARMS.items():
        if name == "whole":
            continue
        ratios = sorted(
            a / b for a, b in zip(whole["seconds"], found[name]["seconds"], strict=True)
        )
        middle = statistics.median(ratios)
        rows.append(
            Row(
                f"`{name}` against whole gradients at {MBIT:g} Mbit/s, p = 2: a step; loss after "
                f"{found['steps']} steps {found[name]['loss']:.3g}, whole {whole['loss']:.3g}",
                milliseconds(statistics.median(found[name]["seconds"])),
                milliseconds(statistics.median(whole["seconds"])),
                f"{middle:.1f}x ({ratios[0]:.1f}…{ratios[-1]:.1f})",
                "" if goal is None else f"≥ {goal:g}x",
                None if goal is None else middle >= goal,
            )
        )
    return rows


def _skipped(why: str) -> Row:
    return Row(f"not measured: {why}", "", "", "", "", None)


def rank(turns: int) -> None:
    """One of the two workers; the first prints what it measured."""
    with seated(device="cpu", seed=0, deadline_seconds=60) as seat:
        torch.set_num_threads(1)
        runners = {name: _runner(seat, asked) for name, (asked, _) in ARMS.items()}
        found: dict[str, Any] = {name: {"seconds": [], "loss": 0.0} for name in ARMS}
        done = 0
        for turn in range(turns + 1):
            for name, runner in runners.items():
                started = time.perf_counter()
                for step in range(done, done + STEPS):
                    runner.step(_share(runner, seat, step))
                if turn:  # the first is for warming up
                    found[name]["seconds"].append((time.perf_counter() - started) / STEPS)
            done += STEPS
        for name, runner in runners.items():
            total, count = runner.task.loss_of(_share(runner, seat, done).content)
            found[name]["loss"] = float(total) / count
        for runner in runners.values():
            runner.finish()
            runner.drain()
            runner.close()
        if seat.rank == 0:
            print(json.dumps({**found, "steps": done}))


def _share(runner: CollectiveRunner, seat: Seat, step: int) -> Batch:
    data = runner.task.data
    return data.batch(data.at(step), seat.rank, seat.workers)


def _runner(seat: Seat, asked: Compression | None) -> CollectiveRunner:
    dice = torch.Generator().manual_seed(0)
    # Few directions, so that something is learnt in a few steps.
    inputs = torch.randn(1024, 16, generator=dice) @ torch.randn(16, WIDTH, generator=dice) / 4
    teacher = torch.randn(WIDTH, WIDTH, generator=dice) / WIDTH**0.5
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
    task = Task(
        model,
        sum_loss(functional.mse_loss, reduction="sum"),
        torch.optim.SGD(model.parameters(), 2e-3),
        Data((inputs, inputs @ teacher), 2 * BATCH),
    )
    return AllReduce(compress=asked).runner(task, seat)


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        rank(int(sys.argv[2]))
    else:
        print(table(measure(5 if "--quick" in sys.argv else 7)))
