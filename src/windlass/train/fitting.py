"""`fit`: one call that trains, whoever started this process.

in a job or below torchrun    this process is one of the members: its sizes are the gang's
with one worker               here, in this process
else                          members are started as processes of this machine
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from windlass.core.errors import InvalidInput, MemberLost
from windlass.job.context import context
from windlass.train import calls, gang, registry
from windlass.train import elastic as elastic_training
from windlass.train.counters import Fault
from windlass.train.failures import lost
from windlass.train.group import Group
from windlass.train.planning import kept
from windlass.train.planning.auto import Auto, Chosen, follow
from windlass.train.planning.plan import Plan as Planned
from windlass.train.progress import progress as progressing
from windlass.train.report import MemberReport, Report
from windlass.train.seat import Seat
from windlass.train.strategy import Strategy
from windlass.train.task import Task
from windlass.train.trainer import Trainer

Make = Callable[[], Task]
Told = Callable[[dict[str, Any]], None]


@dataclass
class Run:
    """What came of it. `state` is the trained model's state_dict, on the CPU."""

    result: Report
    state: dict[str, Any] = field(repr=False)
    warnings: list[str]
    stopped: bool = False
    """Asked to stop before the end (SIGTERM); a checkpoint was saved if there was a place."""
    models: dict[str, dict[str, Any]] = field(default_factory=dict, repr=False)
    """Of an ensemble: each member's state_dict. In a job, those of this process alone."""

    def report(self) -> str:
        return str(self.result)


@dataclass(frozen=True)
class Plan:
    """What each member is told: it crosses a process."""

    make: Make
    strategy: Strategy
    epochs: int | None
    steps: int | None
    checkpoint: str | None
    save_every: int | None
    keep: int | None
    resume: bool
    compile: bool
    elastic: tuple[int, int] | None = None
    predicted: float | None = None
    """Samples a second, where there is a plan of the planner's."""

    @property
    def regroups(self) -> bool:
        """Whether workers form anew when one is lost or comes. Servers keep account of what is
        used, and let workers go and come by themselves."""
        return self.elastic is not None and not self.strategy.has_servers

    def chosen(self, found: Chosen) -> Plan:
        """The same with what the planner chose in the place of `auto`."""
        return replace(
            self, strategy=registry.choose(found.strategy, found.options),
            predicted=found.plan.predicted if found.plan is not None else None,
        )  # fmt: skip


@dataclass
class Trained:
    """What a member tells back."""

    report: MemberReport | None
    state: dict[str, Any] | None
    warnings: list[str]
    stopped: bool
    models: dict[str, dict[str, Any]] = field(default_factory=dict)


