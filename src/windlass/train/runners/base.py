"""What carries a strategy on one member: a `Runner` on each worker, a `Serving` on each server.

The loop of `fit` (and a user's own, through `Trainer`) is the same for all:

    runner = strategy.runner(task, seat)      the members meet; parameters are made the same
    for batch in …: runner.step(batch)        one step of this worker
    runner.finish()                           this worker has no more data; others may
    runner.drain()                            nothing is in flight any more; state is final
    runner.close()                            never needs a dead peer
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from torch import Tensor, nn

from windlass.core.errors import InvalidInput
from windlass.train.data import Batch
from windlass.train.ledger import Position, Share, merged
from windlass.train.policies.consistency import Consistency
from windlass.train.seat import Seat
from windlass.train.state.stored import read
from windlass.train.task import Task


@dataclass(slots=True)
class Outcome:
    """What one step of this worker was: of its own share only, for the report."""

    loss_sum: Tensor | float
    """Detached; read late, so that a GPU is not waited for at each step."""
    count: float

    @property
    def mean(self) -> float:
        """The mean loss of this share; NaN of an empty one."""
        return float(self.loss_sum) / self.count if self.count else float("nan")


class Runner:
    """One worker. Called from one thread. Every method may raise MemberLost, within the seat's
    deadline; the task's state is then as before the step or after it, never between."""

    apart: int | None = 1
    """The most steps that another worker may be ahead of this one; None: without bound."""

    is_spread: ClassVar[bool] = False
    """Whether each worker's `shared_state()` is a part of the whole; else the first one's, who
    leads, is the whole."""

    reached: int = 0
    """Steps of the whole training that this worker is past, as the loop counts them."""

    came_back: bool = False
    """Whether it came to a training that runs, in the place of a worker that was lost."""

    row: int | None = None
    """Where others keep account of what each worker has used: the row (`ledger.py`) at which this
    one began."""

    moves_to: int | None = None
    """Set by a step that was given up, since the others had taken this worker for lost: the row
    at which it goes on. The loop takes it back to None."""

    keeps_account: ClassVar[bool] = False
    """Whether `rest` gives what lost workers have left; else the loop makes up for it."""

    stood: Mapping[str, Any] = {}
    """What the checkpoint that is being loaded says of where the training stood."""

    applied: int | None = None
    """Where every worker has the whole state: the steps that are in it. One that is lost takes
    nothing with it then that the others have not."""

    merges: ClassVar[bool] = False
    """Whether workers go on by themselves without one that is lost, and at their end bring
    together what each of them has (`account`); so they may form anew wherever each of them is.
    Else at a step that all have made."""

    begins: Position = Position()
    """Where the training stood when this worker began."""

    regroup_wanted: bool = False
    """Set by the loop: somebody was lost, or waits to be let in."""

    @property
    def may_regroup(self) -> bool:
        """Where `merges`: whether this worker may stop here for that, whatever the others do."""
        return self.regroup_wanted

    @property
    def made_without(self) -> int:
        """Steps that the training had made when this worker came back: it does not make them."""
        return 0

    def __init__(self, task: Task, seat: Seat) -> None:
        self.task = task
        self.seat = seat
        self.counters = seat.counters
        self.state_names = list(task.model.state_dict())
        """Of the whole model; taken before anything is cut."""
        self.parameter_names = _names(task)
        """Of what the optimiser steps, in its order."""

    def reads(self, consistency: Consistency) -> None:
        """What the next step reads, for this once. Raises InvalidInput where it is not its to
        choose."""
        raise InvalidInput(
            f"consistency: a step of this strategy reads from no server (found {consistency!r})"
        )

    def step(self, batch: Batch) -> Outcome:
        """One step of this worker with its share of the batch (`content` None: an empty one; it
        takes part in what is exchanged all the same)."""
        raise NotImplementedError

    def rest(self, before: int, *, last: bool) -> list[Share]:
        """Shares of rows before that one which lost workers have left, for this one to take now.
        With `last` it waits for those that others are at work on: they may be lost too."""
        return []

    def account(self) -> dict[int, int]:
        """Where `merges`: of each worker, how many batches since `begins` are in what
        `shared_state` has just found, or `drain` has made. The same on all."""
        raise NotImplementedError

    def merged_state(self) -> dict[str, Any]:
        """Where `merges`, after `drain`: the state as it counts, without a word to anybody."""
        return Runner.shared_state(self) or {}

    def stays(self) -> Position:
        """Where the training stands by that account."""
        return merged(self.begins, self.seat.workers, self.account())

    def stands(self) -> dict[str, Any]:
        """Where the training stands, as `shared_state` has just found it: plain values for its
        checkpoint, in the place of the loop's own."""
        return self.stays().words() if self.merges and self.seat.regroups else {}

    def finish(self) -> None:
        """This worker has no more batches: wait for the others as the strategy asks."""

    def drain(self) -> None:
        """Deliver and apply all that is in flight: the task's model is then final."""

    def assemble(self) -> None:
        """All workers call it at the same step, before worker 0 evaluates: where it holds only a
        part of the model, the others give it theirs."""

    @contextmanager
    def as_it_counts(self) -> Iterator[nn.Module]:
        """The model to evaluate on this worker now (a centre, an average so far), without talking
        to anybody; the task's own is as before when the block ends."""
        yield self.task.model

    def models(self) -> dict[str, dict[str, Any]]:
        """Where workers train networks of their own: their state_dicts by name, on the CPU."""
        return {}

    def local_state(self) -> dict[str, Any]:
        """What this worker holds beyond model and optimiser: residuals, outer momentum, clocks.
        Tensors and plain values; saved with `torch.save`, one file for each worker."""
        return {}

    def load_local_state(self, state: dict[str, Any]) -> None:
        """The same back. The model and optimiser have been loaded before."""

    def shared_state(self) -> dict[str, Any] | None:
        """Model and optimiser as they count (a server's, a centre), for a checkpoint: tensors
        whole, or `Piece`s of them, by the whole model's names and numbers. All workers call it at
        the same step. Those that have nothing to add may give None."""
        return {
            "model": self.task.model.state_dict(),
            "optimizer": self.task.optimizer.state_dict(),
        }

    def load_shared_state(self, state: Mapping[str, Any]) -> None:
        """The whole state, of which tensors may be read as they are asked for (`Stored`)."""
        self.task.model.load_state_dict(read(state["model"]))
        self.task.optimizer.load_state_dict(read(state["optimizer"]))

    def close(self) -> None:
        """Let go of sockets, threads and groups. Never waits for a peer."""


class Serving:
    """One server. `run` returns when all workers have said that they are done, or raises."""

    def run(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Never waits for a peer."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _names(task: Task) -> list[str]:
    named = {id(each): name for name, each in task.model.named_parameters()}
    stepped = [each for group in task.optimizer.param_groups for each in group["params"]]
    return [named.get(id(each), f"parameter {n}") for n, each in enumerate(stepped)]
