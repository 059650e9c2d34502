"""The job: what a user asks for (`JobSpec`), the states it goes through, what the API shows.

The job file, the flags of `windlass run`, the SDK and the API all become one `JobSpec`.
"""

from __future__ import annotations

import re
import shlex
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from windlass.core.machine import Leaves, Machine
from windlass.core.queues import DEFAULT, MODEL, Priority, Work
from windlass.core.resources import Resources
from windlass.core.strict import Bytes, DurationMs, Line, Lines, MomentMs, Name, Strict, Text


class JobState(StrEnum):
    HELD = "held"
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class AttemptState(StrEnum):
    LAUNCHING = "launching"
    ALIVE = "alive"
    ENDING = "ending"
    OVER = "over"


class Outcome(StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    OOM = "oom"
    LOST = "lost"
    PREEMPTED = "preempted"
    CANCELLED = "cancelled"
    HUNG = "hung"
    REFUSED = "refused"


JOBS: Machine[JobState] = Machine(
    noun="job",
    first=(JobState.QUEUED, JobState.HELD),
    table={
        JobState.HELD: Leaves(
            "admit",
            {JobState.QUEUED: "released", JobState.CANCELLED: "cancel wished"},
        ),
        JobState.QUEUED: Leaves(
            "admit",
            {
                JobState.STARTING: "placed as a whole gang",
                JobState.HELD: "waits for a release, a date or a dependency",
                JobState.CANCELLED: "cancel wished",
                JobState.FAILED: "can never fit any more",
            },
        ),
        JobState.STARTING: Leaves(
            "reconcile",
            {
                JobState.RUNNING: "the gang is whole and its ranks started",
                JobState.STOPPING: "cancel, preempt, restart",
                JobState.QUEUED: "launch failed, not the user's fault",
                JobState.FAILED: "launch failed for good",
            },
        ),
        JobState.RUNNING: Leaves(
            "reconcile",
            {
                JobState.STOPPING: "cancel, preempt, restart, time limit",
                JobState.SUCCEEDED: "every deciding role ended well",
                JobState.FAILED: "failed, and not to be tried again",
                JobState.QUEUED: "attempt over, will be tried again",
            },
        ),
        JobState.STOPPING: Leaves(
            "reconcile",
            {
                JobState.CANCELLED: "stopped as wished",
                JobState.QUEUED: "preempted or restarted",
                JobState.FAILED: "stopped by a limit",
                JobState.SUCCEEDED: "it ended well by itself first",
            },
        ),
        JobState.SUCCEEDED: Leaves("", {}),
        JobState.FAILED: Leaves("", {}),
        JobState.CANCELLED: Leaves("", {}),
    },
)

ATTEMPTS: Machine[AttemptState] = Machine(
    noun="attempt",
    first=(AttemptState.LAUNCHING,),
    table={
        AttemptState.LAUNCHING: Leaves(
            "reconcile",
            {
                AttemptState.ALIVE: "all workers registered",
                AttemptState.ENDING: "told to end",
                AttemptState.OVER: "proof of its end",
            },
        ),
        AttemptState.ALIVE: Leaves(
            "reconcile",
            {AttemptState.ENDING: "told to end", AttemptState.OVER: "proof of its end"},
        ),
        AttemptState.ENDING: Leaves("reconcile", {AttemptState.OVER: "proof of its end"}),
        AttemptState.OVER: Leaves("", {}),
    },
)

TERMINAL = frozenset(state for state in JobState if JOBS.terminal(state))
LIVE = frozenset({JobState.STARTING, JobState.RUNNING, JobState.STOPPING})


def _command(value: Any) -> Any:
    """A text is split as a shell would split it; no shell ever runs it."""
    if isinstance(value, str):
        try:
            return tuple(shlex.split(value))
        except ValueError as err:
            raise PydanticCustomError(
                "command", "cannot be split into words: {why}", {"why": str(err)}
            ) from err
    return tuple(value) if isinstance(value, list) else value


Command = Annotated[tuple[Text, ...], Field(strict=False, max_length=4096)]
EnvName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=256)]
Param = bool | int | float | Line
GpuModel = Annotated[str, Field(pattern=MODEL, max_length=63)]


