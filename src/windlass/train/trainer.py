"""One worker's training, step by step: what `fit` runs, and what a loop of one's own calls.

trainer = wt.Trainer(task, strategy="allreduce")
for epoch in trainer.epochs(10):
    for batch in trainer.batches():
        trainer.step(batch)

After the last epoch everything is delivered; `close()` is for a loop that is left early.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import windlass.job.stop as stop
from windlass.core.errors import InvalidInput, MemberLost
from windlass.job.context import context
from windlass.train import compiling, registry
from windlass.train.counters import Fault
from windlass.train.data import Batch, to_device
from windlass.train.elastic import Turn, hand_over
from windlass.train.gang import seated
from windlass.train.ledger import Position, Share, packed, shares_of
from windlass.train.memory import peak_bytes
from windlass.train.policies.consistency import Consistency
from windlass.train.report import EvaluationPoint, LossPoint, MemberReport
from windlass.train.runners.base import Outcome
from windlass.train.seat import Seat
from windlass.train.state import checkpoint as checkpoints
from windlass.train.state.saving import Saver
from windlass.train.strategy import Strategy
from windlass.train.task import Task

Told = Callable[[int, float, float], None]
_READ_EVERY_SECONDS = 0.25
_IN_MEMORY = "in memory"


class Trainer:
    """Made on every member of the gang that this process is in (a Windlass job, torchrun, or
    itself alone). On a server it serves until the workers are done, and then has no batches."""

    def __init__(
        self,
        task: Task,
        strategy: str | Strategy = "allreduce",
        *,
        seat: Seat | None = None,
        checkpoint: str | None = None,
        save_every: int | None = None,
        resume: bool = True,
        keep: int | None = None,
        compile: bool = False,
        device: str | None = None,
        seed: int = 0,
        deadline: float = 30.0,
        told: Told | None = None,
        turn: Turn | None = None,
        **options: Any,
    ) -> None:
        """`save_every` steps a checkpoint is saved (default: at the end of each epoch), when
        there is a place for it: `checkpoint`, or the platform's. `told` hears (steps, loss,
        samples a second) some times a second. `turn`: of a training whose workers may change."""
        task.check()
        self.task = task
        self.strategy = registry.choose(strategy, options)
        self._stack = ExitStack()
        self._closed = False
        self._told = told
        self._turn = turn
        self.stopped = False
        self.regroups = False
        """Whether it stopped for somebody to be let in."""
        try:
            self.seat = seat or self._stack.enter_context(
                seated(device=device, seed=seed, deadline_seconds=deadline, strategy=self.strategy)
            )
            self.seat.together = self.strategy.together
            self.warnings = self.strategy.check(task, self.seat.workers, self.seat.servers)
            self.saves = checkpoint is not None or context().on_platform
            self._save_every = save_every or task.data.steps_per_epoch
            self._folder = checkpoint
            self._stop_at: int | None = None
            self._regroup_at: int | None = None
            self._until: int | None = None
            self._left: list[Share] = []
            self._settled = False
            self._loaded = False
            self._clock = _Clock()
            if not self.strategy.places_model:
                task.model.to(self.seat.device)
            self.cursor = task.data.at(0)
            if self.seat.role == "server":
                self._serve()
                return
            if compile:
                self._compile()
            torch.manual_seed(self.seat.seed + 1000003 * (self.seat.rank + 1))  # dropout differs
            # Before all meet: whoever is first in the loop may say something at once.
            self.seat.meeting.on_said(self._hear)
            self.runner = self.strategy.runner(task, self.seat)
            self._stack.callback(self.runner.close)
            self._saver = Saver(
                self.runner, self.seat, folder=checkpoint, keep=keep, needs=self._needed()
            )
            self._stack.callback(self._saver.close)
            if self.saves:
                self._saver.prepare()
            self._resume(resume)
        except BaseException:
            self._stack.close()
            raise

    # -- the loop ---------------------------------------------------------------------------

    def epochs(
        self, count: int, *, batches: int | None = None, close: bool = True
    ) -> Iterator[int]:
        """The epochs that are left of `count`: all, or the rest after a resume; no more than so
        many global batches in all. After the last one the training is over: everything is
        delivered, as by `close()`."""
        each = self.task.data.steps_per_epoch
        self._until = until = min(count * each, batches or count * each)
        while self.seat.role == "worker" and not self.stopped and not self._is_over(until):
            row = self._row
            yield self.cursor.epoch
            if self._row == row and not self.stopped and not self._is_over(until):
                raise InvalidInput("epochs: the loop inside took no step", hint="see batches()")
        if close:
            self.close()

    def batches(self) -> Iterator[Batch]:
        """This worker's shares of what is left of the epoch; before them what an earlier run had
        left, after them what workers that were lost have."""
        data, each = self.task.data, self.task.data.steps_per_epoch
        before = min((self.cursor.epoch + 1) * each, self._until or (self.cursor.epoch + 1) * each)
        index, of = self.strategy.share_of(self.seat)
        while self.seat.role == "worker":
            while self._left and not self._ends():
                shared = data.deal if self._turn and self.runner.merges else data.make_up
                yield shared(self.cursor, self._left, index, of, self.seat.device)
            while self._row < before and not self._ends():
                yield data.batch(self.cursor, index, of, self.seat.device)
            if self.stopped or not self.runner.keeps_account or self._row < before:
                break
            last = self._until is not None and before >= self._until
            shares = self.runner.rest(before, last=last)
            for share in shares:
                yield data.open_share(share, self.seat.device)
            if not self._follow() and not shares and self._row >= before:
                self._settled = last
                break

    def step(self, batch: Batch | Any, *, consistency: Consistency | None = None) -> Outcome:
        """One step. A batch of one's own loader will do: it is taken as this worker's share. With
        servers, `consistency` says what this one step reads: "sequential", "eventual", or by how
        many steps the others may be behind."""
        if consistency is not None:
            self.runner.reads(consistency)
        if not isinstance(batch, Batch):
            batch = Batch(self.cursor, (), to_device(batch, self.seat.device))
        self._clock.begin()
        outcome = self.runner.step(batch)
        before = self.cursor
        if batch.makes_up:
            self._left = self._left[len(batch.makes_up) :]
            self.cursor = replace(before, steps=before.steps + 1)
        elif batch.share is None:
            self.cursor = self.task.data.after(before)
            if self.task.schedule is not None:
                self.task.schedule.step()
        self._follow()
        self._clock.take(self.cursor.steps, outcome)
        if self._told is not None and self._clock.due():
            self._told(self.cursor.steps, *self._clock.read())
        if self.cursor.epoch != before.epoch:
            self.evaluate()
        if self.saves and batch.share is None and self.cursor.steps % self._save_every == 0:
            self.save()
        return outcome

    def evaluate(self) -> dict[str, float]:
        """The task's own numbers of the model as it counts, on worker 0. All workers call it at
        the same step."""
        if self.task.evaluate is None:
            return {}
        self.runner.assemble()
        if self.seat.rank != 0:
            return {}
        with self.runner.as_it_counts() as model, torch.no_grad():
            was_training = model.training
            model.eval()
            found = {name: float(value) for name, value in self.task.evaluate(model).items()}
            model.train(was_training)
        self._clock.evaluation.append(EvaluationPoint(self.cursor.steps, found))
        return found

    def save(self, *, wait: bool = False) -> None:
        """A checkpoint now. All workers call it at the same step. Returns when the state is
        copied, and a thread writes the copy; with `wait`, when it is on the disk. A write that
        failed is raised by the next save, or by the end of the training."""
        if self._clock.saved != self.cursor.steps:
            self._written()
            try:
                self._saver.save(self.cursor.steps, **self.position().words())
            except MemberLost as err:
                self._no_checkpoint(err)
            self._clock.saved = self.cursor.steps
        if wait:
            self._written()

    def drain(self) -> None:
        """No more batches: everything in flight is delivered, the model is final."""
        if self.seat.role == "worker":
            self.runner.finish()
            self.runner.drain()
            if self.seat.device.type == "cuda":
                torch.cuda.synchronize(self.seat.device)
            self._clock.end()
            self._written()

    def close(self) -> MemberReport:
        """Drain, and let go of everything. Once more does nothing."""
        try:
            if not self._closed:
                self.drain()
            return self.report()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go without waiting for anybody: something failed. A checkpoint that is being
        written is written."""
        self._closed = True
        self._stack.close()

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close() if kind is None else self.abandon()

    def report(self) -> MemberReport:
        clock = self._clock
        clock.settle()
        return MemberReport(
            name=self.seat.name,
            steps=self.cursor.steps,
            samples=int(clock.samples),
            seconds=clock.seconds(),
            losses=tuple(clock.losses),
            counters=self.seat.counters.to_json(),
            peak_memory_bytes=peak_bytes(self.seat.device),
            evaluation=tuple(clock.evaluation),
        )

    def position(self) -> Position:
        """Which samples the state has, for any number of workers and any strategy."""
        back = 0 if self.runner.applied is None else self.cursor.steps - self.runner.applied
        return packed(self._row - back, self._left, steps=self.cursor.steps - back)

    def is_all(self, position: Position) -> bool:
        """Whether nothing is left to do there."""
        return position.row >= (self._until or 0) and not position.left

    @property
    def is_told_to_stop(self) -> bool:
        """SIGTERM came: it does not go on, whatever is left."""
        return self._stop_at is not None and self.stopped

    # -- inside -----------------------------------------------------------------------------

    @property
    def _row(self) -> int:
        return self.task.data.row(self.cursor)

    def _is_over(self, until: int) -> bool:
        """Where account is kept each asks what is left, though its own line is at its end: one
        that comes late must not take for final what others still add to."""
        asks = self.runner.keeps_account and not self._settled
        return self._row >= until and not asks and not self._left

    def _follow(self) -> bool:
        """Where the others had taken this worker for lost, its line goes on elsewhere. Whether
        they had."""
        if self.runner.moves_to is None:
            return False
        self.cursor = self.task.data.at(self.runner.moves_to)
        self.runner.moves_to = None
        return True

    def _ends(self) -> bool:
        """Whether to stop before the next step: SIGTERM came to one of us, and all agree on the
        step to stop at, since no worker may wait for another's part of a step that never comes."""
        if stop.should_stop() and self._stop_at is None:
            if self.runner.apart is None:
                self._stop_at = self.cursor.steps
            else:
                self._say_at("stop_at", operation="stopping")
        if self._turn is not None and self._regroup_at is None:
            if self.runner.merges and self.seat.meeting.roster.lost:
                self._regroup_at = 0  # each sees it for itself
            elif self.seat.rank == 0 and self._turn.waits():
                self._say_at("regroup_at", operation="letting somebody in")
        if self._regroups():
            self.stopped = self.regroups = True
            return True
        if self._stop_at is not None and self.cursor.steps >= self._stop_at:
            self.stopped = True
            if self.saves:
                self.save()
        return self.stopped

    def _regroups(self) -> bool:
        if self._regroup_at is None:
            return False
        if self.runner.merges:
            self.runner.regroup_wanted = True
            return self.runner.may_regroup
        return self.cursor.steps >= self._regroup_at

    def _hear(self, what: dict[str, Any]) -> None:
        if "stop_at" in what:
            self._stop_at = max(self._stop_at or 0, int(what["stop_at"]))
        if "regroup_at" in what:
            self._regroup_at = max(self._regroup_at or 0, int(what["regroup_at"]))

    def _say_at(self, what: str, *, operation: str) -> None:
        """A step that no worker is past when it hears of it."""
        at = self.cursor.steps + (self.runner.apart or 0) + 1
        if what == "regroup_at" and self.runner.merges:
            at = 0  # each where it is
        self.seat.meeting.say(
            {what: at}, operation=operation, deadline_seconds=self.seat.deadline_seconds
        )

    def _serve(self) -> None:
        with self.strategy.serving(self.task, self.seat) as serving:
            serving.run()

    def _resume(self, wanted: bool) -> None:
        """Worker 0 chooses; all load the same."""
        meeting, seat = self.seat.meeting, self.seat
        rates = [group["lr"] for group in self.task.optimizer.param_groups]
        begins = None if self._turn is None else self._turn.begins
        if begins is not None:
            meeting.put("resume", _IN_MEMORY.encode())
        elif seat.rank == 0 and not self.runner.came_back:
            found = checkpoints.find(self._folder, wanted)
            meeting.put("resume", str(found or "").encode())
        path = self._told_path()
        if path == _IN_MEMORY:
            held = hand_over(seat, begins)
            self.runner.load_shared_state(held.shared)
            own = self._turn.own if self._turn is not None else None
            if self.runner.merges and own is not None and own.position == held.position:
                self.task.optimizer.load_state_dict(own.shared["optimizer"])  # its momentum
            self._stand(held.position)
            self._loaded = True
        elif path:
            self._loaded = True
            self._stand(Position.of(checkpoints.load(self.runner, seat, Path(path))))
        if self.runner.applied is not None:
            self.runner.applied = self.cursor.steps
        if self.runner.row is not None and self.runner.row > self._row:
            self.cursor = self.task.data.at(self.runner.row)
        if self.runner.came_back and self.runner.row is None:
            self.cursor = self.task.data.at(self.cursor.steps + self.runner.made_without)
        self._schedule(rates)
        if self.runner.came_back:
            self.runner.reached = self.cursor.steps
            if self.saves and self.cursor.steps and self.cursor.steps % self._save_every == 0:
                self.save()  # those that it joined may be waiting for it there

    def _schedule(self, rates: list[float]) -> None:
        """The task is new, and so is its schedule, which began with these rates: it makes the
        steps that the training has made. What the optimiser was loaded with stays."""
        groups, schedule = self.task.optimizer.param_groups, self.task.schedule
        if schedule is None or not self._row:
            return
        loaded = [group["lr"] for group in groups]
        for group, rate in zip(groups, rates, strict=True):
            group["lr"] = rate
        # Torch warns of a schedule that steps before the optimiser: it did, elsewhere.
        self.task.optimizer._opt_called = True  # type: ignore[attr-defined]
        for _ in range(self._row):
            schedule.step()
        if self._loaded:
            for group, rate in zip(groups, loaded, strict=True):
                group["lr"] = rate

    def _told_path(self) -> str:
        told: dict[str, Any] = {"operation": "finding a checkpoint"}
        meeting = self.seat.meeting
        try:
            needs = self._needed()
            found = meeting.get(
                "resume", owner="worker 0", needs=needs, deadline_seconds=120, **told
            )
        except MemberLost:
            if self.strategy.on_loss == "abort":
                raise
            found = meeting.get("resume", deadline_seconds=1.0, **told)  # before it was lost
        return found.decode()

    def _stand(self, position: Position) -> None:
        self.cursor = self.task.data.stand(position)
        self.runner.begins = position
        if not self.runner.keeps_account:
            self._left = shares_of(position.left)

    def _written(self) -> None:
        """Until the last checkpoint is on the disk."""
        try:
            self._saver.wait()
        except MemberLost as err:
            self._no_checkpoint(err)

    def _no_checkpoint(self, err: MemberLost) -> None:
        if self.strategy.on_loss == "abort" or self.seat.meeting.is_out:
            raise err
        # The others go on, and save the next one.
        fault = Fault("no checkpoint", self.seat.name, self.cursor.steps, str(err))
        self.seat.counters.survived(fault)

    def _needed(self) -> list[str]:
        """Those without whom all others give up."""
        workers = range(self.seat.workers if self.strategy.on_loss == "abort" else 0)
        return [f"worker {n}" for n in workers]

    def _compile(self) -> None:
        why = compiling.why_not(self.task.model, self.strategy, self.seat.device)
        if why is None:
            compiling.compile_in_place(self.task.model)
        else:
            self.warnings.append(f"compile: {why}")


