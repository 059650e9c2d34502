"""The study: a search over the parameters of one job, whose trials are jobs themselves.

`StudySpec` is what a user asks for; the file, the flags of `windlass study create` and the API all
become one. What each parameter may be is in `spaces.py`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError

from windlass.core.jobs import EnvName, JobSpec, Param
from windlass.core.machine import Leaves, Machine
from windlass.core.spaces import Dimension, Values, first_of
from windlass.core.strict import DurationMs, Line, Name, Strict

STUDY_NAME = r"^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$"
StudyName = Annotated[str, Field(pattern=STUDY_NAME, max_length=32)]
"""Short enough for a trial's job to be named after it: `NAME-17`."""


class StudyState(StrEnum):
    RUNNING = "running"
    STOPPING = "stopping"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"


class TrialState(StrEnum):
    RUNNING = "running"
    PAUSING = "pausing"
    PAUSED = "paused"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    PRUNED = "pruned"
    FAILED = "failed"
    CANCELLED = "cancelled"


STUDIES: Machine[StudyState] = Machine(
    noun="study",
    first=(StudyState.RUNNING,),
    table={
        StudyState.RUNNING: Leaves(
            "tune",
            {
                StudyState.FINISHED: "every trial has its result",
                StudyState.STOPPING: "stop wished, its time over, or it cannot go on",
            },
        ),
        StudyState.STOPPING: Leaves(
            "tune",
            {
                StudyState.STOPPED: "stopped as wished, its last trial over",
                StudyState.FINISHED: "its time was over, its last trial is",
                StudyState.FAILED: "it could not go on, its last trial is over",
            },
        ),
        StudyState.FINISHED: Leaves("tune", {StudyState.RUNNING: "more trials were asked for"}),
        StudyState.STOPPED: Leaves("tune", {StudyState.RUNNING: "more trials were asked for"}),
        StudyState.FAILED: Leaves("tune", {StudyState.RUNNING: "more trials were asked for"}),
    },
)

_ENDS = {
    TrialState.SUCCEEDED: "its job ended well, with a value",
    TrialState.FAILED: "its job failed, or gave no value",
    TrialState.CANCELLED: "somebody stopped its job, or the study",
}
TRIALS: Machine[TrialState] = Machine(
    noun="trial",
    first=(TrialState.RUNNING,),
    table={
        TrialState.RUNNING: Leaves(
            "tune",
            {
                TrialState.PAUSING: "reached a rung, not among the best there",
                TrialState.STOPPING: "pruned, or the study stops",
                **_ENDS,
            },
        ),
        TrialState.PAUSING: Leaves(
            "tune",
            {
                TrialState.PAUSED: "its job is held, its resources are free",
                TrialState.STOPPING: "the study stops",
                TrialState.RUNNING: "somebody released its job",
                **_ENDS,
            },
        ),
        TrialState.PAUSED: Leaves(
            "tune",
            {
                TrialState.RUNNING: "promoted: goes on from its checkpoint",
                TrialState.STOPPING: "never promoted, or the study stops",
                **_ENDS,
            },
        ),
        TrialState.STOPPING: Leaves(
            "tune", {TrialState.PRUNED: "stopped early; its last report counts", **_ENDS}
        ),
        TrialState.SUCCEEDED: Leaves("", {}),
        TrialState.PRUNED: Leaves("", {}),
        TrialState.FAILED: Leaves("", {}),
        TrialState.CANCELLED: Leaves("", {}),
    },
)
LIVE_STUDIES = frozenset({StudyState.RUNNING, StudyState.STOPPING})
ENDED = frozenset(state for state in TrialState if TRIALS.terminal(state))
BUSY = frozenset({TrialState.RUNNING, TrialState.PAUSING, TrialState.STOPPING})
"""Those that take a place of `parallel`: a paused one does not."""

