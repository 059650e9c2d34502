"""The job: what a user asks for (`JobSpec`), the states it goes through, what the API shows.

The job file, the flags of `windlass run`, the SDK and the API all become one `JobSpec`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from windlass.core.goals import parse_goal
from windlass.core.machine import Leaves, Machine
from windlass.core.patterns import names_of
from windlass.core.queues import DEFAULT, MODEL, Priority, Work
from windlass.core.repositories import COMMIT, check_ref, check_url
from windlass.core.resources import Resources
from windlass.core.strict import (
    MAX_INT,
    Bytes,
    Count,
    DurationMs,
    Line,
    Lines,
    MomentMs,
    Name,
    Strict,
    Text,
)


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
            {
                JobState.QUEUED: "released",
                JobState.CANCELLED: "cancel wished",
                JobState.FAILED: "its row cannot be read",
            },
        ),
        JobState.QUEUED: Leaves(
            "admit",
            {
                JobState.STARTING: "placed as a whole gang",
                JobState.HELD: "waits for a release, a date or a dependency",
                JobState.CANCELLED: "cancel wished",
                JobState.FAILED: "can never fit any more, or its row cannot be read",
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


def _worded(name: str, check: Callable[[str], str], text: str) -> str:
    """What `check` returns; its ValueError in the words of a field's error."""
    try:
        return check(text)
    except ValueError as err:
        raise PydanticCustomError(name, "{words}", {"words": str(err)}) from None


FILL_IN = "FILL_IN"
"""Stands where a command begins that an importer cannot know: such a job is not taken."""

Command = Annotated[tuple[Text, ...], Field(strict=False, max_length=4096)]
EnvName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=256)]


def _param(value: Any) -> Any:
    """A float would take a larger integer, and change it in silence."""
    if isinstance(value, int) and not -MAX_INT - 1 <= value <= MAX_INT:
        raise PydanticCustomError("param", "an integer between -2^63 and 2^63 - 1")
    return value


Param = Annotated[bool | int | float | Line, BeforeValidator(_param)]
GpuModel = Annotated[str, Field(pattern=MODEL, max_length=63)]
MAX_MEMBERS = 100_000
"""Of a gang, in all its roles."""
MAX_MEMORY = 2**46
"""Of one member, 64 TiB: so many members of it stay below 2^63."""
Memory = Annotated[Bytes, Field(le=MAX_MEMORY)]


class RoleSpec(Strict):
    """One part of a gang: `count` members, each `nproc` ranks, with its own resources."""

    count: Annotated[int, Field(ge=1, le=MAX_MEMBERS)] = 1
    nproc: Annotated[int, Field(ge=1, le=4096)] | None = None
    gpus: Annotated[int, Field(ge=0, le=4096)] = 0
    gpu_share: Annotated[float, Field(ge=0, lt=1, strict=False)] = 0.0
    """A part of one GPU for each member, such as 0.25; not together with `gpus`."""
    gpu_model: Annotated[tuple[GpuModel, ...], Field(strict=False, max_length=64)] = ()
    """The GPU models it may run on; empty: any."""
    cpus: Annotated[float, Field(ge=0, le=100_000, strict=False)] = 0.0
    memory: Memory = 0
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


def _url(text: str) -> str:
    return _worded("git", check_url, text)


def _ref(text: str) -> str:
    return _worded("ref", check_ref, text)


def _inside(value: str) -> str:
    parts = value.split("/")
    if value.startswith("/") or "\\" in value or any(part in ("", ".", "..") for part in parts):
        raise ValueError("a folder inside the code, such as examples/mnist")
    return value


def _absolute(value: str) -> str:
    if not value.startswith("/"):
        raise ValueError("the whole path of a folder, from / on")
    return value


