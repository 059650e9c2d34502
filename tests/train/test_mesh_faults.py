"""Whoever is lost of a mesh is named by all others, wherever they wait: 1.13, pain 1."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from meshes import mesh_task
from torch import nn
from waiting import hurry

from windlass.core.errors import MemberLost
from windlass.train import registry
from windlass.train.runners.flushing import PipelineRunner
from windlass.train.seat import Seat
from windlass.train.task import Task
from windlass.train.testing.town import Town

SECONDS = 120.0


class Stops(nn.Module):
    """Says at which of its forwards it is, and waits there until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.at = -1
        self.reached = threading.Event()
        self.go = threading.Event()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.calls == self.at:
            self.reached.set()
            self.go.wait(SECONDS)
        self.calls += 1
        return x


def make(stop: Stops, before: int) -> Task:
    task = mesh_task("straight")
    layers = list(task.model)  # type: ignore[call-overload]
    layers.insert(before, stop)
    task.model = nn.Sequential(*layers)
    return task


def step_on(
    seat: Seat, tasks: dict[str, Task], options: dict[str, Any],
    runners: dict[str, PipelineRunner],
) -> None:  # fmt: skip
    task = tasks[seat.name]
    chosen = registry.choose("1f1b", options)
    runner = chosen.runner(task, seat)
    assert isinstance(runner, PipelineRunner)
    runners[seat.name] = runner
    try:
        for step in range(100):
            runner.step(task.data.batch(task.data.at(step), *chosen.share_of(seat)))
    finally:
        runner.close()


def lose(victim: int, *, falls: bool) -> None:
    """Replicas 0-3 and 4-7, each of two places with two slices; the victim stops in the middle of
    a step, just before a layer that is cut by rows."""
    where = {0: 2, 1: 8}[victim % 4 // 2]  # the pair of the first stage, or of the second
    with Town(8, 0, deadline_seconds=SECONDS) as found:
        stops = {worker: Stops() for worker in found.seats}
        tasks = {worker: make(stop, where) for worker, stop in stops.items()}
        stop = stops[f"worker {victim}"]
        stop.at = 7  # in the third step
        cuts = (6,) if victim % 4 < 2 else (5,)
        options = {"replicas": 2, "tensor": 2, "micro_batches": 3, "cuts": cuts,
                   "layers": named(where)}  # fmt: skip
        try:
            runners: dict[str, PipelineRunner] = {}
            running = {
                name: found.start(name, step_on, tasks, options, runners) for name in found.seats
            }
            assert stop.reached.wait(SECONDS)
            if falls:
                found.fell(f"worker {victim}")
            else:
                hurry(found, runners, f"worker {victim}", 3.0)
            for worker, future in running.items():
                if worker != f"worker {victim}":
                    with pytest.raises(MemberLost) as caught:
                        future.result(SECONDS)
                    assert caught.value.details["missing"] == [f"worker {victim}"], worker
                    assert "at step" in str(caught.value), worker
        finally:
            found.fell(f"worker {victim}")  # by now nobody is there whom it could wait for
            stop.go.set()
        with pytest.raises(MemberLost):
            running[f"worker {victim}"].result(SECONDS)


def named(where: int) -> dict[str, str]:
    """The pairs of layers, with one module more before `where`."""
    return {
        str(n + (n >= where)): how
        for n, how in ((0, "column"), (2, "row"), (5, "column"), (7, "row"))
    }


@pytest.mark.parametrize("victim", [1, 2, 4])
def test_one_that_dies_between_two_cut_layers_is_named_by_all_others(victim: int) -> None:
    """Its own slice's neighbour waits in a sum, the other stage for a message, the other replica
    in the sum of gradients: not one of them names who merely gave up."""
    lose(victim, falls=True)


@pytest.mark.slow
def test_one_that_lives_but_does_nothing_is_named_by_all_others() -> None:
    lose(3, falls=False)