SAMPLERS: dict[str, str] = {
    "random": "each value by chance, whatever was tried before",
    "grid": "every combination, in order",
    "tpe": "tree-structured Parzen estimators (Optuna)",
    "cmaes": "covariance matrix adaptation, for numbers only (Optuna)",
    "gp": "Gaussian processes, for few and costly trials (Optuna)",
    "nsga2": "a genetic algorithm, for several objectives (Optuna)",
}
OUR_OWN = ("random", "grid")
"""They need no Optuna."""
PRUNERS: dict[str, str] = {
    "none": "every trial runs to its end",
    "asha": "asynchronous successive halving: a trial pauses at a rung until it is among the best",
    "halving": "synchronous successive halving: a rung waits for all of its trials",
    "median": "a trial worse than the median of the others at its step is stopped",
    "pbt": "population-based training: the worst go on from a better one's checkpoint, changed",
}
NEED_STEPS = ("asha", "halving", "pbt")

Sampler = Literal["random", "grid", "tpe", "cmaes", "gp", "nsga2"]
Pruner = Literal["none", "asha", "halving", "median", "pbt"]
Step = Annotated[int, Field(ge=1, le=10**12)]


class Objective(Strict):
    """A metric that the trials log, and which way is better."""

    metric: Annotated[Line, Field(min_length=1, max_length=250)]
    goal: Literal["minimize", "maximize"] = "minimize"
    take: Literal["last", "best"] = "last"
    """Which of a trial's reports is its value."""

    @property
    def sign(self) -> float:
        """Times this, less is better."""
        return -1.0 if self.goal == "maximize" else 1.0


class Constraint(Strict):
    """A trial counts only if the last value of a metric is within bounds."""

    metric: Annotated[Line, Field(min_length=1, max_length=250)]
    least: Annotated[float, Field(strict=False)] | None = None
    most: Annotated[float, Field(strict=False)] | None = None

    @model_validator(mode="after")
    def _bound(self) -> Constraint:
        if self.least is None and self.most is None:
            raise PydanticCustomError("constraint", "give `least`, `most`, or both")
        return self

    def excess(self, value: float | None) -> float:
        """How far it is out of bounds; 0 or less: it holds."""
        if value is None:
            return float("inf")
        over = [] if self.most is None else [value - self.most]
        under = [] if self.least is None else [self.least - value]
        return max(over + under)


class SamplerSpec(Strict):
    kind: Sampler | None = None
    """Absent: tpe where the server has Optuna, random where it has not."""
    points: Annotated[int, Field(ge=2, le=1000)] | None = None
    """Of a grid: into so many values a range is cut that has no step."""
    startup: Annotated[int, Field(ge=1, le=10_000)] = 10
    """Of tpe, cmaes, gp: so many trials by chance come first."""


class PrunerSpec(Strict):
    kind: Pruner = "none"
    min_step: Step = 1
    """The first rung; of median: no trial is stopped before it."""
    factor: Annotated[int, Field(ge=2, le=100)] = 3
    """The next rung is so many times further, and one of so many gets there."""
    max_step: Step | None = None
    """No rung at or past it."""
    pause: bool = True
    """False: a trial that is not among the best of its rung is stopped, never resumed: for
    scripts without checkpoints."""
    startup: Annotated[int, Field(ge=1, le=10_000)] = 5
    """Of median: so many others must have come as far."""
    interval: Step | None = None
    """Of pbt: how many steps lie between two looks at a member."""
    quantile: Annotated[float, Field(gt=0, le=0.5)] = 0.25
    """Of pbt: the worst and the best part of the population."""
    resample: Annotated[float, Field(ge=0, le=1)] = 0.25
    """Of pbt: how likely a parameter is drawn anew rather than moved by a fifth."""


