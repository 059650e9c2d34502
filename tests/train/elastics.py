"""A town whose workers are killed at a step and started again, in an elastic training."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import replace
from typing import Any

from windlass.train import fitting
from windlass.train.data import Batch
from windlass.train.failures import first_cause
from windlass.train.fitting import Plan, Trained
from windlass.train.runners.base import Outcome, Runner
from windlass.train.seat import Seat
from windlass.train.task import Task
from windlass.train.testing.town import Town


class Killed(BaseException):
    pass


class Play:
    """A town whose workers may be killed at a step, and started again."""

    def __init__(self, town: Town, plan: Plan) -> None:
        self.town = town
        self.plan = plan
        self.kill: dict[str, int] = {}
        """Who ends before which step."""
        self.comes_back = True
        self.answers: dict[str, Future[Any]] = {}
        self.sizes: list[int] = []

    def run(self) -> dict[str, Trained]:
        for name in list(self.town.seats):
            self.start(name)
        found, failures = {}, []
        while self.answers:
            done, _ = wait(self.answers.values(), 60, FIRST_COMPLETED)
            if not done:
                break
            for name in [name for name, each in self.answers.items() if each in done]:
                try:
                    found[name] = self.answers.pop(name).result()
                except Killed:
                    if self.comes_back:
                        self.town.sit("worker", int(name.split()[1]))
                        self.start(name)
                except Exception as err:
                    failures.append(err)
        if failures:
            raise first_cause(failures)
        assert not self.answers, f"nothing came of {', '.join(self.answers)}"
        return {name: each for name, each in found.items() if each is not None}

    def made(self, runner: Runner, here: Seat) -> None:
        """A runner of one generation, for those who look on."""

    def start(self, name: str) -> None:
        self.answers[name] = self.town.start(name, self._train)

    def _train(self, seat: Seat) -> Trained | None:
        strategy = self.plan.strategy
        made: Callable[..., Runner] = type(strategy).runner

        def runner(task: Task, here: Seat) -> Runner:
            found = made(strategy, task, here)
            stepped = found.step
            if here.rank == 0:
                self.sizes.append(here.workers)

            def step(batch: Batch) -> Outcome:
                if self.kill.get(seat.name) == batch.cursor.steps:
                    del self.kill[seat.name]
                    self.town.fell(seat.name)
                    here.meeting.fall()
                    raise Killed
                return stepped(batch)

            found.step = step  # type: ignore[method-assign]
            self.made(found, here)
            return found

        mine = strategy.model_copy()
        object.__setattr__(mine, "runner", runner)
        return fitting.train(seat, replace(self.plan, strategy=mine))
