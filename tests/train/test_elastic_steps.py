"""1.14 for strategies whose steps need all workers: who is left goes on, who comes is let in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from elastics import Play
from torch import Tensor

from windlass.core.errors import InvalidInput, MemberLost
from windlass.train.data import Batch
from windlass.train.fitting import Plan, Trained
from windlass.train.membership import Membership
from windlass.train.runners.base import Outcome, Runner
from windlass.train.runners.collective import AllReduce
from windlass.train.runners.pipeline import (
    GPipe,
    Interleaved,
    OneForwardOneBackward,
    ZeroBubble,
)
from windlass.train.runners.zero1 import Zero1
from windlass.train.seat import Seat
from windlass.train.strategy import Strategy
from windlass.train.task import Task
from windlass.train.testing.tasks import alone, flat, regression
from windlass.train.testing.town import Town

STEPS = 8


def momentum(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, 0.05, momentum=0.9)


def make() -> Task:
    return regression(22, 6, optimizer=momentum)


def plan(strategy: Strategy, folder: Path | None = None, least: int = 1) -> Plan:
    return Plan(
        make, strategy, None, STEPS, None if folder is None else str(folder), 3, None, True, False,
        (least, 3),
    )  # fmt: skip


def result(answers: dict[str, Trained]) -> Tensor:
    state = next(each.state for each in answers.values() if each.state is not None)
    task = make()
    task.model.load_state_dict(state)
    return flat(task.model)


@pytest.fixture(scope="module")
def reference() -> Tensor:
    task = make()
    alone(task, STEPS)
    return flat(task.model)


@pytest.mark.parametrize("comes_back", [True, False], ids=["again", "gone"])
@pytest.mark.parametrize("step", range(STEPS))
def test_killed_at_any_step_the_run_ends_as_if_nothing_had_been(
    step: int, comes_back: bool, reference: Tensor
) -> None:
    with Town(3, 0, deadline_seconds=60) as town:
        play = Play(town, plan(AllReduce()))
        play.kill, play.comes_back = {f"worker {step % 3}": step}, comes_back
        answers = play.run()
    torch.testing.assert_close(result(answers), reference, rtol=1e-12, atol=1e-12)
    assert play.sizes[0] == 3, play.sizes
    assert comes_back or play.sizes == [3, 2]
    faults = [fault.who for each in town.seats.values() for fault in each.counters.faults]
    assert f"worker {step % 3}" in faults


@pytest.mark.parametrize("strategy", [Zero1(), GPipe(micro_batches=2)], ids=lambda s: s.name)
@pytest.mark.parametrize("step", [0, 4, 7])
def test_where_a_part_of_the_state_is_lost_the_rest_goes_on_from_the_checkpoint(
    step: int, strategy: Strategy, tmp_path: Path, reference: Tensor
) -> None:
    """Shards are dealt again, a pipeline is cut again, for two workers and then for three."""
    with Town(3, 0, deadline_seconds=60) as town:
        play = Play(town, plan(strategy, tmp_path))
        play.kill, play.comes_back = {"worker 1": step}, step != 4
        answers = play.run()
    torch.testing.assert_close(result(answers), reference, rtol=1e-12, atol=1e-12)


class Rows(Play):
    """Which rows each generation made, as its last rank saw it."""

    def __init__(self, town: Town, plan: Plan) -> None:
        super().__init__(town, plan)
        self.rows: dict[str, list[int]] = {}

    def made(self, runner: Runner, here: Seat) -> None:
        stepped, seen = runner.step, self.rows.setdefault(here.meeting.room, [])

        def step(batch: Batch) -> Outcome:
            found = stepped(batch)
            if here.rank == here.workers - 1:
                seen.append(runner.task.data.row(batch.cursor))
            return found

        runner.step = step  # type: ignore[method-assign]


@pytest.mark.parametrize(
    "strategy",
    [
        OneForwardOneBackward(micro_batches=3), Interleaved(micro_batches=2, chunks=1),
        ZeroBubble(micro_batches=2),
    ],
    ids=lambda each: each.name,
)  # fmt: skip
def test_a_pipeline_is_cut_again_for_those_who_are_left_and_for_who_comes(
    strategy: Strategy, tmp_path: Path, reference: Tensor
) -> None:
    with Town(3, 0, deadline_seconds=60) as town:
        play = Rows(town, plan(strategy.model_copy(update={"balance": "blocks"}), tmp_path))
        play.kill = {"worker 2": 5}
        answers = play.run()
    made: list[int] = []
    for room in sorted(play.rows, key=lambda each: int(each.split()[-1])):
        rows = play.rows[room]
        if rows:
            assert rows[0] <= len(made), "it went on from a state that has all before it"
            made[rows[0] :] = rows
    assert made == list(range(STEPS))
    torch.testing.assert_close(result(answers), reference, rtol=1e-12, atol=1e-12)


def enter(seat: Seat, least: int, most: int, steps: int | None) -> tuple[Membership, Any, Seat]:
    membership = Membership(seat, least, most)
    generation, here = membership.next(steps)
    return membership, generation, here


def test_a_generation_is_decided_once_and_the_one_before_is_not_heard() -> None:
    """Who was given up and speaks up again is in no room, and is told so."""
    with Town(3, 0, deadline_seconds=60) as town:
        first = town.call(enter, 1, 3, None)
        assert {each[2].name for each in first.values()} == {"worker 0", "worker 1", "worker 2"}
        assert len({each[1] for each in first.values()}) == 1, "one and the same"
        stale = first["worker 2"][2].meeting
        town.fell("worker 2")
        futures = {
            name: town.start(name, lambda _, n=name: first[n][0].next(4 if n == "worker 1" else 3))
            for name in ("worker 0", "worker 1")
        }
        second = {name: each.result(60) for name, each in futures.items()}
        generation, here = second["worker 1"]
        assert here.rank == 0, "who has the newest state is first"
        assert generation.has_state and len(generation.members) == 2
        stale.put("resume", b"of an old generation")
        with pytest.raises(MemberLost):
            here.meeting.get("resume", operation="hearing", deadline_seconds=0.3)
        with pytest.raises(MemberLost, match="given this member up"):
            first["worker 2"][0].next(9)
        for _, seat in (*second.values(), *((e[1], e[2]) for e in first.values())):
            seat.meeting.leave()


def test_with_fewer_than_the_least_all_end_and_a_surplus_one_waits_for_a_place() -> None:
    with Town(3, 0, deadline_seconds=60) as town:
        futures = {name: town.start(name, enter, 2, 2, None) for name in town.seats}
        inside = {name: futures[name].result(60) for name in ("worker 0", "worker 1")}
        assert not futures["worker 2"].done(), "there is no place for it"
        membership = inside["worker 0"][0]
        assert not membership.waits()
        town.fell("worker 1")
        inside["worker 1"][2].meeting.fall()
        _, here = membership.next(5)
        found = futures["worker 2"].result(60)
        assert (here.rank, found[2].rank) == (0, 1), "it takes the place of the lost one"
        town.fell("worker 2")
        membership._patience = 0.2
        with pytest.raises(MemberLost, match="1 are left of at least 2"):
            membership.next(6)
        for seat in (here, found[2], inside["worker 0"][2]):
            seat.meeting.leave()


def test_a_part_of_the_state_without_a_checkpoint_is_refused() -> None:
    with Town(2, 0, deadline_seconds=60) as town:
        play = Play(town, plan(Zero1()))
        with pytest.raises(InvalidInput, match="checkpoint"):
            play.run()


def test_what_was_put_first_stays_where_it_is_put_once() -> None:
    with Town(2, 0) as town:
        first, second = (town.seats[name].meeting for name in ("worker 0", "worker 1"))
        first.put("who", b"first", once=True)
        told = {"operation": "hearing", "deadline_seconds": 20.0}
        assert second.get("who", **told) == b"first"
        second.put("who", b"second", once=True)
        assert second.get("who", **told) == b"first"
        second.put("who", b"third")
        assert second.get("who", **told) == b"third"


def scheduled() -> Task:
    """Rates that are made of the ones before, and rates that are not."""
    task = regression(22, 6)
    falling = torch.optim.lr_scheduler.ExponentialLR(task.optimizer, 0.9)
    warming = torch.optim.lr_scheduler.LinearLR(task.optimizer, 0.25, total_iters=4)
    task.schedule = torch.optim.lr_scheduler.ChainedScheduler([warming, falling], task.optimizer)
    return task


def test_the_schedule_of_rates_goes_on_where_it_was(tmp_path: Path) -> None:
    def train(steps: int, folder: Path) -> Tensor:
        with Town(2, 0, deadline_seconds=60) as town:
            play = Play(town, replace(plan(AllReduce(), folder), make=scheduled, steps=steps))
            play.kill, play.comes_back = ({} if steps < STEPS else {"worker 1": 6}), False
            return result(play.run())

    reference = scheduled()
    for step in range(STEPS):
        alone_at(reference, step)
    train(4, tmp_path)
    torch.testing.assert_close(
        train(STEPS, tmp_path), flat(reference.model), rtol=1e-12, atol=1e-12
    )


def alone_at(task: Task, step: int) -> None:
    batch = task.data.batch(task.data.at(step))
    task.optimizer.zero_grad()
    total, count = task.loss_of(batch.content)
    (total / count).backward()  # type: ignore[no-untyped-call]
    task.optimizer.step()
    assert task.schedule is not None
    task.schedule.step()