class StudySpec(Strict):
    """What was asked. `job` is a job file without its parameters: those come from `space`."""

    kind: Literal["study"] = "study"
    name: StudyName | None = None
    project: Name | None = None
    job: dict[str, Any]
    space: Annotated[dict[EnvName, Dimension], Field(min_length=1, max_length=200)]
    objectives: Annotated[tuple[Objective, ...], Field(strict=False, min_length=1, max_length=8)]
    trials: Annotated[int, Field(ge=1, le=100_000)] = 20
    parallel: Annotated[int, Field(ge=1, le=1000)] = 4
    sampler: SamplerSpec = SamplerSpec()
    pruner: PrunerSpec = PrunerSpec()
    constraints: Annotated[tuple[Constraint, ...], Field(strict=False, max_length=32)] = ()
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    max_time: DurationMs | None = None
    """After this long no trial is begun any more, and those that run are stopped."""
    max_failures: Annotated[int, Field(ge=1, le=100_000)] = 10
    """When the first so many trials all failed, the rest is not tried."""
    give: Literal["flags", "assign", "environment"] = "flags"
    """How a parameter reaches a command that does not name it as ${lr}: `--lr 0.1`, `lr=0.1`, or
    only in WINDLASS_PARAMS, which every trial has."""
    share_weights: bool = False
    """A new trial gets the newest checkpoint of the best one so far at $WINDLASS_START_FROM, and
    takes from it what fits."""
    warm_start: Annotated[tuple[Line, ...], Field(strict=False, max_length=16)] = ()
    """Earlier studies of the project, from whose results the sampler learns. `from` in a file."""

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, value: Any) -> Any:
        """`maximize: acc`, `minimize: loss`, `sampler: tpe`, `pruner: asha`, `from: other`."""
        if not isinstance(value, dict):
            return value
        value = dict(value)
        goals = [
            {"metric": metric, "goal": goal}
            for goal in ("maximize", "minimize")
            for metric in _listed(value.pop(goal, None))
        ]
        if goals:
            if value.get("objectives"):
                raise PydanticCustomError(
                    "objectives", "give `objectives`, or `maximize` and `minimize`, not both"
                )
            value["objectives"] = goals
        for field in ("sampler", "pruner"):
            if isinstance(value.get(field), str):
                value[field] = {"kind": value[field]}
        if "from" in value:
            value["warm_start"] = value.pop("from")
        if isinstance(value.get("warm_start"), str):
            value["warm_start"] = [value["warm_start"]]
        return value

    @field_validator("space")
    @classmethod
    def _conditions(cls, space: dict[str, Dimension]) -> dict[str, Dimension]:
        """A condition names a parameter that stands before: so there is no circle."""
        before: set[str] = set()
        for name, dimension in space.items():
            for other, values in (pair for each in dimension.when for pair in each.items()):
                if other not in before:
                    raise PydanticCustomError(
                        "when",
                        "{name}: `when` names {other}, which is not a parameter before it",
                        {"name": name, "other": other},
                    )
                if wrong := [each for each in values if not space[other].contains(each)]:
                    raise PydanticCustomError(
                        "when",
                        "{name}: {other} is never {wrong}",
                        {"name": name, "other": other, "wrong": repr(wrong[0])},
                    )
            before.add(name)
        return space

    @model_validator(mode="after")
    def _together(self) -> StudySpec:
        single = self.pruner.kind != "none"
        if single and len(self.objectives) > 1:
            raise PydanticCustomError(
                "pruner",
                "a pruner compares trials by one objective, and there are several: leave it out",
            )
        if self.pruner.kind == "pbt" and self.share_weights:
            raise PydanticCustomError(
                "share_weights", "share_weights: pbt hands on checkpoints itself: leave it out"
            )
        if self.share_weights and self.job.get("start_from") is not None:
            raise PydanticCustomError(
                "share_weights",
                "share_weights: `job.start_from` says already what trials start from",
            )
        if self.pruner.kind == "pbt" and self.pruner.interval is None:
            raise PydanticCustomError("pruner", "pbt needs `interval`: steps between two looks")
        if self.sampler.kind == "grid":
            for name, dimension in self.space.items():
                if dimension.kind == "float" and not dimension.step and not self.sampler.points:
                    raise PydanticCustomError(
                        "sampler",
                        "a grid needs steps for {name}: such as float:0..1/0.25, or "
                        "`sampler: {{kind: grid, points: 5}}`",
                        {"name": name},
                    )
        if self.job.get("name") is not None:
            raise PydanticCustomError(
                "job", "`job.name`: trials are named after the study: give the study a `name`"
            )
        _check_job(self)
        return self


