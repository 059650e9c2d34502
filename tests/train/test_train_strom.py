"""Threshold-quantised updates with real processes: nothing is lost, nothing is applied twice."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from windlass.core.errors import InvalidInput
from windlass.train.counters import Counters
from windlass.train.data import Data
from windlass.train.group import Group
from windlass.train.policies import threshold
from windlass.train.runners.strom import Signs, Strom
from windlass.train.seat import Seat
from windlass.train.task import Task
from windlass.train.testing import tasks
from windlass.train.testing.gossip_replay import play_signs, replay

WORKERS = 3
SIZE = 32
VICTIM = "worker 2"
RATE = 2.0**-4


class Line(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(SIZE, dtype=torch.float64))


def along(model: nn.Module, batch: Any) -> tuple[Tensor, int]:
    (rows,) = batch
    assert isinstance(model, Line)
    return (model.weight * rows).sum(), len(rows)


def exact() -> Task:
    """Gradients that do not depend on the parameters, in sixteenths, shares of four: every sum is
    exact in binary, so equality means equality."""
    dice = torch.Generator().manual_seed(5)
    rows = torch.randint(-40, 41, (120, SIZE), generator=dice).double() / 16
    model = Line()
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    return Task(model, along, optimizer, Data((rows,), 4 * WORKERS))


def update_of(rank: int, steps: int) -> Tensor:
    """The sum of all updates of one worker, by hand."""
    task = exact()
    found = torch.zeros(SIZE, dtype=torch.float64)
    for step in range(steps):
        batch = task.data.batch(task.data.at(step), rank, WORKERS)
        found -= RATE * batch.content[0].sum(0) / 4
    return found


def regression() -> Task:
    return tasks.regression(23, 7)


def die_in_the_middle_of_telling(runner: Signs) -> None:
    """Worker 0 has its message, worker 1 does not."""
    for residual in runner.residual:
        residual += 1.0  # so that there is something to tell
    packed = [threshold.take(residual, runner.tau) for residual in runner.residual]
    told = {"number": runner._number + 1, "tau": runner.tau}
    [future] = runner._post(0, "signs", told, packed, kind="gradient")
    future.result(60)
    os.kill(os.getpid(), signal.SIGKILL)


def train(seat: Seat, options: Strom, which: str, steps: int, dies: str) -> dict[str, Any]:
    task = exact() if which == "exact" else regression()
    runner = options.runner(task, replace(seat, counters=Counters()))
    assert isinstance(runner, Signs)
    for step in range(steps):
        if seat.name == VICTIM and step == 12 and dies == "while telling":
            die_in_the_middle_of_telling(runner)
        if seat.name == VICTIM and step == 10 and dies == "any time":
            threading.Timer(0.003, os.kill, (os.getpid(), signal.SIGKILL)).start()
        runner.step(task.data.batch(task.data.at(step), seat.rank, seat.workers))
        if dies and step > 10:
            threading.Event().wait(0.001 if seat.name == VICTIM else 0.01)
    if seat.name == VICTIM and dies:
        threading.Event().wait(60)  # its end comes, if late
    runner.finish()
    runner.settle()
    kept = {who[0]: list(heard.kept) for who, heard in runner._heard.items()}
    found = {
        "x": torch.cat(runner.current()), "residual": torch.cat(runner.residual),
        "heard": kept, "trace": runner.trace, "elements": runner.elements, "tau": runner.tau,
        "counters": runner.counters.to_json(),
    }  # fmt: skip
    runner.drain()
    runner.close()
    return {**found, "final": tasks.flat(task.model)}


@pytest.fixture(scope="module")
def group() -> Iterator[Group]:
    with Group(WORKERS, silent_seconds=60.0) as found:
        yield found


def test_what_was_sent_and_what_is_left_are_all_updates_exactly(group: Group) -> None:
    """1.17: per worker sum(sent) + residual = sum(update) exactly; after the drain replicas
    differ only by their own unsent residuals, element by element; 4 bytes per sent element."""
    answers = group.call(train, Strom(tau=0.15), "exact", 40, "", timeout_seconds=240)
    by_rank = [answers[f"worker {rank}"] for rank in range(WORKERS)]
    for rank, each in enumerate(by_rank):
        for other in by_rank:
            if other is each:
                continue
            sent = torch.zeros(SIZE, dtype=torch.float64)
            for _, tau, (packed,) in other["heard"][rank]:
                threshold.add(packed, tau, sent)
            assert torch.equal(sent + each["residual"], update_of(rank, 40))
            assert torch.equal(each["x"] - each["residual"], other["x"] - other["residual"])
        assert each["elements"] > SIZE
        assert each["counters"]["sent_bytes"]["gradient"] == 4 * each["elements"] * (WORKERS - 1)
        assert each["residual"].abs().max() > 0
    mean = torch.stack([each["x"] for each in by_rank]).mean(0)
    assert all(torch.equal(each["final"], mean) for each in by_rank)


@pytest.mark.parametrize("options", [Strom(trace=True), Strom(density=0.1, trace=True)])
def test_the_trace_replayed_in_one_process_gives_the_same_bits(
    group: Group, options: Strom
) -> None:
    """1.17: trace replay, with a fixed threshold and one that adapts."""
    answers = group.call(train, options, "regression", 30, "", timeout_seconds=240)
    traces = {rank: answers[f"worker {rank}"]["trace"] for rank in range(WORKERS)}
    found = replay(regression, traces, WORKERS, play_signs)
    common = []
    for rank in range(WORKERS):
        each = answers[f"worker {rank}"]
        assert torch.equal(torch.cat(found[rank]), each["x"])
        common.append(each["x"] - each["residual"])
    assert all(torch.allclose(each, common[0], rtol=0, atol=1e-13) for each in common)
    assert sum(each["elements"] for each in answers.values()) > 0


@pytest.mark.parametrize(
    "when", ["while telling", pytest.param("any time", marks=pytest.mark.slow)]
)
def test_what_a_dead_worker_told_some_is_passed_on_to_the_others(group: Group, when: str) -> None:
    """1.17, failure as 1.4: on both or on neither; the survivors agree exactly."""
    number = group.begin(train, Strom(tau=0.1), "exact", 40, when)
    answers = group.finish(number, tolerate=True, timeout_seconds=120)
    group.start_again(VICTIM)
    one, other = answers["worker 0"], answers["worker 1"]
    assert torch.equal(one["x"] - one["residual"], other["x"] - other["residual"])
    assert torch.equal(one["final"], other["final"])
    assert [fault[:2] for fault in one["counters"]["faults"]] == [["lost", VICTIM]]
    if when == "while telling":
        assert one["counters"]["events"]["forwarded"] >= 1


def test_taking_and_adding_are_each_other_s_reverse() -> None:
    residual = torch.tensor([0.3, -0.6, 0.1, 0.25, -0.25], dtype=torch.float64)
    before = residual.clone()
    packed = threshold.take(residual, 0.25)
    assert packed.dtype == torch.int32 and packed.tolist() == [0, -2, 3, -5]
    assert residual.tolist() == pytest.approx([0.05, -0.35, 0.1, 0.0, 0.0])
    threshold.add(packed, 0.25, residual)
    assert torch.equal(residual, before)


def test_an_adaptive_threshold_finds_the_density_and_stays_a_power_of_two() -> None:
    torch.manual_seed(1)
    tau, shares = 2.0**-20, []
    residual = torch.zeros(10_000)
    for _ in range(60):
        residual += torch.randn(10_000)
        sent = threshold.take(residual, tau).numel()
        shares.append(sent / 10_000)
        tau = threshold.adapted(tau, sent, 10_000, 0.05)
        assert threshold.power_of_two(tau) == tau
    assert 0.01 < sum(shares[-20:]) / 20 < 0.15


def test_options_are_checked_by_name() -> None:
    assert threshold.power_of_two(0.15) == 0.125
    with pytest.raises(ValueError, match="tau"):
        Strom(tau=0)
    task = exact()
    task.optimizer = torch.optim.SGD(task.model.parameters(), 0.1, momentum=0.9)
    assert any("momentum" in line for line in Strom().check(task, 3, 0))
    with pytest.raises(InvalidInput, match="servers"):
        Strom().check(task, 3, 1)
