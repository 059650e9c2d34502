"""A pipeline that loses a member names it within seconds, and changes nothing half: 1.8."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
import torch
from pipelines import task_of
from torch import nn
from waiting import hurry

from windlass.core.errors import InvalidInput, MemberLost
from windlass.train import registry
from windlass.train.comm.meeting import Roster
from windlass.train.runners.flushing import PipelineRunner
from windlass.train.runners.post import Key, Post
from windlass.train.seat import Seat
from windlass.train.task import Task
from windlass.train.testing.tasks import flat
from windlass.train.testing.town import Town


class Stops(nn.Module):
    """Says at which of its forwards it is, and waits there until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.at = -1
        self.reached = threading.Event()
        self.go = threading.Event()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training and self.calls == self.at:
            self.reached.set()
            self.go.wait(60)
        self.calls += 1
        return x


def make(stop: Stops, inner: int) -> Task:
    task = task_of("straight")
    layers = list(task.model)  # type: ignore[call-overload]
    layers.insert(inner, stop)
    task.model = nn.Sequential(*layers)
    return task


def step_on(
    seat: Seat, tasks: dict[str, Task], name: str, options: dict[str, Any],
    runners: dict[str, PipelineRunner] | None = None,
) -> None:  # fmt: skip
    task = tasks[seat.name]
    chosen = registry.choose(name, options)
    runner = chosen.runner(task, seat)
    assert isinstance(runner, PipelineRunner)
    if runners is not None:
        runners[seat.name] = runner
    try:
        for step in range(100):
            runner.step(task.data.batch(task.data.at(step), *chosen.share_of(seat)))
    finally:
        runner.close()


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zbv"])
@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_stage_that_dies_is_named_by_all_others_within_seconds(name: str, victim: int) -> None:
    each = 2 if name == "zbv" else 1
    cuts = (2, 4, 5, 6, 7) if each == 2 else (3, 6)
    where = (0, *cuts)[victim]
    with Town(3, 0, deadline_seconds=600) as town:  # it is not a deadline that finds it
        stops = {worker: Stops() for worker in town.seats}
        tasks = {worker: make(stop, where) for worker, stop in stops.items()}
        stop = stops[f"worker {victim}"]
        stop.at = 7  # in the middle of the second step or the third
        options = {"micro_batches": 3, "cuts": cuts}
        running = {
            worker: town.start(worker, step_on, tasks, name, options) for worker in town.seats
        }
        assert stop.reached.wait(60)
        town.fell(f"worker {victim}")
        for worker, future in running.items():
            if worker != f"worker {victim}":
                with pytest.raises(MemberLost, match=f"worker {victim} lost") as caught:
                    future.result(60)
                assert "ward" in str(caught.value) and "at step" in str(caught.value)
        stop.go.set()
        with pytest.raises(MemberLost):
            running[f"worker {victim}"].result(60)


def test_a_member_that_lives_but_does_nothing_is_named_not_its_neighbour() -> None:
    """The first waits for the second, which waits for the third, which does nothing."""
    with Town(3, 0, deadline_seconds=120.0) as town:
        stops = {worker: Stops() for worker in town.seats}
        tasks = {worker: make(stop, 9) for worker, stop in stops.items()}
        stops["worker 2"].at = 4
        options = {"micro_batches": 3, "cuts": (3, 6)}
        runners: dict[str, PipelineRunner] = {}
        running = {
            worker: town.start(worker, step_on, tasks, "gpipe", options, runners)
            for worker in town.seats
        }
        assert stops["worker 2"].reached.wait(60)
        hurry(town, runners, "worker 2", 1.0)
        with pytest.raises(MemberLost) as caught:
            running["worker 0"].result(60)
        assert caught.value.details["missing"] == ["worker 2"]
        town.fell("worker 2")  # there is nobody any more for whom it could wait
        stops["worker 2"].go.set()
        for worker in ("worker 1", "worker 2"):
            with pytest.raises(MemberLost):
                running[worker].result(60)


def test_a_slow_member_is_waited_for_as_long_as_it_goes_on() -> None:
    """Each action takes a part of the deadline, the whole wait many of them."""
    with Town(2, 0, deadline_seconds=3.0) as town:

        def work(seat: Seat) -> None:
            post = Post(seat)
            try:
                if seat.rank == 0:
                    post.take(Key("forward", 0, 0, 0), "worker 1")
                else:
                    for _ in range(20):
                        time.sleep(0.25)
                        post.done += 1
                    post.give("worker 0", Key("forward", 0, 0, 0), (1,), kind="activation")
                    post.settle("giving", 0)
            finally:
                post.close()

        town.call(work)


def test_who_gives_its_part_to_one_that_gave_up_names_the_one_that_was_lost() -> None:
    """Worker 1 dies; worker 0 sees it and lets go of its endpoint before it has told worker 2
    that what it gave is there."""
    given = threading.Event()

    def work(seat: Seat) -> None:
        post = Post(seat)
        try:
            if seat.rank == 0:
                post.endpoint.on("gathering", lambda request: given.set())  # and no answer
                seat.meeting.put("listening", b"")
                assert given.wait(60)
            elif seat.rank == 1:
                assert given.wait(60)
                town.fell(seat.name)
            else:
                seat.meeting.get("listening", operation="waiting", deadline_seconds=60)
                post.give("worker 0", Key("gathering", 2, 0, 1), (1,), kind="parameters")
                post.settle("gathering the model", 0)
        finally:
            post.close()

    with Town(3, 0, deadline_seconds=600) as town:
        running = {worker: town.start(worker, work) for worker in town.seats}
        with pytest.raises(MemberLost, match="worker 1 lost in gathering the model at step 0"):
            running["worker 2"].result(60)