class RoleSpec(Strict):
    """One part of a gang: `count` members, each `nproc` ranks, with its own resources."""

    count: Annotated[int, Field(ge=1, le=100_000)] = 1
    nproc: Annotated[int, Field(ge=1, le=4096)] | None = None
    gpus: Annotated[int, Field(ge=0, le=4096)] = 0
    gpu_share: Annotated[float, Field(ge=0, lt=1, strict=False)] = 0.0
    """A part of one GPU for each member, such as 0.25; not together with `gpus`."""
    gpu_model: Annotated[tuple[GpuModel, ...], Field(strict=False, max_length=64)] = ()
    """The GPU models it may run on; empty: any."""
    cpus: Annotated[float, Field(ge=0, le=100_000, strict=False)] = 0.0
    memory: Bytes = 0
    min: Annotated[int, Field(ge=1)] | None = None
    run: Command | None = None
    vars: dict[EnvName, Text] = {}
    finish: Literal["all", "first", "never"] | None = None
    """all: every member must end well; first: member 0 decides; never: ended with the others."""

    _split = field_validator("run", mode="before")(_command)

    @field_validator("cpus", mode="before")
    @classmethod
    def _no_bool(cls, value: Any) -> Any:
        if isinstance(value, bool | str):
            raise PydanticCustomError("cpus", "a number of CPUs, such as 2 or 0.5")
        return value

    @field_validator("gpu_share", mode="before")
    @classmethod
    def _share(cls, value: Any) -> Any:
        """Thousandths are the smallest part that is counted: less would be lost in silence."""
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or value != value or not 0 <= value < 1 or value != round(value, 3):
            raise PydanticCustomError(
                "gpu_share", "a part of one GPU in thousandths, such as 0.25, less than 1"
            )
        return value

    @model_validator(mode="after")
    def _gpus(self) -> RoleSpec:
        if self.gpus and self.gpu_share:
            raise PydanticCustomError(
                "gpu_share", "`gpus` (whole ones) and `gpu_share` (a part of one): give one"
            )
        if self.gpu_model and not (self.gpus or self.gpu_share):
            raise PydanticCustomError(
                "gpu_model", "`gpu_model` names models, but no GPU is asked for: give `gpus`"
            )
        return self

    @property
    def gpu_milli(self) -> int:
        """Thousandths of one device; 0 where whole ones, or none, are asked for."""
        return round(self.gpu_share * 1000)

    @property
    def ranks_per_member(self) -> int:
        return self.nproc or self.gpus or 1

    @property
    def per_member(self) -> Resources:
        return Resources(
            cpus_milli=round(self.cpus * 1000), memory_bytes=self.memory, gpus=self.gpus, slots=1
        )


class CodeSpec(Strict):
    dir: Line | None = None
    git: Line | None = None
    ignore: Lines = ()
    bundle: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None


class EnvironmentSpec(Strict):
    python: Line | None = None
    image: Line | None = None
    vars: dict[EnvName, Text] = {}
    secrets: Annotated[tuple[EnvName, ...], Field(strict=False)] = ()


class OutputSpec(Strict):
    checkpoints: Line | None = None
    keep: Annotated[int, Field(ge=2, le=10_000)] = 3
    models: Lines = ()


class MetricSpec(Strict):
    goal: Line | None = None
    parse: Lines = ()


class LimitSpec(Strict):
    time: DurationMs | None = None
    cost: Annotated[float, Field(ge=0, strict=False)] | None = None
    idle: DurationMs | None = 1_800_000
    """A rank with no output and no step for this long is reported with its stack."""
    grace: DurationMs = 30_000
    """From the stop signal to the kill: long enough to save a checkpoint."""
    log_rate: Bytes = 4_000_000
    """Bytes of output a second kept for each rank; 0 lifts the limit."""


_RETRY = re.compile(r"^(lost|oom|hung|signal|failed|exit:[0-9]{1,3}|log:.{1,1000})$", re.DOTALL)


class RetrySpec(Strict):
    """What is tried again. Loss of a node and preemption never spend `times`."""

    times: Annotated[int, Field(ge=0, le=1_000_000)] = 3
    on: Lines = ("lost", "signal")
    """lost, oom, hung, signal (killed), failed (anything), exit:CODE, log:PATTERN."""
    never: Lines = ()
    resume: bool = True
    backoff: DurationMs = 1_000
    backoff_cap: DurationMs = 300_000
    stale_restarts: Annotated[int, Field(ge=1, le=1_000)] = 3
    """This many restarts in a row that got no further stop the job."""

    @field_validator("on", "never", mode="before")
    @classmethod
    def _rules(cls, value: Any) -> Any:
        if isinstance(value, list):
            value = tuple(value)
        for rule in value if isinstance(value, tuple) else ():
            if not isinstance(rule, str) or not _RETRY.match(rule):
                raise PydanticCustomError(
                    "retry",
                    "unknown rule; known: lost, oom, hung, signal, failed, exit:CODE, log:PATTERN",
                )
            if rule.startswith("log:"):
                try:
                    re.compile(rule[4:])
                except re.error as err:
                    raise PydanticCustomError(
                        "retry", "bad pattern: {why}", {"why": str(err)}
                    ) from err
        return value


class QueueSpec(Strict):
    name: Name = DEFAULT
    priority: Priority = 50
    preemptible: bool = True


class PlacementSpec(Strict):
    """How near to each other the members of the gang should be."""

    level: Literal["host", "rack", "block"] | None = None
    """Members share one host, rack or block where that can be; absent: anywhere."""
    required: bool = False
    """Wait for one such place rather than spread over several."""

    @model_validator(mode="after")
    def _of_what(self) -> PlacementSpec:
        if self.required and self.level is None:
            raise PydanticCustomError("placement", "`required` needs a `level`")
        return self


class IsolationSpec(Strict):
    level: Annotated[int, Field(ge=0, le=3)] = 0
    network: Literal["host", "none"] = "host"


class NotifySpec(Strict):
    on: Lines = ()
    to: Lines = ()