class _Clock:
    """Losses and times of this worker. Losses stay tensors for a while, so that reading them does
    not make a GPU wait at each step."""

    def __init__(self) -> None:
        self.started: float | None = None
        """When the first step began."""
        self.ended: float | None = None
        self.samples = 0.0
        self.losses: list[LossPoint] = []
        self.evaluation: list[EvaluationPoint] = []
        self.saved = -1
        self._unread: list[tuple[int, float, Tensor | float, float]] = []
        self._read_at = 0.0
        self._read_samples = 0.0

    def begin(self) -> None:
        self.ended = None
        if self.started is None:
            self.started = self._read_at = time.monotonic()

    def end(self) -> None:
        """What comes after (evaluating, copying the model) is no training."""
        self.ended = time.monotonic()

    def seconds(self) -> float:
        now = time.monotonic() if self.ended is None else self.ended
        return 0.0 if self.started is None else now - self.started

    def take(self, step: int, outcome: Outcome) -> None:
        self.samples += outcome.count
        self._unread.append((step, self.seconds(), outcome.loss_sum, outcome.count))
        if len(self._unread) >= 256:
            self.settle()

    def due(self) -> bool:
        return time.monotonic() - self._read_at >= _READ_EVERY_SECONDS

    def read(self) -> tuple[float, float]:
        """(newest mean loss, samples a second since the last read)."""
        self.settle()
        now = time.monotonic()
        rate = (self.samples - self._read_samples) / max(1e-9, now - self._read_at)
        self._read_at, self._read_samples = now, self.samples
        return (self.losses[-1].loss if self.losses else float("nan")), rate

    def settle(self) -> None:
        for step, at, total, count in self._unread:
            if count:
                self.losses.append(LossPoint(step, at, float(total) / count))
        self._unread.clear()
