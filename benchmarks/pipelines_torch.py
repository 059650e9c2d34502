"""Claim: our one runtime for all schedules is not slower than torch's own (>= 0.98x), for the
schedules that both have.

Two workers, one thread each, the same layers, the same cut, eight micro-batches, SGD. torch's
schedules run in the same processes over gloo. torch is told not to scale gradients (its default
divides what has been summed so far) and not to put the outputs together, which nobody asked for.

A round is a few steps of each, who goes first in turns; its ratio compares what ran within the
same second. Of the ratios the median counts, with the middle half of them in brackets: on a shared
machine the first and the last of them say nothing of either.

torchgpipe, which is no longer maintained, still runs: it is installed beside (.cache/torchgpipe)
where that is possible. Its two partitions are threads of one process, and the other worker rests
meanwhile.
"""

from __future__ import annotations

import importlib
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining import schedules as theirs
from torch.nn import functional

from benchmarks.measure import CACHE, Row, milliseconds, table
from windlass.train.data import Data
from windlass.train.group import Group
from windlass.train.registry import choose
from windlass.train.runners.base import Runner
from windlass.train.seat import Seat
from windlass.train.task import Task, sum_loss

WIDTH, LAYERS, BATCH, MICRO_BATCHES, STEPS = 512, 8, 512, 8, 3
ROUNDS = 40
TORCHGPIPE = "torchgpipe"
PAIRS = {
    "gpipe": ("ScheduleGPipe", 1),
    "1f1b": ("Schedule1F1B", 1),
    "interleaved": ("ScheduleInterleaved1F1B", 2),
    "zb1p": ("ScheduleInterleavedZeroBubble", 1),
    "zbv": ("ScheduleZBVZeroBubble", 2),
}


def measure(rounds: int = ROUNDS) -> list[Row]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    why = _install()
    with Group(2, threads=1, deadline_seconds=60) as group:
        found = group.call(_run, port, rounds, not why)["worker 0"]
    rows = []
    for name, (peer, _) in {**PAIRS, TORCHGPIPE: ("GPipe", 1)}.items():
        if name not in found:
            rows.append(Row(f"{name}: not measured: {why}", "", "", "", "", None))
            continue
        ours, other = found[name]
        ratios = [b / a for a, b in zip(ours, other, strict=True)]
        low, middle, high = statistics.quantiles(ratios, method="inclusive")
        rows.append(
            Row(
                f"{_words(name, peer)}, 2 workers, {MICRO_BATCHES} micro-batches: a step; how "
                "many times as fast",
                milliseconds(statistics.median(ours)),
                milliseconds(statistics.median(other)),
                f"{middle:.2f}x ({low:.2f}…{high:.2f})",
                "≥ 0.98x",
                middle >= 0.98,
            )
        )
    return rows


def _words(name: str, peer: str) -> str:
    if name == TORCHGPIPE:
        return "`gpipe` against torchgpipe (threads of one process)"
    return f"`{name}` against torch's `{peer}`"


def _install() -> str:
    """Why it is not there, or nothing."""
    if (CACHE / TORCHGPIPE / "torchgpipe").exists():
        return ""
    words = ["install", "-q", "--no-deps", "--target", str(CACHE / TORCHGPIPE), TORCHGPIPE]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *words], capture_output=True, text=True, timeout=120
    )
    return "" if done.returncode == 0 else "it could not be installed"


# -- in each worker -------------------------------------------------------------------------------


def _run(
    seat: Seat, port: int, rounds: int, torchgpipe: bool
) -> dict[str, tuple[list[float], list[float]]]:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=seat.rank, world_size=seat.workers
    )
    runners: list[Runner] = []
    try:
        found = {}
        contests: list[tuple[str, str, int]] = [
            (name, peer, chunks) for name, (peer, chunks) in PAIRS.items()
        ]
        if torchgpipe:
            contests.append((TORCHGPIPE, "", 1))
        for name, peer, chunks in contests:
            step, runner = _ours(seat, name if peer else "gpipe", chunks)
            runners.append(runner)
            arms = (step, _torchs(seat, peer, chunks) if peer else _torchgpipes(seat))
            taken: tuple[list[float], list[float]] = ([], [])
            for number in range(rounds + 1):
                for which in (0, 1) if number % 2 else (1, 0):
                    dist.barrier()
                    began = time.perf_counter()
                    for _ in range(STEPS):
                        arms[which]()
                    dist.barrier()
                    if number:  # the first one makes connections and plans
                        taken[which].append((time.perf_counter() - began) / STEPS)
            found[name] = taken
        for runner in runners:
            runner.drain()
        return found
    finally:
        for runner in runners:
            runner.close()
        dist.destroy_process_group()


