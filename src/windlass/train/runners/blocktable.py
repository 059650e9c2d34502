"""The parameters in blocks, each with a step and an optimiser's state of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from windlass.train.policies.curvature import blocks_of
from windlass.train.runners.shard import Recipe

Slot = list[Any]
"""(number of the parameter, name, value); None where a tensor has the value."""


class BlockTable:
    def __init__(self, optimizer: torch.optim.Optimizer, size: int | None, l1: float) -> None:
        """The optimiser's parameters themselves are what is updated."""
        every = [
            (number, each)
            for number, group in enumerate(optimizer.param_groups)
            for each in group["params"]
        ]
        self.parameters = [each for _, each in every if each.requires_grad]
        self.places = [place for place, (_, each) in enumerate(every) if each.requires_grad]
        """Of each its number in the whole optimiser."""
        self.groups = [number for number, each in every if each.requires_grad]
        self.blocks = blocks_of(self.parameters, size)
        self._l1 = l1
        self._recipe = Recipe(optimizer)
        self._begin()

    def _begin(self) -> None:
        self._views = [
            block.of(self.parameters[block.parameter].detach()).requires_grad_()
            for block in self.blocks
        ]
        groups = [self.groups[block.parameter] for block in self.blocks]
        self._numbers = sorted(set(groups))
        self._optimizer = self._recipe.make(self._views, groups)

    def value(self, number: int) -> Tensor:
        """A copy, on the CPU."""
        return self._views[number].detach().to("cpu", copy=True)

    def group_of(self, number: int) -> int:
        return self.groups[self.blocks[number].parameter]

    def update(
        self, found: Sequence[tuple[int, Tensor]], count: float, rates: Sequence[float]
    ) -> dict[int, float]:
        """One step of each of these blocks with its gradient, a sum over `count`; by how much
        each changed."""
        before = {number: self._views[number].detach().clone() for number, _ in found}
        for number, gradient in found:
            self._views[number].grad = gradient.to(self._views[number].device).div(count)
        for group, number in zip(self._optimizer.param_groups, self._numbers, strict=True):
            group["lr"] = rates[number]
        self._optimizer.step()
        changes = {}
        for number, _ in found:
            view = self._views[number]
            view.grad = None
            if self._l1 and self.parameters[self.blocks[number].parameter].dim() > 1:
                by = rates[self.group_of(number)] * self._l1
                with torch.no_grad():  # the proximal step
                    view.copy_(view.sign() * (view.abs() - by).clamp_min(0.0))
            changes[number] = float((view.detach() - before[number]).norm())
        return changes

    # -- state ------------------------------------------------------------------------------

    def state(self) -> tuple[list[Slot], list[Tensor], list[float]]:
        """What the optimiser keeps, whole, by the parameters' numbers in it; and how many steps
        each block has made, since of a whole parameter only the most can be told."""
        found: dict[int, dict[str, Any]] = {}
        steps: list[float] = []
        for number, (block, view) in enumerate(zip(self.blocks, self._views, strict=True)):
            kept = self._optimizer.state.get(view, {})
            for name, value in kept.items():
                self._gather(found.setdefault(block.parameter, {}), name, value, number)
            steps.append(float(kept["step"]) if "step" in kept else 0.0)
        slots: list[Slot] = []
        tensors: list[Tensor] = []
        for parameter, state in sorted(found.items()):
            for name, value in state.items():
                is_tensor = isinstance(value, Tensor)
                slots.append([self.places[parameter], name, None if is_tensor else value])
                tensors += [value] if is_tensor else []
        return slots, tensors, steps

    def _gather(self, state: dict[str, Any], name: str, value: Any, number: int) -> None:
        block, view = self.blocks[number], self._views[number]
        if isinstance(value, Tensor) and value.shape == view.shape and name != "step":
            if name not in state:
                state[name] = torch.zeros_like(self.parameters[block.parameter]).cpu()
            block.of(state[name]).copy_(value)
        elif isinstance(value, Tensor):
            before = state.get(name)
            state[name] = value.clone() if before is None else torch.maximum(before, value)
        elif value is not None:
            state[name] = value

    def load(
        self,
        values: Sequence[Tensor],
        states: Mapping[int, Mapping[str, Any]],
        steps: Sequence[float | None],
    ) -> None:
        """`states` by the parameters' places among those that are trained. `steps` of each block,
        None: as the parameter's; 0: it was never updated, and has no state."""
        with torch.no_grad():
            for mine, value in zip(self.parameters, values, strict=True):
                mine.copy_(value)
        self._begin()
        for block, view, made in zip(self.blocks, self._views, steps, strict=True):
            if made == 0:
                continue
            whole = self.parameters[block.parameter].shape
            for name, value in states.get(block.parameter, {}).items():
                if isinstance(value, Tensor) and value.shape == whole and name != "step":
                    value = block.of(value.contiguous()).clone().to(view.device)
                elif isinstance(value, Tensor):
                    value = value.clone()
                    if name == "step" and made is not None:
                        value.fill_(made)
                self._optimizer.state[view][name] = value