class JobSpec(Strict):
    """What was asked. Every field is optional but `run` (here or in each role)."""

    kind: Literal["job"] = "job"
    name: Name | None = None
    project: Name | None = None
    run: Command = ()
    params: dict[EnvName, Param] = {}
    framework: Name | None = None
    workers: Annotated[int, Field(ge=1, le=100_000)] | None = None
    roles: dict[Name, RoleSpec] = {}
    engine: Name | None = None
    code: CodeSpec = CodeSpec()
    environment: EnvironmentSpec = EnvironmentSpec()
    data: dict[EnvName, Line] = {}
    outputs: OutputSpec = OutputSpec()
    metrics: MetricSpec = MetricSpec()
    limits: LimitSpec = LimitSpec()
    retry: RetrySpec = RetrySpec()
    on_member_loss: Literal["restart", "continue"] = "restart"
    queue: QueueSpec = QueueSpec()
    work: Work = "train"
    """The kind of work; quotas may cap each kind."""
    after: Annotated[tuple[Name, ...], Field(strict=False, max_length=1000)] = ()
    """Jobs that must have succeeded before this one may start: ids, prefixes of ids, or names."""
    begin: MomentMs | None = None
    """Not to be started before this time (ISO-8601, with its zone)."""
    placement: PlacementSpec = PlacementSpec()
    isolation: IsolationSpec = IsolationSpec()
    notify: NotifySpec = NotifySpec()
    hold: bool = False
    """Start held: nothing runs before `windlass release`."""
    ttl: DurationMs | None = None
    """A finished job is removed after this; absent: the server's setting."""

    _split = field_validator("run", mode="before")(_command)

    @model_validator(mode="before")
    @classmethod
    def _workers(cls, value: Any) -> Any:
        """`workers: N` is shorthand for `roles: {worker: {count: N}}`."""
        if not isinstance(value, dict):
            return value
        value = dict(value)
        workers = value.get("workers")
        roles = value.get("roles")
        if isinstance(roles, dict) or roles is None:
            roles = dict(roles or {})
            if isinstance(workers, int) and not isinstance(workers, bool):
                worker = roles.get("worker", {})
                if isinstance(worker, dict):
                    if worker.get("count", workers) != workers:
                        raise PydanticCustomError(
                            "workers",
                            "`workers` and `roles.worker.count` disagree: give one of them",
                        )
                    roles["worker"] = {**worker, "count": workers}
            if not roles:
                roles["worker"] = {}
            value["roles"] = roles
        return value

    @model_validator(mode="after")
    def _complete(self) -> JobSpec:
        for name, role in self.roles.items():
            if not self.run and not role.run:
                raise PydanticCustomError(
                    "run", "nothing to run: give `run`, or `roles.{role}.run`", {"role": name}
                )
            if role.min is not None and role.min > role.count:
                raise PydanticCustomError(
                    "min", "`min` is more than `count` in role {role}", {"role": name}
                )
        if len(set(self.after)) != len(self.after):
            raise PydanticCustomError("after", "`after` names a job twice")
        if all(role.finish == "never" for role in self.roles.values()):
            raise PydanticCustomError("finish", "no role decides the end: every `finish` is never")
        missing = {
            name
            for word in self._words()
            for name in re.findall(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}", word)
        } - set(self.params)
        if missing and self.params:
            raise PydanticCustomError(
                "params",
                "the command uses {names}, which `params` lacks",
                {"names": ", ".join(sorted(missing))},
            )
        return self

    def _words(self) -> list[str]:
        return [*self.run, *(word for role in self.roles.values() for word in role.run or ())]

    def command(self, role: str) -> tuple[str, ...]:
        """The words that a rank of `role` runs, parameters filled in."""
        words = self.roles[role].run or self.run

        def fill(word: str) -> str:
            for name, value in self.params.items():
                text = str(value).lower() if isinstance(value, bool) else str(value)
                word = word.replace("${" + name + "}", text)
            return word

        return tuple(fill(word) for word in words)


class Placed(Strict):
    """One member of a gang on a node, with the devices that are its own there."""

    role: str
    index: int
    node: str
    gpu_ids: Lines = ()


class AttemptView(Strict):
    number: int
    state: AttemptState
    outcome: Outcome | None = None
    reason: str = ""
    exit_code: int | None = None
    nodes: tuple[str, ...] = ()
    created: str
    started: str | None = None
    ended: str | None = None


class JobView(Strict):
    """A job as the API shows it."""

    id: str
    name: str
    project: str
    user: str
    state: JobState
    reason: str = ""
    wish: str | None = None
    framework: str
    members: int
    gpus: int
    queue: str
    priority: int
    work: str
    engine: str | None = None
    attempt: int
    failures: int = 0
    exit_code: int | None = None
    outcome: Outcome | None = None
    step: int | None = None
    progress: float | None = None
    submitted: str
    queued: str | None = None
    started: str | None = None
    ended: str | None = None
    rerun_of: str | None = None
    revision: int
    command: str


class JobDetail(JobView):
    spec: JobSpec
    attempts: tuple[AttemptView, ...] = ()