class CodeSpec(Strict):
    dir: Line | None = None
    git: Annotated[Line, AfterValidator(_url)] | None = None
    """A repository to take the code from, fetched by the workers: `https://`, `http://`, `ssh://`
    or, where the nodes see it, `file://`."""
    ref: Annotated[Line, AfterValidator(_ref)] | None = None
    """Of the repository: a branch, a tag or a commit; absent: its default branch."""
    commit: Annotated[str, Field(pattern=COMMIT)] | None = None
    """What `ref` was when the job first started, filled in then: every later attempt and every
    rerun takes it, whatever became of `ref`."""
    ignore: Lines = ()
    include: Lines = ()
    """Patterns of what is sent though it is large or an ignore file leaves it out."""
    workdir: Annotated[Line, AfterValidator(_inside)] | None = None
    """Where in the code the command runs, such as `examples/mnist`; absent: at its top."""
    here: Annotated[Line, AfterValidator(_absolute)] | None = None
    """A folder of the server's machine to run in as it is: nothing is sent. Engine `local`."""
    left_out: Annotated[Lines, Field(max_length=200)] = ()
    """What the client did not send, for `why` to name; filled in by it."""
    bundle: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None

    @model_validator(mode="after")
    def _one(self) -> CodeSpec:
        if self.git is None and (self.ref or self.commit):
            raise PydanticCustomError("code", "`ref` and `commit` are of a repository: give `git`")
        sent = bool(self.dir or self.bundle or self.ignore or self.include)
        if self.git is not None and sent:
            raise PydanticCustomError(
                "code",
                "`git` is fetched by the nodes, `dir`, `ignore`, `include` and `bundle` are of "
                "code that is sent: give one of both",
            )
        if self.here is not None and (sent or self.git or self.workdir):
            raise PydanticCustomError(
                "code", "`here` runs in a folder as it is, and nothing else is said of the code"
            )
        return self


class EnvironmentSpec(Strict):
    python: Line | None = None
    image: Line | None = None
    vars: dict[EnvName, Text] = {}
    secrets: Annotated[tuple[EnvName, ...], Field(strict=False)] = ()


class KeepBest(Strict):
    """Beside the newest checkpoints, the best by a metric are kept."""

    metric: Annotated[Line, Field(min_length=1, max_length=255)]
    goal: Literal["max", "min"]
    n: Annotated[int, Field(ge=1, le=1000)] = 1


class OutputSpec(Strict):
    checkpoints: Line | None = None
    keep: Annotated[int, Field(ge=2, le=10_000)] = 3
    """So many of the newest checkpoints stay."""
    keep_best: KeepBest | None = None
    models: Lines = ()


def _goal(text: str) -> str:
    try:
        parse_goal(text)
    except ValueError as err:
        raise PydanticCustomError("goal", "{words}", {"words": str(err)}) from None
    return text


