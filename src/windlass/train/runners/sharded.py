"""What strategies share whose workers each hold a piece of the model's tensors (FSDP, DTensor)."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from torch import nn

from windlass.train.comm.torchdist import form
from windlass.train.comm.torchdist.sharding import fill, like, part, piece_of, whole
from windlass.train.comm.torchdist.world import World
from windlass.train.data import Batch
from windlass.train.runners.base import Runner
from windlass.train.runners.replicas import copy_from_first
from windlass.train.seat import Seat
from windlass.train.state.pieces import Piece
from windlass.train.state.stored import shape_of
from windlass.train.task import Task


class ShardedRunner(Runner):
    """Worker 0's model is what all begin with; then `_shard` cuts it up. Of a checkpoint each
    writes and reads its own pieces, by the model's own names: it loads at any size and under any
    other strategy."""

    is_spread: ClassVar[bool] = True

    def __init__(self, task: Task, seat: Seat) -> None:
        super().__init__(task, seat)
        self.group = form(seat)
        self._world: World | None = None
        try:
            copy_from_first(self.group, task.model)
            self._plain = copy.deepcopy(task.model).to("meta") if seat.rank == 0 else None
            named = {id(each): name for name, each in task.model.named_parameters()}
            self._world = World(seat, self.group)
            self._shard()
            now = dict(task.model.named_parameters())
            for group in task.optimizer.param_groups:
                group["params"] = [now[named[id(each)]] for each in group["params"]]
        except BaseException:
            self.close()
            raise
        self._assembled: dict[str, Any] | None = None

    @property
    def world(self) -> World:
        assert self._world is not None, "the runner is open"
        return self._world

    def _shard(self) -> None:
        """Make the model's parameters pieces."""
        raise NotImplementedError

    def begin(self, batch: Batch) -> None:
        """A step."""
        self.group.step = batch.cursor.steps
        self._assembled = None
        self.task.optimizer.zero_grad()

    def drain(self) -> None:
        self.assemble()
        self.group.part()

    def close(self) -> None:
        if self._world is not None:
            self._world.close()
            self._world = None
        self.group.close()

    # -- the whole model --------------------------------------------------------------------

    def assemble(self) -> None:
        self._assembled = self._whole_model()

    @contextmanager
    def as_it_counts(self) -> Iterator[nn.Module]:
        if self._plain is None or self._assembled is None:
            yield self.task.model
            return
        self._plain.load_state_dict(self._assembled, assign=True)
        try:
            yield self._plain
        finally:
            self._plain.to("meta")

    def shared_state(self) -> dict[str, Any] | None:
        """This worker's pieces; what all have alike is worker 0's to give."""
        optimizer = self.task.optimizer.state_dict()
        state = {
            number: self._pieces(each)
            for number, each in optimizer["state"].items()
        }  # fmt: skip
        return {
            "model": self._pieces(self.task.model.state_dict()),
            "optimizer": {"state": {n: e for n, e in state.items() if e}}
            | ({"param_groups": optimizer["param_groups"]} if self.seat.rank == 0 else {}),
        }

    def load_shared_state(self, state: Mapping[str, Any]) -> None:
        now, model = self.task.model.state_dict(), state["model"]
        if now.keys() != model.keys():
            other = sorted(now.keys() ^ model.keys())
            raise ValueError(f"it is of another model: {', '.join(other[:5])}")
        for name, there in now.items():
            if there.shape != shape_of(model, name):
                raise ValueError(f"{name}: its shape is another")
        fill((there, piece_of(model, name, there)) for name, there in now.items())
        here = [each for group in self.task.optimizer.param_groups for each in group["params"]]
        numbers = [n for group in state["optimizer"]["param_groups"] for n in group["params"]]
        at = dict(zip(numbers, here, strict=True))
        pieces = {
            number: {name: like(each, name, at[number]) for name in each}
            for number, each in state["optimizer"]["state"].items()
        }
        self.task.optimizer.load_state_dict({**state["optimizer"], "state": pieces})

    def _pieces(self, values: Mapping[str, Any]) -> dict[str, Any]:
        found = {name: part(value) for name, value in values.items()}
        if self.seat.rank == 0:
            return found
        return {name: value for name, value in found.items() if isinstance(value, Piece)}

    def _whole_model(self) -> dict[str, Any]:
        with self.world.guarded("gathering the model"):
            return {name: whole(each) for name, each in self.task.model.state_dict().items()}