class StudyView(Strict):
    """A study as lists show it."""

    id: str
    name: str
    project: str
    user: str
    state: StudyState
    reason: str
    wish: str | None = None
    sampler: str
    pruner: str
    objectives: tuple[Objective, ...]
    trials: int
    """How many it is to make."""
    made: int
    counts: dict[str, int]
    """How many are in each state."""
    best: tuple[int, ...] = ()
    """The best trial; of several objectives, all that no other beats in every one."""
    best_values: tuple[float | None, ...] = ()
    created: str
    ended: str | None = None


class TrialView(Strict):
    number: int
    state: TrialState
    reason: str
    job: str
    """The id of its job, also after the job was removed."""
    params: dict[str, Param]
    values: tuple[float | None, ...]
    """For each objective; None: no report."""
    feasible: bool
    step: int | None
    rung: int
    parent: int | None
    """Of pbt and `share_weights`: whose checkpoint it started from."""
    created: str
    ended: str | None


class StudyDetail(StudyView):
    spec: StudySpec
    importance: dict[str, float]
    """By parameter, the part of the first objective's variance that it explains alone."""
    curve: tuple[tuple[int, float], ...]
    """(trial, best value so far) of the first objective, where it changed."""


class StudyPage(Strict):
    items: tuple[StudyView, ...]
    next: str | None = None


class TrialPage(Strict):
    items: tuple[TrialView, ...]


class StudyBody(Strict):
    spec: StudySpec
    dry_run: bool = False


class AddTrialsBody(Strict):
    trials: Annotated[int, Field(ge=1, le=100_000)]


class StopStudyBody(Strict):
    reason: Line = ""


def trial_job(
    spec: StudySpec,
    name: str,
    number: int,
    params: Values,
    start_from: dict[str, Any] | None = None,
) -> JobSpec:
    """The job of one trial: the template with its parameters filled in. Raises ValidationError."""
    raw = dict(spec.job)
    fixed = raw.get("params")
    raw["name"] = f"{name}-{number}"
    raw["params"] = {**(fixed if isinstance(fixed, dict) else {}), **params}
    if start_from is not None:
        raw["start_from"] = start_from
    first = JobSpec.model_validate(raw)
    missing = [each for each in params if each not in _used(first)]
    if not missing or spec.give == "environment":
        return first
    words = [word for each in missing for word in _word(each, params[each], spec.give)]
    if first.run:
        raw["run"] = [*first.run, *words]
    if roles := raw.get("roles"):
        raw["roles"] = {
            role: {**about, "run": [*run, *words]} if (run := first.roles[role].run) else about
            for role, about in roles.items()
        }
    return JobSpec.model_validate(raw)


def _check_job(spec: StudySpec) -> None:
    """The template makes a job, with the first values that there are. Without those that stand
    on a condition: a command cannot name them as ${lr}, they may be missing."""
    always = {name: each for name, each in spec.space.items() if not each.when}
    try:
        trial_job(spec, spec.name or "study", 0, first_of(always))
    except ValidationError as err:
        first = err.errors()[0]
        where = ".".join(["job", *(str(part) for part in first["loc"])])
        raise PydanticCustomError(
            "job", "{where}: {why}", {"where": where, "why": first["msg"]}
        ) from err


def _used(job: JobSpec) -> set[str]:
    """The parameters that the command itself names."""
    words = [*job.run, *(word for role in job.roles.values() for word in role.run or ())]
    return {name for name in job.params if any("${" + name + "}" in word for word in words)}


def _word(name: str, value: Any, give: str) -> list[str]:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if give == "assign":
        return [f"{name}={text}"]
    if text.startswith("-") or not text:
        return [f"--{name}={text}"]
    return [f"--{name}", text]


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]
