"""Layers of a stage of which each worker of a small group has a slice.

    slices = Slices(post, names, layers)         all of the group; without layers nothing is cut
    slices.cut(stages, task.model, optimizer)    parameters become slices, in their own places
    slices.gathered(state)                       the whole of them; all of the group call it
    with slices.whole(state): …                  the model as it was, for who has the whole

A slice is a plain tensor, so that autograd, the optimiser and the messages of a pipeline know
nothing of it. The group sums in forward behind a layer cut by rows, and in backward before one cut
by columns. So every gradient is what it would be in one process: of a slice its own part, of what
is not cut the whole, alike on all. None is ever summed over the group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from windlass.core.errors import InvalidInput
from windlass.train.comm.torchdist import WorkerGroup, form
from windlass.train.cut.pairs import Layers, cut_of
from windlass.train.cut.stage import Stage
from windlass.train.runners.apart import draw_apart
from windlass.train.runners.post import Post
from windlass.train.runners.replicas import copy_from_first
from windlass.train.runners.slicedlayers import forward_of
from windlass.train.state.pieces import Piece
from windlass.train.state.portion import State
from windlass.train.state.stored import block, shape_of

_ALIKE, _NOISE = 1e-2, 1e-5
"""Sums of a GPU are not the same to the bit; a part of a sum is another number altogether."""


@dataclass
class _Cut:
    names: list[str]
    """In the whole model's `state_dict()`."""
    parameter: nn.Parameter
    dim: int
    size: int

    @property
    def shape(self) -> torch.Size:
        """Of the whole."""
        found = list(self.parameter.shape)
        found[self.dim] *= self.size
        return torch.Size(found)