class HearsLate(Post):
    """Of one that left it hears only when that one has been cut off."""

    def __init__(self, seat: Seat) -> None:
        self.cut = threading.Event()
        super().__init__(seat)

    def _see(self, roster: Roster) -> None:
        assert not roster.left or self.cut.wait(60)
        super()._see(roster)

    def settle(self, operation: str, step: int | None, *, at_least_seconds: float = 0.0) -> None:
        self._sent[0][1].add_done_callback(lambda _: self.cut.set())
        super().settle(operation, step, at_least_seconds=at_least_seconds)


@pytest.mark.parametrize("post_of", [Post, HearsLate])
def test_who_has_what_it_wanted_and_leaves_is_not_missed(post_of: type[Post]) -> None:
    """The news that it left may come before its word that it took what was given."""
    given = threading.Event()

    def work(seat: Seat) -> None:
        post = post_of(seat)
        try:
            if seat.rank == 0:
                post.endpoint.on("gathering", lambda request: given.set())  # and no answer
                seat.meeting.put("listening", b"")
                assert given.wait(60)
                seat.meeting.leave()
                assert settled.wait(60)
            else:
                seat.meeting.get("listening", operation="waiting", deadline_seconds=60)
                post.give("worker 0", Key("gathering", 1, 0, 1), (1,), kind="parameters")
                post.settle("end of the training", 0)
                settled.set()
        finally:
            post.close()

    settled = threading.Event()
    with Town(2, 0, deadline_seconds=600) as town:
        town.call(work)


def test_a_step_that_failed_changed_nothing() -> None:
    with Town(2, 0, deadline_seconds=600) as town:
        stops = {worker: Stops() for worker in town.seats}
        tasks = {worker: make(stop, 9) for worker, stop in stops.items()}
        stops["worker 1"].at = 1
        before: dict[str, torch.Tensor] = {}
        begun = threading.Event()

        def one(seat: Seat) -> Any:
            task = tasks[seat.name]
            chosen = registry.choose("gpipe", {"micro_batches": 2, "balance": "blocks"})
            runner = chosen.runner(task, seat)
            assert isinstance(runner, PipelineRunner)
            mine = runner.parameters
            before[seat.name] = torch.cat([p.detach().flatten().clone() for p in mine.values()])
            try:
                runner.step(task.data.batch(task.data.at(0)))
            finally:
                begun.set()
                runner.close()
                after = torch.cat([p.detach().flatten() for p in mine.values()])
                assert torch.equal(before[seat.name], after)

        running = {worker: town.start(worker, one) for worker in town.seats}
        assert stops["worker 1"].reached.wait(60)
        town.fell("worker 1")
        with pytest.raises(MemberLost):
            running["worker 0"].result(60)
        stops["worker 1"].go.set()
        with pytest.raises(MemberLost):
            running["worker 1"].result(60)


@pytest.mark.parametrize(
    ("workers", "options", "said"),
    [
        (4, {"replicas": 3}, "replicas: 4 workers make no 3 pipelines"),
        (3, {"cuts": (2,)}, "cuts: 2, one less than the 3 stages"),
        (3, {"cuts": (5, 4)}, "cuts: from 1 to 8, each behind the one before"),
        (2, {"cuts": ("nine",)}, "cuts: there is no block 'nine'"),
        (10, {}, "needs a block for each of 10 stages, and the model has 9"),
    ],
)
def test_what_cannot_be_cut_so_is_said_in_words(
    workers: int, options: dict[str, Any], said: str
) -> None:
    with Town(1, 0) as town:
        seat = town.seats["worker 0"]
        seat.workers = workers
        task = task_of("straight")
        with pytest.raises(InvalidInput, match=said):
            chosen = registry.choose("gpipe", options)
            chosen.check(task, workers, 0)
            chosen.runner(task, seat).close()


def norm(model: nn.Module) -> torch.Tensor:
    return sum((each**2).sum() for each in model.parameters())  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (lambda model, batch: (model(batch[0]).sum() + model(batch[0]).sum(), 1), "once"),
        (lambda model, batch: (batch[0].sum(), 1), "does not call the model"),
        (lambda model, batch: (model(batch[0]).sum() + norm(model), 1), "reads model.par"),
    ],
)
def test_a_loss_that_wants_more_than_one_call_is_refused_in_words(
    loss: Callable[..., Any], said: str
) -> None:
    with Town(1, 0) as town:
        task = task_of("straight")
        task.loss = loss
        before = flat(task.model)
        with pytest.raises(InvalidInput, match=said):
            runner = registry.choose("gpipe", {}).runner(task, town.seats["worker 0"])
            with closing(runner):
                runner.step(task.data.batch(task.data.at(0)))
        assert torch.equal(before, flat(task.model))