def _network() -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(LAYERS):
        layers += [nn.Linear(WIDTH, WIDTH), nn.Tanh()]
    return nn.Sequential(*layers)


def _data() -> tuple[Tensor, Tensor]:
    dice = torch.Generator().manual_seed(1)
    return torch.randn(BATCH, WIDTH, generator=dice), torch.randn(BATCH, WIDTH, generator=dice)


def _ours(seat: Seat, name: str, chunks: int) -> tuple[Callable[[], None], Runner]:
    model = _network()
    task = Task(
        model, sum_loss(functional.mse_loss, reduction="sum"),
        torch.optim.SGD(model.parameters(), 1e-4), Data(_data(), BATCH, shuffle=False),
    )  # fmt: skip
    cuts = tuple(n * 2 * LAYERS // (2 * chunks) for n in range(1, 2 * chunks))
    options: dict[str, Any] = {"micro_batches": MICRO_BATCHES, "cuts": cuts}
    if name == "interleaved":
        options["chunks"] = chunks
    runner = choose(name, options).runner(task, seat)
    batch = task.data.batch(task.data.at(0))

    def step() -> None:
        runner.step(batch)

    return step, runner


def _torchs(seat: Seat, name: str, chunks: int) -> Callable[[], None]:
    kind = getattr(theirs, name)
    count = 2 * chunks
    ranks = [n % 2 for n in range(count)]
    if name == "ScheduleZBVZeroBubble":
        ranks = [min(n, count - 1 - n) for n in range(count)]
    network, each = _network(), 2 * LAYERS // count
    stages = [
        PipelineStage(network[n * each : (n + 1) * each], n, count, torch.device("cpu"))
        for n in range(count)
        if ranks[n] == seat.rank
    ]
    single = issubclass(kind, theirs.PipelineScheduleSingle)

    def loss(found: Tensor, wanted: Tensor) -> Tensor:
        return functional.mse_loss(found, wanted, reduction="sum")

    schedule: Any = kind(
        stages[0] if single else stages, MICRO_BATCHES, loss_fn=loss, scale_grads=False
    )
    parameters = [p for stage in stages for p in stage.submod.parameters()]
    optimizer = torch.optim.SGD(parameters, 1e-4)
    inputs, targets = _data()
    first, last = ranks[0] == seat.rank, ranks[-1] == seat.rank

    def step() -> None:
        optimizer.zero_grad()
        given, losses = [inputs] if first else [], list[Tensor]()
        wanted = {"target": targets, "losses": losses} if last else {}
        schedule.step(*given, **wanted, return_outputs=False)
        sum(losses)  # who trains wants to know it: ours gives it too
        for parameter in parameters:  # the mean, as ours
            if parameter.grad is not None:
                parameter.grad.div_(BATCH)
        optimizer.step()

    return step


def _torchgpipes(seat: Seat) -> Callable[[], None]:
    """Both partitions on the first worker."""
    if seat.rank:
        return lambda: None
    sys.path.append(str(CACHE / TORCHGPIPE))
    kind: Any = importlib.import_module("torchgpipe").GPipe
    half = LAYERS  # of the layers and what is between them
    model = kind(
        _network(), [half, half], devices=["cpu", "cpu"], chunks=MICRO_BATCHES, checkpoint="never"
    )
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    inputs, targets = _data()

    def step() -> None:
        optimizer.zero_grad()
        loss = functional.mse_loss(model(inputs), targets, reduction="sum") / BATCH
        torch.autograd.backward(loss)
        optimizer.step()

    return step


if __name__ == "__main__":
    print(table(measure(2 if "--quick" in sys.argv else ROUNDS)))