class MetricSpec(Strict):
    goal: Annotated[Line, AfterValidator(_goal)] | None = None
    """Which metric says how good the job is, and which way: `max val_acc`."""
    parse: Annotated[Lines, Field(max_length=100)] = ()
    """Regular expressions looked for in each printed line; a named group is a metric, the groups
    `step` and `epoch` say where."""
    pickup: bool = True
    """Pick up what ranks print, TensorBoard files, arguments and what frameworks log; without it
    only what the script logs itself is kept."""

    @field_validator("parse")
    @classmethod
    def _patterns(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in value:
            if not names_of(pattern) - {"step", "epoch"}:
                raise ValueError(f"{pattern!r} names no metric: write loss=(?P<loss>[0-9.e-]+)")
        return value


class LimitSpec(Strict):
    time: DurationMs | None = None
    cost: Annotated[float, Field(ge=0, le=1_000_000_000, strict=False)] | None = None
    idle: DurationMs | None = 1_800_000
    """A rank with no output and no step for this long is reported with its stack."""
    grace: DurationMs = 30_000
    """From the stop signal to the kill: long enough to save a checkpoint."""
    log_rate: Bytes = 4_000_000
    """Bytes of output a second kept for each rank; 0 lifts the limit."""
    processes: Annotated[int, Field(ge=1, le=4_000_000)] = 16_384
    """Processes and threads that a member may have at once, where the node can count them."""
    disk: Bytes | None = None
    """What an attempt and the job's checkpoints may take of each node's disk; over it, the job
    fails. The server's `--job-disk` is the most there is."""


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
            if not isinstance(rule, str) or not _RETRY.fullmatch(rule):
                raise PydanticCustomError(
                    "retry",
                    "unknown rule; known: lost, oom, hung, signal, failed, exit:CODE, log:PATTERN",
                )
            if rule.startswith("log:"):
                try:
                    names_of(rule[4:])
                except ValueError as err:
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
    """At least so far it is kept apart from other jobs; the server may do more by itself."""
    network: Literal["host", "none"] = "host"


class StartSpec(Strict):
    """What a job is given to start from: a checkpoint of an earlier job, or a registered model."""

    job: Name | None = None
    step: Count | Literal["latest", "best"] | None = None
    """Of the job's checkpoints; absent: the newest."""
    model: Annotated[Line, Field(min_length=1, max_length=512)] | None = None
    """NAME@ALIAS, NAME@VERSION, or NAME for its newest version."""
    resume: bool = False
    """It goes on from there as from a checkpoint of its own; else it only finds the files."""

    @model_validator(mode="after")
    def _one(self) -> StartSpec:
        if (self.job is None) == (self.model is None):
            raise PydanticCustomError("start_from", "give `job` or `model`, one of them")
        if self.model is not None and (self.step is not None or self.resume):
            raise PydanticCustomError("start_from", "`step` and `resume` are of a `job`")
        return self


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
    workers: Annotated[int, Field(ge=1, le=MAX_MEMBERS)] | None = None
    roles: Annotated[dict[Name, RoleSpec], Field(max_length=64)] = {}
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
    start_from: StartSpec | None = None
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
            if (role.run or self.run or ("",))[0] == FILL_IN:
                raise PydanticCustomError(
                    "run",
                    f"`run` was left to fill in by `windlass import`: write the command in place "
                    f"of {FILL_IN}, as the file's comments say",
                )
            if not self.run and not role.run:
                raise PydanticCustomError(
                    "run", "nothing to run: give `run`, or `roles.{role}.run`", {"role": name}
                )
            if role.min is not None and role.min > role.count:
                raise PydanticCustomError(
                    "min", "`min` is more than `count` in role {role}", {"role": name}
                )
        if (members := sum(role.count for role in self.roles.values())) > MAX_MEMBERS:
            raise PydanticCustomError(
                "roles", "`roles`: {members} members in all, at most {most}",
                {"members": members, "most": MAX_MEMBERS},
            )  # fmt: skip
        if self.isolation.network == "none" and (self.code.git or "file:")[:5] != "file:":
            raise PydanticCustomError(
                "network", "a job without a network cannot fetch `code.git`: send the code instead"
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


class RankView(Strict):
    """How a rank ended, as its worker told it."""

    rank: int
    role: str
    index: int
    local_rank: int
    node: str
    exit: int | None = None
    signal: int | None = None
    oom: bool = False
    ended_by: str = ""
    """`itself`, or `worker`: it was told to end."""
    restarts: int = 0
    """How often it was started again within the attempt."""
    peak_bytes: int | None = None
    started: str | None = None
    ended: str | None = None


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
    isolation: dict[str, Any] = {}
    """By node, how far its ranks are kept apart: the level, and each part of it."""
    ranks: tuple[RankView, ...] = ()
    """Of the newest attempt, those whose node has said how they ended."""


class JobView(Strict):
    """A job as the API shows it."""

    id: str
    name: str
    project: str
    user: str
    state: JobState
    reason: str = ""
    waits: str | None = None
    """Why it waits, while it is queued."""
    expected_start: str | None = None
    """When it should start, by the time limits and the earlier runs of what it waits for; None:
    nobody knows."""
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


class Origin(Strict):
    """One step back in what a job came from: the job or the model version that it was given."""

    kind: Literal["job", "model"]
    name: str
    id: str | None = None
    """Of the job; of a model's version, the job that made it."""
    step: int | None = None
    version: int | None = None
    digest: str
    resume: bool = False


class JobDetail(JobView):
    spec: JobSpec
    """Of nothing but defaults where what is kept of it cannot be read."""
    unreadable: str = ""
    """What of it cannot be read, and why; empty: all can."""
    attempts: tuple[AttemptView, ...] = ()
    lineage: tuple[Origin, ...] = ()
    """What it started from, what that started from, and so on."""
