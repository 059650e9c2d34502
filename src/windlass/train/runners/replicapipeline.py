"""A replica that is a pipeline, whose layers may be cut: a member's part is its stages, or its
slices of them.

    2 places x 2 slices    position 0: stage 0, slice 0; all of stage 0 that is not cut
                           position 1: stage 0, slice 1
                           position 2, 3: the same of stage 1

A tensor-parallel group is a pipeline of one place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from windlass.train.cut.chain import Chain
from windlass.train.cut.pairs import cut_of
from windlass.train.ledger import Share
from windlass.train.runners.flushing import PipelineRunner
from windlass.train.runners.mesh import Spot
from windlass.train.runners.parted import Slice, Table
from windlass.train.runners.parting import Parts, parts_of
from windlass.train.runners.post import Key
from windlass.train.seat import Seat
from windlass.train.task import Task

if TYPE_CHECKING:
    from windlass.train.runners.pipeline import Pipelined


class PipelineReplica(PipelineRunner):
    """One of the pipelines that `strategy` has as replicas; it shares nothing with the others."""

    def __init__(self, task: Task, seat: Seat, strategy: Pipelined, gang: Seat) -> None:
        """`seat` meets the members of the replica, `gang` all."""
        self._gang = gang
        optimized = [one for group in task.optimizer.param_groups for one in group["params"]]
        places = {id(each): n for n, each in enumerate(optimized) if each.requires_grad}
        named = dict(task.model.named_parameters(remove_duplicate=False))
        self._places = {name: places[id(p)] for name, p in named.items() if id(p) in places}
        """The numbers, in the optimiser, of what is trained, by every name."""
        self._cut = _cut_dims(task, strategy)
        self._shapes = {name: each.shape for name, each in named.items()}
        known = set(task.model.state_dict())
        made = {
            name: each for name, each in task.model.named_buffers(remove_duplicate=False)
            if name not in known
        }  # fmt: skip
        self._first_places: dict[str, int] = {}
        self._found: dict[str, Tensor | None] = {}
        self._rounds = 0
        self.count = 0.0
        super().__init__(task, seat, strategy)
        first = seat.rank - seat.rank % self.mesh.per_replica
        self._names = [f"worker {first + n}" for n in range(self.mesh.per_replica)]
        self._position = seat.rank - first
        self.post.members = frozenset(self._names)
        if self._position == 0:
            self._gathering.made = made

    def _parts_of(self, chain: Chain) -> Parts:
        """The same in all replicas."""
        return parts_of(chain, self.task, self._gang, self.strategy, self.stages)

    def _holders(self, chain: Chain) -> dict[str, tuple[int, ...]]:
        """Of this replica alone."""
        found = {}
        for name, ranks in super()._holders(chain).items():
            found[name] = tuple(
                rank for rank in ranks if self.mesh.spot(rank).replica == self.spot.replica
            )
            self._first_places[name] = self.mesh.spot(found[name][0]).place
        return found

    # -- what goes to the servers -----------------------------------------------------------

    def table(self) -> Table:
        found: list[list[Slice]] = [[] for _ in range(self.mesh.per_replica)]
        for name in self._first_places:
            if name in self._places:
                slices = range(self.mesh.slices if name in self._cut else 1)
                for each in slices:
                    found[self._owner(name, each)].append(self._slice(name, each))
        return found

    def _owner(self, name: str, slice_: int) -> int:
        """The position in whose part it is."""
        return self.mesh.rank(Spot(0, self._first_places[name], slice_))

    def _slice(self, name: str, slice_: int) -> Slice:
        if name not in self._cut:
            return Slice(self._places[name])
        dim = self._cut[name]
        size = self._shapes[name][dim] // self.mesh.slices
        return Slice(self._places[name], dim, slice_ * size, (slice_ + 1) * size)

    def _mine(self) -> dict[str, Slice]:
        found = {}
        for name in self.parameters:
            if name in self._places:
                slice_ = self.spot.slice if name in self._cut else 0
                if self._owner(name, slice_) == self._position:
                    found[name] = self._slice(name, slice_)
        return found

    def tensors(self) -> dict[Slice, Tensor]:
        return {each: self.parameters[name].detach() for name, each in self._mine().items()}

    def gradients(self) -> dict[Slice, Tensor | None]:
        return {each: self._found[name] for name, each in self._mine().items()}

    def _apply(self, step: int) -> None:
        """The servers step."""
        self._found = self._gradients()
        count = next(iter(self.works.values())).count
        self.slices.compare(self._found, self._actor.loss, count)
        with self.post.awaiting("", "all-reduce of tied weights", step):
            self.count = self.sharing.sum(self._found, count, step)
        self._steps += 1
        if self.count:
            for work in self.works.values():
                work.statistics.commit()

    def alike(self, step: int | None) -> None:
        """First over the slices of a place, then over the places: each then has it from whoever
        has it of its owner."""
        if self.mesh.slices > 1:
            for alike in self._uncut():
                flat = torch.cat([each.reshape(-1) for each in alike])
                operation = "copying the first slice's parameters"
                with self.post.awaiting("", operation, step):
                    self.slices.group.broadcast(flat.view(torch.uint8), operation=operation).wait()
                pieces = torch.split(flat, [each.numel() for each in alike])
                for each, piece in zip(alike, pieces, strict=True):
                    each.copy_(piece.view(each.shape))
        with self.post.awaiting("", "copying tied weights", step):
            self.sharing.alike()

    def _uncut(self) -> list[list[Tensor]]:
        """What all slices of this place have whole, by type."""
        found: dict[torch.dtype, list[Tensor]] = {}
        for name, each in self.parameters.items():
            if name in self._places and name not in self._cut and each.numel():
                found.setdefault(each.dtype, []).append(each.detach())
        return list(found.values())

    def told(self, ask: Callable[[], list[Share]] | None, who: int, step: int) -> list[Share]:
        self._rounds += 1
        key = Key("gathering", who, step, self._rounds)
        if ask is None:
            parcel = self.post.take(key, self._names[who])
            return [Share(*each) for each in parcel.header["shares"]]
        with self.post.at_work():
            found = ask()
        for name in self._names:
            if name != self.seat.name:
                shares = {"shares": [list(each) for each in found]}
                self.post.give(name, key, (), shares, kind="control")
        self.post.settle("telling what is left", step)
        return found

    # -- the whole model --------------------------------------------------------------------

    def others(self, step: int) -> dict[str, Any] | None:
        self._rounds += 1
        mine = {name: each for name, each in self._state().items() if name not in self._places}
        if self.mesh.slices > 1:
            mine = self.slices.gathered(mine)
        if self._position == 0:
            for place, name in enumerate(self._names[1:], 1):
                parcel = self.post.take(Key("gathering", place, step, self._rounds), name)
                mine.update(zip(parcel.header["names"], parcel.values, strict=True))
            return mine
        given = {} if self.spot.slice else mine  # the first slice speaks for all
        self.post.give(
            self._names[0], Key("gathering", self._position, step, self._rounds),
            list(given.values()), {"names": list(given)}, kind="parameters",
        )  # fmt: skip
        self.post.settle("gathering the model", step)
        return None

    def load(self, state: Mapping[str, Any]) -> None:
        self.load_shared_state(state)
        self.task.optimizer.state.clear()  # the servers have it

    @contextmanager
    def filled(self, state: Mapping[str, Any]) -> Iterator[nn.Module]:
        with ExitStack() as stack:
            stack.enter_context(self.slices.whole(state))
            model = stack.enter_context(self._gathering.filled(state))
            stack.enter_context(self.post.at_work())
            yield model

    def part(self, step: int) -> None:
        self.post.settle("end of the training", step)
        self.sharing.part()
        self.slices.part()


def _cut_dims(task: Task, strategy: Pipelined) -> dict[str, int]:
    """Along which dimension a parameter is cut, by every name of those that are."""
    model, layers = task.model, strategy.cut_layers(task)
    dims: dict[int, int] = {}
    for name, how in layers.items():
        module = model.get_submodule(name)
        if how != "apart" and isinstance(module, (nn.Linear, nn.Embedding)):
            dims.update({id(each): dim for each, dim in cut_of(module, how)})
    return {
        name: dims[id(each)]
        for name, each in model.named_parameters(remove_duplicate=False)
        if id(each) in dims
    }
