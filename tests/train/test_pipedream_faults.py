"""A worker of a pipeline without a flush dies: the others name it, and a resumed run is the run
that went on (1.9 (7), 1.14)."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import torch

import windlass.train as wt
from windlass.core.errors import MemberLost
from windlass.train.policies.schedules import Action
from windlass.train.runners.pipedream import PipeDream, Stashing, TwoBw
from windlass.train.runners.post import Key, Parcel, Post
from windlass.train.runners.rounds import Rounds
from windlass.train.runners.stashing import StashingRunner
from windlass.train.seat import Seat
from windlass.train.task import Task
from windlass.train.testing import tasks
from windlass.train.testing.town import Town
from windlass.train.trainer import Trainer

STEPS, SAVE_EVERY = 9, 3


class Felled(Exception):
    """The member is dead from here on."""


def task() -> Task:
    model = torch.nn.Sequential(tasks.network(), torch.nn.Tanh(), torch.nn.Linear(2, 2)).double()
    dice = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for each in model.parameters():
            each.copy_(torch.randn(each.shape, generator=dice, dtype=torch.float64) * 0.4)
    return tasks.regression(
        31, 6, model=model, optimizer=lambda p: torch.optim.SGD(p, 0.05, momentum=0.9)
    )


def train(
    seat: Seat, town: Town, strategy: Stashing, folder: str, dies: tuple[str, int] | None,
    make: Callable[[], Task] = task, steps: int = STEPS,
) -> dict[str, torch.Tensor]:  # fmt: skip
    """`dies`: who, and before which of its actions."""
    made = make()
    trainer = Trainer(made, strategy, seat=seat, checkpoint=folder, save_every=SAVE_EVERY)
    assert isinstance(trainer.runner, StashingRunner)
    actor, usual, done = trainer.runner.actor, trainer.runner.actor.carry_out, 0

    def carry_out(actions: Iterable[Action]) -> None:
        nonlocal done
        for action in actions:
            if dies == (seat.name, done):
                town.fell(seat.name)
                raise Felled
            usual((action,))
            done += 1

    actor.carry_out = carry_out  # type: ignore[method-assign]
    try:
        while trainer.cursor.steps < steps:
            for batch in trainer.batches():
                trainer.step(batch)
                if trainer.cursor.steps >= steps:
                    break
        trainer.runner.drain()
        state = made.model.state_dict()
        return {name: each.clone() for name, each in state.items() if not each.is_meta}
    finally:
        trainer.abandon()


def run(
    strategy: Stashing, folder: Path, dies: tuple[str, int] | None = None
) -> dict[str, torch.Tensor | BaseException]:
    """No wait of theirs may run into its deadline: that would be longer than we wait for them."""
    with Town(3, 0, silent_seconds=60, deadline_seconds=600) as town:
        futures = {
            name: town.start(name, train, town, strategy, str(folder), dies) for name in town.seats
        }
        found = {}
        for name, each in futures.items():
            err = each.exception(120)
            found[name] = err if err is not None else each.result()
        return found


@pytest.mark.parametrize("strategy", [
    PipeDream(balance="blocks"), PipeDream(replicas=(2, 1), balance="blocks"),
    TwoBw(balance="blocks"),
])  # fmt: skip
def test_any_worker_may_die_at_any_point_and_the_run_goes_on(
    strategy: Stashing, tmp_path: Path
) -> None:
    """In each worker's fill, in its even part, while it drains for a checkpoint, after one."""
    whole = run(strategy, tmp_path / "whole")["worker 0"]
    assert isinstance(whole, dict)
    for number, (victim, before) in enumerate([
        ("worker 0", 0), ("worker 0", 9), ("worker 1", 4), ("worker 1", 11), ("worker 2", 7),
        ("worker 2", 12),
    ]):  # fmt: skip
        folder = tmp_path / str(number)
        broken = run(strategy, folder, (victim, before))
        assert isinstance(broken[victim], Felled)
        for name, err in broken.items():
            if name != victim:
                assert isinstance(err, MemberLost), (name, err)
                assert victim in str(err)
        again = run(strategy, folder)["worker 0"]
        assert isinstance(again, dict)
        assert all(torch.equal(again[name], whole[name]) for name in whole)


