"""A trial as a study remembers it, and the steps that a plan is made of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from windlass.core.studies import BUSY, ENDED, Objective, TrialState

Reports = tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Past:
    """One trial. `reports`: of the first objective, (step, value) in order of steps."""

    number: int
    params: Mapping[str, Any]
    state: TrialState
    reports: Reports = ()
    values: tuple[float | None, ...] = ()
    excess: tuple[float, ...] = ()
    """For each constraint how far it is out of bounds."""
    rung: int = 0
    """How many rungs it has passed; of a population, how often it was looked at."""
    attrs: Mapping[str, Any] = field(default_factory=dict)
    """What its sampler wants to find again."""
    job_id: str = ""

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def busy(self) -> bool:
        return self.state in BUSY

    @property
    def feasible(self) -> bool:
        return all(each <= 0 for each in self.excess)

    def at(self, step: int) -> float | None:
        """Its value when it came to a step: the first report there or later; None: not yet."""
        return next((value for at, value in self.reports if at >= step), None)


@dataclass(frozen=True, slots=True)
class Create:
    """A new trial. Without `params` the sampler is asked."""

    number: int
    params: Mapping[str, Any] | None = None
    parent: int | None = None
    """The trial from whose newest checkpoint it starts."""
    rung: int = 0


@dataclass(frozen=True, slots=True)
class Advance:
    """It passes a rung without a stop."""

    number: int
    rung: int


@dataclass(frozen=True, slots=True)
class Pause:
    number: int
    why: str


@dataclass(frozen=True, slots=True)
class Resume:
    number: int
    rung: int
    why: str


@dataclass(frozen=True, slots=True)
class Prune:
    number: int
    why: str


@dataclass(frozen=True, slots=True)
class Finish:
    why: str


Step = Create | Advance | Pause | Resume | Prune | Finish


def loss(objective: Objective, value: float | None) -> float:
    """Less is better, whatever the goal; what is no number is worst."""
    if value is None or math.isnan(value):
        return math.inf
    return objective.sign * value
