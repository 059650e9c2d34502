"""1.14 with servers: what a lost worker had not delivered is handed out again, once."""

from __future__ import annotations

import random
import shutil
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from windlass.core.errors import MemberLost
from windlass.train.comm.transport import Answer
from windlass.train.data import Batch
from windlass.train.ledger import Position, shares_of
from windlass.train.runners import serverstate
from windlass.train.runners.base import Outcome
from windlass.train.runners.collective import AllReduce
from windlass.train.runners.serverstrategies import (
    Async,
    ServerStrategy,
    SoftSync,
    StaleSynchronous,
)
from windlass.train.runners.serving import ParameterServing
from windlass.train.runners.shard import Recipe, Row, Shard
from windlass.train.seat import Seat
from windlass.train.state import checkpoint as checkpoints
from windlass.train.state.flat import Layout
from windlass.train.state.stored import read
from windlass.train.strategy import Strategy
from windlass.train.task import Task
from windlass.train.testing.replay import replay
from windlass.train.testing.tasks import flat, regression
from windlass.train.testing.town import Town
from windlass.train.trainer import Trainer

EPOCHS = 2
Used = Counter[tuple[int, int]]


class Killed(BaseException):
    pass


class Play:
    """Workers that are killed when they have computed so many steps, and are started again."""

    def __init__(
        self, town: Town, strategy: Strategy, kills: dict[str, int], *, again: bool = True,
        folder: Path | None = None, save_every: int | None = None,
    ) -> None:  # fmt: skip
        self.town = town
        self.strategy = strategy
        self.kills = dict(kills)
        self.again = again
        self.folder = folder
        self.save_every = save_every
        self.rows: list[Row] = []
        self.samples: list[int] = []
        self.final: dict[str, Any] = {}
        self.changed = threading.Condition()
        self.away = 0
        """Who is killed and not back yet: the others are slow until then, or all were over."""

    def run(self, epochs: int = EPOCHS) -> None:
        found = self.town.call(self.live, epochs)
        self.final = {name: each for name, each in found.items() if each is not None}

    def live(self, seat: Seat, epochs: int) -> Any:
        try:
            return self.train(seat, epochs)
        except Killed:
            if not self.again:
                return None
        try:
            return self.train(self.town.sit("worker", seat.rank), epochs, came_back=True)
        except MemberLost:
            return None  # it came when all was done
        finally:
            self.move(-1)

    def move(self, by: int) -> None:
        with self.changed:
            self.away = max(0, self.away + by)
            self.changed.notify_all()

    def train(self, seat: Seat, epochs: int, came_back: bool = False) -> Any:
        task = regression()
        if seat.role == "server":
            with self.strategy.serving(task, seat) as serving:
                assert isinstance(serving, ParameterServing)
                serving.run()
                self.rows += serving.rows()
                return serving.copies.held[0].shard.ledger if 0 in serving.copies.held else None
        trainer = Trainer(
            task, self.strategy, seat=seat, save_every=self.save_every,
            checkpoint=None if self.folder is None else str(self.folder),
        )  # fmt: skip
        stepped = trainer.runner.step
        steps = 0
        if came_back:
            self.move(-1)

        def step(batch: Batch) -> Outcome:
            nonlocal steps
            steps += 1
            if self.kills.get(seat.name) == steps:
                del self.kills[seat.name]
                self.move(int(self.again))
                self.town.fell(seat.name)
                raise Killed
            with self.changed:
                # Not for ever: who comes back may itself have to wait for others' pushes.
                self.changed.wait_for(lambda: not self.away, 0.5)
            outcome = stepped(batch)
            with self.changed:
                self.samples += batch.samples
            return outcome

        trainer.runner.step = step  # type: ignore[method-assign]
        try:
            for _ in trainer.epochs(epochs, close=False):
                for batch in trainer.batches():
                    trainer.step(batch)
            trainer.drain()
            return flat(task.model)
        finally:
            trainer.abandon()


def used(rows: list[Row], workers: int, task: Task) -> Used:
    """What the log of range 0 says that was applied: (epoch, sample)."""
    found: Used = Counter()
    for row in rows:
        if row.range == 0 and row.applied:
            for at, step in enumerate(row.steps):
                cursor = task.data.at(step)
                place = (row.shares[at] if row.shares else None) or (row.worker, workers)
                for sample in task.data.share(cursor, *place):
                    found[cursor.epoch, sample] += 1
    return found


def once(task: Task, epochs: int = EPOCHS) -> Used:
    return Counter({(e, n): 1 for e in range(epochs) for n in range(task.data.size)})


STRATEGIES: list[ServerStrategy] = [
    Async(trace=True),
    Async(trace=True, push_every=2),
    StaleSynchronous(staleness=1, trace=True),
    StaleSynchronous(staleness=0, trace=True),
    SoftSync(trace=True),
]


@pytest.mark.parametrize("again", [True, False], ids=["again", "gone"])
@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: f"{s.name}")
def test_each_sample_is_in_the_servers_state_once_though_workers_are_killed(
    strategy: ServerStrategy, again: bool
) -> None:
    for seed in range(2):
        dice = random.Random(f"{strategy.name} {seed}")
        kills = {f"worker {n}": dice.randrange(1, 9) for n in dice.sample(range(3), 2)}
        with Town(3, 1, deadline_seconds=20) as town:
            play = Play(town, strategy, kills, again=again)
            play.run()
        assert used(play.rows, 3, regression()) == once(regression()), kills
        left = [
            play.final[name] for name in ("worker 0", "worker 1", "worker 2") if name in play.final
        ]
        assert left and all(torch.equal(each, left[0]) for each in left)


