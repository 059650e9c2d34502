"""`fit(make, strategy="auto")`: the planner chooses, among what is installed. And
`fit(make, plan="plan.yaml")`: as somebody chose before.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from pydantic import Field

from windlass.core.errors import InvalidInput
from windlass.train.planning.asking import plan
from windlass.train.planning.plan import Plan
from windlass.train.seat import Seat
from windlass.train.strategy import Strategy
from windlass.train.task import Task

NAME = "auto"
_DEADLINE_SECONDS = 600.0


class Chosen(NamedTuple):
    strategy: str
    options: dict[str, Any]
    plan: Plan | None
    """None where there was nothing to choose: one worker."""


class Auto(Strategy):
    """Measure the model, predict every strategy that is installed, take the fastest that fits."""

    name: ClassVar[str] = NAME
    link: str | None = Field(
        None, description="between workers, such as 10Gbit; default: measured on this machine"
    )
    overlap: bool | None = Field(
        None, description="whether communication hides behind compute; default: measured"
    )
    memory: str | int | None = Field(
        None, description="what a worker can hold, such as 16G; default: nine tenths of a GPU"
    )

    def chosen(self, make: Callable[[], Task], workers: int, device: str | None) -> Chosen:
        return choose(
            make, workers, link=self.link, overlap=self.overlap, memory=self.memory, device=device
        )

    def agreed(self, make: Callable[[], Task], seat: Seat) -> Chosen:
        """The same in a gang: worker 0 measures, all take what it chose."""
        key = "plan of auto"
        if seat.name == "worker 0":
            mine = self.chosen(make, seat.workers, str(seat.device))
            told = None if mine.plan is None else mine.plan.model_dump_json()
            seat.meeting.put(key, json.dumps(told).encode())
            return mine
        found = seat.meeting.get(
            key, owner="worker 0", operation="planning", deadline_seconds=_DEADLINE_SECONDS
        )
        told = json.loads(found)
        if told is None:
            return Chosen("allreduce", {}, None)
        plan = Plan.model_validate_json(told)
        return Chosen(plan.strategy, plan.settings(), plan)


def choose(
    make: Callable[[], Task],
    workers: int,
    *,
    link: str | None = None,
    overlap: bool | None = None,
    memory: str | int | None = None,
    device: str | None = None,
) -> Chosen:
    """A strategy that is installed, with its options. Raises as `plan`."""
    if workers == 1:
        return Chosen("allreduce", {}, None)
    found = plan(make, workers, link=link, overlap=overlap, memory=memory, device=device)
    return Chosen(found.strategy, found.settings(), found)


class Followed(NamedTuple):
    """What `fit` takes from a plan."""

    strategy: str
    options: dict[str, Any]
    workers: int
    predicted: float | None


def follow(
    plan: Plan | str | os.PathLike[str],
    strategy: str | Strategy,
    options: dict[str, Any],
    workers: int | None,
) -> Followed:
    """Options that are given besides win over the plan's. Raises InvalidInput where the caller
    asks for something else than the plan says."""
    found = plan.check() if isinstance(plan, Plan) else Plan.load(os.fspath(plan))
    if isinstance(strategy, Strategy):
        raise InvalidInput(
            "plan: the strategy is an object already",
            hint=f"{type(strategy).__name__}(**plan.settings()), or its name with plan=",
        )
    if strategy not in (found.strategy, "allreduce", NAME):  # allreduce: nobody said any
        raise InvalidInput(
            f"strategy: the plan is one of {found.strategy} (found {strategy!r})",
            hint=f"leave strategy= out, or plan with strategies=[{strategy!r}]",
        )
    if workers not in (None, found.workers):
        raise InvalidInput(f"workers: the plan is for {found.workers} (found {workers})")
    settings = {**found.settings(), **options}
    return Followed(found.strategy, settings, found.workers, found.predicted)