def fit(
    make: Make,
    strategy: str | Strategy = "allreduce",
    *,
    workers: int | None = None,
    servers: int | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    save_every: int | None = None,
    keep: int | None = None,
    resume: bool = True,
    device: str | None = None,
    seed: int = 0,
    compile: bool = False,
    progress: bool = True,
    deadline: float = 30.0,
    restarts: int = 3,
    elastic: tuple[int, int] | None = None,
    plan: str | os.PathLike[str] | Planned | None = None,
    **options: Any,
) -> Run:
    """Train what `make()` makes on each member. `options` are the strategy's own; one that it does
    not know is an error. Raises InvalidInput, TrainingFailed, MemberLost.

    `epochs` or `steps` (over the whole training) say how long; with `checkpoint`, a folder, it is
    saved every `save_every` steps and goes on from the newest when called again. `deadline` is the
    longest wait for a member that says nothing. `restarts`: how often a member that died is
    started again, where the strategy lets it come back. `elastic=(least, most)`: those that
    are left of the workers go on, make up for what a lost one had not done, and take in who comes.
    `plan`, or its file, says the strategy, its options and the number of workers;
    `strategy="auto"` makes one.
    """
    if calls.is_loading():
        raise calls.ReachedFit
    if not callable(make):
        raise InvalidInput(
            f"make: a function that gives a Task (found {type(make).__name__})",
            hint="it is called on every member, so that each has a model of its own",
        )
    if epochs is not None and steps is not None:
        raise InvalidInput(f"epochs, steps: one of them (found {epochs!r} and {steps!r})")
    for name, value in (("epochs", epochs), ("steps", steps), ("save_every", save_every)):
        if value is not None and (not isinstance(value, int) or value < 1):
            raise InvalidInput(f"{name}: a whole number, 1 or more (found {value!r})")
    predicted = None
    if plan is not None:
        strategy, options, workers, predicted = follow(plan, strategy, options, workers)
    chosen = registry.choose(strategy, options)
    if elastic is not None:
        workers = _elastic_workers(chosen, elastic, workers)
    told = Plan(
        make, chosen, epochs if steps or epochs else 1, steps,
        str(Path(checkpoint).resolve()) if checkpoint is not None else None,
        save_every, keep, resume, compile, elastic, predicted,
    )  # fmt: skip
    if gang.is_member():
        return _as_member(told, workers, servers, device, seed, deadline, progress)
    workers, servers = _sizes(chosen, workers, servers)
    if isinstance(chosen, Auto):
        told = told.chosen(chosen.chosen(make, workers, device))
    if workers == 1 and not servers:
        return _as_member(told, None, None, device, seed, deadline, progress)
    return _as_parent(told, workers, servers, device, seed, deadline, progress, restarts)


def _elastic_workers(
    strategy: Strategy, elastic: tuple[int, int], workers: int | None
) -> int | None:
    """How many to start; in a gang that somebody else started, as many as there are."""
    if not isinstance(strategy, Auto):
        elastic_training.check(strategy, elastic, workers)
    return workers if workers is not None or gang.is_member() else elastic[1]


def _sizes(strategy: Strategy, workers: int | None, servers: int | None) -> tuple[int, int]:
    if workers is None:
        workers = max(1, torch.cuda.device_count())
    if servers is None:
        servers = 1 if strategy.has_servers else 0
    if not isinstance(workers, int) or not 1 <= workers <= 1024:
        raise InvalidInput(f"workers: from 1 to 1024 (found {workers!r})")
    if not isinstance(servers, int) or not 0 <= servers <= 1024:
        raise InvalidInput(f"servers: from 0 to 1024 (found {servers!r})")
    if strategy.has_servers and not servers:
        raise InvalidInput(f"servers: {strategy.name} needs at least 1 (found 0)")
    if servers and not strategy.has_servers:
        raise InvalidInput(f"servers: {strategy.name} has none (found {servers})")
    return workers, servers


# -- a member ---------------------------------------------------------------------------------


def train(seat: Seat, plan: Plan, told: Told | None = None) -> Trained | None:
    """One member's whole training. `told` hears how far it is, where it is this member's to
    tell. None: the others go on without it, and tell what came of it."""
    if plan.elastic is not None:
        seat.least = plan.elastic[0]
    if not plan.regroups:
        return train_once(seat, plan, told)
    return elastic_training.train(seat, plan, told)


