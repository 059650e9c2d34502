"""1.14 for pipelines without a flush: a worker is lost, and comes; what comes of it is what one
would get who had stopped there and gone on with the other number of workers by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from elastics import Play
from torch import Tensor

from windlass.core.errors import InvalidInput
from windlass.train import elastic
from windlass.train.data import Batch
from windlass.train.fitting import Plan, Trained
from windlass.train.runners.base import Outcome, Runner
from windlass.train.runners.pipedream import PipeDream, Stashing, TwoBw
from windlass.train.seat import Seat
from windlass.train.task import Task
from windlass.train.testing.tasks import flat, regression
from windlass.train.testing.town import Town
from windlass.train.trainer import Trainer

STEPS, SAVE_EVERY = 12, 3


def make() -> Task:
    return regression(31, 6, optimizer=lambda p: torch.optim.SGD(p, 0.05, momentum=0.9))


def plan(strategy: Stashing, folder: Path) -> Plan:
    return Plan(
        make, strategy, None, STEPS, str(folder), SAVE_EVERY, None, True, False, (1, 3)
    )  # fmt: skip


class Generations(Play):
    """Of each: how many workers, and the first row that all of them made."""

    def __init__(self, town: Town, plan: Plan) -> None:
        super().__init__(town, plan)
        self.rows: dict[int, tuple[int, list[int]]] = {}

    def made(self, runner: Runner, here: Seat) -> None:
        number = int(here.meeting.room.split()[-1])
        _, seen = self.rows.setdefault(number, (here.workers, []))
        stepped = runner.step

        def step(batch: Batch) -> Outcome:
            found = stepped(batch)
            if here.rank == here.workers - 1:
                seen.append(runner.task.data.row(batch.cursor))
            return found

        runner.step = step  # type: ignore[method-assign]

    def begun(self) -> list[tuple[int, int]]:
        return [(size, rows[0]) for _, (size, rows) in sorted(self.rows.items()) if rows]


def by_hand(strategy: Stashing, folder: Path, begun: list[tuple[int, int]]) -> Tensor:
    """So many workers from that step on, from the checkpoint that those before have left."""
    ends = [first for _, first in begun[1:]] + [STEPS]
    found: dict[str, Any] = {}

    def train(seat: Seat, until: int) -> dict[str, Tensor]:
        task = make()
        trainer = Trainer(task, strategy, seat=seat, checkpoint=str(folder), save_every=SAVE_EVERY)
        try:
            for _ in trainer.epochs(STEPS, batches=until, close=False):
                for batch in trainer.batches():
                    trainer.step(batch)
            if until < STEPS:
                trainer.save(wait=True)
            trainer.runner.drain()
            return {n: each.clone() for n, each in task.model.state_dict().items()}
        finally:
            trainer.abandon()

    for (workers, _), end in zip(begun, ends, strict=True):
        with Town(workers, 0, deadline_seconds=60) as town:
            found = town.call(train, end)
    task = make()
    task.model.load_state_dict(found["worker 0"])
    return flat(task.model)


def result(answers: dict[str, Trained]) -> Tensor:
    task = make()
    task.model.load_state_dict(next(e.state for e in answers.values() if e.state is not None))
    return flat(task.model)


@pytest.mark.parametrize("comes_back", [True, False], ids=["again", "gone"])
@pytest.mark.parametrize(
    "strategy",
    [
        PipeDream(balance="blocks"), PipeDream(balance="blocks", vertical_sync=True),
        TwoBw(balance="blocks"),
    ],
    ids=["pipedream", "vertical", "2bw"],
)  # fmt: skip
def test_a_lost_and_a_new_worker_are_a_stop_and_a_new_number_of_workers(
    strategy: Stashing, comes_back: bool, tmp_path: Path
) -> None:
    with Town(3, 0, deadline_seconds=60) as town:
        play = Generations(town, plan(strategy, tmp_path / "elastic"))
        play.kill, play.comes_back = {"worker 1": 7}, comes_back
        answers = play.run()
    begun = play.begun()
    assert begun[0] == (3, 0) and begun[1][1] in (3, 6), "from a checkpoint before it was lost"
    assert comes_back or [size for size, _ in begun] == [3, 2]
    torch.testing.assert_close(
        result(answers), by_hand(strategy, tmp_path / "by hand", begun), rtol=0, atol=0
    )
    lost = [fault.who for each in town.seats.values() for fault in each.counters.faults]
    assert "worker 1" in lost


def test_a_pipeline_whose_stages_are_told_takes_only_as_many_as_these_need(tmp_path: Path) -> None:
    """Two of three that are left are too few: they wait until the third is there again."""
    fixed = PipeDream(balance="blocks", replicas=(2, 1))
    with Town(3, 0, deadline_seconds=60) as town:
        play = Generations(town, plan(fixed, tmp_path / "elastic"))
        play.kill = {"worker 2": 7}
        answers = play.run()
    assert {size for size, _ in play.begun()} == {3}
    torch.testing.assert_close(
        result(answers), by_hand(fixed, tmp_path / "by hand", play.begun()), rtol=0, atol=0
    )
    with pytest.raises(InvalidInput, match="pipedream takes none of 1 to 2 workers"):
        elastic.check(fixed, (1, 2), None)