def test_a_gradient_that_waits_for_others_is_not_in_a_checkpoint() -> None:
    """Nor are its samples: it is computed again by whoever goes on."""
    task = regression()
    layout = Layout(task.optimizer)
    parts = layout.parts(layout.cut(1)[0])
    policy = SoftSync().policy(2)
    policy.clocks = {0: 0, 1: 0}
    shard = Shard(0, parts, policy, Recipe(task.optimizer))
    shard.begin([torch.zeros(part.shape, dtype=part.dtype) for part in parts])
    pushes = [(0, 1, 0), (1, 1, 0), (1, 2, 1)]
    positions = []
    for worker, number, row in pushes:
        event = {
            "what": "push", "worker": worker, "number": number, "version": shard.version,
            "count": 1.0, "rates": [0.1], "steps": [row], "reads": [],
        }  # fmt: skip
        shard.take(event, [torch.ones(part.shape, dtype=part.dtype) for part in parts])
        positions.append(shard.position())
    assert positions == [Position(0, 0), Position(1, 1), Position(1, 1)]
    assert shard.ledger.lines == {0: 1, 1: 2}, "they need not be asked for again"


def in_checkpoint(position: Position, task: Task) -> Used:
    """What a position says that is used: (epoch, sample)."""
    found: Used = Counter()
    for row in range(position.row):
        cursor = task.data.at(row)
        found.update((cursor.epoch, sample) for sample in task.data.share(cursor, 0, 1))
    for share in shares_of(position.left):
        cursor = task.data.at(share.row)
        own = task.data.share(cursor, share.place, share.of)
        found.subtract((cursor.epoch, sample) for sample in own)
    return +found


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: s.name)
def test_a_checkpoint_of_the_servers_goes_on_at_another_size_and_under_another_strategy(
    strategy: ServerStrategy, tmp_path: Path
) -> None:
    """Its parameters are what the log gives of exactly the samples that it says are used."""
    task = regression()
    with Town(3, 1, deadline_seconds=20) as town:
        play = Play(town, strategy, {"worker 1": 6}, again=False, folder=tmp_path / "first")
        play.save_every = 3
        play.run()
    first = min(each.parent for each in (tmp_path / "first").glob("*/manifest.json"))
    stored = checkpoints.opened(first)
    position = Position.of(read(stored["windlass"]))
    inside = in_checkpoint(position, task)
    rows = sorted((row for row in play.rows if row.applied), key=lambda row: row.version)
    prefix = next(
        (n for n in range(len(rows) + 1) if used(rows[:n], 3, task) == inside
         and (n in (0, len(rows)) or rows[n].version > rows[n - 1].version)), None,
    )  # fmt: skip
    assert prefix is not None, "no moment of the log has just these samples"
    done = [row for row in play.rows if not row.applied] + rows[:prefix]
    task.model.load_state_dict(read(stored["model"]))
    if done:
        assert torch.equal(replay(regression, strategy, 3, 1, done), flat(task.model))
    others: list[tuple[Strategy, int, int]] = [(Async(trace=True), 2, 1), (AllReduce(), 2, 0)]
    for other, workers, servers in others:
        folder = tmp_path / other.name
        shutil.copytree(first, folder / first.name)
        with Town(workers, servers, deadline_seconds=20) as town:
            again = Play(town, other, {}, folder=folder)
            again.run()
        total: Counter[int] = Counter({n: 0 for n in range(task.data.size)})
        total.update(sample for (_, sample), count in inside.items() for _ in range(count))
        if servers:
            total.update(s for (_, s), n in used(again.rows, 2, task).items() for _ in range(n))
        else:
            total.update(again.samples)
        assert total == dict.fromkeys(range(task.data.size), EPOCHS)


def test_a_worker_that_comes_when_all_is_over_is_told_so() -> None:
    """It does not wait for servers that will not come back, though such as are lost might."""
    with Town(1, 2, deadline_seconds=60) as town:
        strategy = Async(copies=2)
        Play(town, strategy, {}).run(1)
        for name in ("server 0", "server 1"):
            town.seats[name].meeting.leave()
        town.fell("worker 0")
        with pytest.raises(MemberLost, match="the training is over"):
            strategy.runner(regression(), town.sit("worker", 0))


@pytest.mark.parametrize(
    ("second", "cut"),
    [
        ({"version": 3, "clocks": [[0, 2], [1, 1]]}, "one"),
        ({"version": 3, "clocks": [[0, 1], [1, 2]]}, "by range"),
        ({"version": 4, "clocks": [[0, 2], [1, 1]]}, "by range"),
    ],
)
def test_a_checkpoint_of_several_ranges_says_whether_it_is_of_one_moment(
    second: dict[str, Any], cut: str
) -> None:
    position = Position(2, 2).to_json()
    first = {"version": 3, "clocks": [[0, 2], [1, 1]], "position": position}
    answers = [([1], Answer({"ranges": [second]}, [])), ([0], Answer({"ranges": [first]}, []))]
    found, said = serverstate.stood(answers)
    assert found == Position(2, 2)
    assert said == {"cut": cut, "versions": f"[3, {second['version']}]"}
