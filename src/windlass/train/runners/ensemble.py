"""An ensemble: each worker trains a network of its own, from another seed and in another order of
the data. Nothing is sent.

    run = wt.fit(make, "ensemble", workers=4, epochs=10)
    networks = networks_of(make, run.models)
    probabilities = combine(networks, inputs)                by mean probability, or by vote

Member `i` depends on `i` alone: `fit(make, "ensemble", workers=1, first=i)` gives the same bits as
the worker `i` of a whole ensemble. That is also how one that died is made up for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from windlass.core.errors import InvalidInput
from windlass.train.data import Batch, Cursor, Data
from windlass.train.runners.base import Outcome, Runner
from windlass.train.seat import Seat
from windlass.train.strategy import Strategy
from windlass.train.task import Task


class Ensemble(Strategy):
    """Each worker trains a network of its own, and nothing is sent; their answers are combined.

    `global_batch` is each member's batch. The report's loss is the mean over members; `run.models`
    has them all. A member that dies is missing from the report, and the others go on.
    """

    name: ClassVar[str] = "ensemble"
    on_loss: ClassVar[Literal["abort", "shrink", "rejoin"]] = "shrink"
    not_elastic: ClassVar[str] = (
        "each worker trains a network of its own on all samples, so there is nothing to share out "
        "anew; fit(…, workers=1, first=i) makes up for the i-th"
    )
    first: int = Field(0, ge=0, description="the number of worker 0's member")
    snapshot_every: int = Field(
        0,
        ge=0,
        description="also keep each member as it was every so many steps (0: no); with a learning "
        "rate that falls and rises again, one run gives an ensemble",
    )

    def seed_of(self, seat: Seat) -> int:
        return seat.seed + self.first + seat.rank

    def runner(self, task: Task, seat: Seat) -> Runner:
        return EnsembleRunner(task, seat, self)


class EnsembleRunner(Runner):
    apart = None

    def __init__(self, task: Task, seat: Seat, strategy: Ensemble) -> None:
        super().__init__(task, seat)
        self._number = strategy.first + seat.rank
        self._every = strategy.snapshot_every
        self._snapshots: dict[int, dict[str, Any]] = {}
        task.data = _Own(task.data, task.data.seed + self._number)
        # As the only worker of a training with this seed would have it.
        torch.manual_seed(strategy.seed_of(seat) + 1_000_003)

    def step(self, batch: Batch) -> Outcome:
        if batch.content is None:
            return Outcome(0.0, 0)
        self.task.optimizer.zero_grad(set_to_none=True)
        total, count = self.task.loss_of(batch.content)
        if count:
            total.backward()  # type: ignore[no-untyped-call]  # torch's lacks types
            for each in self.task.model.parameters():
                if each.grad is not None:
                    each.grad.div_(count)
            self.task.optimizer.step()
        done = batch.cursor.steps + 1
        if self._every and done % self._every == 0:
            self._snapshots[done] = self._state()
        return Outcome(total.detach(), count)

    def models(self) -> dict[str, dict[str, Any]]:
        name = f"member {self._number}"
        before = {f"{name} at step {step}": state for step, state in self._snapshots.items()}
        return {name: self._state(), **before}

    def local_state(self) -> dict[str, Any]:
        own = super().shared_state() if self.seat.rank else {}
        return {**(own or {}), "snapshots": self._snapshots} if own or self._snapshots else {}

    def load_local_state(self, state: dict[str, Any]) -> None:
        self._snapshots = state["snapshots"]
        if self.seat.rank:
            super().load_shared_state(state)

    def load_shared_state(self, state: Mapping[str, Any]) -> None:
        if self.seat.rank == 0:  # it is worker 0's and nobody else's
            super().load_shared_state(state)

    def _state(self) -> dict[str, Any]:
        return {
            name: value.detach().to("cpu", copy=True) if isinstance(value, Tensor) else value
            for name, value in self.task.model.state_dict().items()
        }


class _Own(Data):
    """The whole of each batch, in this member's own order."""

    def __init__(self, data: Data, seed: int) -> None:
        self.__dict__.update(data.__dict__)
        self.seed = seed
        self._order = (-1, ())

    def share(self, cursor: Cursor, rank: int, workers: int) -> tuple[int, ...]:
        return super().share(cursor, 0, 1)


def networks_of(
    make: Callable[[], Task], models: Mapping[str, Mapping[str, Any]]
) -> list[nn.Module]:
    """The networks of `run.models`, ready to be asked."""
    found = []
    for state in models.values():
        model = make().model
        model.load_state_dict(state)
        found.append(model.eval())
    return found


def combine(
    models: Sequence[Callable[[Any], Tensor]],
    inputs: Any,
    how: Literal["mean", "vote"] = "mean",
    *,
    outputs: Literal["logits", "probabilities"] = "logits",
) -> Tensor:
    """What the members say together, one row a sample: the mean of their probabilities, or the
    share of the members that vote for each class. `argmax(1)` is the answer."""
    if not models:
        raise InvalidInput("combine: at least one model (found none)")
    if how not in ("mean", "vote"):
        raise InvalidInput(f"how: mean or vote (found {how!r})")
    total: Tensor | None = None
    with torch.no_grad():
        for model in models:
            said = model(inputs)
            if outputs == "logits":
                said = said.softmax(-1)
            if how == "vote":
                said = nn.functional.one_hot(said.argmax(-1), said.shape[-1]).to(said.dtype)
            total = said if total is None else total + said
    assert total is not None
    return total / len(models)
