"""The outer loop: workers step alone for a while, then their parameters meet.

    worker 0   x ─ ─ ─ ┐        ┌ x ─ ─ ─ ┐
    worker 1   x ─ ─ ─ ┼ policy ┼ x ─ ─ ─ ┼ …        every `period` steps of the training
    worker 2   x ─ ─ ─ ┘        └ x ─ ─ ─ ┘

When a worker dies the others notice at their next step or in the exchange, form a group of
survivors, and go on. One may have finished an exchange that another could not: then its result is
passed on, so that all are in the same round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from windlass.core.errors import MemberLost
from windlass.train.comm.torchdist import WorkerGroup
from windlass.train.data import Batch
from windlass.train.policies.outer_opt import OuterPolicy, OuterState, Vectors
from windlass.train.runners.base import Outcome, Runner
from windlass.train.runners.replicas import copy_from_first
from windlass.train.runners.survivors import Survivors
from windlass.train.runners.vectors import Flattened, buffers_of, largest, parameters_of
from windlass.train.seat import Seat
from windlass.train.task import Task

_EXCHANGE = "exchange of parameters"
T = TypeVar("T")


class PeriodRunner(Runner):
    merges: ClassVar[bool] = True

    def __init__(
        self,
        task: Task,
        seat: Seat,
        policy: Callable[[int], OuterPolicy],
        *,
        period: int,
        together: int = 0,
        average_state: bool = False,
        forget_momentum: bool = False,
        each_epoch: bool = False,
    ) -> None:
        """`policy` of the number of workers. `together`: so many first steps are synchronous.
        `each_epoch`: the first worker's centre goes to all at the end of each epoch."""
        super().__init__(task, seat)
        self.apart = period
        self.period = period
        self.together = together
        self.average_state = average_state
        self.forget_momentum = forget_momentum
        self.each_epoch = each_epoch
        self._policy_for = policy
        self.survivors = Survivors(seat)
        try:
            copy_from_first(self.group, task.model)
        except BaseException:
            self.survivors.close()
            raise
        self.policy = policy(self.group.size)
        self.parameters = parameters_of(task.model)
        self.outer = self.policy.begin(self.parameters.read())
        self._averages: Vectors = []
        self._rounds = 0
        self._stepped = 0
        self._batches = 0
        self._used = [0] * seat.workers
        """Of each worker: how many of its batches are in the centre."""
        self._agreed = False
        """Whether somebody wanted to form anew at the last exchange: then all stop there."""

    @property
    def group(self) -> WorkerGroup:
        return self.survivors.group

    # -- the loop ---------------------------------------------------------------------------

    def step(self, batch: Batch) -> Outcome:
        steps = batch.cursor.steps
        self.group.step = steps
        if self.survivors.missing():
            self._shrink(finished=False)
        self._batches += 1
        if steps < self.together:
            return self._step_together(batch)
        loss: Tensor | float = 0.0
        count = 0.0
        if batch.content is not None:
            loss, count = self._gradient(batch)
            _divide(self.task, count or 1.0)
            self.task.optimizer.step()
            self._stepped += 1
        if (steps + 1) % self.period == 0:
            self._exchange(finished=False)
        if self.each_epoch and self.task.data.after(batch.cursor).epoch != batch.cursor.epoch:
            self._share_centre()
        return Outcome(loss, count)

    def finish(self) -> None:
        """What is left of a period is exchanged too; then the others' exchanges are followed."""
        while self._exchange(finished=True) < self.group.size:
            self.counters.event("joined exchanges")

    def drain(self) -> None:
        def part() -> None:
            self._sum([torch.zeros(1)], "control", "end of the training")
            copy_from_first(self.group, self.task.model, parameters=False)

        self._insist(part, finished=True)
        self.group.part()
        self.parameters.write(self.outer.centre)

    def close(self) -> None:
        self.survivors.close()

    # -- state ------------------------------------------------------------------------------

    @contextmanager
    def as_it_counts(self) -> Iterator[nn.Module]:
        own = self.parameters.read()
        self.parameters.write(self.outer.centre)
        try:
            yield self.task.model
        finally:
            self.parameters.write(own)

    def shared_state(self) -> dict[str, Any]:
        with self.as_it_counts() as model:
            found = {name: value.clone() for name, value in model.state_dict().items()}
        return {
            "model": found,
            "optimizer": self.task.optimizer.state_dict(),
            "outer": {"centre": self.outer.centre, "memory": self.outer.memory},
        }

    def load_shared_state(self, state: Mapping[str, Any]) -> None:
        super().load_shared_state(state)
        outer = state.get("outer", {})
        fresh = self.policy.begin(self.parameters.read())
        self.outer = OuterState(
            list(outer.get("centre") or fresh.centre), list(outer.get("memory") or fresh.memory)
        )
        self.parameters.write(self.policy.after(self.outer, self.outer.centre, _zeros(fresh)))

    @property
    def may_regroup(self) -> bool:
        """After an exchange in which all heard of it: they are at the same step then."""
        return self._agreed

    def account(self) -> dict[int, int]:
        return dict(enumerate(self._used))

    def merged_state(self) -> dict[str, Any]:
        return self.shared_state()

    def local_state(self) -> dict[str, Any]:
        if self.seat.regroups:
            return {}  # what is in no centre yet is done again, by whoever goes on from this
        return {
            "parameters": self.parameters.read(),
            "buffers": buffers_of(self.task.model).read(),
            "optimizer": self.task.optimizer.state_dict(),
            "stepped": self._stepped,
        }

    def load_local_state(self, state: dict[str, Any]) -> None:
        self.parameters.write(state["parameters"])
        buffers_of(self.task.model).write(state["buffers"])
        self.task.optimizer.load_state_dict(state["optimizer"])
        self._stepped = state["stepped"]

    # -- steps ------------------------------------------------------------------------------

    def _gradient(self, batch: Batch) -> tuple[Tensor, float]:
        self.task.optimizer.zero_grad(set_to_none=True)
        total, count = self.task.loss_of(batch.content)
        total.backward()  # type: ignore[no-untyped-call]
        return total.detach(), count

    def _step_together(self, batch: Batch) -> Outcome:
        """As `allreduce` steps: the gradient of all."""
        loss: Tensor | float = 0.0
        count = 0.0
        self.task.optimizer.zero_grad(set_to_none=True)
        if batch.content is not None:
            loss, count = self._gradient(batch)
        wanted = [p for p in self.task.model.parameters() if p.requires_grad]
        for each in wanted:
            if each.grad is None:
                each.grad = torch.zeros_like(each)
        grads = Flattened(p.grad for p in wanted if p.grad is not None)

        def part() -> tuple[Vectors, list[float]]:
            told = torch.tensor([count, *self._mine()], dtype=torch.float64)
            self._sum([told], "control", "all-reduce of counts")
            found = self._sum(grads.read(), "gradient", "all-reduce of gradients")
            return found, told.tolist()

        result = self._insist(part, finished=False)
        if result is not None:
            found, (total, *used) = result
            if total:
                grads.write(found)
                _divide(self.task, total)
                self.task.optimizer.step()
            self._centre_here(used)
        return Outcome(loss, count)

    def _centre_here(self, used: list[float]) -> None:
        """After a synchronous step all are at the centre."""
        self._account(used)
        self.outer = self.policy.begin(self.parameters.read())
        self._rounds += 1

    # -- exchanges --------------------------------------------------------------------------

    def _exchange(self, *, finished: bool) -> int:
        """The number of workers that have no more data. State changes at the end, or not."""
        own = self.parameters.read()
        weight = 1.0 if self._stepped else 0.0

        def part() -> tuple[list[float], Vectors, Vectors]:
            has_state = float(bool(self._moments()))
            told = torch.tensor(
                [weight, float(finished), has_state, *self._mine()], dtype=torch.float64
            )
            self._sum([told], "control", "all-reduce of weights")
            given = self.policy.give(self.outer, own, weight)
            total = self._sum([each.clone() for each in given], "parameters", _EXCHANGE)
            moments: Vectors = []
            if self.average_state and told[2] == self.group.size and told[0]:
                scaled = [each * weight for each in self._state().read()]
                moments = self._sum(scaled, "state", "averaging of optimiser states")
                moments = [each / float(told[0]) for each in moments]
            return told.tolist(), total, moments

        found = self._insist(part, finished=finished)
        if found is None:
            return 0  # another had finished this round: its result is here
        (weights, done, _, *used), total, moments = found
        self._account(used)
        if weights:
            given = self.policy.give(self.outer, own, weight)
            self.outer, new = self.policy.take(self.outer, own, given, total, weights)
            spread = self.policy.spread(own, total, weights, self.outer)
            if weight and self.group.step is not None:
                self.counters.drift.append((self.group.step, largest(spread)))
            self._settle(new, moments)
        return int(done)

    def _mine(self) -> list[float]:
        """This worker's own part of the account (a sum over all is the account of all), and
        whether it wants to form anew."""
        if not self.seat.regroups:
            return []
        used = [self._batches * (rank == self.seat.rank) for rank in range(self.seat.workers)]
        return [*map(float, used), float(self.regroup_wanted)]

    def _account(self, told: list[float]) -> None:
        """All whose parts were summed have more batches in the centre now; of the others it has
        what it had."""
        if told:
            *used, wanted = map(int, told)
            self._used = [max(each) for each in zip(self._used, used, strict=True)]
            self._agreed = wanted > 0

    def _settle(self, new: Vectors, moments: Vectors) -> None:
        self.parameters.write(new)
        self._averages = moments
        if moments:
            self._state().write(moments)
        if self.forget_momentum:
            self.task.optimizer.state.clear()
        self._rounds += 1
        self._stepped = 0
        self.counters.event("exchanges")

    def _share_centre(self) -> None:
        """Copies of the centre are the same as long as all sum alike; this makes sure."""

        def part() -> Vectors:
            found = [each.clone() for each in self.outer.centre]
            for each in found:
                self.group.broadcast(each, operation="copying the centre").wait()
            return found

        found = self._insist(part, finished=False)
        if found is not None:
            self.outer = OuterState(found, self.outer.memory)

    def _sum(self, vectors: Vectors, kind: str, operation: str) -> Vectors:
        """In place, and given back. Small ones made on the CPU go where the group is."""
        group, begun = self.group, []
        for each in vectors:
            there = each.to(group.device) if group.is_nccl else each
            begun.append((each, there, group.all_reduce(there, kind=kind, operation=operation)))
        for each, there, pending in begun:
            pending.wait()
            if there is not each:
                each.copy_(there)
        return vectors

    def _moments(self) -> list[Tensor]:
        """What the optimiser remembers of each parameter, element by element."""
        if not self.average_state:
            return []
        found = []
        for group in self.task.optimizer.param_groups:
            for each in group["params"]:
                state = self.task.optimizer.state.get(each, {})
                for key in sorted(state):
                    value = state[key]
                    if isinstance(value, Tensor) and value.shape == each.shape and value.dim():
                        found.append(value)
        return found

    def _state(self) -> Flattened:
        return Flattened([*self._moments(), *self.task.model.buffers()])

    # -- losses -----------------------------------------------------------------------------

    def _insist(self, part: Callable[[], T], *, finished: bool) -> T | None:
        """With the survivors when a member is lost. None: the round was another's to finish."""
        while True:
            try:
                return part()
            except MemberLost:
                if self._shrink(finished=finished):
                    return None

    def _shrink(self, *, finished: bool) -> bool:
        """True when this worker was behind, and has been brought into the others' round."""
        while True:
            self.survivors.shrink(_EXCHANGE, self.group.step)
            try:
                behind = self._catch_up()
            except MemberLost:
                continue
            # Only now: a round of before was ended by the rules of before.
            self.policy = self._policy_for(self.group.size)
            return behind

    def _catch_up(self) -> bool:
        group = self.group
        mine = torch.tensor([self._rounds], dtype=torch.int64)
        rounds, pending = group.all_gather(
            mine.to(group.device) if group.is_nccl else mine, kind="control", operation=_EXCHANGE
        )
        pending.wait()
        numbers = [int(each) for each in rounds]
        first = numbers.index(max(numbers))
        if min(numbers) == max(numbers):
            return False
        result = [*self.outer.centre, *self.outer.memory]
        moments = self._averages or [torch.zeros_like(each) for each in self._state().read()]
        if self.average_state:
            result += moments
        account = [*map(float, self._used), float(self._agreed)]
        result.append(torch.tensor(account, dtype=torch.float64, device=group.device))
        told = [each.clone() for each in result]
        for each in told:
            group.broadcast(each, first, operation="passing on an exchange").wait()
        if numbers[group.rank] == max(numbers):
            return False
        own = self.parameters.read()
        given = self.policy.give(self.outer, own, 1.0 if self._stepped else 0.0)
        width = len(self.outer.centre)
        end = width + len(self.outer.memory)
        self.outer = OuterState(told[:width], told[width:end])
        self._account(told[-1].tolist())
        self._settle(self.policy.after(self.outer, own, given), told[end:-1])
        return True


def _divide(task: Task, count: float) -> None:
    grads = [each.grad for each in task.model.parameters() if each.grad is not None]
    if grads:
        torch._foreach_div_(grads, count)


def _zeros(state: OuterState) -> Vectors:
    return [torch.zeros_like(each) for each in state.centre]
