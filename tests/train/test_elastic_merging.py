"""1.14 for strategies whose workers go at their own pace: who is left brings together what there
is, and what a lost one had not delivered is done by others. Each sample once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from elastics import Play
from torch import Tensor, nn

from windlass.core.errors import MemberLost
from windlass.train.data import Batch, Data
from windlass.train.fitting import Plan, Trained
from windlass.train.ledger import Position
from windlass.train.runners.attendance import Attendance
from windlass.train.runners.base import Outcome, Runner
from windlass.train.runners.blocks import Blocks
from windlass.train.runners.gossip import AdPsgd, DPsgd, Sgp
from windlass.train.runners.hogwild import Hogwild
from windlass.train.runners.outer import Bmuf, DiLoCo, Easgd, LocalSgd
from windlass.train.runners.strom import Strom
from windlass.train.seat import Seat
from windlass.train.strategy import Strategy
from windlass.train.task import Task
from windlass.train.testing.town import Town

SIZE = 41


class Marks(nn.Module):
    """A number for each sample, which is moved by that sample alone."""

    def __init__(self) -> None:
        super().__init__()
        self.marks = nn.Parameter(torch.zeros(SIZE, dtype=torch.float64))

    def forward(self, numbers: Tensor) -> Tensor:
        return self.marks[numbers]


def make() -> Task:
    model = Marks()

    def loss(model: nn.Module, batch: Any) -> tuple[Tensor, float]:
        return model(batch[0]).sum(), float(len(batch[0]))

    return Task(
        model, loss, torch.optim.SGD(model.parameters(), 1.0), Data((torch.arange(SIZE),), 6)
    )


class Watched(Play):
    """Sees which batches each worker of a generation made, and what the generation left."""

    def __init__(self, town: Town, strategy: Strategy, least: int = 1) -> None:
        super().__init__(
            town, Plan(make, strategy, 1, None, None, None, None, True, False, (least, 3))
        )
        self.batches: dict[tuple[str, int], list[tuple[int, ...]]] = {}
        self.ends: dict[str, tuple[Position, dict[int, int], set[int]]] = {}

    def made(self, runner: Runner, here: Seat) -> None:
        stepped, drained, room = runner.step, runner.drain, here.meeting.room
        mine = self.batches.setdefault((room, here.rank), [])

        def step(batch: Batch) -> Outcome:
            found = stepped(batch)
            mine.append(batch.samples)
            return found

        def drain() -> None:
            drained()
            marked = runner.task.model.marks.detach().nonzero().view(-1).tolist()
            end = (runner.begins, runner.account(), set(marked))
            assert self.ends.setdefault(room, end) == end, "all have the same"

        runner.step, runner.drain = step, drain  # type: ignore[method-assign]

    def check(self, answers: dict[str, Trained]) -> None:
        """By the state: a sample that was used has left its mark. By the account: once."""
        used: Counter[int] = Counter()
        ends = sorted(self.ends.items(), key=lambda each: each[1][0].steps)
        for room, (_, account, marked) in ends:
            for rank, count in account.items():
                made = self.batches.get((room, rank), [])
                assert count <= len(made)
                used.update(sample for batch in made[:count] for sample in batch)
            assert set(used) == marked, room
        assert used == dict.fromkeys(range(SIZE), 1)
        states = [each.state for each in answers.values() if each.state is not None]
        assert states and bool(states[0]["marks"].all())


STRATEGIES = [
    LocalSgd(every=3), LocalSgd(every=3, post_local=3), Bmuf(tau=3), DiLoCo(every=3),
    Easgd(tau=2), DPsgd(), AdPsgd(), Sgp(overlap=1), Strom(tau=0.1), Hogwild(),
]  # fmt: skip


@pytest.mark.parametrize("kills", [{"worker 1": 4}, {"worker 0": 0, "worker 2": 6}], ids=str)
@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: s.name)
def test_each_sample_is_used_once_whoever_is_killed_and_comes_back(
    strategy: Strategy, kills: dict[str, int]
) -> None:
    with Town(3, 0, deadline_seconds=60) as town:
        play = Watched(town, strategy)
        play.kill, play.comes_back = dict(kills), len(kills) == 1
        answers = play.run()
    play.check(answers)
    assert play.sizes[0] == 3 and len(play.sizes) > 1, play.sizes


class Rows(Play):
    """Which rows each worker saw, of one that shares out no samples."""

    def __init__(self, town: Town, plan: Plan) -> None:
        super().__init__(town, plan)
        self.rows: dict[str, list[int]] = {}
        self.came_back: list[str] = []

    def made(self, runner: Runner, here: Seat) -> None:
        stepped, seen = runner.step, self.rows.setdefault(here.name, [])
        self.came_back += [here.name] * runner.came_back

        def step(batch: Batch) -> Outcome:
            found = stepped(batch)
            seen.append(runner.task.data.row(batch.cursor))
            return found

        runner.step = step  # type: ignore[method-assign]


@pytest.mark.parametrize("victim", [0, 1])
def test_a_worker_of_blocks_comes_back_to_the_round_that_the_others_are_at(victim: int) -> None:
    name, steps = f"worker {victim}", 400
    with Town(2, 1, deadline_seconds=60) as town:
        play = Rows(town, Plan(make, Blocks(size=8, dependence=None), None, steps, None, None,
                               None, True, False, (1, 2)))  # fmt: skip
        play.kill = {name: 3}
        answers = play.run()
        rounds = town.seats["server 0"].counters.to_json()["events"]["rounds"]
    assert rounds == steps, "each global batch is one round, whoever took part"
    assert play.rows.pop(f"worker {1 - victim}") == list(range(steps))
    mine = play.rows[name]
    assert mine == [*range(3), *range(mine[3], steps)] if len(mine) > 3 else True
    assert play.came_back in ([], [name]), "it may have come when all was done"
    assert len({tuple(each.state) for each in answers.values() if each.state}) == 1


def test_servers_end_when_fewer_than_the_least_are_left() -> None:
    with Town(3, 0) as town:
        seat = replace(town.seats["worker 0"], least=2, deadline_seconds=0.0)
        attendance = Attendance(seat)
        attendance.gone |= {1}
        assert not attendance.is_over()
        attendance.gone |= {2}
        assert not attendance.is_over(), "they may come back"
        with pytest.raises(MemberLost, match="1 are left of at least 2") as found:
            while not attendance.is_over():
                pass
        assert found.value.details["missing"] == ["worker 1", "worker 2"]
        attendance.done |= {0, 1}
        attendance.gone |= {0}
        assert attendance.is_over(), "who is done and left is not missing"
