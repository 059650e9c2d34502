"""An optimiser of which this worker steps only some parameters: a stage's, a shard's.

    portion = Portion(optimizer, lambda parameter: parameter in mine)
    optimizer.step()                            touches, and keeps state of, those alone
    whole = portion.whole(everybody's states)   as `state_dict()` of the whole optimiser would be

So a checkpoint is the same whoever wrote it, and loads under any other strategy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn

from windlass.train.state.stored import read

State = dict[int, dict[str, Any]]
"""By the parameter's number in the whole optimiser."""


class Portion:
    def __init__(
        self, optimizer: torch.optim.Optimizer, keeps: Callable[[nn.Parameter], bool]
    ) -> None:
        self.optimizer = optimizer
        self._numbers: list[list[int]] = []
        """Of each group: all its parameters' numbers."""
        self._kept: dict[int, nn.Parameter] = {}
        for group in optimizer.param_groups:
            first = sum(map(len, self._numbers))
            numbers = range(first, first + len(group["params"]))
            kept = {n: p for n, p in zip(numbers, group["params"], strict=True) if keeps(p)}
            self._numbers.append(list(numbers))
            self._kept.update(kept)
            group["params"] = list(kept.values())
        mine = set(self._kept.values())
        for other in [each for each in optimizer.state if each not in mine]:
            del optimizer.state[other]

    @property
    def kept(self) -> dict[int, nn.Parameter]:
        """The parameters that are stepped here, by their numbers."""
        return self._kept

    def state(self) -> State:
        """Of the parameters kept."""
        return {
            number: dict(self.optimizer.state[each])
            for number, each in self._kept.items()
            if each in self.optimizer.state
        }

    def whole(self, states: Iterable[State]) -> dict[str, Any]:
        """The whole optimiser's `state_dict()` of everybody's states."""
        together: State = {}
        for each in states:
            together.update(each)
        groups = [
            {**{k: v for k, v in group.items() if k != "params"}, "params": list(numbers)}
            for group, numbers in zip(self.optimizer.param_groups, self._numbers, strict=True)
        ]
        return {"state": dict(sorted(together.items())), "param_groups": groups}

    def load(self, whole: Mapping[str, Any]) -> None:
        """What is kept of a whole optimiser's `state_dict()`. Raises ValueError where it is one of
        other parameters."""
        theirs = [len(each["params"]) for each in whole["param_groups"]]
        if theirs != [len(each) for each in self._numbers]:
            raise ValueError("the loaded optimiser has other groups of parameters")
        # Numbers of a state_dict are its own: its n-th parameter is our n-th.
        order = [number for group in whole["param_groups"] for number in group["params"]]
        groups, state, at = [], {}, 0
        for numbers, group in zip(self._numbers, whole["param_groups"], strict=True):
            here = [number for number in numbers if number in self._kept]
            local = range(at, at + len(here))
            at += len(here)
            groups.append({**group, "params": list(local)})
            for mine, number in zip(local, here, strict=True):
                if order[number] in whole["state"]:
                    state[mine] = whole["state"][order[number]]
        self.optimizer.load_state_dict({"state": read(state), "param_groups": groups})