class Slices:
    def __init__(self, post: Post, names: Sequence[str], layers: Layers) -> None:
        """`names`: those who hold one slice each, in the order of slices. Raises MemberLost."""
        self._post = post
        self.names = list(names)
        self.size = len(self.names)
        self.index = self.names.index(post.seat.name)
        self._layers = layers if self.size > 1 else {}
        self._modules: list[nn.Module] = []
        self._cuts: dict[int, _Cut] = {}
        """By the id of the parameter."""
        self._compared = self.size == 1
        self._group: WorkerGroup | None = None
        if self.size > 1:
            count = f"{post.seat.meeting.scope}slices"
            post.seat.formed[count] += 1
            label = f"slices/{post.seat.formed[count]}/{'-'.join(self.names)}"
            self._group = form(post.seat, self.names, label=label)

    @property
    def group(self) -> WorkerGroup:
        assert self._group is not None, "nothing is cut"
        return self._group

    def begin(self, step: int) -> None:
        if self._group is not None:
            self._group.step = step

    def close(self) -> None:
        if self._group is not None:
            self._group.close()

    def part(self) -> None:
        """At the end of the work: until all have what they were sent."""
        if self._group is not None:
            self._group.part()

    # -- cutting ----------------------------------------------------------------------------

    def cut(
        self, stages: Sequence[Stage], model: nn.Module, optimizer: torch.optim.Optimizer
    ) -> None:
        """The stages' layers, which are on their device, as the first of the group has them."""
        if self._group is None:
            return
        for stage in stages:
            copy_from_first(self.group, stage)
            self._cut_layers(stage)
        self._refuse_uncalled(stages, model)
        for name, value in model.state_dict(keep_vars=True).items():
            if id(value) in self._cuts:
                self._cuts[id(value)].names.append(name)
        for each in self._cuts.values():
            state = optimizer.state.get(each.parameter, {})
            shape = each.parameter.shape
            each.parameter.data = self._piece(each.parameter.detach(), each.dim)
            for key, value in state.items():  # what an optimiser makes before its first step
                if isinstance(value, Tensor) and value.shape == shape:
                    state[key] = self._piece(value, each.dim)

    def _cut_layers(self, stage: Stage) -> None:
        inside = dict(stage.named_modules(remove_duplicate=False))
        apart = [
            inside[name] for name, how in self._layers.items()
            if how == "apart" and name in inside and inside[name] not in self._modules
        ]  # fmt: skip
        draw_apart(apart, self.index)
        self._modules += apart
        for name, how in self._layers.items():
            module = inside.get(name)
            if how == "apart" or not isinstance(module, (nn.Linear, nn.Embedding)):
                continue
            for parameter, dim in cut_of(module, how):
                if id(parameter) not in self._cuts:
                    self._cuts[id(parameter)] = _Cut([], parameter, dim, self.size)
            if module not in self._modules:
                vars(module)["forward"] = forward_of(module, how, self)
                self._modules.append(module)

    def _refuse_uncalled(self, stages: Sequence[Stage], model: nn.Module) -> None:
        mine = {id(each) for stage in stages for each in stage.parameters()}
        direct = {id(each) for stage in stages for each in stage.reads_directly()}
        for name, how in self._layers.items():
            if how == "apart":
                continue
            weight = model.get_submodule(name).weight
            if id(weight) in mine and (id(weight) not in self._cuts or id(weight) in direct):
                raise InvalidInput(
                    f"layers: the model's forward reads the weight of {name} without calling it, "
                    "so it cannot be cut",
                    hint="layers= without it; blocks that call their layers as modules",
                )

    def _piece(self, whole: Tensor, dim: int) -> Tensor:
        """Memory of its own: the whole is let go of."""
        return whole.chunk(self.size, dim)[self.index].clone(memory_format=torch.contiguous_format)

    # -- sums, for the layers ---------------------------------------------------------------

    def sum(self, tensor: Tensor, operation: str, kind: str) -> Tensor:
        found = tensor.detach().clone(memory_format=torch.contiguous_format)
        with self._post.awaiting(self._next, operation, self.group.step):
            self.group.all_reduce(found, kind=kind, operation=operation).wait()
        return found

    @property
    def _next(self) -> str:
        """In a ring, whoever waits ends up at the one that does not."""
        return self.names[(self.index + 1) % self.size]

    def compare(
        self, gradients: Mapping[str, Tensor | None], loss: Tensor | float, count: float
    ) -> None:
        """Once, at the first samples. Raises InvalidInput where the loss, or the gradient of what
        is not cut, is not the same on all: then something between two cuts looked at more than
        its own element, and every step would be wrong."""
        if self._compared or not count:
            return
        self._compared = True
        cut = {name for each in self._cuts.values() for name in each.names}
        of = ["the loss", *(f"the gradient of {name}" for name in gradients if name not in cut)]
        norms = [
            0.0 if each is None else float(each.norm())
            for name, each in gradients.items()
            if name not in cut
        ]
        device = self.group.device if self.group.is_nccl else "cpu"
        mine = torch.tensor([float(loss), *norms], dtype=torch.float64, device=device)
        rows = torch.stack(self._gather(mine, "comparison of slices", "control"))
        apart = (rows - rows[0]).abs().amax(0) - _ALIKE * rows[0].abs()
        unlike = [what for what, by in zip(of, apart.tolist(), strict=True) if by > _NOISE]
        if unlike:
            raise InvalidInput(
                f"layers: {unlike[0]} is not the same on {', '.join(self.names)}, who see the "
                "same samples",
                hint="behind each layer cut by column, before anything that looks at more than "
                "one element, stands one cut by row",
            )

    # -- the whole --------------------------------------------------------------------------

    def gathered(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Of one's part of a `state_dict()`."""
        dims = {name: each.dim for each in self._cuts.values() for name in each.names}
        return {
            name: self._together(value, dims[name]) if name in dims else value
            for name, value in state.items()
        }

    def parts(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Of one's part of a `state_dict()`: what this member adds to a checkpoint. What all of
        the group have alike is the first one's to give."""
        cuts = {name: each for each in self._cuts.values() for name in each.names}
        return {
            name: self._part(value, cuts[name]) if name in cuts else value
            for name, value in state.items()
            if name in cuts or not self.index
        }

    def parts_of_state(self, state: State, kept: Mapping[int, nn.Parameter]) -> State:
        """The same of one's portion of the optimiser, whose parameters are `kept`."""
        found: State = {}
        for number, each in state.items():
            cut = self._cuts.get(id(kept[number]))
            own = {
                key: self._part(value, cut) if cut and _is_by_element(value, cut, key) else value
                for key, value in each.items()
            }
            if self.index:
                own = {key: value for key, value in own.items() if isinstance(value, Piece)}
            if own:
                found[number] = own
        return found

    def _part(self, value: Tensor, cut: _Cut) -> Piece:
        offsets = [0] * value.dim()
        offsets[cut.dim] = self.index * value.shape[cut.dim]
        return Piece(value, tuple(offsets), tuple(cut.shape))

    def pieces(self, saved: Mapping[str, Any]) -> Mapping[str, Any]:
        """Of a whole model's `state_dict()`: with one's own slices in it, read as they are asked
        for, which raises ValueError where it is another model's."""
        cuts = {name: each for each in self._cuts.values() for name in each.names}
        return _Sliced(saved, {name: (each, self.index) for name, each in cuts.items()})

    def pieces_of_state(
        self, saved: Mapping[str, Any], kept: Mapping[int, nn.Parameter]
    ) -> dict[str, Any]:
        """The same of a whole optimiser's."""
        order = [number for group in saved["param_groups"] for number in group["params"]]
        state = dict(saved["state"])
        for number, parameter in kept.items():
            cut = self._cuts.get(id(parameter))
            if cut is None or number >= len(order) or order[number] not in state:
                continue
            whole = state[order[number]]
            state[order[number]] = {
                key: _slice(whole, key, cut, self.index)
                if shape_of(whole, key) == cut.shape
                else whole[key]
                for key in whole
            }
        return {**saved, "state": state}

    @contextmanager
    def whole(self, values: Mapping[str, Tensor]) -> Iterator[None]:
        undo = self.fill(values)
        try:
            yield
        finally:
            undo()

    def fill(self, values: Mapping[str, Tensor]) -> Callable[[], None]:
        """The model's own layers again, with these whole values. What is given back makes them
        slices again."""
        forwards = [(each, vars(each).pop("forward")) for each in self._modules
                    if "forward" in vars(each)]  # fmt: skip
        pieces = [(each.parameter, each.parameter.detach()) for each in self._cuts.values()]
        for each in self._cuts.values():
            device = each.parameter.device
            each.parameter.data = values[each.names[0]].detach().to(device, copy=True)

        def undo() -> None:
            for module, forward in forwards:
                module.forward = forward
            for parameter, piece in pieces:
                parameter.data = piece

        return undo

    def _together(self, piece: Tensor, dim: int) -> Tensor:
        return torch.cat(self._gather(piece.detach(), "gathering the slices", "parameters"), dim)

    def _gather(self, tensor: Tensor, operation: str, kind: str) -> list[Tensor]:
        with self._post.awaiting(self._next, operation, self.group.step):
            found, pending = self.group.all_gather(
                tensor.contiguous(), kind=kind, operation=operation
            )
            pending.wait()
        return found


def _is_by_element(value: Any, cut: _Cut, key: str) -> bool:
    if not isinstance(value, Tensor) or not value.dim():
        return False
    if value.shape != cut.parameter.shape:
        raise InvalidInput(
            f"task.optimizer: its {key!r} is not one number for each element, so it cannot be put "
            "together of slices",
            hint="SGD, Adam and others that work by elements",
        )
    return True


class _Sliced(Mapping[str, Any]):
    """A whole model's values, with slices in the place of those that are cut."""

    def __init__(self, saved: Mapping[str, Any], cuts: Mapping[str, tuple[_Cut, int]]) -> None:
        self._saved = saved
        self._cuts = cuts

    def __getitem__(self, name: str) -> Any:
        if name not in self._cuts:
            return self._saved[name]
        cut, index = self._cuts[name]
        has = shape_of(self._saved, name)
        if has != cut.shape:
            raise ValueError(f"{name}: {tuple(has or ())}, not {tuple(cut.shape)}")
        return _slice(self._saved, name, cut, index)

    def __iter__(self) -> Iterator[str]:
        return iter(self._saved)

    def __len__(self) -> int:
        return len(self._saved)


def _slice(values: Mapping[Any, Any], name: Any, cut: _Cut, index: int) -> Tensor:
    """Memory of its own: the whole is let go of."""
    sizes = list(cut.shape)
    sizes[cut.dim] //= cut.size
    offsets = [0] * len(sizes)
    offsets[cut.dim] = index * sizes[cut.dim]
    return block(values, name, tuple(offsets), tuple(sizes)).clone(
        memory_format=torch.contiguous_format
    )