def test_workers_that_are_steps_apart_stop_at_the_same_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked to stop in the middle, by whichever hears it first; with a checkpoint at that step."""
    asked = threading.Event()
    monkeypatch.setattr("windlass.train.trainer.stop.should_stop", asked.is_set)

    def until_stopped(seat: Seat) -> int:
        folder = str(tmp_path / "kept")
        with Trainer(task(), PipeDream(balance="blocks"), seat=seat, checkpoint=folder) as trainer:
            for _ in trainer.epochs(1000, close=False):
                for batch in trainer.batches():
                    trainer.step(batch)
                    if seat.rank == 2 and trainer.cursor.steps == 4:
                        asked.set()
            assert trainer.stopped
            return trainer.cursor.steps

    with Town(3, 0, silent_seconds=30) as town:
        stopped = set(town.call(until_stopped).values())
    assert len(stopped) == 1 and stopped.pop() >= 4


# -- in processes -----------------------------------------------------------------------------


class Mortal(torch.nn.Module):
    """Ends its process in the forward at which it is told to, once there is a checkpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        flag = os.environ.get("DIE_ONCE", "")
        if flag and self.seen == 5 and not os.path.exists(flag):
            Path(flag).write_text("died")
            ends = time.monotonic() + 60
            while not list(Path(flag).parent.glob("b/step-*")) and time.monotonic() < ends:
                time.sleep(0.01)
            os._exit(3)
        return torch.tanh(values)


def mortal() -> Task:
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), Mortal(), torch.nn.Linear(8, 2)).double()
    dice = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for each in model.parameters():
            each.copy_(torch.randn(each.shape, generator=dice, dtype=torch.float64) * 0.4)
    found = tasks.regression(24, 6, model=model)
    return found


def test_processes_of_a_fit_train_die_and_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy = PipeDream(cuts=(1,))
    monkeypatch.setenv("DIE_ONCE", "")
    with Town(2, 0, silent_seconds=30) as town:
        folder = str(tmp_path / "whole")
        whole = town.call(train, town, strategy, folder, None, mortal, 7)["worker 0"]
    monkeypatch.setenv("DIE_ONCE", str(tmp_path / "flag"))
    on = {"workers": 2, "steps": 7, "checkpoint": tmp_path / "b", "save_every": 3}
    with pytest.raises(MemberLost, match="worker 1"):
        wt.fit(mortal, strategy, progress=False, **on)
    again = wt.fit(mortal, strategy, progress=False, **on)
    assert again.result.steps == 7 and again.result.samples == 24, "from step 3 on"
    assert again.result.staleness == {0: 4 + 2, 1: 2}, "drained at 6, and at the end"
    assert set(again.state) == set(whole)
    assert all(torch.equal(again.state[name], whole[name]) for name in whole)


def test_who_has_the_last_sum_of_a_round_and_is_gone_had_said_so() -> None:
    """It told the sender only after its own loop could see the sum, which was the last thing that
    loop waited for: the sender then waited out its deadline for one that had ended in peace."""
    names = ["worker 0", "worker 1"]

    def play(seat: Seat) -> None:
        post = Post(seat)
        rounds = Rounds(post, 0, names, seat.rank, [torch.zeros(2)])
        settled, closed = threading.Event(), threading.Event()
        usual = post.put

        def put(key: Key, parcel: Parcel) -> None:
            usual(key, parcel)
            if key.what == "sum of worker 1":
                assert settled.wait(60)
                post.close()
                closed.set()

        if seat.rank == 0:
            post.put = put  # type: ignore[method-assign]
        try:
            rounds.begin(0, [torch.ones(2)], 1.0)
            assert rounds.finish(0)[1] == 2.0
            rounds.settle("end")
            settled.set()
            assert seat.rank or closed.wait(60)
        finally:
            post.close()

    with Town(2, 0, deadline_seconds=60) as town:
        town.call(play)
