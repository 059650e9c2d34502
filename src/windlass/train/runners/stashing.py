"""One worker of a pipeline that never flushes: a stage, its versions, its place in the order.

    step(batch b)     what the rank's lane says: F(b), then B and U of an earlier batch
    flush             the rest of what was let in: nothing is in flight any more

A batch has the number of its step; 2bw cuts a step's batch into micro-batches, numbered on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from windlass.core.errors import InvalidInput, TrainingFailed
from windlass.train.cut.chain import Chain, chain_of
from windlass.train.cut.stage import release
from windlass.train.data import Batch
from windlass.train.policies import schedules, versions
from windlass.train.policies.schedules import Action, Lane
from windlass.train.policies.versions import Versions
from windlass.train.runners.base import Outcome, Runner
from windlass.train.runners.ends import Ends, cut_batch
from windlass.train.runners.parting import Parts, parts_of
from windlass.train.runners.post import Post
from windlass.train.runners.rounds import Rounds
from windlass.train.runners.stages import Actor, Back, StageWork
from windlass.train.runners.whole import Gathering, load_into
from windlass.train.seat import Seat
from windlass.train.state.portion import Portion
from windlass.train.task import Task

if TYPE_CHECKING:
    from windlass.train.runners.pipedream import Stashing

Event = tuple[str, int, int, int, int]
"""(kind, stage, replica, batch or update, version of the stage's weights)."""


class StashingRunner(Runner):
    is_spread: ClassVar[bool] = True

    def __init__(self, task: Task, seat: Seat, strategy: Stashing) -> None:
        super().__init__(task, seat)
        self.strategy = strategy
        self.replicas = strategy.replicas_of(seat.workers)
        self.ranks = schedules.first_ranks(self.replicas)
        self.stage = next(s for s, ranks in enumerate(self.ranks) if seat.rank in ranks)
        self.replica = self.ranks[self.stage].index(seat.rank)
        self.per_step = strategy.batches_of_step(self.replicas)
        self.update_every = strategy.update_every(self.replicas, self.stage)
        self.apart = schedules.depth(self.replicas) + max(self.replicas) + 1
        chain = chain_of(task)
        self.parts = parts_of(chain, task, seat, strategy, len(self.replicas))
        _refuse_shared(chain, self.parts)
        self.work = StageWork(chain.stage(*self.parts[self.stage]), recompute=strategy.recompute)
        self._known = list(task.model.state_dict())
        self._gathered: dict[str, Any] | None = None
        """On worker 0."""
        self._is_gathered = False
        """On all: nothing has changed since."""
        self.lane: Lane | None = None
        """None until the first batch, and after something was loaded."""
        self.post = Post(seat)
        try:
            names = [f"worker {ranks[0]}" for ranks in self.ranks]
            self._gathering = Gathering(task.model, seat, self.post, names)
            self._take_part(task, seat)
            self.versions = Versions(
                self.work.parameters, rule=versions.newest,
                bound=strategy.most_alive(self.replicas, self.stage),
            )  # fmt: skip
            self.actor = StashingActor(self, Ends(task, chain))
        except BaseException:
            self.close()
            raise

    def _take_part(self, task: Task, seat: Seat) -> None:
        """This member's stage to its device; the rest of the model is let go of."""
        mine = {id(each) for each in self.work.stage.parameters()}
        self.portion = Portion(task.optimizer, lambda each: id(each) in mine)
        if task.schedule is not None:
            # It steps with the batches that are let in; torch would warn that no update came yet.
            task.optimizer._opt_called = True  # type: ignore[attr-defined]
        release(task.model, [self.work.stage])
        self.work.stage.place(seat.device)

    @property
    def trace(self) -> list[Event]:
        return self.actor.trace

    # -- the loop ---------------------------------------------------------------------------

    def step(self, batch: Batch) -> Outcome:
        first = batch.cursor.steps * self.per_step
        lane = self._lane_at(first)
        contents: Sequence[Any] = ()
        if batch.content is not None:
            one = self.per_step == 1
            contents = [batch.content] if one else cut_batch(batch.content, self.per_step)
        self._forget_gathered()
        self.actor.let_in(first, contents)
        for _ in range(self.per_step):
            self.actor.carry_out(lane.let_in())
        return Outcome(self.actor.loss, self.actor.count)

    def _lane_at(self, first: int) -> Lane:
        if self.lane is None:
            self.lane = Lane(
                self.replicas, self.stage, self.replica, update_every=self.update_every,
                late=self.strategy.is_late(self.replicas, self.stage),
                first=first, version=self.versions.newest,
            )  # fmt: skip
            self._set_rule(self.lane)
        if self.lane.next != first:
            raise TrainingFailed(f"batch {self.lane.next} comes next (found batch {first})")
        return self.lane

    def _set_rule(self, lane: Lane) -> None:
        """With nothing in flight: which version a batch from here on is to use."""
        self.versions.rule = self.strategy.rule(
            self.replicas, self.stage, lane.next, self.versions.newest
        )

    def flush(self) -> None:
        """Until nothing is in flight. All workers call it at the same step."""
        if self.lane is not None:
            self.actor.carry_out(self.lane.drain())
            self._set_rule(self.lane)

    def drain(self) -> None:
        """Worker 0 has the whole model from here on."""
        self.assemble()
        if self._gathered is not None:
            self._gathering.fill(self._gathered)
        self.actor.settle("end of the training")
        self.post.settle("end of the training", None)

    def close(self) -> None:
        self.post.close()

    # -- the whole model --------------------------------------------------------------------

    def assemble(self) -> None:
        self.flush()
        if not self._is_gathered:
            step = 0 if self.lane is None else self.lane.next // self.per_step
            self._gathered = self._gathering.gather(self.work.stage.state(), step)
            self._is_gathered = True

    def _forget_gathered(self) -> None:
        self._gathered, self._is_gathered = None, False

    @contextmanager
    def as_it_counts(self) -> Iterator[nn.Module]:
        assert self._gathered is not None, "assemble() comes before"
        with self._gathering.filled(self._gathered) as model, self.post.at_work():
            yield model

    def shared_state(self) -> dict[str, Any] | None:
        """One's own stage, with nothing in flight; of its replicas the first has it."""
        self.flush()
        if self.replica:
            return None
        optimizer = self.portion.whole([self.portion.state()])
        return {"model": self.work.stage.state(), "optimizer": optimizer}

    def load_shared_state(self, state: Mapping[str, Any]) -> None:
        self.flush()
        load_into(self.work.stage.state(), state["model"], self._known)
        self.portion.load(state["optimizer"])
        self._forget_gathered()
        self.lane = None
        self.versions.restart(0)

    def local_state(self) -> dict[str, Any]:
        """The version before the newest, where the next batch will ask for it (2bw)."""
        older = self.versions.older()
        if not older:
            return {}
        return {"names": list(self.work.names), "older": list(older.values())}

    def load_local_state(self, state: dict[str, Any]) -> None:
        """Of another cut of the model it is not: the newest weights then stand for it."""
        if state.get("names") == list(self.work.names):
            older = state["older"]
            self.versions.restart(len(older), dict(enumerate(older)))


class StashingActor(Actor):
    def __init__(self, runner: StashingRunner, ends: Ends) -> None:
        ranks = runner.ranks
        super().__init__(
            {runner.stage: runner.work}, runner.post, ends,
            lambda stage, batch: f"worker {ranks[stage][batch % len(ranks[stage])]}",
        )  # fmt: skip
        self.trace: list[Event] = []
        self._runner = runner
        self._absent: set[int] = set()
        """Batches that have no samples: all workers know it, nobody sends anything."""
        self._options: deque[list[dict[str, Any]]] = deque()
        """The optimiser's, of each round that is not updated yet: as of its first batch."""
        self._used: deque[list[int]] = deque([[]])
        """Of each round that is not updated yet: the versions its batches went forward with."""
        self._begun = 0
        self._rounds: Rounds | None = None
        names = [f"worker {rank}" for rank in ranks[runner.stage]]
        if len(names) > 1:
            self._rounds = Rounds(
                runner.post, runner.stage, names, runner.replica, runner.work.parameters
            )

    def let_in(self, first: int, contents: Sequence[Any]) -> None:
        """The batches of a step, from number `first` on."""
        runner, lane = self._runner, self._runner.lane
        assert lane is not None
        numbers = range(first, first + runner.per_step)
        self.begin(first // runner.per_step, dict(zip(numbers, contents, strict=False)))
        self._absent.update(numbers[len(contents) :])
        begun = [n for n in numbers if lane.begins_round(n)]
        options = _options(runner.task) if begun and runner.task.schedule is not None else []
        self._options.extend(options for _ in begun)

    def carry_out(self, actions: Iterable[Action]) -> None:
        for action in actions:
            if action.kind != "U":
                # Messages are named for the step that let their batch in, not for this one.
                self.step = action.batch // self._runner.per_step
                if action.batch in self._absent:
                    if action.kind == "B":
                        self._absent.discard(action.batch)
                    continue
            super().carry_out((action,))

    # -- forward and backward ---------------------------------------------------------------

    def parameters_for(self, stage: int, batch: int) -> Sequence[Tensor]:
        version = self._runner.versions.pin(batch)
        self._log("F", batch, version.number)
        return version.leaves

    def forward(self, action: Action) -> None:
        super().forward(action)
        every = self._runner.update_every if self._runner.per_step > 1 else 1
        if (action.batch + self._runner.replicas[self._runner.stage]) // every > (
            action.batch // every
        ):
            self._runner.work.statistics.commit()  # its last forward of the mini-batch

    def stamp(self, action: Action) -> dict[str, Any]:
        runner = self._runner
        assert runner.lane is not None
        held = runner.strategy.stamp(runner.replicas, action.batch, runner.lane.first)
        return {} if held is None else {"held": held}

    def came(self, action: Action, stamp: dict[str, Any]) -> None:
        ours = self.stamp(action)
        if ours != stamp:
            raise TrainingFailed(
                f"batch {action.batch} was stamped {stamp} by the input stage, and stage "
                f"{action.stage} has weights of {ours} for it"
            )

    def backward(self, action: Action) -> None:
        kept = self._runner.work.kept[action.batch]
        version = self._runner.versions.check(action.batch, kept.parameters)
        self._log("B", action.batch, version.number)
        self._used[-1].append(version.number)
        super().backward(action)

    def took(self, action: Action, back: Back) -> None:
        super().took(action, back)
        self._runner.versions.unpin(action.batch, self._next_batch())
        if self._runner.lane is not None and self._runner.lane.late:
            self._begin()

    def _begin(self) -> None:
        """This replica's part of the next round is whole."""
        work = self._runner.work
        if self._rounds is not None:
            self._rounds.begin(self._begun, work.gradients, work.count)
            work.forget_sums()
        self._begun += 1
        self._used.append([])

    def settle(self, operation: str) -> None:
        """Until the others have all that they need of this one."""
        if self._rounds is not None:
            self._rounds.settle(operation)

    # -- updates ----------------------------------------------------------------------------

    def update(self, action: Action) -> None:
        """The newest weights are stepped by the round's gradient, whichever they were of."""
        runner, work = self._runner, self._runner.work
        number = self._begun - (len(self._used) - 1)
        if number == self._begun:
            self._begin()
        if self._rounds is None:
            gradients, count = work.gradients, work.count
            work.forget_sums()
        else:
            gradients, count = self._rounds.finish(number)
        for used in self._used.popleft():
            runner.counters.stale(runner.versions.newest - used)
        options = self._options.popleft()
        self._log("U", action.batch, runner.versions.newest)
        runner.versions.update(lambda: self._step(gradients, count, options), self._next_batch())

    def _step(
        self, gradients: Sequence[Tensor | None], count: float, options: list[dict[str, Any]]
    ) -> None:
        if not count:
            return  # nobody had a sample: there is no gradient
        optimizer, parameters = self._runner.task.optimizer, self._runner.work.parameters
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = None if gradient is None else gradient.div_(count)
        with _as_of(optimizer, options, self._runner.strategy.rate_of(self._runner)):
            optimizer.step()
        for parameter in parameters:
            parameter.grad = None

    # -- small ------------------------------------------------------------------------------

    def _next_batch(self) -> int:
        assert self._runner.lane is not None
        return self._runner.lane.next_of_mine

    def _log(self, kind: str, number: int, version: int) -> None:
        if self._runner.strategy.trace:
            self.trace.append((kind, self._runner.stage, self._runner.replica, number, version))


def _options(task: Task) -> list[dict[str, Any]]:
    return [
        {
            name: float(value) if isinstance(value, Tensor) else value
            for name, value in group.items()
            if name != "params"
        }
        for group in task.optimizer.param_groups
    ]


@contextmanager
def _as_of(
    optimizer: torch.optim.Optimizer, options: list[dict[str, Any]], rate: float
) -> Iterator[None]:
    """The optimiser with these options (none: its own) and its learning rates times `rate`."""
    if not options and rate == 1.0:
        yield
        return
    groups = optimizer.param_groups
    before = [dict(group) for group in groups]
    for group, told in zip(groups, options or before, strict=True):
        group.update({**told, "lr": told["lr"] * rate, "params": group["params"]})
    try:
        yield
    finally:
        for group, was in zip(groups, before, strict=True):
            group.update(was)


def _refuse_shared(chain: Chain, parts: Parts) -> None:
    for name, blocks in chain.tied.items():
        stages = sorted({
            stage for stage, (first, last) in enumerate(parts)
            for block in blocks if first <= block <= last
        })  # fmt: skip
        if len(stages) > 1:
            told = " and ".join(f"stage {stage}" for stage in stages)
            raise InvalidInput(
                f"cuts: {name} is used by {told}, whose updates come at different times",
                hint="cut so that one stage has all that use it, or use gpipe or 1f1b",
            )
