"""Blocks first … last of a model as a module of their own, with the model's own parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import Any, Self

import torch
from torch import Tensor, fx, nn

from windlass.core.errors import InvalidInput
from windlass.train.cut.kerasmodels import hold_instead, modules_of
from windlass.train.cut.packing import is_shaped, pack, unpack
from windlass.train.cut.program import Reach, compiled, on_device


class Stage(nn.Module):
    """Takes what is alive at its entry, gives what is alive at its exit; the last one gives the
    model's output(s), which `Chain.result` puts together. Parameters, buffers and modules are the
    model's own objects, under their names in the model: `state_dict()` has the model's keys."""

    parameter_names: tuple[str, ...]
    """Names in the full model, in the order of `self.parameters()`; of tied ones the first."""

    def __init__(
        self,
        graph: fx.Graph,
        holder: nn.Module,
        *,
        first: int,
        last: int,
        blocks: int,
        name_of: Mapping[int, str],
        aliases: Mapping[str, tuple[str, ...]],
        training_only: bool = False,
        casts: Mapping[str, torch.dtype] | None = None,
    ) -> None:
        super().__init__()
        self.first = first
        self.last = last
        self.is_first = first == 0
        self.is_last = last == blocks - 1
        # The tables are shared rather than the holder registered: names stay the model's.
        for table in ("_modules", "_parameters", "_buffers", "_non_persistent_buffers_set"):
            self.__dict__[table] = holder.__dict__[table]
        self._graph = graph
        self._run = compiled(graph)
        self._reach = Reach(holder, {str(n.target) for n in graph.nodes if n.op == "call_module"})
        self._aliases = aliases
        self._training_only = training_only
        self._casts = dict(casts or {})
        self._writes: bool | None = None  # over its inputs: not known yet
        self.parameter_names = tuple(name_of[id(each)] for each in self.parameters())
        self.training = holder.training

    def forward(self, *values: Any) -> tuple[Any, ...]:
        if self._training_only and not self.training:
            raise InvalidInput(
                "the model's forward asks whether it trains, and was cut as it trains",
                hint="evaluate the whole model",
            )
        if self._casts:
            with ExitStack() as stack:
                for kind, dtype in self._casts.items():
                    stack.enter_context(torch.autocast(kind, dtype))
                found = self._once(values)
        else:
            found = self._once(values)
        where = f"between block {self.last} and block {self.last + 1}"
        return pack(found, where, local=self.is_last)

    def place(self, device: torch.device | str) -> Self:
        """To a device: parameters and buffers stay the same objects where torch allows it (an
        optimiser made before goes on)."""
        device = torch.device(device)
        self.to(device)
        if on_device(self._graph, device):
            self._run = compiled(self._graph)
        return self

    def state(self) -> dict[str, Any]:
        """`state_dict()` under every name that the full model's has for each entry: those of all
        stages together are the full model's."""
        own = self.state_dict()
        return {alias: own[name] for name in own for alias in self._aliases.get(name, (name,))}

    def reads_directly(self) -> list[Any]:
        """What the forward takes out of the model by itself rather than by calling a layer:
        parameters and buffers."""
        found = []
        for node in self._graph.nodes:
            if node.op == "get_attr":
                held: Any = self
                for part in str(node.target).split("."):
                    held = getattr(held, part)
                found.append(held)
        return found

    @property
    def device(self) -> torch.device | None:
        """None of a stage without parameters and buffers: it works where its inputs are."""
        found = next(self.parameters(), next(self.buffers(), None))
        return found.device if found is not None else None

    def _once(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        if self._writes is None and not torch.is_inference_mode_enabled():
            return self._first_time(values)
        return self._computed(_copied(values) if self._writes else values)

    def _first_time(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Whether blocks write over their inputs is only known once they have run. The inputs are
        a caller's, who may need them again, and leaves of a graph, which refuse it: where blocks
        do, they get copies."""
        copies = _copied(values)
        before = [each._version for each in copies if isinstance(each, Tensor)]
        found = self._computed(copies)
        after = [each._version for each in copies if isinstance(each, Tensor)]
        self._writes = before != after
        return found

    def _computed(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        if is_shaped(values):
            return self._run(self._reach, *unpack(values, self._where(values)))
        return self._run(self._reach, *values)

    def _where(self, values: tuple[Any, ...]) -> torch.device | None:
        device = self.device
        if device is None:
            device = next((each.device for each in values if isinstance(each, Tensor)), None)
        return device


def release(
    model: nn.Module, keep: Iterable[Stage], optimizer: torch.optim.Optimizer | None = None
) -> None:
    """Lets go of the model's parameters and buffers that none of the stages has: they go to the
    `meta` device. In the optimiser each stays in its place as a `meta` parameter without a
    gradient, so that its `state_dict()` keeps the full model's numbers."""
    kept = {id(each) for stage in keep for each in (*stage.parameters(), *stage.buffers())}
    instead: dict[int, nn.Parameter] = {}
    gone: list[Tensor] = []  # held until the end: an id must not be given out again meanwhile
    for module in modules_of(model):
        for name, parameter in list(module._parameters.items()):
            if parameter is None or id(parameter) in kept or parameter.is_meta:
                continue
            if id(parameter) not in instead:
                gone.append(parameter)
                wants = parameter.requires_grad
                instead[id(parameter)] = nn.Parameter(parameter.detach().to("meta"), wants)
            setattr(module, name, instead[id(parameter)])  # an LSTM has a list of its own
        for name, buffer in module._buffers.items():
            if buffer is not None and id(buffer) not in kept:
                module._buffers[name] = buffer.to("meta")
    hold_instead(model, instead)
    if optimizer is not None:
        for each in gone:
            optimizer.state.pop(each, None)
        for group in optimizer.param_groups:
            group["params"] = [instead.get(id(one), one) for one in group["params"]]


def _copied(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(each.clone() if isinstance(each, Tensor) else each for each in values)
