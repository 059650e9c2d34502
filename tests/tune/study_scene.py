"""A study without a server: trials that report by a formula, in simulated time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from windlass.core.studies import StudySpec, TrialState
from windlass.tune.history import Advance, Create, Finish, Past, Pause, Prune, Resume
from windlass.tune.plan import own, plan

Curve = Callable[[dict[str, Any], int], float]


def spec(**fields: Any) -> StudySpec:
    base: dict[str, Any] = {
        "job": {"run": "train"}, "space": {"x": "float:0..1"}, "minimize": "loss",
        "sampler": "random",
    }  # fmt: skip
    if "objectives" in fields or "maximize" in fields:
        base.pop("minimize")
    return StudySpec.model_validate({**base, **fields})


def past(number: int, *values: float, state: str = "running", rung: int = 0, **more: Any) -> Past:
    """A trial with reports at steps 1, 2, 3 …"""
    reports = tuple((step, value) for step, value in enumerate(values, start=1))
    return Past(number, more.pop("params", {}), TrialState(state), reports, rung=rung, **more)


class World:
    """Carries out plans: each tick lets every running trial make one step."""

    def __init__(self, study: StudySpec, curve: Curve, length: int) -> None:
        self.study, self.curve, self.length = study, curve, length
        self.trials: list[Past] = []
        self.steps = 0
        """Of all trials together: what the search has cost."""
        self.reached: list[tuple[int, float]] = []
        """(cost, best so far) at each end of a trial."""
        self.parents: dict[int, int] = {}
        self.most = 0

    def run(self, ticks: int = 100_000) -> str:
        for _ in range(ticks):
            while (why := self._plan()) == "again":
                pass
            if why:
                return why
            self._tick()
        raise AssertionError("it never ends")

    def _plan(self) -> str:
        """Why it is over; "again": plan once more; "": let time pass."""
        steps = plan(self.study, self.study.trials, self.trials)
        for step in steps:
            if isinstance(step, Finish):
                return step.why
            if isinstance(step, Create):
                params = step.params or own(self.study, step.number)
                assert step.number == len(self.trials)
                reports = ()
                if step.parent is not None:
                    self.parents[step.number] = step.parent
                    reports = self.trials[step.parent].reports
                self.trials.append(
                    Past(step.number, params, TrialState.RUNNING, reports, rung=step.rung)
                )
                continue
            trial = self.trials[step.number]
            if isinstance(step, Advance):
                trial = replace(trial, rung=step.rung)
            elif isinstance(step, Pause):
                trial = replace(trial, state=TrialState.PAUSED)
            elif isinstance(step, Resume):
                trial = replace(trial, state=TrialState.RUNNING, rung=step.rung)
            elif isinstance(step, Prune):
                trial = replace(trial, state=TrialState.PRUNED, values=(trial.reports[-1][1],))
            self.trials[step.number] = trial
        self.most = max(self.most, sum(trial.busy for trial in self.trials))
        return "again" if steps else ""

    def _tick(self) -> None:
        for at, trial in enumerate(self.trials):
            if trial.state is not TrialState.RUNNING:
                continue
            step = trial.reports[-1][0] + 1 if trial.reports else 1
            value = self.curve(dict(trial.params), step)
            self.steps += 1
            trial = replace(trial, reports=(*trial.reports, (step, value)))
            if step >= self.length:
                trial = replace(trial, state=TrialState.SUCCEEDED, values=(value,))
                best = min(self.reached[-1][1], value) if self.reached else value
                self.reached.append((self.steps, best))
            self.trials[at] = trial