def train_once(
    seat: Seat, plan: Plan, told: Told | None = None, turn: elastic_training.Turn | None = None
) -> Trained | None:
    """The same with the workers that are here; one generation, where `turn` says so. None: they
    stopped to let somebody in."""
    torch.manual_seed(plan.strategy.seed_of(seat))
    task = plan.make()
    if not isinstance(task, Task):
        raise InvalidInput(f"make: it gives a windlass.train.Task (found {type(task).__name__})")
    total = plan.steps or (plan.epochs or 1) * task.data.steps_per_epoch

    def tell(step: int, loss: float, rate: float) -> None:
        assert told is not None
        shares = plan.strategy.share_of(seat)[1]
        told({"step": step, "steps": total, "loss": loss, "samples_per_s": rate * shares})

    trainer = Trainer(
        task, plan.strategy, seat=seat, checkpoint=plan.checkpoint, save_every=plan.save_every,
        resume=plan.resume, keep=plan.keep, compile=plan.compile,
        told=tell if told is not None and tells(seat, plan) else None, turn=turn,
    )  # fmt: skip
    if seat.role == "server":
        return Trained(trainer.close(), None, trainer.warnings, trainer.stopped)
    try:
        if turn is not None:
            turn.begin(trainer)
        epochs = -(-total // task.data.steps_per_epoch)
        for _ in trainer.epochs(epochs, batches=total, close=False):
            for batch in trainer.batches():
                trainer.step(batch)
        if turn is not None and trainer.regroups and not trainer.runner.merges:
            turn.stopped(trainer)
        trainer.drain()
        if turn is not None and trainer.runner.merges:
            trainer.regroups = not (turn.is_settled(trainer) or trainer.is_told_to_stop)
        if trainer.regroups:
            trainer.abandon()
            return None
        if trainer.cursor.step:
            trainer.evaluate()
    except BaseException as err:
        if turn is not None and isinstance(err, MemberLost):
            turn.broke(trainer)
        trainer.abandon()
        raise
    state = None
    if seat.leads:
        with trainer.runner.as_it_counts() as model:
            state = {name: _on_cpu(value) for name, value in model.state_dict().items()}
    report, models = trainer.report(), trainer.runner.models()
    trainer.abandon()  # drained already
    return Trained(report, state, trainer.warnings, trainer.stopped, models)


def tells(seat: Seat, plan: Plan) -> bool:
    return seat.role == "worker" and plan.strategy.tells(seat)


def train_and_tell(seat: Seat, plan: Plan) -> Trained | None:
    """The same in a process of a `Group`: whoever started it shows how far it is. None: it was
    lost together with another, and those that are left tell what came of it."""
    try:
        return train(seat, plan, seat.meeting.tell)
    except MemberLost as err:
        if plan.strategy.on_loss == "abort" or not seat.falls_with(err.details["missing"]):
            raise
        return None


def train_again(seat: Seat, plan: Plan) -> Trained | None:
    """The same for a member that was lost and started again. None: it came too late, the others
    are done or gone; they tell what came of it."""
    try:
        return train_and_tell(seat, plan)
    except MemberLost:
        return None


def _on_cpu(value: Any) -> Any:
    return value.detach().to("cpu", copy=True) if isinstance(value, torch.Tensor) else value


def _as_member(
    plan: Plan, workers: int | None, servers: int | None, device: str | None, seed: int,
    deadline: float, progress: bool,
) -> Run:  # fmt: skip
    here = context()
    if here.on_platform:
        try:
            context(watch_stop=True)
        except RuntimeError:
            pass  # not the main thread: SIGTERM then ends us at once
    with ExitStack() as stack:
        seat = stack.enter_context(
            gang.seated(
                device=device,
                seed=seed,
                deadline_seconds=deadline,
                strategy=None if plan.regroups else plan.strategy,
            )  # fmt: skip
        )
        for name, asked, there in (
            ("workers", workers, seat.workers), ("servers", servers, seat.servers),
        ):  # fmt: skip
            if asked is not None and asked != there:
                raise InvalidInput(
                    f"{name}: {asked} asked for, but this gang has {there}",
                    hint=f"leave {name}= out: in a job the gang says how many there are",
                )
        if isinstance(plan.strategy, Auto):
            plan = plan.chosen(plan.strategy.agreed(plan.make, seat))
        if plan.strategy.has_servers and not seat.servers:
            raise InvalidInput(
                f"servers: {plan.strategy.name} needs at least 1, and this gang has none",
                hint="submit it with a role `ps`, such as roles: {ps: {count: 1}}",
            )
        with progressing(plan.strategy.name, progress and tells(seat, plan)) as shown:
            mine = train(seat, plan, shown.update)
        if mine is None:
            raise lost([seat.name], "training", None, why="the others went on without it")
        reports = _gathered(seat, mine)
        gone = list(seat.meeting.roster.fell)
    return _run(plan, reports, mine, gone)


def _gathered(seat: Seat, mine: Trained) -> list[MemberReport]:
    """Everybody's reports, on worker 0 (or, when it is lost, the first that is not); one's own on
    the others. Who is gone by now is not waited for."""
    assert mine.report is not None
    # Also the first's own: worker 0 may come back, and then it is the one who asks.
    seat.meeting.put(f"report/{seat.name}", json.dumps(mine.report.to_json()).encode())
    if mine.state is None:
        return [mine.report]
    found = [mine.report]
    for name in sorted(seat.meeting.roster.present | seat.meeting.roster.left):
        if name != seat.name:
            try:
                told = seat.meeting.get(
                    f"report/{name}", owner=name, operation="gathering the reports",
                    deadline_seconds=seat.deadline_seconds,
                )  # fmt: skip
                found.append(MemberReport.from_json(json.loads(told)))
            except MemberLost as err:
                seat.counters.survived(Fault("lost report", name, None, str(err)))
    return found


# -- whoever starts them ----------------------------------------------------------------------


def _as_parent(
    plan: Plan, workers: int, servers: int, device: str | None, seed: int, deadline: float,
    progress: bool, restarts: int,
) -> Run:  # fmt: skip
    with progressing(plan.strategy.name, progress) as shown:
        group = Group(
            workers, servers, device=str(gang.choose_device(device, 0).type), seed=seed,
            deadline_seconds=deadline,
            told=lambda _, what, __: shown.update(what), line=_line if progress else None,
        )  # fmt: skip
        with group:
            answers, gone = _trained(group, plan, restarts)
    if not answers:
        raise lost(gone, "training", None, why="nobody is left")
    with_state = (each for each in answers.values() if each.state is not None)
    first = next(with_state, next(iter(answers.values())))
    reports = [each.report for each in answers.values() if each.report is not None]
    run = _run(plan, reports, first, gone)
    for _, each in sorted(answers.items()):
        run.models.update(each.models)
    return run


def _trained(group: Group, plan: Plan, restarts: int) -> tuple[dict[str, Trained], list[str]]:
    """What came of each, and who was lost on the way. A strategy that aborts raises the first
    death; one that shrinks goes on with the rest; where one may come back it is started again."""
    number = group.begin(train_and_tell, plan)
    if plan.strategy.on_loss == "abort" and not plan.regroups:
        return group.finish(number), []
    gone: list[str] = []
    deaths = 0

    def died(name: str) -> dict[str, int]:
        nonlocal deaths
        deaths += 1
        comes_back = plan.strategy.on_loss == "rejoin" or plan.regroups
        if not comes_back or deaths > restarts:
            gone.append(name)
            return {}
        names = _as_one(name, plan.strategy.together)
        gone.extend(names)
        group.start_again(*names)
        again = group.begin(train_again, plan, only=names, scope=number)
        return dict.fromkeys(names, again)

    answers = group.finish(number, died=died)
    gone += [name for name, each in answers.items() if each is None and name not in gone]
    return {name: each for name, each in answers.items() if each is not None}, gone


def _as_one(name: str, together: int) -> list[str]:
    """Who is lost with this member: those that hold one model with it."""
    role, _, rank = name.partition(" ")
    if role != "worker":
        return [name]
    first = int(rank) - int(rank) % together
    return [f"worker {n}" for n in range(first, first + together)]


def _line(name: str, text: str) -> None:
    print(f"{name} | {text}", file=sys.stderr, flush=True)


def _run(plan: Plan, reports: list[MemberReport], first: Trained, gone: list[str]) -> Run:
    options = plan.strategy.model_dump(mode="json")
    result = Report.merge(
        reports, plan.strategy.name, options, lost=gone, notes=first.warnings,
        predicted=plan.predicted,
    )  # fmt: skip
    if plan.predicted is not None and first.state is not None and result.samples_per_s > 0:
        kept.keep(plan.strategy.name, result.workers, plan.predicted, result.samples_per_s)
    return Run(result, first.state or {}, first.warnings, first.stopped, dict(first.models))
